//! Handovers: typed documents that carry information across a scope boundary. Nothing else crosses.
//!
//! This module checks documents against their schema and decides whether to accept one, ask the model for a repair, or
//! let the flow build one. It contains no texts for models.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::event::{PhaseGraphKey, PhaseStateOwner};
use crate::ids::{CallId, HandoverId, HandoverKind, UnixMillis};
use crate::limits::HANDOVER_REPAIRS_MAX;

/// The schema of a kind of handover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoverSpec {
    pub kind: HandoverKind,
    /// The fields, in the order in which they are shown.
    pub fields: Vec<HandoverFieldSpec>,
    /// How often the model is privately asked to repair a broken or missing document; at most `HANDOVER_REPAIRS_MAX`.
    pub repairs_max: u32,
}

/// A field of a handover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HandoverFieldSpec {
    pub name: String,
    pub field_type: HandoverFieldType,
    pub presence: HandoverFieldPresence,
}

/// The type of a field.
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
    /// A document without the field is broken.
    Required,
    /// The field may be absent.
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
    /// Returns true if the value has only whitespace.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Text(text) => text.trim().is_empty(),
            Self::List(items) => items.iter().all(|item| item.trim().is_empty()),
        }
    }
}

/// The fields of a handover, by name.
pub type HandoverDocument = BTreeMap<String, HandoverFieldValue>;

/// A recorded handover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    pub id: HandoverId,
    pub kind: HandoverKind,
    pub document: HandoverDocument,
    /// The phase graph of the role or agent that made it, if it has one of its own. Only guards of that graph see the
    /// handover. `None` for a handover that the guards of the session's graphs see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owned_graph: Option<PhaseGraphKey>,
    /// The calls that produced it.
    pub source_calls: Vec<CallId>,
    pub provenance: HandoverProvenance,
    /// Problems that were corrected or accepted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub complaints: Vec<String>,
    #[serde(default)]
    pub created_at: UnixMillis,
}

impl Handover {
    /// Returns true if the guards of a phase graph see the handover.
    #[must_use]
    pub(crate) fn is_visible_in(&self, graph: &PhaseGraphKey) -> bool {
        self.owned_graph.as_ref().map_or(graph.owner == PhaseStateOwner::Session, |owned| owned == graph)
    }

    /// Returns the text of a field, or the first item of a list.
    #[must_use]
    pub fn text_field(&self, name: &str) -> Option<&str> {
        match self.document.get(name)? {
            HandoverFieldValue::Text(text) if !text.trim().is_empty() => Some(text),
            HandoverFieldValue::Text(_) => None,
            HandoverFieldValue::List(items) => items.first().map(String::as_str),
        }
    }

    /// Returns the items of a field; empty if it is absent.
    #[must_use]
    pub fn list_field(&self, name: &str) -> &[String] {
        match self.document.get(name) {
            Some(HandoverFieldValue::List(items)) => items,
            Some(HandoverFieldValue::Text(text)) => std::slice::from_ref(text),
            None => &[],
        }
    }
}

/// How a handover was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HandoverProvenance {
    /// The model wrote it without being asked again.
    Emitted,
    /// The model wrote it after a repair request.
    Repaired,
    /// The flow built it, because the model did not provide one.
    Built,
}

/// Checks a document against its schema. Removes unknown fields and converts values to the expected type, each with a
/// complaint, and lists the required fields that are missing.
#[must_use]
pub(crate) fn check_handover(schema: &HandoverSpec, document: HandoverDocument) -> HandoverCheckResult {
    let mut checked = HandoverCheckResult::default();
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
                    .push(format!("`{}` is one text where a list was expected; used as its only item", spec.name));
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

/// The result of [`check_handover`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct HandoverCheckResult {
    /// The document, adapted to its schema.
    pub(crate) document: HandoverDocument,
    /// Problems that were corrected.
    pub(crate) complaints: Vec<String>,
    pub(crate) missing_fields: Vec<String>,
}

/// What to do about an expected handover.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HandoverAcceptanceDecision {
    /// The document, adapted to its schema, is complete and can be recorded.
    Accept(HandoverDocument, HandoverProvenance),
    /// The model should be asked for a repair.
    RequestRepair {
        /// The missing fields; empty if there was no document.
        missing_fields: Vec<String>,
    },
    /// The repair limit is reached; the flow builds the handover from the valid fields.
    Synthesize(HandoverDocument),
}

/// Decides about a handover after `repairs_requested` repair requests.
#[must_use]
pub fn decide_handover(
    schema: &HandoverSpec,
    found: Option<HandoverDocument>,
    repairs_requested: u32,
) -> HandoverAcceptanceDecision {
    let was_found = found.is_some();
    let checked = check_handover(schema, found.unwrap_or_default());
    if was_found && checked.missing_fields.is_empty() {
        let provenance =
            if repairs_requested == 0 { HandoverProvenance::Emitted } else { HandoverProvenance::Repaired };
        return HandoverAcceptanceDecision::Accept(checked.document, provenance);
    }
    if repairs_requested < schema.repairs_max.min(HANDOVER_REPAIRS_MAX) {
        return HandoverAcceptanceDecision::RequestRepair { missing_fields: checked.missing_fields };
    }
    HandoverAcceptanceDecision::Synthesize(checked.document)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> HandoverSpec {
        let field = |name: &str, field_type, presence| HandoverFieldSpec { name: name.into(), field_type, presence };
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
    fn complete_document_is_accepted_and_a_broken_one_is_repaired_then_built() {
        let good = document(&[("goal", HandoverFieldValue::Text("ship".into()))]);
        assert!(matches!(
            decide_handover(&schema(), Some(good.clone()), 0),
            HandoverAcceptanceDecision::Accept(_, HandoverProvenance::Emitted)
        ));
        assert!(matches!(
            decide_handover(&schema(), Some(good), 1),
            HandoverAcceptanceDecision::Accept(_, HandoverProvenance::Repaired)
        ));
        assert_eq!(
            decide_handover(&schema(), Some(HandoverDocument::new()), 0),
            HandoverAcceptanceDecision::RequestRepair { missing_fields: vec!["goal".into()] }
        );
        assert!(matches!(decide_handover(&schema(), None, 1), HandoverAcceptanceDecision::Synthesize(_)));
    }

    #[test]
    fn types_are_converted_with_a_complaint() {
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
