//! The typed document that crosses a scope boundary. Nothing else crosses.
//!
//! A handover has a schema, knows which calls it came from and how it came about. This module checks documents against
//! their schema and says when to ask for a repair and when to build one; it writes no words of its own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{CallId, HandoverId, HandoverKind, UnixMillis};
use crate::limits::HANDOVER_REPAIRS_MAX;

/// What a kind of handover must hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoverSpec {
    /// Its kind.
    pub kind: HandoverKind,
    /// Its fields, in the order they are shown.
    pub fields: Vec<HandoverFieldSpec>,
    /// How often a broken or missing one is asked for again, privately; at most [`REPAIRS_MAX`].
    pub repairs_max: u32,
}

/// One field of a handover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoverFieldSpec {
    /// Its key.
    pub name: String,
    /// One text or several.
    pub field_type: HandoverFieldType,
    /// Whether a document without it is broken.
    pub presence: HandoverFieldPresence,
}

/// The form of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandoverFieldType {
    /// One text.
    Text,
    /// A list of texts.
    List,
}

/// Whether a field may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandoverFieldPresence {
    /// A document without it is broken.
    Required,
    /// It may be absent.
    Optional,
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum HandoverFieldValue {
    /// One text.
    Text(String),
    /// A list of texts.
    List(Vec<String>),
}

impl HandoverFieldValue {
    /// Whether there is nothing in it.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.trim().is_empty(),
            Self::List(items) => items.iter().all(|item| item.trim().is_empty()),
        }
    }
}

/// The fields of a handover.
pub type HandoverDocument = BTreeMap<String, HandoverFieldValue>;

/// A handover as it stands in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    /// Its number.
    pub id: HandoverId,
    /// Its kind.
    pub kind: HandoverKind,
    /// What it says.
    pub document: HandoverDocument,
    /// The calls it came from.
    pub source_calls: Vec<CallId>,
    /// How it came about.
    pub provenance: HandoverProvenance,
    /// What was wrong with it and let pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub complaints: Vec<String>,
    /// When it was made.
    #[serde(default)]
    pub created_at: UnixMillis,
}

impl Handover {
    /// The text of a field, or nothing.
    #[must_use]
    pub fn text_field(&self, name: &str) -> Option<&str> {
        match self.document.get(name)? {
            HandoverFieldValue::Text(text) if !text.trim().is_empty() => Some(text),
            HandoverFieldValue::Text(_) => None,
            HandoverFieldValue::List(items) => items.first().map(String::as_str),
        }
    }

    /// The items of a field; none if it is absent.
    #[must_use]
    pub fn list_field(&self, name: &str) -> &[String] {
        match self.document.get(name) {
            Some(HandoverFieldValue::List(items)) => items,
            Some(HandoverFieldValue::Text(text)) => std::slice::from_ref(text),
            None => &[],
        }
    }
}

/// How a handover came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandoverProvenance {
    /// The model wrote it unasked.
    Emitted,
    /// The model wrote it when asked again.
    Repaired,
    /// Code built it from the exchange, since the model did not.
    Built,
}

/// Checks a document against its schema: unknown fields go, forms are fitted, each with a complaint.
/// The second list names required fields that are missing.
#[must_use]
pub fn check_handover(schema: &HandoverSpec, document: HandoverDocument) -> CheckedHandover {
    let mut checked = CheckedHandover::default();
    let mut rest = document;
    for spec in &schema.fields {
        let field = rest.remove(&spec.name).filter(|field| !field.is_empty());
        let field = match (spec.field_type, field) {
            (_, None) => {
                if spec.presence == HandoverFieldPresence::Required {
                    checked.missing_fields.push(spec.name.clone());
                }
                continue;
            }
            (HandoverFieldType::Text, Some(HandoverFieldValue::List(items))) => {
                checked.complaints.push(format!("`{}` is a list where one text was expected; joined", spec.name));
                HandoverFieldValue::Text(items.join("; "))
            }
            (HandoverFieldType::List, Some(HandoverFieldValue::Text(text))) => {
                checked
                    .complaints
                    .push(format!("`{}` is one text where a list was expected; taken as its one item", spec.name));
                HandoverFieldValue::List(vec![text])
            }
            (_, Some(field)) => field,
        };
        checked.document.insert(spec.name.clone(), field);
    }
    checked
        .complaints
        .extend(rest.keys().map(|name| format!("`{name}` is not a field of `{}`; left out", schema.kind)));
    checked
}

