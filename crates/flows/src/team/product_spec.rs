//! The spec: what the user wants built. The product manager fills it in by asking; it can also come from a setting.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::limits::{PRODUCT_SPEC_ITEMS_MAX, PRODUCT_SPEC_TEXT_CHARS_MAX};

/// What the user wants built.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ProductSpec {
    pub title: String,
    /// What is better afterwards, and for whom.
    pub goal: String,
    pub requirements: Vec<String>,
    /// How to tell that the whole is done.
    pub acceptance: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub constraints: Vec<String>,
}

/// A field that a spec cannot do without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequiredSpecField {
    Title,
    Goal,
    Requirements,
    Acceptance,
}

impl RequiredSpecField {
    /// Returns the question that code asks for the field.
    #[must_use]
    pub fn question(self) -> &'static str {
        match self {
            Self::Title => "What shall the work be called, in a few words?",
            Self::Goal => "What should be better afterwards, and for whom?",
            Self::Requirements => "What exactly shall be built? List the requirements.",
            Self::Acceptance => "How will you tell that it is done? List what you will check.",
        }
    }
}

impl ProductSpec {
    /// Reads a spec from JSON. Unknown fields are ignored, and too long texts are cut.
    #[must_use]
    pub fn from_value(value: &Value) -> Self {
        let cut = |text: &str| text.trim().chars().take(PRODUCT_SPEC_TEXT_CHARS_MAX).collect::<String>();
        let text = |name: &str| cut(value.get(name).and_then(Value::as_str).unwrap_or_default());
        let list = |name: &str| -> Vec<String> {
            match value.get(name) {
                Some(Value::Array(items)) => items.iter().filter_map(Value::as_str).map(cut).collect(),
                // A text is a list with one item for each line.
                Some(Value::String(text)) => {
                    text.lines().map(|line| cut(line.trim_start_matches(['-', '*', ' ']))).collect()
                }
                _ => Vec::new(),
            }
            .into_iter()
            .filter(|item: &String| !item.is_empty())
            .take(PRODUCT_SPEC_ITEMS_MAX)
            .collect()
        };
        Self {
            title: text("title"),
            goal: text("goal"),
            requirements: list("requirements"),
            acceptance: list("acceptance"),
            constraints: list("constraints"),
        }
    }

    /// Returns the fields that are still missing, in the order in which they are asked for.
    #[must_use]
    pub fn missing_fields(&self) -> Vec<RequiredSpecField> {
        let fields = [
            (RequiredSpecField::Title, self.title.is_empty()),
            (RequiredSpecField::Goal, self.goal.is_empty()),
            (RequiredSpecField::Requirements, self.requirements.is_empty()),
            (RequiredSpecField::Acceptance, self.acceptance.is_empty()),
        ];
        fields.into_iter().filter(|(_, is_missing)| *is_missing).map(|(field, _)| field).collect()
    }

    /// Fills in what `newer` says. What it does not mention stays.
    pub fn merge_newer(&mut self, newer: Self) {
        let replace = |field: &mut Vec<String>, newer: Vec<String>| {
            if !newer.is_empty() {
                *field = newer;
            }
        };
        if !newer.title.is_empty() {
            self.title = newer.title;
        }
        if !newer.goal.is_empty() {
            self.goal = newer.goal;
        }
        replace(&mut self.requirements, newer.requirements);
        replace(&mut self.acceptance, newer.acceptance);
        replace(&mut self.constraints, newer.constraints);
    }

    /// Returns a name for branches: letters, digits and hyphens.
    #[must_use]
    pub fn branch_name(&self) -> String {
        let words = self.title.split(|letter: char| !letter.is_ascii_alphanumeric()).filter(|word| !word.is_empty());
        let name = words.take(6).map(str::to_lowercase).collect::<Vec<_>>().join("-");
        let name: String = name.chars().take(48).collect();
        if name.is_empty() { "spec".to_owned() } else { name.trim_end_matches('-').to_owned() }
    }
}
