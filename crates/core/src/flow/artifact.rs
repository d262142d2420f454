//! Artifacts: structured output that a flow shows beside the conversation, such as a plan or a map, in forms that need
//! no knowledge of the flow. An artifact is computed from the state and has no effect on it.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::TurnId;

/// Structured output of a flow, shown beside the conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FlowArtifact {
    /// The name within the flow.
    pub name: String,
    pub title: String,
    #[serde(flatten)]
    pub content: TypedArtifactContent,
}

/// The forms of an artifact.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TypedArtifactContent {
    /// Tasks in order.
    Checklist {
        /// What the tasks achieve together.
        goal: String,
        items: Vec<ArtifactChecklistItem>,
    },
    /// Nodes and the relations between them.
    Graph {
        nodes: Vec<ArtifactGraphNode>,
        edges: Vec<ArtifactGraphEdge>,
        /// Remarks shown with the graph.
        notes: Vec<String>,
        /// Measurements of the whole graph.
        metrics: Vec<ArtifactMetric>,
    },
    /// Rows with the same columns.
    Table {
        /// The column titles.
        columns: Vec<String>,
        /// The rows, sorted by group.
        rows: Vec<ArtifactTableRow>,
    },
    /// Texts with titles.
    Notes { items: Vec<ArtifactNotesItem> },
}

/// A task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactChecklistItem {
    pub title: String,
    /// What to do.
    pub detail: String,
    /// How to tell that the task is done.
    pub done_when: String,
    pub status: ArtifactChecklistItemStatus,
}

/// The status of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArtifactChecklistItemStatus {
    Complete,
    Active,
    Pending,
}

/// A node of a graph.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArtifactGraphNode {
    /// The id within the graph.
    pub id: String,
    /// A short text.
    pub label: String,
    /// The full text.
    pub text: String,
    /// The kind of node, as named by the flow.
    pub kind: String,
    /// The node's function in the graph, as named by the flow.
    pub role: String,
    /// The importance, from 0 to 1.
    pub weight: f64,
    /// The names of those who stated it.
    pub sources: Vec<String>,
}

/// A relation between two nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactGraphEdge {
    /// The id of the first node.
    pub from: String,
    /// The id of the second node.
    pub to: String,
    /// The kind of relation, as named by the flow.
    pub kind: String,
}

/// A measurement.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ArtifactMetric {
    pub name: String,
    pub value: Value,
}

/// A row of a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactTableRow {
    /// The id within the table.
    pub id: String,
    /// The group of rows it belongs to.
    pub group: String,
    /// One cell for each column.
    pub cells: Vec<String>,
    /// Why the row is in the table.
    pub why: String,
    /// Commands that can be run on it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<ArtifactButton>,
}

/// One of the flow's own commands, ready to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactButton {
    /// The text of the button.
    pub label: String,
    pub command: String,
    pub arguments: Value,
}

/// A text with a title.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactNotesItem {
    pub title: String,
    pub text: String,
    /// The turn that the text is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
}