/// What [`check`] found.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CheckedHandover {
    /// The document, fitted to its schema.
    pub document: HandoverDocument,
    /// What was wrong and could be mended or let pass.
    pub complaints: Vec<String>,
    /// Required fields that are not there.
    pub missing_fields: Vec<String>,
}

/// What to do about a handover that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandoverDecision {
    /// It is good: make it.
    Accept(CheckedHandover, HandoverProvenance),
    /// Ask for it again, privately; the `missing` ones are to be named.
    RequestRepair {
        /// What was missing; empty if nothing came at all.
        missing_fields: Vec<String>,
    },
    /// Asked often enough: build it from the exchange, keeping what was understood.
    Synthesize(CheckedHandover),
}

/// The bounded repair loop: `asked` is how often this one was asked for already.
#[must_use]
pub fn decide_handover(
    schema: &HandoverSpec,
    found: Option<HandoverDocument>,
    repairs_requested: u32,
) -> HandoverDecision {
    let came = found.is_some();
    let checked = check_handover(schema, found.unwrap_or_default());
    if came && checked.missing_fields.is_empty() {
        let how = if repairs_requested == 0 { HandoverProvenance::Emitted } else { HandoverProvenance::Repaired };
        return HandoverDecision::Accept(checked, how);
    }
    if repairs_requested < schema.repairs_max.min(HANDOVER_REPAIRS_MAX) {
        return HandoverDecision::RequestRepair { missing_fields: checked.missing_fields };
    }
    HandoverDecision::Synthesize(checked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> HandoverSpec {
        let field = |name: &str, form, need| HandoverFieldSpec { name: name.into(), field_type: form, presence: need };
        HandoverSpec {
            kind: "intent".into(),
            fields: vec![
                field("goal", HandoverFieldType::Text, HandoverFieldPresence::Required),
                field("constraints", HandoverFieldType::List, HandoverFieldPresence::Optional),
            ],
            repairs_max: 1,
        }
    }

    fn document(fields: &[(&str, HandoverFieldValue)]) -> HandoverDocument {
        fields.iter().map(|(name, field)| ((*name).to_owned(), field.clone())).collect()
    }

    #[test]
    fn a_good_document_is_made_at_once_and_a_broken_one_is_asked_for_then_built() {
        let good = document(&[("goal", HandoverFieldValue::Text("ship".into()))]);
        assert!(matches!(
            decide_handover(&schema(), Some(good.clone()), 0),
            HandoverDecision::Accept(_, HandoverProvenance::Emitted)
        ));
        assert!(matches!(
            decide_handover(&schema(), Some(good), 1),
            HandoverDecision::Accept(_, HandoverProvenance::Repaired)
        ));
        assert_eq!(
            decide_handover(&schema(), Some(HandoverDocument::new()), 0),
            HandoverDecision::RequestRepair { missing_fields: vec!["goal".into()] }
        );
        assert!(matches!(decide_handover(&schema(), None, 1), HandoverDecision::Synthesize(_)));
    }

    #[test]
    fn forms_are_fitted_with_a_complaint() {
        let odd = document(&[
            ("goal", HandoverFieldValue::List(vec!["a".into(), "b".into()])),
            ("constraints", HandoverFieldValue::Text("time".into())),
            ("mood", HandoverFieldValue::Text("fine".into())),
        ]);
        let checked = check_handover(&schema(), odd);
        assert_eq!(checked.document["goal"], HandoverFieldValue::Text("a; b".into()));
        assert_eq!(checked.document["constraints"], HandoverFieldValue::List(vec!["time".into()]));
        assert_eq!(checked.complaints.len(), 3);
    }
}
