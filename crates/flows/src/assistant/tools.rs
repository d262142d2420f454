//! Translates between models and the domain tools. A model's tool call is checked against the domain's declaration and its
//! references become ids; in results, ids become references. A write is requested only in a step that was planned as one, which
//! the tool checks again, and only with the operation, type and records of that step.

mod available_tool;
mod tool_result;
mod translate_call;
mod write_binding;

use segue_core::ids::ToolRunId;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use available_tool::{AvailableMcpTool, list_available_tools};
pub use tool_result::{
    DomainRecordsOverview, DomainSnapshotSection, DomainToolResult, RecordChange, RecordKey, ReturnedDomainRecord,
    render_plain_row, render_record_line, render_record_row, translate_tool_result,
};
pub(super) use translate_call::REFRESH_ARGUMENT;
pub use translate_call::{DomainRequestOrAlreadyLoaded, translate_tool_call};
pub use write_binding::TABLE_WRITE_OPERATIONS;
pub(super) use write_binding::check_planned_write;

/// The tool that keeps records in tables. It recognizes a repeated run, so a run with an unknown outcome is repeated.
pub const RECORDS_TOOL: &str = "records";
/// The type of a record that a server mentions without a declared type.
pub const DEFAULT_RECORD_TYPE: &str = "item";
/// The tool that calls an MCP server. A run with an unknown outcome is not repeated, since it could write twice.
pub const MCP_TOOL: &str = "remote";

/// The arguments of a domain tool run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DomainToolRequest {
    pub domain: String,
    pub operation: DomainOperation,
    #[serde(rename = "for")]
    pub purpose: DomainToolRunPurpose,
    #[serde(default)]
    pub turn: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// The kind of that step; writes are refused unless it is `write`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_kind: Option<super::facts::AssistantPlanStepKind>,
    /// The arguments of the operation itself.
    #[serde(flatten)]
    pub parameters: Map<String, Value>,
}

/// What a domain tool can be asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DomainOperation {
    Read,
    /// Fetch records by id.
    Get,
    /// Count the records, and run the queries of the domain's snapshot.
    Snapshot,
    Create,
    Update,
    Delete,
    Link,
    Unlink,
    /// Restore the values before a write.
    Undo,
    /// Return the result of an earlier run, or make sure that it is never executed.
    ResolveRun,
    /// Call a tool of the domain's server.
    CallTool,
    /// List the tools of the domain's server.
    ListTools,
}

impl DomainOperation {
    /// Returns the name used in the journal.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Get => "get",
            Self::Snapshot => "snapshot",
            Self::Create => "create",
            Self::Update => "update",
            Self::Delete => "delete",
            Self::Link => "link",
            Self::Unlink => "unlink",
            Self::Undo => "undo",
            Self::ResolveRun => "resolve_run",
            Self::CallTool => "call_tool",
            Self::ListTools => "list_tools",
        }
    }

    /// Returns whether the operation changes records in tables.
    #[must_use]
    pub fn is_table_write(self) -> bool {
        match self {
            Self::Create | Self::Update | Self::Delete | Self::Link | Self::Unlink | Self::Undo => true,
            Self::Read | Self::Get | Self::Snapshot | Self::ResolveRun | Self::CallTool | Self::ListTools => false,
        }
    }
}

/// Why a domain tool run was requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DomainToolRunPurpose {
    /// Act called a tool.
    StepToolCall,
    /// A step needs records that are not loaded.
    LoadRecords,
    /// A read step reads what the plan names.
    PlannedRead,
    /// A turn starts in a domain with a snapshot.
    Snapshot,
    /// The outcome of a write is unknown.
    ResolveRun,
    /// The user issued `undo`.
    Undo,
    /// The flow needs the server's list of tools.
    ListTools,
}

impl DomainToolRequest {
    /// Parses the arguments of a tool run.
    #[must_use]
    pub fn parse(arguments: &Value) -> Option<Self> {
        serde_json::from_value(arguments.clone()).ok()
    }

    /// Returns the arguments as the journal stores them.
    #[must_use]
    pub fn to_arguments(&self) -> Value {
        serde_json::to_value(self).unwrap_or_default()
    }

    /// Returns the run that a `resolve_run` asks about, and its original request.
    #[must_use]
    pub fn run_to_resolve(&self) -> Option<(ToolRunId, Self)> {
        let run = self.parameters.get("run").and_then(Value::as_u64)?;
        let original = Self::parse(self.parameters.get("request")?)?;
        Some((ToolRunId(u32::try_from(run).ok()?), original))
    }
}
