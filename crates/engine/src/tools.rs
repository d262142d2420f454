//! The tool host: what models may have run, by name.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use segue_core::event::ToolRunOpened;
use segue_core::ids::{SessionId, ToolName, UnixMillis};
use serde_json::Value;

/// Something a model may have run.
#[async_trait]
pub trait Tool: Send + Sync {
    /// Runs it. The answer, or the reason why there is none, is told to the model.
    async fn run(&self, request: ToolRequest) -> Result<String, String>;
}

/// One run of a tool.
#[derive(Debug, Clone)]
pub struct ToolRequest {
    /// In which session.
    pub session: SessionId,
    /// When that was opened: a name can be used again once its session is gone, a name at a time cannot.
    pub session_opened_at: UnixMillis,
    /// The flow's settings for the session.
    pub settings: Value,
    /// What is owed: tool, arguments, agent, phase, and the run's number, which a tool can use to recognise a repetition.
    pub opened: ToolRunOpened,
}

/// The tools at hand.
#[derive(Clone, Default)]
pub struct ToolRegistry {
    named: BTreeMap<ToolName, Arc<dyn Tool>>,
}

impl std::fmt::Debug for ToolRegistry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.named.keys()).finish()
    }
}

impl ToolRegistry {
    /// The same with one more.
    #[must_use]
    pub fn with_tool(mut self, name: impl Into<ToolName>, tool: Arc<dyn Tool>) -> Self {
        self.named.insert(name.into(), tool);
        self
    }

    /// Runs a tool, or says that there is none.
    pub(crate) async fn run_tool(&self, request: ToolRequest) -> Result<String, String> {
        match self.named.get(&request.opened.tool) {
            Some(tool) => tool.run(request).await,
            None => Err(format!("the tool `{}` is not connected", request.opened.tool)),
        }
    }
}
