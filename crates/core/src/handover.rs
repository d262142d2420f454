//! The typed document that crosses a scope boundary. Nothing else crosses.
//!
//! A handover has a schema, knows which calls it came from and how it came about. This module checks documents against
//! their schema and says when to ask for a repair and when to build one; it writes no words of its own.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::ids::{CallId, HandoverId, HandoverKind, Millis};
use crate::limits::REPAIRS_MAX;

/// What a kind of handover must hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Schema {
    /// Its kind.
    pub kind: HandoverKind,
    /// Its fields, in the order they are shown.
    pub fields: Vec<FieldSpec>,
    /// How often a broken or missing one is asked for again, privately; at most [`REPAIRS_MAX`].
    pub repairs_max: u32,
}

/// One field of a handover.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldSpec {
    /// Its key.
    pub name: String,
    /// One text or several.
    pub form: Form,
    /// Whether a document without it is broken.
    pub need: Need,
}

/// The form of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// One text.
    Text,
    /// A list of texts.
    List,
}

/// Whether a field may be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Need {
    /// A document without it is broken.
    Required,
    /// It may be absent.
    Optional,
}

/// The value of a field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Field {
    /// One text.
    Text(String),
    /// A list of texts.
    List(Vec<String>),
}

impl Field {
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
pub type Document = BTreeMap<String, Field>;

/// A handover as it stands in the journal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Handover {
    /// Its number.
    pub id: HandoverId,
    /// Its kind.
    pub kind: HandoverKind,
    /// What it says.
    pub document: Document,
    /// The calls it came from.
    pub calls: Vec<CallId>,
    /// How it came about.
    pub how: Provenance,
    /// What was wrong with it and let pass.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub complaints: Vec<String>,
    /// When it was made.
    #[serde(default)]
    pub at: Millis,
}

impl Handover {
    /// The text of a field, or nothing.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        match self.document.get(name)? {
            Field::Text(text) if !text.trim().is_empty() => Some(text),
            Field::Text(_) => None,
            Field::List(items) => items.first().map(String::as_str),
        }
    }

    /// The items of a field; none if it is absent.
    #[must_use]
    pub fn list(&self, name: &str) -> &[String] {
        match self.document.get(name) {
            Some(Field::List(items)) => items,
            Some(Field::Text(text)) => std::slice::from_ref(text),
            None => &[],
        }
    }
}

/// How a handover came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Provenance {
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
pub fn check(schema: &Schema, document: Document) -> Checked {
    let mut checked = Checked::default();
    let mut rest = document;
    for spec in &schema.fields {
        let field = rest.remove(&spec.name).filter(|field| !field.is_empty());
        let field = match (spec.form, field) {
            (_, None) => {
                if spec.need == Need::Required {
                    checked.missing.push(spec.name.clone());
                }
                continue;
            }
            (Form::Text, Some(Field::List(items))) => {
                checked.complaints.push(format!("`{}` is a list where one text was expected; joined", spec.name));
                Field::Text(items.join("; "))
            }
            (Form::List, Some(Field::Text(text))) => {
                checked
                    .complaints
                    .push(format!("`{}` is one text where a list was expected; taken as its one item", spec.name));
                Field::List(vec![text])
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
pub struct Checked {
    /// The document, fitted to its schema.
    pub document: Document,
    /// What was wrong and could be mended or let pass.
    pub complaints: Vec<String>,
    /// Required fields that are not there.
    pub missing: Vec<String>,
}

/// What to do about a handover that is due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// It is good: make it.
    Make(Checked, Provenance),
    /// Ask for it again, privately; the `missing` ones are to be named.
    Ask {
        /// What was missing; empty if nothing came at all.
        missing: Vec<String>,
    },
    /// Asked often enough: build it from the exchange, keeping what was understood.
    Build(Checked),
}

/// The bounded repair loop: `asked` is how often this one was asked for already.
#[must_use]
pub fn settle(schema: &Schema, found: Option<Document>, asked: u32) -> Settlement {
    let came = found.is_some();
    let checked = check(schema, found.unwrap_or_default());
    if came && checked.missing.is_empty() {
        let how = if asked == 0 { Provenance::Emitted } else { Provenance::Repaired };
        return Settlement::Make(checked, how);
    }
    if asked < schema.repairs_max.min(REPAIRS_MAX) {
        return Settlement::Ask { missing: checked.missing };
    }
    Settlement::Build(checked)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn schema() -> Schema {
        let field = |name: &str, form, need| FieldSpec { name: name.into(), form, need };
        Schema {
            kind: "intent".into(),
            fields: vec![field("goal", Form::Text, Need::Required), field("constraints", Form::List, Need::Optional)],
            repairs_max: 1,
        }
    }

    fn document(fields: &[(&str, Field)]) -> Document {
        fields.iter().map(|(name, field)| ((*name).to_owned(), field.clone())).collect()
    }

    #[test]
    fn a_good_document_is_made_at_once_and_a_broken_one_is_asked_for_then_built() {
        let good = document(&[("goal", Field::Text("ship".into()))]);
        assert!(matches!(settle(&schema(), Some(good.clone()), 0), Settlement::Make(_, Provenance::Emitted)));
        assert!(matches!(settle(&schema(), Some(good), 1), Settlement::Make(_, Provenance::Repaired)));
        assert_eq!(settle(&schema(), Some(Document::new()), 0), Settlement::Ask { missing: vec!["goal".into()] });
        assert!(matches!(settle(&schema(), None, 1), Settlement::Build(_)));
    }

    #[test]
    fn forms_are_fitted_with_a_complaint() {
        let odd = document(&[
            ("goal", Field::List(vec!["a".into(), "b".into()])),
            ("constraints", Field::Text("time".into())),
            ("mood", Field::Text("fine".into())),
        ]);
        let checked = check(&schema(), odd);
        assert_eq!(checked.document["goal"], Field::Text("a; b".into()));
        assert_eq!(checked.document["constraints"], Field::List(vec!["time".into()]));
        assert_eq!(checked.complaints.len(), 3);
    }
}
