//! What a flow puts on show for whoever looks at a session: its plan, its map, what it knows of, in forms that need no
//! knowledge of the flow. An exhibit follows from the state like everything else and decides nothing.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::TurnId;

/// One thing on show.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Artifact {
    /// Its name within the flow.
    pub name: String,
    /// What people should read above it.
    pub title: String,
    /// What there is to see.
    #[serde(flatten)]
    pub content: ArtifactContent,
}

impl Artifact {
    /// Something on show.
    #[must_use]
    pub fn new(name: &str, title: &str, content: ArtifactContent) -> Self {
        Self { name: name.to_owned(), title: title.to_owned(), content }
    }
}

/// The forms an exhibit can have.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ArtifactContent {
    /// Things to be done in order.
    Checklist {
        /// What for.
        goal: String,
        /// One by one.
        items: Vec<ChecklistItem>,
    },
    /// Things and how they bear on each other.
    Graph {
        /// The things.
        nodes: Vec<ArtifactNode>,
        /// How they bear on each other.
        edges: Vec<ArtifactEdge>,
        /// What is to be said beside them.
        notes: Vec<String>,
        /// What was measured of the whole.
        metrics: Vec<ArtifactMetric>,
    },
    /// Rows of the same kind.
    Table {
        /// What each cell of a row is.
        columns: Vec<String>,
        /// The rows, those of a group together.
        rows: Vec<ArtifactTableRow>,
    },
    /// Texts under headings.
    Notes {
        /// In order.
        items: Vec<ArtifactNote>,
    },
}

/// Something to be done.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChecklistItem {
    /// What it is called.
    pub title: String,
    /// What to do.
    pub detail: String,
    /// How one knows that it is done.
    pub done_when: String,
    /// How it stands.
    pub status: ChecklistItemStatus,
}

/// How something to be done stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChecklistItemStatus {
    /// It is done.
    Complete,
    /// It is being done.
    Active,
    /// It comes later.
    Pending,
}

/// A thing in a graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArtifactNode {
    /// Its name within the graph.
    pub id: String,
    /// In a few words.
    pub label: String,
    /// In full.
    pub text: String,
    /// What sort of thing, in the flow's words.
    pub kind: String,
    /// What it does among the others, in the flow's words.
    pub role: String,
    /// How much it weighs, from 0 to 1.
    pub weight: f64,
    /// Who says so.
    pub sources: Vec<String>,
}

/// How one thing in a graph bears on another.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactEdge {
    /// From which.
    pub from: String,
    /// To which.
    pub to: String,
    /// How, in the flow's words.
    pub kind: String,
}

/// Something measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArtifactMetric {
    /// What.
    pub name: String,
    /// How much, or which.
    pub value: Value,
}

/// A row of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactTableRow {
    /// Its name within the table.
    pub id: String,
    /// What it stands together with.
    pub group: String,
    /// One for each column.
    pub cells: Vec<String>,
    /// Why it stands there.
    pub why: String,
    /// What can be done about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<SuggestedCommand>,
}

/// One of the flow's own commands, ready to be given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SuggestedCommand {
    /// What people should read on it.
    pub label: String,
    /// Which command.
    pub command: String,
    /// What it is given.
    pub arguments: Value,
}

/// A text under a heading.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactNote {
    /// The heading.
    pub title: String,
    /// The text.
    pub text: String,
    /// The turn it is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
}
