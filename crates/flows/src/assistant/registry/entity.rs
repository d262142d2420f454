//! One known record or draft: its tier, and which of its fields are loaded.

use segue_core::body::TextRef;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::limits::REFERENCE_ACTIVE_TURNS;

/// A record or draft that the conversation knows.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KnownRecordOrDraft {
    pub kind: String,
    #[serde(default)]
    pub label: String,
    /// The id of the stored record; `None` for a draft that was never saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    #[serde(default)]
    pub last_action: LastEntityAction,
    #[serde(default)]
    pub created_turn: u32,
    #[serde(default)]
    pub referenced_turn: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retained_reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demoted_reason: Option<String>,
    /// Whether it was dropped from the conversation or deleted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub dropped: bool,
    #[serde(default)]
    pub detail: RecordLoadLevel,
    /// Where the loaded fields are.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<LoadedRecordSource>,
}

fn is_false(value: &bool) -> bool {
    !*value
}

/// What last happened to an entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LastEntityAction {
    Read,
    Created,
    Updated,
    Deleted,
    /// A model wrote it as a draft.
    Generated,
    /// A written record links to it.
    Linked,
    /// It was only mentioned.
    #[default]
    Mentioned,
}

impl LastEntityAction {
    /// Returns the name used in prompts and in the journal.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Created => "created",
            Self::Updated => "updated",
            Self::Deleted => "deleted",
            Self::Generated => "generated",
            Self::Linked => "linked",
            Self::Mentioned => "mentioned",
        }
    }
}

/// Which fields of a record are loaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordLoadLevel {
    /// Only the label.
    #[default]
    None,
    /// The summary fields.
    Summary,
    Full,
}

impl RecordLoadLevel {
    /// Returns the name used in prompts and in the journal.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Summary => "summary",
            Self::Full => "full",
        }
    }
}

/// Where the loaded fields of a record are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoadedRecordSource {
    /// In a row of a tool result.
    ToolResultRow { text: TextRef, row_index: usize },
    /// Here, as the content of a draft.
    Draft(Map<String, Value>),
}

/// How relevant an entity is to the current turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntityRelevanceTier {
    /// Referenced recently.
    Active,
    Draft,
    /// Older, but retained for a reason.
    Retained,
    /// Ruled out until it is referenced again.
    Demoted,
    /// Older, without a reason to retain it.
    Known,
    Dropped,
}

impl EntityRelevanceTier {
    /// Returns the name used in prompts and in the journal.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Draft => "draft",
            Self::Retained => "retained",
            Self::Demoted => "demoted",
            Self::Known => "known",
            Self::Dropped => "dropped",
        }
    }

    /// Returns whether prompts show the entity as something to work with.
    #[must_use]
    pub fn is_relevant(self) -> bool {
        matches!(self, Self::Active | Self::Draft | Self::Retained)
    }
}

impl KnownRecordOrDraft {
    /// Returns the tier in a turn. A demoted entity stays demoted even if it is recent.
    #[must_use]
    pub fn relevance_tier(&self, turn: u32) -> EntityRelevanceTier {
        match self {
            Self { dropped: true, .. } => EntityRelevanceTier::Dropped,
            Self { demoted_reason: Some(_), .. } => EntityRelevanceTier::Demoted,
            Self { id: None, .. } => EntityRelevanceTier::Draft,
            Self { referenced_turn, .. } if turn.saturating_sub(*referenced_turn) <= REFERENCE_ACTIVE_TURNS => {
                EntityRelevanceTier::Active
            }
            Self { retained_reason: Some(_), .. } => EntityRelevanceTier::Retained,
            _ => EntityRelevanceTier::Known,
        }
    }

    /// Returns whether the record is stored.
    #[must_use]
    pub fn is_saved(&self) -> bool {
        self.id.is_some()
    }
}

/// A record of a tool result, with its reference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordWithReferenceName {
    #[serde(rename = "ref")]
    pub reference: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub id: String,
    pub label: String,
    #[serde(default)]
    pub detail: RecordLoadLevel,
    /// The index of its row in the result; `None` if it was only linked to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_index: Option<usize>,
}

/// A draft with its reference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordDraft {
    #[serde(rename = "ref")]
    pub reference: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub label: String,
    /// The fields; links are references.
    pub content: Map<String, Value>,
}

impl KnownRecordOrDraft {
    pub(super) fn new(kind: &str, turn: u32) -> Self {
        Self {
            kind: kind.to_owned(),
            label: String::new(),
            id: None,
            last_action: LastEntityAction::default(),
            created_turn: turn,
            referenced_turn: turn,
            retained_reason: None,
            demoted_reason: None,
            dropped: false,
            detail: RecordLoadLevel::None,
            source: None,
        }
    }

    /// Points to a new row, unless that has fewer fields than the loaded one.
    pub(super) fn update_source_row(&mut self, record: &RecordWithReferenceName, text: TextRef) {
        let Some(row_index) = record.row_index else { return };
        let was_draft = matches!(self.source, Some(LoadedRecordSource::Draft(_)));
        if record.detail >= self.detail || was_draft || self.source.is_none() {
            self.detail = record.detail;
            self.source = Some(LoadedRecordSource::ToolResultRow { text, row_index });
        }
    }

    pub(super) fn unload(&mut self) {
        self.detail = RecordLoadLevel::None;
        self.source = None;
    }
}
