//! What the user said, and what the flow has to say: to the user where it must ask, to the concierge where it refuses.

use segue_core::body::Text;
use segue_core::flow::{Step, View};
use segue_core::handover::Handover;
use segue_core::ids::{CallId, MessageId};
use serde_json::{Map as Object, Value};

use super::consent;
use super::facts::{Begun, Fact, Purpose};
use super::state::Memory;
use crate::template::fill;

/// What the user said last, as one text.
pub(super) fn newest(view: &View<'_, Memory>) -> String {
    let messages = view.session.turn.iter().flat_map(|turn| &turn.messages);
    messages.map(|waiting| view.text(waiting.text).to_string()).collect::<Vec<_>>().join("\n\n")
}

/// What of these is to be answered: all but a wish to try again, unless that is all there is.
pub(super) fn to_answer(view: &View<'_, Memory>, said: &[(MessageId, Text)]) -> Vec<(MessageId, Text)> {
    let meant = said.iter().filter(|(_, text)| !consent::is_retry(&view.text(*text)));
    let meant: Vec<_> = meant.copied().collect();
    if meant.is_empty() { said.to_vec() } else { meant }
}

/// The question whether everyone may be asked.
pub(super) fn confirmation(begun: &Begun) -> String {
    let task = begun.task.clone().unwrap_or_default();
    let arguments = serde_json::json!({
        "help": begun.purpose == Purpose::StepHelp,
        "step": task.step,
        "goal": task.goal,
    });
    fill(include_str!("../../prompts/concierge/confirm.md"), &arguments)
}

/// Records that something was not acted on; the concierge is told with the next ask.
pub(super) fn notice(call: Option<CallId>, block: &str, kind: &str, more: &[(&str, &str)]) -> Step {
    Fact::Refused { call, block: block.to_owned(), why: told(block, kind, more) }.note()
}

/// What the concierge is told about something that was not as it should be.
pub(super) fn told(block: &str, kind: &str, more: &[(&str, &str)]) -> String {
    let mut arguments = Object::new();
    for name in ["given", "current", "known"] {
        arguments.insert(name.to_owned(), Value::Null);
    }
    arguments.insert("kind".to_owned(), Value::String(kind.to_owned()));
    arguments.insert("block".to_owned(), Value::String(block.to_owned()));
    for (name, value) in more {
        arguments.insert((*name).to_owned(), Value::String((*value).to_owned()));
    }
    fill(include_str!("../../prompts/concierge/notice.md"), &Value::Object(arguments))
}

/// The handover that this visit began with.
pub(super) fn handed<'v>(view: &View<'v, Memory>) -> Option<&'v Handover> {
    view.session.handover_made(view.state.visit.handed?)
}
