//! The rules of a session, tested through the harness.

mod approval;
mod asks;
mod cancelling;
mod children;
mod client_tools;
mod closing;
mod compaction;
mod deciding;
mod deferred_dispatch;
mod detached_asks;
mod forking;
mod ledger;
mod limits;
mod mid_turn_messages;
mod phases;
mod recomputing;
mod recovery;
mod retries;
mod token_ratios;
mod tool_results;
mod tool_rounds;
mod turns;
mod vendors;

use segue_core::decide::SessionInput;
use segue_core::event::{CallRequest, Event, RecordedEvent};
use segue_core::flow::{FlowStep, FlowToolDeclaration, RoleSpec, ToolRunnerKind, UnknownOutcomePolicy};
use segue_core::prompt::{ModelToolSpec, ToolCall};
use segue_testkit::SessionHarness;
use serde_json::json;

/// A message from the user.
fn message(text: &str) -> SessionInput {
    SessionInput::Message { text: text.to_owned(), idempotency_key: None, mid_turn_policy: None, images: Vec::new() }
}

/// A call of a role with `note` as its task.
fn note(role: &str, note: &str) -> FlowStep {
    FlowStep::Call(CallRequest { metadata: json!(note), ..CallRequest::new(role, "note") })
}

/// A tool that the host or the flow runs.
fn tool(name: &str, runs: ToolRunnerKind) -> FlowToolDeclaration {
    let spec = ModelToolSpec { name: name.into(), description: name.into(), parameters: json!({"type": "object"}) };
    FlowToolDeclaration {
        runner: runs,
        unknown_outcome: UnknownOutcomePolicy::Retry,
        ..FlowToolDeclaration::for_host(spec)
    }
}

/// A tool call.
fn wants(id: &str, tool: &str) -> ToolCall {
    ToolCall { id: id.to_owned(), name: tool.into(), arguments: json!({}) }
}

/// The events that `pick` selects.
fn events<T>(harness: &SessionHarness, pick: impl Fn(&Event) -> Option<T>) -> Vec<T> {
    harness.journal().iter().filter_map(|RecordedEvent { event, .. }| pick(event)).collect()
}

/// The steps that were refused, with the reasons.
fn refused_steps(harness: &SessionHarness) -> Vec<String> {
    events(harness, |event| match event {
        Event::StepRefused { step, reason: why } => Some(format!("{step}: {why}")),
        _ => None,
    })
}

/// The outcomes of the turns.
fn outcomes(harness: &SessionHarness) -> Vec<String> {
    events(harness, |event| match event {
        Event::TurnEnded { outcome, .. } => Some(format!("{outcome:?}").split(' ').next().unwrap_or("").to_lowercase()),
        _ => None,
    })
}

/// A text of `count` words.
fn words(count: usize) -> String {
    (0..count).map(|n| format!("w{n}")).collect::<Vec<_>>().join(" ")
}

/// The role with a maximum answer length.
fn brief(mut role: RoleSpec, tokens: u32) -> RoleSpec {
    role.reply_tokens_max = tokens;
    role
}
