//! Tools that the client runs itself.

use segue_core::decide::{InputRefusal, OperatorCommand, SessionInput};
use segue_core::event::{ClientToolResult, ClientTurnOptions, Event, ToolRunHoldReason};
use segue_core::ids::ToolRunId;
use segue_core::prompt::{
    ModelOutputFormat, ModelReply, ModelToolSpec, ModelToolUseRules, StopReason, ToolCall, ToolChoice,
};
use segue_core::scope::Scope;
use segue_testkit::{ClosureFlow, SessionHarness};
use serde_json::json;

use super::{events, outcomes};

fn flow() -> ClosureFlow {
    let mut role = ClosureFlow::test_role("speaker", Scope::per_session());
    role.accepts_turn_options = true;
    ClosureFlow::new(ClosureFlow::spec_with_role(role), ClosureFlow::react_as_chat)
}

fn options(tools: &[&str]) -> ClientTurnOptions {
    let tool = |name: &&str| ModelToolSpec {
        name: (*name).into(),
        description: String::new(),
        parameters: json!({"type": "object"}),
    };
    ClientTurnOptions { tools: tools.iter().map(tool).collect(), ..ClientTurnOptions::default() }
}

fn message(options: ClientTurnOptions) -> SessionInput {
    SessionInput::ClientMessage { text: "look".to_owned(), idempotency_key: None, images: Vec::new(), options }
}

fn results(results: &[(u32, &str)]) -> OperatorCommand {
    let result = |(run, text): &(u32, &str)| ClientToolResult { run: ToolRunId(*run), text: (*text).to_owned() };
    OperatorCommand::ProvideToolResults { results: results.iter().map(result).collect(), options: options(&["look"]) }
}

fn calls(names: &[&str]) -> ModelReply {
    let call = |(index, name): (usize, &&str)| ToolCall {
        id: format!("call_{index}"),
        name: (*name).into(),
        arguments: json!({"at": index}),
    };
    let tool_calls = names.iter().enumerate().map(call).collect();
    ModelReply { tool_calls, stop_reason: StopReason::ToolCalls, ..ModelReply::default() }
}

/// A session in which the model has called the client's tools.
fn waiting(names: &[&str]) -> SessionHarness {
    let mut harness = SessionHarness::open(flow());
    harness.apply_input(message(options(&["look"])));
    harness.reply_to_call("speaker", calls(names));
    harness
}

fn refusal(harness: &mut SessionHarness, command: OperatorCommand) -> InputRefusal {
    harness.try_input(SessionInput::Operator(command)).expect_err("it is refused")
}

#[test]
fn client_tool_waits_at_rest_and_its_result_resumes_the_turn_once() {
    let mut harness = waiting(&["look", "look"]);
    let held = events(&harness, |event| match event {
        Event::ToolRunHeld { run, reason: ToolRunHoldReason::ClientResult, .. } => Some(run.0),
        _ => None,
    });
    assert_eq!(held, [1, 2]);
    assert!(harness.session().is_at_rest() && !harness.session().is_idle());
    harness.crash_and_recover();
    assert!(harness.session().is_at_rest(), "a crash starts nothing");
    let partial = refusal(&mut harness, results(&[(1, "a cat")]));
    assert!(matches!(&partial, InputRefusal::InvalidTurnOptions { why } if why.contains("x2")), "{partial}");
    assert!(matches!(refusal(&mut harness, results(&[(7, "")])), InputRefusal::ToolRunNotHeld { .. }));
    harness.run_command(results(&[(2, "a dog"), (1, "a cat")]));
    let prompt = harness.prompt_for_role("speaker");
    let texts: Vec<String> = prompt.messages.iter().rev().take(2).map(|message| message.text()).collect();
    assert_eq!(texts, ["a dog", "a cat"], "in the order of the calls");
    assert!(matches!(
        refusal(&mut harness, results(&[(1, "a cat"), (2, "a dog")])),
        InputRefusal::ToolRunNotHeld { .. }
    ));
    harness.answer_call("speaker", "two animals");
    assert_eq!((harness.last_reply().as_str(), outcomes(&harness)), ("two animals", vec!["done".to_owned()]));
}

#[test]
fn unknown_tool_is_refused_and_an_excess_call_is_dropped() {
    let mut harness = SessionHarness::open(flow());
    harness.apply_input(message(options(&["look"])));
    harness.reply_to_call("speaker", calls(&["jump"]));
    assert!(harness.session().held_tool_runs.is_empty());
    assert!(harness.prompt_for_role("speaker").messages.last().is_some_and(|message| message.failed));
    let tool_use = ModelToolUseRules { choice: ToolChoice::Required, is_single_call: true };
    let mut harness = SessionHarness::open(flow());
    harness.apply_input(message(ClientTurnOptions { tool_use: tool_use.clone(), ..options(&["look"]) }));
    assert_eq!(harness.prompt_for_role("speaker").tool_use, tool_use);
    harness.reply_to_call("speaker", calls(&["look", "look"]));
    assert_eq!(harness.session().held_tool_runs.len(), 1);
}

#[test]
fn options_apply_to_their_turn_and_change_with_the_results() {
    let mut harness = SessionHarness::open(flow());
    let schema = json!({"type": "object"});
    harness
        .apply_input(message(ClientTurnOptions { output_schema: Some(schema.clone()), ..options(&["look", "hear"]) }));
    let first = harness.prompt_for_role("speaker");
    assert_eq!((first.tools.len(), first.output_format), (2, ModelOutputFormat::Json(schema)));
    harness.reply_to_call("speaker", calls(&["hear"]));
    harness.run_command(results(&[(1, "birds")]));
    let second = harness.prompt_for_role("speaker");
    assert_eq!((second.tools.len(), second.output_format), (1, ModelOutputFormat::Text));
    harness.answer_call("speaker", "birds").send_message("and now?");
    assert!(harness.prompt_for_role("speaker").tools.is_empty(), "the next message has its own options");
}

#[test]
fn fork_waits_for_the_client_too() {
    let original = waiting(&["look"]);
    let mut fork = original.fork_at(original.journal().len());
    assert!(fork.session().is_at_rest() && !fork.session().is_idle());
    fork.run_command(results(&[(1, "a fox")])).answer_call("speaker", "a fox");
    assert_eq!(fork.last_reply(), "a fox");
    assert_eq!(original.session().held_tool_runs.len(), 1, "the original still waits");
}

#[test]
fn flow_without_such_a_role_refuses_options() {
    let role = ClosureFlow::test_role("speaker", Scope::per_session());
    let flow = ClosureFlow::new(ClosureFlow::spec_with_role(role), ClosureFlow::react_as_chat);
    let mut harness = SessionHarness::open(flow);
    let refused = harness.try_input(message(options(&["look"]))).expect_err("it is refused");
    assert!(refused.to_string().contains("its own tools"), "{refused}");
    let mut role = ClosureFlow::test_role("speaker", Scope::per_session()).with_tool("own");
    role.accepts_turn_options = true;
    let errors = ClosureFlow::spec_with_role(role).validation_errors();
    assert!(errors.iter().any(|error| error.contains("no tools of its own")), "{errors:?}");
}

#[test]
fn waiting_turn_can_be_cancelled() {
    let mut harness = waiting(&["look"]);
    harness.run_command(OperatorCommand::Cancel { turn: None });
    assert!(harness.session().is_idle());
    assert_eq!(outcomes(&harness), ["cancelled"]);
}
