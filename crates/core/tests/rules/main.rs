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

use segue_core::decide::SessionInput;
use segue_core::event::{CallRequest, Event, RecordedEvent};
use segue_core::flow::{FlowStep, RoleSpec, ToolDeclaration, ToolRunner, UnknownOutcomePolicy};
use segue_core::prompt::{ToolCall, ToolSpec};
use segue_testkit::SessionHarness;
use serde_json::json;

/// A message as the user sends it.
fn message(text: &str) -> SessionInput {
    SessionInput::Message { text: text.to_owned(), idempotency_key: None, mid_turn_policy: None, images: Vec::new() }
}

/// A call of a role that is told `note`.
fn note(role: &str, note: &str) -> FlowStep {
    FlowStep::Call(CallRequest::new(role, "note").with_metadata(json!(note)))
}

/// A tool run by the host or by the flow.
fn tool(name: &str, runs: ToolRunner) -> ToolDeclaration {
    let spec = ToolSpec { name: name.into(), description: name.into(), parameters: json!({"type": "object"}) };
    ToolDeclaration { spec, runner: runs, unknown_outcome: UnknownOutcomePolicy::Retry }
}

/// A wish to run a tool.
fn wants(id: &str, tool: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), name: tool.into(), arguments: json!({}) }
}

/// The events that `pick` likes.
fn events<T>(stage: &SessionHarness, pick: impl Fn(&Event) -> Option<T>) -> Vec<T> {
    stage.journal().iter().filter_map(|RecordedEvent { event, .. }| pick(event)).collect()
}

/// What the flow tried and was not allowed.
fn refused_steps(stage: &SessionHarness) -> Vec<String> {
    events(stage, |event| match event {
        Event::StepRefused { step, reason: why } => Some(format!("{step}: {why}")),
        _ => None,
    })
}

/// How the turns ended, in a word or two each.
fn outcomes(stage: &SessionHarness) -> Vec<String> {
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
