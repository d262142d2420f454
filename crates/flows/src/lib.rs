//! The built-in flows: [`chat`], [`concierge`], [`assistant`], [`project`] and [`team`], with their prompts in
//! `prompts/<flow>/`, and [`workspace`], which calls no model.
//!
//! A flow is a pure function from recorded events to the next steps of a conversation. This crate does not know the engine,
//! the store or any model, so a flow can be tried without them:
//!
//! ```
//! use segue_flows::chat::ChatFlow;
//! use segue_flows::concierge::ConciergeFlow;
//! use segue_testkit::SessionHarness;
//!
//! // In `chat`, one role answers each message.
//! let mut session = SessionHarness::open(ChatFlow::new());
//! session.send_message("How long should tea steep?");
//! assert_eq!(session.open_call_roles(), ["assistant"]);
//! session.answer_call("assistant", "Three minutes.");
//! assert_eq!(session.last_reply(), "Three minutes.");
//!
//! // In `concierge`, several experts answer the first question before one role replies.
//! let mut session = SessionHarness::open(ConciergeFlow::new());
//! session.send_message("Should we rent or buy?");
//! assert_eq!(session.open_call_roles(), ["expert", "expert", "expert"]);
//! ```
//!
//! `docs/flows.md` describes how to write a flow.

mod artifact;
pub mod assistant;
pub mod chat;
pub mod concierge;
mod fact;
mod fragment_specs;
pub mod limits;
pub mod mcp_tools;
pub mod project;
pub mod prompt_overrides;
pub mod team;
mod template;
mod text_tool_call;
pub mod workspace;
pub mod workspace_tools;

use std::sync::Arc;

use segue_core::flow::DynFlow;

use assistant::AssistantFlow;
use assistant::domain::DomainSchema;
use assistant::settings::ConfiguredDomains;

/// Returns all built-in flows with the built-in domains.
#[must_use]
pub fn built_in_flows() -> Vec<Arc<dyn DynFlow>> {
    flows_with_domains(ConfiguredDomains::new(DomainSchema::built_in()))
}

/// Returns all built-in flows with the given domains.
#[must_use]
pub fn flows_with_domains(domains: ConfiguredDomains) -> Vec<Arc<dyn DynFlow>> {
    vec![
        Arc::new(chat::ChatFlow::new()),
        Arc::new(concierge::ConciergeFlow::new()),
        Arc::new(AssistantFlow::with_domains(domains)),
        Arc::new(project::ProjectFlow::new()),
        Arc::new(team::TeamFlow::new()),
        Arc::new(workspace::WorkspaceFlow::new()),
    ]
}
