//! What the user said, and what the flow has to say: to the user where it must ask, to the concierge where it refuses.

use segue_core::body::TextRef;
use segue_core::flow::{FlowContext, FlowStep};
use segue_core::handover::Handover;
use segue_core::ids::{CallId, MessageId};
use serde_json::{Map as Object, Value};

use super::consent;
use super::facts::{BatchPurpose, BatchRequest, Fact};
use super::state::ConciergeState;
use crate::template::fill_template;

/// What the user said last, as one text.
pub(super) fn latest_user_text(view: &FlowContext<'_, ConciergeState>) -> String {
    let messages = view.session.current_turn.iter().flat_map(|turn| &turn.messages);
    messages.map(|waiting| view.read_text(waiting.text).to_string()).collect::<Vec<_>>().join("\n\n")
}

/// What of these is to be answered: all but a wish to try again, unless that is all there is.
pub(super) fn drop_retry_messages(
    view: &FlowContext<'_, ConciergeState>,
    messages: &[(MessageId, TextRef)],
) -> Vec<(MessageId, TextRef)> {
    let meant = messages.iter().filter(|(_, text)| !consent::is_retry_request(&view.read_text(*text)));
    let meant: Vec<_> = meant.copied().collect();
    if meant.is_empty() { messages.to_vec() } else { meant }
}

/// The question whether everyone may be asked.
pub(super) fn render_confirmation_question(request: &BatchRequest) -> String {
    let task = request.task.clone().unwrap_or_default();
    let arguments = serde_json::json!({
        "help": request.purpose == BatchPurpose::StepHelp,
        "step": task.step,
        "goal": task.goal,
    });
    fill_template(include_str!("../../prompts/concierge/confirm.md"), &arguments)
}

/// Records that something was not acted on; the concierge is told with the next ask.
pub(super) fn record_refusal(call: Option<CallId>, block: &str, reason: &str, arguments: &[(&str, &str)]) -> FlowStep {
    Fact::BlockRefused { call, block: block.to_owned(), why: render_notice(block, reason, arguments) }.into_step()
}

/// What the concierge is told about something that was not as it should be.
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

/// The handover that this visit began with.
pub(super) fn visit_handover<'v>(view: &FlowContext<'v, ConciergeState>) -> Option<&'v Handover> {
    view.session.handover_by_id(view.state.visit.received_handover?)
}
