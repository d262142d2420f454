//! The tool host: the tools that models can call, by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use segue_core::event::ToolRunOpened;
use segue_core::ids::{SessionId, ToolName, UnixMillis};
use serde_json::Value;

/// A tool that models can call.
#[async_trait]
pub trait Tool: Send + Sync {
    /// Runs the tool. The model is shown the result, or the reason why it failed.
    async fn run(&self, request: ToolInvocation) -> Result<String, String>;
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

/// Separates the owner from the rest of a session's name.
pub const NAMESPACE_SEPARATOR: char = '.';

impl ToolInvocation {
    /// Returns the owner of the session: the part of its name before the first separator. A session whose name has no such part,
    /// or one that cannot be an owner's name, belongs to the operator.
    #[must_use]
    pub fn owner(&self) -> Option<&str> {
        session_owner(&self.session)
    }
}

/// Returns the owner of a session: the part of its name before the first separator, if it can be an owner's name.
pub(crate) fn session_owner(session: &SessionId) -> Option<&str> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let (owner, _) = session.as_str().split_once(NAMESPACE_SEPARATOR)?;
    Some(owner).filter(|owner| !owner.is_empty() && owner.chars().all(is_allowed))
}

/// The tools that are available to an engine.
#[derive(Clone, Default)]
pub struct ToolRegistry {
    by_name: BTreeMap<ToolName, Arc<dyn Tool>>,
}

impl std::fmt::Debug for ToolRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.by_name.keys()).finish()
    }
}

impl ToolRegistry {
    /// Adds a tool.
    #[must_use]
    pub fn with_tool(mut self, name: impl Into<ToolName>, tool: Arc<dyn Tool>) -> Self {
        self.by_name.insert(name.into(), tool);
        self
    }

    /// Runs the requested tool, or fails if there is no such tool.
    pub(crate) async fn run_tool(&self, request: ToolInvocation) -> Result<String, String> {
        match self.by_name.get(&request.opened.tool) {
            Some(tool) => tool.run(request).await,
            None => Err(format!("the tool `{}` is not connected", request.opened.tool)),
        }
    }
}
