//! Tool rounds, refused tools, and two calls that need the same thread.

use segue_core::decide::{InputRefusal, OperatorCommand, SessionInput};
use segue_core::event::{Event, ToolRunOutcome, TurnOutcome};
use segue_core::flow::{FlowStep, RoleSpec, ToolRunnerKind};
use segue_core::ids::{CallId, Seq, ToolRunId, UnixMillis};
use segue_core::limits::SESSION_LIMITS;
use segue_core::prompt::ModelReply;
use segue_core::scope::Scope;
use segue_core::tool::ToolResult;
use segue_testkit::{ClosureFlow, SessionHarness};
use serde_json::json;

use super::{events, note, outcomes, refused_steps, tool, wants};

fn user_of(tools: &[&str], scope: Scope) -> RoleSpec {
    tools.iter().fold(ClosureFlow::test_role("speaker", scope), |role, tool| role.with_tool(tool))
}

fn looking(scope: Scope) -> SessionHarness {
    let spec = ClosureFlow::spec_with_role(user_of(&["look"], scope)).with_tool(tool("look", ToolRunnerKind::Host));
    SessionHarness::open(ClosureFlow::new(spec, ClosureFlow::react_as_chat))
}

fn both(harness: &mut SessionHarness, ids: [&str; 2]) {
    let tool_calls = ids.map(|id| wants(id, "look")).into();
    harness.reply_to_call("speaker", ModelReply { text: "looking".into(), tool_calls, ..ModelReply::default() });
}

#[test]
fn results_are_sent_in_the_order_of_the_tool_calls() {
    let mut harness = looking(Scope::per_session());
    harness.send_message("look twice");
    both(&mut harness, ["a", "b"]);
    let result = |run, text: &str| SessionInput::ToolResult { run: ToolRunId(run), result: ToolResult::done(text) };
    harness.apply_input(result(2, "second")).apply_input(result(1, "first"));
    assert_eq!(
        harness.prompt_lines("speaker"),
        "System: be speaker\nUser: look twice\nAssistant: looking\nTool: first\nTool: second\n"
    );
    assert_eq!(
        harness.try_input(result(1, "first")).err(),
        Some(InputRefusal::ToolRunNotPending { run: ToolRunId(1) })
    );
    harness.answer_call("speaker", "seen");
    assert_eq!((harness.last_reply().as_str(), harness.session().threads.len()), ("seen", 1));
}

#[test]
fn tool_calls_with_equal_ids_are_matched_by_order() {
    let mut harness = looking(Scope::per_session());
    harness.send_message("look twice");
    both(&mut harness, ["same", "same"]);
    harness.finish_tool("look", Ok("first")).finish_tool("look", Err("second"));
    assert!(harness.prompt_lines("speaker").ends_with("Tool: first\nTool: second\n"));
}

#[test]
fn failed_tool_result_is_marked_in_every_prompt() {
    let mut harness = looking(Scope::per_session());
    harness.send_message("look twice");
    both(&mut harness, ["a", "b"]);
    harness.finish_tool("look", Ok("first")).finish_tool("look", Err("no light"));
    let failed = |prompt: &segue_core::prompt::Prompt| prompt.messages.iter().map(|it| it.failed).collect::<Vec<_>>();
    let prompt = harness.prompt_for_role("speaker");
    assert_eq!(failed(&prompt), [false, false, false, false, true]);
    assert!(prompt.to_string().contains("── tool answers b, failed ──\nno light"), "{prompt}");
    let call = harness.oldest_open_call("speaker").0;
    harness.crash_and_recover();
    assert_eq!(failed(&harness.prompt_for_role("speaker")), failed(&prompt), "also after a crash");
    harness.answer_call("speaker", "seen one");
    assert_eq!(harness.rebuild_prompt(call), prompt, "and next year");
    harness.send_message("and now?").answer_with_tool_call("speaker", "delete_everything", json!({}));
    assert!(
        harness.prompt_for_role("speaker").messages.last().is_some_and(|message| message.failed),
        "a refusal is no result"
    );
}

#[test]
fn tool_results_of_old_journals_stay_unmarked() {
    let written = r#"{"type":"tool_run_ended","run":1,"outcome":"failed","text":{"body":"00112233445566778899aabbccddeeff","tokens":2}}"#;
    let event = segue_core::codec::decode_event(Seq(1), UnixMillis(0), written.as_bytes()).expect("it is read").event;
    assert!(matches!(event, Event::ToolRunEnded { outcome: ToolRunOutcome::Failed, failed: false, .. }), "{event:?}");
    assert_eq!(String::from_utf8_lossy(&segue_core::codec::encode_event(&event)), written);
}

