//! The user's messages of a turn, the flow's own question to the user, and its notices to the concierge.

use segue_core::body::TextRef;
use segue_core::flow::{FlowContext, FlowStep};
use segue_core::handover::Handover;
use segue_core::ids::{CallId, HandoverId, MessageId};
use serde_json::{Map as Object, Value};

use super::consent;
use super::facts::{ConciergeFact, ExpertBatchPurpose, ExpertBatchRequest};
use super::state::ConciergeState;
use crate::template::fill_template;

/// Returns the messages of the current turn as one text.
pub(super) fn current_turn_user_text(view: &FlowContext<'_, ConciergeState>) -> String {
    let messages = view.session.current_turn.iter().flat_map(|turn| &turn.messages);
    messages.map(|message| view.read_text(message.text).to_string()).collect::<Vec<_>>().join("\n\n")
}

/// Returns the messages that need an answer: all but requests to retry, unless there are no others.
pub(super) fn drop_retry_messages(
    view: &FlowContext<'_, ConciergeState>,
    messages: &[(MessageId, TextRef)],
) -> Vec<(MessageId, TextRef)> {
    let others = messages.iter().filter(|(_, text)| !consent::is_retry_request(&view.read_text(*text)));
    let others: Vec<_> = others.copied().collect();
    if others.is_empty() { messages.to_vec() } else { others }
}

/// Renders the question whether a batch may be started.
pub(super) fn render_confirmation_question(request: &ExpertBatchRequest) -> String {
    let task = request.task.clone().unwrap_or_default();
    let arguments = serde_json::json!({
        "help": request.purpose == ExpertBatchPurpose::StepHelp,
        "step": task.step,
        "goal": task.goal,
    });
    fill_template(include_str!("../../prompts/concierge/confirm.md"), &arguments)
}

/// Records that a block was ignored. The concierge gets the notice with its next call.
pub(super) fn record_refusal(call: Option<CallId>, block: &str, reason: &str, arguments: &[(&str, &str)]) -> FlowStep {
    ConciergeFact::BlockRefused { call, block: block.to_owned(), why: render_notice(block, reason, arguments) }
        .into_step()
}

/// Renders a notice for the concierge.
pub(super) fn render_notice(block: &str, reason: &str, extra_arguments: &[(&str, &str)]) -> String {
    let mut arguments = Object::new();
    for name in ["given", "current", "known"] {
        arguments.insert(name.to_owned(), Value::Null);
    }
    arguments.insert("kind".to_owned(), Value::String(reason.to_owned()));
    arguments.insert("block".to_owned(), Value::String(block.to_owned()));
    for (name, value) in extra_arguments {
        arguments.insert((*name).to_owned(), Value::String((*value).to_owned()));
    }
    fill_template(include_str!("../../prompts/concierge/notice.md"), &Value::Object(arguments))
}

/// Returns the handover that the current visit started with.
pub(super) fn visit_handover<'v>(view: &FlowContext<'v, ConciergeState>) -> Option<&'v Handover> {
    find_handover(view, view.state.visit.received_handover?)
}

/// Returns the handover with this id, if it is still in the session's state.
pub(super) fn find_handover<'v>(view: &FlowContext<'v, ConciergeState>, id: HandoverId) -> Option<&'v Handover> {
    view.session.handovers.iter().find(|handover| handover.id == id).map(|handover| &**handover)
}
