//! The rules of a session, claim by claim, through the stage.

mod accounts;
mod busy;
mod by_hand;
mod cancelling;
mod closing;
mod compaction;
mod copying;
mod deciding;
mod limits;
mod phases;
mod recomputing;
mod recovery;
mod retries;
mod rounds;
mod turns;
mod vendors;
mod weights;

use segue_core::decide::Input;
use segue_core::event::{CallWish, Event, Recorded};
use segue_core::flow::{RoleSpec, Runs, Step, ToolDef, UnknownPolicy};
use segue_core::prompt::{ToolCall, ToolSpec};
use segue_testkit::Stage;
use serde_json::json;

/// A message as the user sends it.
fn message(text: &str) -> Input {
    Input::Message { text: text.to_owned(), key: None, busy: None, images: Vec::new() }
}

/// A call of a role that is told `note`.
fn note(role: &str, note: &str) -> Step {
    Step::Call(CallWish::new(role, "note").note(json!(note)))
}

/// A tool run by the host or by the flow.
fn tool(name: &str, runs: Runs) -> ToolDef {
    let spec = ToolSpec { name: name.into(), description: name.into(), parameters: json!({"type": "object"}) };
    ToolDef { spec, runs, unknown: UnknownPolicy::Retry }
}

/// A wish to run a tool.
fn wants(id: &str, tool: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), name: tool.into(), arguments: json!({}) }
}

/// The events that `pick` likes.
fn events<T>(stage: &Stage, pick: impl Fn(&Event) -> Option<T>) -> Vec<T> {
    stage.journal().iter().filter_map(|Recorded { event, .. }| pick(event)).collect()
}

/// What the flow tried and was not allowed.
fn refused_steps(stage: &Stage) -> Vec<String> {
    events(stage, |event| match event {
        Event::StepRefused { step, why } => Some(format!("{step}: {why}")),
        _ => None,
    })
}

/// How the turns ended, in a word or two each.
fn outcomes(stage: &Stage) -> Vec<String> {
    events(stage, |event| match event {
        Event::TurnEnded { outcome, .. } => Some(format!("{outcome:?}").split(' ').next().unwrap_or("").to_lowercase()),
        _ => None,
    })
}

/// That many words.
fn words(count: usize) -> String {
    (0..count).map(|n| format!("w{n}")).collect::<Vec<_>>().join(" ")
}

/// The same role with answers of at most `tokens`.
fn brief(mut role: RoleSpec, tokens: u32) -> RoleSpec {
    role.reply_tokens_max = tokens;
    role
}