#[test]
fn tools_that_the_role_lacks_are_refused_and_the_model_is_told() {
    let mut harness = looking(Scope::Fresh);
    harness.send_message("hi").answer_with_tool_call("speaker", "delete_everything", json!({"sure": true}));
    assert!(harness.prompt_lines("speaker").ends_with("Tool: this role has no tool `delete_everything`\n"));
    harness.answer_call("speaker", "then not");
    assert!(harness.session().threads.is_empty(), "a fresh thread ends with its last round");
}

#[test]
fn flow_tool_without_an_answer_fails() {
    let spec = ClosureFlow::spec_with_role(user_of(&["complete"], Scope::per_session()))
        .with_tool(tool("complete", ToolRunnerKind::Flow));
    let mut harness = SessionHarness::open(ClosureFlow::new(spec, ClosureFlow::react_as_chat));
    harness.send_message("hi").answer_with_tool_call("speaker", "complete", json!({}));
    assert!(harness.prompt_lines("speaker").ends_with("Tool: the flow did not answer `complete`\n"));
    let outcome = events(&harness, |event| match event {
        Event::ToolRunEnded { outcome, .. } => Some(*outcome),
        _ => None,
    });
    assert_eq!(outcome, [ToolRunOutcome::Failed]);
}

#[test]
fn tool_rounds_and_tool_calls_have_a_limit() {
    let mut harness = looking(Scope::per_session());
    harness.send_message("look");
    let many = (0..SESSION_LIMITS.tool_calls_per_reply_max + 5).map(|n| wants(&n.to_string(), "look")).collect();
    harness.reply_to_call("speaker", ModelReply { tool_calls: many, ..ModelReply::default() });
    assert_eq!(harness.session().open_tool_runs.len(), SESSION_LIMITS.tool_calls_per_reply_max);
    for _ in 0..SESSION_LIMITS.tool_calls_per_reply_max {
        harness.finish_tool("look", Ok("ok"));
    }
    for _ in 1..SESSION_LIMITS.tool_rounds_max {
        harness.answer_with_tool_call("speaker", "look", json!({})).finish_tool("look", Ok("ok"));
    }
    assert_eq!(outcomes(&harness), [""; 0]);
    harness.answer_with_tool_call("speaker", "look", json!({}));
    assert_eq!(refused_steps(&harness), ["tool calls: the call has already used 16 tool rounds, which is the maximum"]);
    assert_eq!(outcomes(&harness), ["done"], "the text next to its tool call is its answer");
}

#[test]
fn a_result_that_is_too_long_is_cut_and_marked() {
    let mut harness = looking(Scope::per_session());
    harness.send_message("look").answer_with_tool_call("speaker", "look", json!({}));
    harness.finish_tool("look", Ok(&"ż".repeat(SESSION_LIMITS.tool_result_bytes_max)));
    let prompt = harness.prompt_for_role("speaker");
    let result = prompt.messages.last().expect("the result").text();
    assert!(result.len() <= SESSION_LIMITS.tool_result_bytes_max + 10 && result.ends_with("ż[…]"));
}

#[test]
fn turn_cancelled_during_a_round_leaves_a_usable_thread() {
    let mut harness = looking(Scope::per_session());
    harness.send_message("look twice");
    both(&mut harness, ["a", "b"]);
    harness.finish_tool("look", Ok("first")).run_command(OperatorCommand::Cancel { turn: None });
    assert!(harness.session().is_idle() && harness.session().tool_rounds.is_empty());
    harness.send_message("well?");
    assert_eq!(
        harness.prompt_lines("speaker"),
        "System: be speaker\nUser: look twice\nAssistant: looking\nTool: first\nTool: cancelled: cancelled on request\nUser: well?\n"
    );
    let late = SessionInput::ToolResult { run: ToolRunId(2), result: ToolResult::done("second") };
    assert_eq!(harness.try_input(late).err(), Some(InputRefusal::ToolRunNotPending { run: ToolRunId(2) }));
}

#[test]
fn fork_between_a_tool_call_and_its_run_has_no_tool_call_without_a_result() {
    let mut harness = looking(Scope::per_session());
    harness.send_message("look twice");
    both(&mut harness, ["a", "b"]);
    let answered = harness.journal().iter().position(|recorded| matches!(recorded.event, Event::CallAnswered(_)));
    let mut copy = harness.fork_at(answered.expect("it was answered") + 1);
    copy.send_message("well?");
    assert_eq!(
        copy.prompt_lines("speaker"),
        "System: be speaker\nUser: look twice\nAssistant: looking\nTool: \nTool: \nUser: well?\n"
    );
}

