//! Between models and the host of the records: what a model asks for is checked against the declaration and put in the
//! host's terms (ids for references), and what the host returns is put in the model's (references for ids). A write is
//! asked for only in a step that was planned as one; the host looks at that too.

mod available_tool;
mod tool_result;
mod translate_call;

use segue_core::ids::ToolRunId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use available_tool::{AvailableTool, list_available_tools};
pub use tool_result::{
    DomainToolResult, RecordChange, RecordKey, RecordRow, render_record_line, render_record_row, translate_tool_result,
};
pub use translate_call::{TranslatedToolCall, translate_tool_call};

/// The host of records in tables: runs are recognised when they are repeated, so a run whose end is not known is repeated.
pub const RECORDS_TOOL: &str = "records";
/// What something that a server names is of, where nobody says.
pub const DEFAULT_RECORD_TYPE: &str = "item";
/// The host of tools that a server brings: nobody knows what a repetition does there.
pub const MCP_TOOL: &str = "remote";

/// What the host is told with every run, beside what the operation itself needs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DomainToolRequest {
    /// Which domain.
    pub domain: String,
    /// What is to be done.
    pub operation: DomainOperation,
    /// What for.
    #[serde(rename = "for")]
    pub purpose: ToolRunPurpose,
    /// In which turn.
    #[serde(default)]
    pub turn: u32,
    /// For which step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// What sort of step that is; a write is refused in any other than `write`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_kind: Option<super::facts::StepKind>,
    /// Everything else.
    #[serde(flatten)]
    pub parameters: Map<String, Value>,
}

/// What a host can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DomainOperation {
    /// Find records.
    Read,
    /// Fetch records by their ids.
    Get,
    /// Make records.
    Create,
    /// Change records.
    Update,
    /// Delete records.
    Delete,
    /// Add links.
    Link,
    /// Take links away.
    Unlink,
    /// Take changes back.
    Undo,
    /// Say what became of a run, and see to it that nothing more becomes of it.
    ResolveRun,
    /// Call a tool of the server.
    CallTool,
    /// Say which tools the server has.
    ListTools,
}

impl DomainOperation {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Get => "get",
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Link => "link",
            Self::Unlink => "unlink",
            Self::Undo => "undo",
            Self::ResolveRun => "settle",
            Self::CallTool => "call",
            Self::ListTools => "describe",
        }
    }

    /// Whether it changes records.
    #[must_use]
    pub fn is_write(self) -> bool {
        match self {
            Self::Create | Self::Update | Self::Delete | Self::Link | Self::Unlink | Self::Undo => true,
            Self::Read | Self::Get | Self::ResolveRun | Self::CallTool | Self::ListTools => false,
        }
    }
}

/// What a run is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolRunPurpose {
    /// A model asked for it.
    StepToolCall,
    /// A step needs records that are not at hand.
    LoadRecords,
    /// Nobody knows what became of a write.
    ResolveRun,
    /// A person wants a write taken back.
    Undo,
    /// The flow wants to know the tools.
    ListTools,
}

impl DomainToolRequest {
    /// Reads what a run was told.
    #[must_use]
    pub fn parse(arguments: &Value) -> Option<Self> {
        serde_json::from_value(arguments.clone()).ok()
    }

    /// As the journal keeps it.
    #[must_use]
    pub fn to_arguments(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// The run that a run for settling is about, and what that one was told.
    #[must_use]
    pub fn run_to_resolve(&self) -> Option<(ToolRunId, Self)> {
        let of = self.parameters.get("of").and_then(Value::as_u64)?;
        let was = Self::parse(self.parameters.get("was")?)?;
        Some((ToolRunId(u32::try_from(of).ok()?), was))
    }
}
