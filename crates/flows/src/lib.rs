//! The flows and every word they say. A flow is one folder here: its rules, its prompts (`prompts/<flow>/`), its tests.
//!
//! Decides what each kind of conversation does next. Knows no engine, no store and no model.

pub mod assistant;
pub mod chat;
pub mod concierge;
mod fact;
pub mod limits;
mod template;

use std::sync::Arc;

use segue_core::flow::DynFlow;

use assistant::AssistantFlow;
use assistant::domain::DomainSchema;
use assistant::settings::DomainCatalog;

/// Every flow there is, with the domains that come with them.
#[must_use]
pub fn built_in_flows() -> Vec<Arc<dyn DynFlow>> {
    flows_with_domains(DomainCatalog::new(DomainSchema::built_in()))
}

/// Every flow there is, with these domains.
#[must_use]
pub fn flows_with_domains(domains: DomainCatalog) -> Vec<Arc<dyn DynFlow>> {
    vec![
        Arc::new(chat::ChatFlow::new()),
        Arc::new(concierge::ConciergeFlow::new()),
        Arc::new(AssistantFlow::with_domains(domains)),
    ]
}
