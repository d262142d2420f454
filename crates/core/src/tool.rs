//! The results of tools.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a tool returns.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolResult {
    /// The text that the model is shown: the result, or the reason of the failure.
    pub text: String,
    /// The result as data, for the flow and for clients. Models do not see it.
    pub value: Option<Value>,
    /// Files and diffs that the run produced. Models do not see them.
    pub artifacts: Vec<ToolArtifact>,
    pub failed: bool,
}

impl ToolResult {
    /// Creates the result of a run that succeeded.
    #[must_use]
    pub fn done(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Creates the result of a run that failed.
    #[must_use]
    pub fn failed(reason: impl Into<String>) -> Self {
        Self { text: reason.into(), failed: true, ..Self::default() }
    }
}

/// The text of a successful run, or the reason of a failure.
impl From<Result<String, String>> for ToolResult {
    fn from(result: Result<String, String>) -> Self {
        match result {
            Ok(text) => Self::done(text),
            Err(reason) => Self::failed(reason),
        }
    }
}

/// A file or a diff that a tool run produced. The journal records it with a reference to its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolArtifact<T = String> {
    pub kind: ToolArtifactKind,
    /// Usually a path.
    pub name: String,
    /// For example `text/plain`.
    pub media_type: String,
    pub text: T,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolArtifactKind {
    /// The content of a file.
    File,
    /// The changes to a file.
    Diff,
}