/// Two calls per turn for one role with a thread for the session.
fn twice() -> SessionHarness {
    let spec = ClosureFlow::spec_with_role(user_of(&["look"], Scope::per_session()))
        .with_tool(tool("look", ToolRunnerKind::Host));
    SessionHarness::open(ClosureFlow::new(spec, |view, event| match &event.event {
        Event::TurnStarted { .. } => vec![note("speaker", "first"), note("speaker", "second")],
        Event::CallAnswered(answered) if answered.tool_calls.is_empty() => {
            let done = view.session.open_calls.is_empty() && view.session.deferred_calls.is_empty();
            done.then_some(FlowStep::EndTurn(TurnOutcome::Done)).into_iter().collect()
        }
        _ => Vec::new(),
    }))
}

#[test]
fn a_second_call_on_a_thread_waits_and_then_sees_the_firsts_answer() {
    let mut harness = twice();
    harness.send_message("go");
    assert_eq!(harness.open_call_roles(), ["speaker"]);
    harness.answer_call("speaker", "1");
    assert_eq!(harness.prompt_lines("speaker"), "System: be speaker\nUser: first\nAssistant: 1\nUser: second\n");
    harness.answer_call("speaker", "2");
    assert_eq!(outcomes(&harness), ["done"]);
}

#[test]
fn a_second_call_waits_for_all_rounds_of_the_first() {
    let mut harness = twice();
    harness.send_message("go").answer_with_tool_call("speaker", "look", json!({}));
    assert!(harness.open_call_roles().is_empty(), "a round is in progress");
    harness.finish_tool("look", Ok("seen"));
    assert_eq!(harness.prompt_lines("speaker"), "System: be speaker\nUser: first\nAssistant: \nTool: seen\n");
    harness.answer_call("speaker", "1");
    assert!(harness.prompt_lines("speaker").ends_with("Tool: seen\nAssistant: 1\nUser: second\n"));
}

#[test]
fn failed_first_call_lets_the_second_resume() {
    let mut harness = twice();
    harness.send_message("go").fail_call("speaker", segue_core::prompt::CallFailureKind::Refused);
    assert_eq!(harness.prompt_lines("speaker"), "System: be speaker\nUser: second\n");
}

#[test]
fn a_cancelled_turn_drops_the_call_that_waited_in_it() {
    let mut harness = twice();
    harness.send_message("go").run_command(OperatorCommand::Cancel { turn: None });
    assert!(harness.session().is_idle() && harness.session().deferred_calls.is_empty());
    harness.send_message("again").answer_call("speaker", "1").answer_call("speaker", "2");
    assert_eq!(outcomes(&harness), ["cancelled", "done"]);
}

#[test]
fn call_requested_during_a_round_waits_until_the_round_ends() {
    let spec = ClosureFlow::spec_with_role(user_of(&["look"], Scope::per_session()))
        .with_tool(tool("look", ToolRunnerKind::Host));
    let mut harness = SessionHarness::open(ClosureFlow::new(spec, |view, event| match &event.event {
        Event::ToolRunEnded { .. } => vec![note("speaker", "by the way")],
        Event::CallAnswered(_) if view.subject.call.as_ref().is_some_and(|call| call.ask == "note") => Vec::new(),
        _ if matches!(event.event, Event::CallAnswered(_)) => Vec::new(),
        _ => ClosureFlow::react_as_chat(view, event),
    }));
    harness.send_message("look").answer_with_tool_call("speaker", "look", json!({})).finish_tool("look", Ok("seen"));
    assert!(harness.prompt_lines("speaker").ends_with("Assistant: \nTool: seen\n"), "the round continues first");
    harness.answer_call("speaker", "I saw");
    assert!(harness.prompt_lines("speaker").ends_with("Tool: seen\nAssistant: I saw\nUser: by the way\n"));
    let dropped = events(&harness, |event| matches!(event, Event::ToolRoundDropped { .. }).then_some(()));
    assert!(dropped.is_empty());
}

#[test]
fn reset_during_a_round_affects_only_the_next_call() {
    let mut harness = looking(Scope::per_session());
    harness.send_message("look").answer_with_tool_call("speaker", "look", json!({}));
    harness
        .run_command(OperatorCommand::Forget { role: "speaker".into(), agent: None, peer: None })
        .finish_tool("look", Ok("seen"));
    assert!(harness.prompt_lines("speaker").ends_with("Tool: seen\n"));
    harness.answer_call("speaker", "I saw").send_message("what did you see?");
    assert_eq!(harness.prompt_lines("speaker"), "System: be speaker\nUser: what did you see?\n");
    assert_eq!(harness.session().threads.len(), 1, "the old one is gone");
    assert_eq!(harness.oldest_open_call("speaker").0, CallId(3));
}
