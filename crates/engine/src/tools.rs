//! The tool host: the tools that models can call, by name, and what a tool gets for a run.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use segue_core::event::ToolRunOpened;
use segue_core::flow::FlowToolDeclaration;
use segue_core::ids::{LeaseEpoch, SessionId, ToolName, UnixMillis, session_owner};
use segue_core::limits::SESSION_LIMITS;
use segue_core::tool::ToolResult;
use serde_json::Value;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::limits::TOOL_PROGRESS_BYTES_MAX;

/// A tool that models can call.
///
/// ```
/// use segue_core::tool::ToolResult;
/// use segue_engine::tools::{Tool, ToolInvocation, ToolRunContext};
///
/// struct AddTool;
///
/// #[async_trait::async_trait]
/// impl Tool for AddTool {
///     async fn run(&self, request: ToolInvocation, context: ToolRunContext) -> ToolResult {
///         context.progress.report("adding");
///         let (a, b) = (&request.opened.arguments["a"], &request.opened.arguments["b"]);
///         match (a.as_i64(), b.as_i64()) {
///             (Some(a), Some(b)) => ToolResult::done((a + b).to_string()),
///             _ => ToolResult::failed("`a` and `b` must be whole numbers"),
///         }
///     }
/// }
/// ```
#[async_trait]
pub trait Tool: Send + Sync {
    /// Runs the tool.
    ///
    /// When the run is cancelled or out of time, this future is dropped. Work that must be stopped separately, such as a
    /// spawned task, listens to the cancellation token of the context.
    async fn run(&self, request: ToolInvocation, context: ToolRunContext) -> ToolResult;
}

/// What a tool gets for one run, besides the request.
#[derive(Debug, Clone)]
pub struct ToolRunContext {
    /// Cancelled when the run is over: it has returned, is out of time, was cancelled, or its session was lost.
    pub cancellation: CancellationToken,
    /// The maximum duration of the run.
    pub run_ms_max: u64,
    /// The maximum length of the result's text, in bytes. A longer text is cut.
    pub output_bytes_max: usize,
    /// The epoch of the session's lease. A later run of the same session has the same or a higher epoch, so a tool can
    /// refuse a run of a process that has lost the session.
    pub lease_epoch: LeaseEpoch,
    pub progress: ToolProgressSender,
}

impl ToolRunContext {
    /// Creates the context of a run of a declared tool, and the receiver of its progress.
    pub(crate) fn new(
        declaration: Option<&FlowToolDeclaration>,
        lease_epoch: LeaseEpoch,
    ) -> (Self, watch::Receiver<Arc<str>>) {
        let (latest, progress) = watch::channel(Arc::from(""));
        let context = Self {
            cancellation: CancellationToken::new(),
            run_ms_max: declaration.map_or(SESSION_LIMITS.tool_run_ms_default, |tool| tool.run_ms_max),
            output_bytes_max: declaration.map_or(SESSION_LIMITS.tool_result_bytes_max, |tool| tool.output_bytes_max),
            lease_epoch,
            progress: ToolProgressSender { latest },
        };
        (context, progress)
    }

    /// Creates the context of a run outside sessions, for tests of tools. It is never cancelled.
    #[must_use]
    pub fn for_tests() -> Self {
        Self::new(None, LeaseEpoch::default()).0
    }
}

/// Reports the progress of a tool run to the subscribers of its session.
#[derive(Debug, Clone)]
pub struct ToolProgressSender {
    latest: watch::Sender<Arc<str>>,
}

impl ToolProgressSender {
    /// Replaces the progress text that subscribers see. It is not recorded. Of frequent reports, only some are shown,
    /// and of a long text only the end.
    pub fn report(&self, text: &str) {
        let start = text.ceil_char_boundary(text.len().saturating_sub(TOOL_PROGRESS_BYTES_MAX));
        self.latest.send_replace(text[start..].into());
    }
}

/// One run of a tool.
#[derive(Debug, Clone)]
pub struct ToolInvocation {
    pub session: SessionId,
    /// When the session was opened. Together with the name it identifies the session: a name can be reused after a
    /// delete.
    pub session_opened_at: UnixMillis,
    /// The session's flow settings.
    pub settings: Value,
    /// The run: tool, arguments, agent, phase, and the run's id, by which a tool can recognise a repetition.
    pub opened: ToolRunOpened,
}

impl ToolInvocation {
    /// Returns the owner of the session: the part of its name before the first separator. A session whose name has no such part,
    /// or one that cannot be an owner's name, belongs to the operator.
    #[must_use]
    pub fn owner(&self) -> Option<&str> {
        session_owner(&self.session)
    }
}

/// The tools that are available to an engine.
#[derive(Clone, Default)]
pub struct ToolRegistry {
    by_name: BTreeMap<ToolName, Arc<dyn Tool>>,
    by_prefix: BTreeMap<String, Arc<dyn Tool>>,
}

impl std::fmt::Debug for ToolRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.by_name.keys()).entries(self.by_prefix.keys()).finish()
    }
}

impl ToolRegistry {
    /// Adds a tool.
    #[must_use]
    pub fn with_tool(mut self, name: impl Into<ToolName>, tool: Arc<dyn Tool>) -> Self {
        self.by_name.insert(name.into(), tool);
        self
    }

    /// Adds a tool for all names that begin with `prefix` and have no tool of their own. It reads from the request which one is
    /// meant.
    #[must_use]
    pub fn with_tool_prefix(mut self, prefix: &str, tool: Arc<dyn Tool>) -> Self {
        self.by_prefix.insert(prefix.to_owned(), tool);
        self
    }

    /// Runs the requested tool, or fails if there is no such tool.
    pub(crate) async fn run_tool(&self, request: ToolInvocation, context: ToolRunContext) -> ToolResult {
        let name = &request.opened.tool;
        let of_prefix = || self.by_prefix.iter().find(|(prefix, _)| name.as_str().starts_with(prefix.as_str()));
        match self.by_name.get(name).or_else(|| of_prefix().map(|(_, tool)| tool)) {
            Some(tool) => tool.run(request, context).await,
            None => ToolResult::failed(format!("the tool `{}` is not connected", request.opened.tool)),
        }
    }
}
