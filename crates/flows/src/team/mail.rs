//! The messages between agents. A message's id is its correlation id: a response names the request that it answers.

use segue_core::event::AgentMessagePriority;
use segue_core::flow::FlowStep;
use segue_core::ids::{AgentName, MessageId};
use serde_json::Value;

/// From the product manager to the architect: the spec was accepted.
pub const SPEC_TOPIC: &str = "spec";
/// From the dispatcher to a coder: an assignment.
pub const STORY_TOPIC: &str = "story";
/// From a coder to the architect: a question, or a request for approval.
pub const REQUEST_TOPIC: &str = "request";
/// From the architect to a coder: the answer to a request.
pub const RESPONSE_TOPIC: &str = "response";
/// To the express channel: entries for the knowledge file.
pub const KNOWLEDGE_UPDATE_TOPIC: &str = "knowledge_update";
/// To the express channel: a hot fix.
pub const HOT_FIX_TOPIC: &str = "hot_fix";
/// From a coder to the dispatcher: a story that waits again.
pub const REQUEUE_TOPIC: &str = "requeue";
/// From the dispatcher to the architect: the spec has ended.
pub const SHUTDOWN_TOPIC: &str = "shutdown";

/// The agent whose inbox is the express channel. A coder that waits takes from it before any ordinary story.
pub const EXPRESS_CHANNEL: &str = "express";
/// The code that makes assignments.
pub const DISPATCHER: &str = "dispatcher";

/// Returns the step that sends a message.
pub(super) fn send_message_step(
    from: &str,
    to: &str,
    topic: &str,
    body: &Value,
    in_reply_to: Option<MessageId>,
) -> FlowStep {
    FlowStep::Send {
        from: from.into(),
        to: AgentName::from(to),
        priority: AgentMessagePriority::Normal,
        topic: topic.to_owned(),
        text: body.to_string(),
        in_reply_to,
    }
}
