//! The flows and every word they say. A flow is one folder here: its rules, its prompts (`prompts/<flow>/`), its tests.
//!
//! Decides what each kind of conversation does next. Knows no engine, no store and no model.

pub mod assistant;
pub mod chat;
pub mod concierge;
mod limits;
mod template;

use std::sync::Arc;

use segue_core::flow::Rules;

/// Every flow there is.
#[must_use]
pub fn all() -> Vec<Arc<dyn Rules>> {
    vec![Arc::new(assistant::Assistant::new()), Arc::new(chat::Chat::new()), Arc::new(concierge::Concierge::new())]
}
