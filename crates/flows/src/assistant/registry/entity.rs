//! What a reference stands for, how near it is, and what of it is at hand.

use segue_core::body::TextRef;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::limits::REFERENCE_ACTIVE_TURNS;

/// What a reference stands for.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Entity {
    /// Its type.
    pub kind: String,
    /// What people call it.
    #[serde(default)]
    pub label: String,
    /// Its real id; nothing for a draft that was never saved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// What last happened to it.
    #[serde(default)]
    pub last_action: EntityAction,
    /// The turn it became known in.
    #[serde(default)]
    pub created_turn: u32,
    /// The turn it was last referred to in.
    #[serde(default)]
    pub referenced_turn: u32,
    /// Why it is kept although it is older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retained_reason: Option<String>,
    /// Why it was set aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demoted_reason: Option<String>,
    /// Whether it is out of the conversation altogether: dropped or deleted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub dropped: bool,
    /// What of the record is at hand.
    #[serde(default)]
    pub detail: DetailLevel,
    /// Where that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<RecordSource>,
}

fn is_false(value: &bool) -> bool {
    !*value
}

/// What last happened to an entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntityAction {
    /// It was read.
    Read,
    /// It was created.
    Created,
    /// It was changed.
    Updated,
    /// It was deleted.
    Deleted,
    /// It was written by a model, and is not saved.
    Generated,
    /// Something was linked to it.
    Linked,
    /// It was spoken of.
    #[default]
    Mentioned,
}

impl EntityAction {
    /// The word for it.
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

/// What of a record is at hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DetailLevel {
    /// Nothing but its label.
    #[default]
    None,
    /// Some fields.
    Summary,
    /// All fields.
    Full,
}

impl DetailLevel {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Summary => "summary",
            Self::Full => "full",
        }
    }
}

/// Where the fields of a record stand.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordSource {
    /// In a tool's result, among its rows.
    ToolResultRow {
        /// The result.
        text: TextRef,
        /// The place among its rows.
        row_index: usize,
    },
    /// Here: a draft.
    Draft(Map<String, Value>),
}

/// How near an entity is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RelevanceTier {
    /// Referred to lately.
    Active,
    /// Not saved yet.
    Draft,
    /// Older, and kept for a reason.
    Retained,
    /// Set aside until it is referred to again.
    Demoted,
    /// Known, and nothing more.
    Known,
    /// Dropped or deleted.
    Dropped,
}

impl RelevanceTier {
    /// The word for it.
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

    /// Whether models are shown it as something to work with.
    #[must_use]
    pub fn is_relevant(self) -> bool {
        matches!(self, Self::Active | Self::Draft | Self::Retained)
    }
}

impl Entity {
    /// How near it is in a turn. Demotion beats recency.
    #[must_use]
    pub fn tier(&self, turn: u32) -> RelevanceTier {
        match self {
            Self { dropped: true, .. } => RelevanceTier::Dropped,
            Self { demoted_reason: Some(_), .. } => RelevanceTier::Demoted,
            Self { id: None, .. } => RelevanceTier::Draft,
            Self { referenced_turn: referenced, .. } if turn.saturating_sub(*referenced) <= REFERENCE_ACTIVE_TURNS => {
                RelevanceTier::Active
            }
            Self { retained_reason: Some(_), .. } => RelevanceTier::Retained,
            _ => RelevanceTier::Known,
        }
    }

    /// Whether it is stored.
    #[must_use]
    pub fn is_saved(&self) -> bool {
        self.id.is_some()
    }
}

/// A record that became known or better known.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReferencedRecord {
    /// Its reference.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its id.
    pub id: String,
    /// What people call it.
    pub label: String,
    /// What of it is at hand.
    #[serde(default)]
    pub detail: DetailLevel,
    /// Its place among the rows of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row_index: Option<usize>,
}

/// A draft as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordDraft {
    /// Its reference.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// What people call it.
    pub label: String,
    /// Its fields; links are references.
    pub content: Map<String, Value>,
}

impl Entity {
    pub(super) fn new(kind: &str, turn: u32) -> Self {
        Self {
            kind: kind.to_owned(),
            label: String::new(),
            id: None,
            last_action: EntityAction::default(),
            created_turn: turn,
            referenced_turn: turn,
            retained_reason: None,
            demoted_reason: None,
            dropped: false,
            detail: DetailLevel::None,
            source: None,
        }
    }

    /// More of it is at hand than before, or it was read anew.
    pub(super) fn update_source(&mut self, record: &ReferencedRecord, text: TextRef) {
        let Some(place) = record.row_index else { return };
        let was_draft = matches!(self.source, Some(RecordSource::Draft(_)));
        if record.detail >= self.detail || was_draft || self.source.is_none() {
            self.detail = record.detail;
            self.source = Some(RecordSource::ToolResultRow { text, row_index: place });
        }
    }

    pub(super) fn unload(&mut self) {
        self.detail = DetailLevel::None;
        self.source = None;
    }
}
