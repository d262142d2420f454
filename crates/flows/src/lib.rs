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

use segue_core::flow::Rules;

use assistant::Assistant;
use assistant::domain::Domain;
use assistant::settings::Domains;

/// Every flow there is, with the domains that come with them.
#[must_use]
pub fn all() -> Vec<Arc<dyn Rules>> {
    with(Domains::new(Domain::shipped()))
}

/// Every flow there is, with these domains.
#[must_use]
pub fn with(domains: Domains) -> Vec<Arc<dyn Rules>> {
    vec![Arc::new(chat::Chat::new()), Arc::new(concierge::Concierge::new()), Arc::new(Assistant::with(domains))]
}
