//! What a reference stands for, how near it is, and what of it is at hand.

use segue_core::body::Text;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::limits::ACTIVE_TURNS;

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
    pub last: Action,
    /// The turn it became known in.
    #[serde(default)]
    pub created: u32,
    /// The turn it was last referred to in.
    #[serde(default)]
    pub referenced: u32,
    /// Why it is kept although it is older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retained: Option<String>,
    /// Why it was set aside.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub demoted: Option<String>,
    /// Whether it is out of the conversation altogether: dropped or deleted.
    #[serde(default, skip_serializing_if = "is_false")]
    pub dropped: bool,
    /// What of the record is at hand.
    #[serde(default)]
    pub detail: Detail,
    /// Where that is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held: Option<Held>,
}

fn is_false(value: &bool) -> bool {
    !*value
}

/// What last happened to an entity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
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

impl Action {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
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
pub enum Detail {
    /// Nothing but its label.
    #[default]
    None,
    /// Some fields.
    Summary,
    /// All fields.
    Full,
}

impl Detail {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
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
pub enum Held {
    /// In a tool's result, among its rows.
    Row {
        /// The result.
        text: Text,
        /// The place among its rows.
        place: usize,
    },
    /// Here: a draft.
    Draft(Map<String, Value>),
}

/// How near an entity is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
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

impl Tier {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
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
    pub fn is_near(self) -> bool {
        matches!(self, Self::Active | Self::Draft | Self::Retained)
    }
}

impl Entity {
    /// How near it is in a turn. Demotion beats recency.
    #[must_use]
    pub fn tier(&self, turn: u32) -> Tier {
        match self {
            Self { dropped: true, .. } => Tier::Dropped,
            Self { demoted: Some(_), .. } => Tier::Demoted,
            Self { id: None, .. } => Tier::Draft,
            Self { referenced, .. } if turn.saturating_sub(*referenced) <= ACTIVE_TURNS => Tier::Active,
            Self { retained: Some(_), .. } => Tier::Retained,
            _ => Tier::Known,
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
pub struct Known {
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
    pub detail: Detail,
    /// Its place among the rows of the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<usize>,
}

/// A draft as it is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Draft {
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
            last: Action::default(),
            created: turn,
            referenced: turn,
            retained: None,
            demoted: None,
            dropped: false,
            detail: Detail::None,
            held: None,
        }
    }

    /// More of it is at hand than before, or it was read anew.
    pub(super) fn hold(&mut self, known: &Known, text: Text) {
        let Some(place) = known.place else { return };
        let was_draft = matches!(self.held, Some(Held::Draft(_)));
        if known.detail >= self.detail || was_draft || self.held.is_none() {
            self.detail = known.detail;
            self.held = Some(Held::Row { text, place });
        }
    }

    pub(super) fn let_go(&mut self) {
        self.detail = Detail::None;
        self.held = None;
    }
}
