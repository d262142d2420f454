//! Tools: rounds of them, those that are refused, and two calls that want one thread.

use segue_core::decide::{InputRefusal, OperatorCommand, SessionInput};
use segue_core::event::{Event, ToolOutcome, TurnResult};
use segue_core::flow::{FlowStep, RoleSpec, ToolRunner};
use segue_core::ids::{CallId, Seq, ToolRunId, UnixMillis};
use segue_core::limits::{TOOL_CALLS_PER_REPLY_MAX, TOOL_RESULT_BYTES_MAX, TOOL_ROUNDS_MAX};
use segue_core::prompt::ModelReply;
use segue_core::scope::Scope;
use segue_testkit::{ClosureFlow, SessionHarness};
use serde_json::json;

use super::{events, note, outcomes, refused_steps, tool, wants};

fn user_of(tools: &[&str], scope: Scope) -> RoleSpec {
    tools.iter().fold(ClosureFlow::test_role("speaker", scope), |role, tool| role.with_tool(tool))
}

fn looking(scope: Scope) -> SessionHarness {
    let spec = ClosureFlow::spec_with_role(user_of(&["look"], scope)).with_tool(tool("look", ToolRunner::Host));
    SessionHarness::open(ClosureFlow::new(spec, ClosureFlow::react_as_chat))
}

fn both(stage: &mut SessionHarness, ids: [&str; 2]) {
    let tool_calls = ids.map(|id| wants(id, "look")).into();
    stage.reply_to_call("speaker", ModelReply { text: "looking".into(), tool_calls, ..ModelReply::default() });
}

#[test]
fn results_go_back_in_the_order_of_the_wishes_whatever_order_they_come_in() {
    let mut stage = looking(Scope::per_session());
    stage.send_message("look twice");
    both(&mut stage, ["a", "b"]);
    let result = |run, text: &str| SessionInput::ToolResult { run: ToolRunId(run), result: Ok(text.to_owned()) };
    stage.apply_input(result(2, "second")).apply_input(result(1, "first"));
    assert_eq!(
        stage.prompt_lines("speaker"),
        "System: be speaker\nUser: look twice\nAssistant: looking\nTool: first\nTool: second\n"
    );
    assert_eq!(stage.try_input(result(1, "first")).err(), Some(InputRefusal::ToolRunNotPending { run: ToolRunId(1) }));
    stage.answer_call("speaker", "seen");
    assert_eq!((stage.last_reply().as_str(), stage.session().threads.len()), ("seen", 1));
}

#[test]
fn wishes_with_one_id_are_told_apart_by_their_order() {
    let mut stage = looking(Scope::per_session());
    stage.send_message("look twice");
    both(&mut stage, ["same", "same"]);
    stage.finish_tool("look", Ok("first")).finish_tool("look", Err("second"));
    assert!(stage.prompt_lines("speaker").ends_with("Tool: first\nTool: second\n"));
}

#[test]
fn what_a_tool_could_not_do_is_marked_in_the_prompt_and_in_every_copy_of_it() {
    let mut stage = looking(Scope::per_session());
    stage.send_message("look twice");
    both(&mut stage, ["a", "b"]);
    stage.finish_tool("look", Ok("first")).finish_tool("look", Err("no light"));
    let failed = |prompt: &segue_core::prompt::Prompt| prompt.messages.iter().map(|it| it.failed).collect::<Vec<_>>();
    let prompt = stage.prompt_for_role("speaker");
    assert_eq!(failed(&prompt), [false, false, false, false, true]);
    assert!(prompt.to_plain_text().contains("── tool answers b, failed ──\nno light"), "{}", prompt.to_plain_text());
    let call = stage.oldest_open_call("speaker").0;
    stage.crash_and_recover();
    assert_eq!(failed(&stage.prompt_for_role("speaker")), failed(&prompt), "also after a crash");
    stage.answer_call("speaker", "seen one");
    assert_eq!(stage.rebuild_prompt(call), prompt, "and next year");
    stage.send_message("and now?").answer_with_tool_call("speaker", "delete_everything", json!({}));
    assert!(
        stage.prompt_for_role("speaker").messages.last().is_some_and(|message| message.failed),
        "a refusal is no result"
    );
}

#[test]
fn results_of_journals_in_which_models_were_sent_the_text_alone_stay_as_they_were_sent() {
    let written = r#"{"type":"tool_run_ended","run":1,"outcome":"failed","text":{"body":"00112233445566778899aabbccddeeff","tokens":2}}"#;
    let event = segue_core::codec::decode_event(Seq(1), UnixMillis(0), written.as_bytes()).expect("it is read").event;
    assert!(matches!(event, Event::ToolRunEnded { outcome: ToolOutcome::Failed, failed: false, .. }), "{event:?}");
    assert_eq!(String::from_utf8_lossy(&segue_core::codec::encode_event(&event)), written);
}

#[test]
fn tools_the_role_does_not_have_are_refused_and_the_model_is_told() {
    let mut stage = looking(Scope::Fresh);
    stage.send_message("hi").answer_with_tool_call("speaker", "delete_everything", json!({"sure": true}));
    assert!(stage.prompt_lines("speaker").ends_with("Tool: there is no tool `delete_everything` for this role\n"));
    stage.answer_call("speaker", "then not");
    assert!(stage.session().threads.is_empty(), "a fresh thread ends with its last round");
}

#[test]
fn a_tool_that_the_flow_forgets_to_answer_is_answered_for_it() {
    let spec = ClosureFlow::spec_with_role(user_of(&["complete"], Scope::per_session()))
        .with_tool(tool("complete", ToolRunner::Flow));
    let mut stage = SessionHarness::open(ClosureFlow::new(spec, ClosureFlow::react_as_chat));
    stage.send_message("hi").answer_with_tool_call("speaker", "complete", json!({}));
    assert!(stage.prompt_lines("speaker").ends_with("Tool: nothing answers to `complete`\n"));
    let outcome = events(&stage, |event| match event {
        Event::ToolRunEnded { outcome, .. } => Some(*outcome),
        _ => None,
    });
    assert_eq!(outcome, [ToolOutcome::Failed]);
}

#[test]
fn rounds_and_wishes_have_a_limit() {
    let mut stage = looking(Scope::per_session());
    stage.send_message("look");
    let many = (0..TOOL_CALLS_PER_REPLY_MAX + 5).map(|n| wants(&n.to_string(), "look")).collect();
    stage.reply_to_call("speaker", ModelReply { tool_calls: many, ..ModelReply::default() });
    assert_eq!(stage.session().open_tool_runs.len(), TOOL_CALLS_PER_REPLY_MAX);
    for _ in 0..TOOL_CALLS_PER_REPLY_MAX {
        stage.finish_tool("look", Ok("ok"));
    }
    for _ in 1..TOOL_ROUNDS_MAX {
        stage.answer_with_tool_call("speaker", "look", json!({})).finish_tool("look", Ok("ok"));
    }
    assert_eq!(outcomes(&stage), [""; 0]);
    stage.answer_with_tool_call("speaker", "look", json!({}));
    assert_eq!(
        refused_steps(&stage),
        ["tool calls: tools were used for 16 rounds already, the most one call may take"]
    );
    assert_eq!(outcomes(&stage), ["done"], "what it said beside its wish is its answer");
}

#[test]
fn a_result_that_is_too_long_is_cut_and_marked() {
    let mut stage = looking(Scope::per_session());
    stage.send_message("look").answer_with_tool_call("speaker", "look", json!({}));
    stage.finish_tool("look", Ok(&"ż".repeat(TOOL_RESULT_BYTES_MAX)));
    let prompt = stage.prompt_for_role("speaker");
    let result = prompt.messages.last().expect("the result").text();
    assert!(result.len() <= TOOL_RESULT_BYTES_MAX + 10 && result.ends_with("ż[…]"));
}

#[test]
fn a_turn_cancelled_in_the_middle_of_a_round_leaves_a_thread_that_can_be_gone_on_with() {
    let mut stage = looking(Scope::per_session());
    stage.send_message("look twice");
    both(&mut stage, ["a", "b"]);
    stage.finish_tool("look", Ok("first")).run_command(OperatorCommand::Cancel);
    assert!(stage.session().is_idle() && stage.session().tool_rounds.is_empty());
    stage.send_message("well?");
    assert_eq!(
        stage.prompt_lines("speaker"),
        "System: be speaker\nUser: look twice\nAssistant: looking\nTool: first\nTool: cancelled: stopped by hand\nUser: well?\n"
    );
    let late = SessionInput::ToolResult { run: ToolRunId(2), result: Ok("second".into()) };
    assert_eq!(stage.try_input(late).err(), Some(InputRefusal::ToolRunNotPending { run: ToolRunId(2) }));
}

#[test]
fn a_copy_made_between_a_wish_and_its_run_holds_no_wish_without_a_result() {
    let mut stage = looking(Scope::per_session());
    stage.send_message("look twice");
    both(&mut stage, ["a", "b"]);
    let answered = stage.journal().iter().position(|recorded| matches!(recorded.event, Event::CallAnswered(_)));
    let mut copy = stage.fork_at(answered.expect("it was answered") + 1);
    copy.send_message("well?");
    assert_eq!(
        copy.prompt_lines("speaker"),
        "System: be speaker\nUser: look twice\nAssistant: looking\nTool: \nTool: \nUser: well?\n"
    );
}

/// Two calls a turn for one role that remembers the session.
fn twice() -> SessionHarness {
    let spec =
        ClosureFlow::spec_with_role(user_of(&["look"], Scope::per_session())).with_tool(tool("look", ToolRunner::Host));
    SessionHarness::open(ClosureFlow::new(spec, |view, event| match &event.event {
        Event::TurnStarted { .. } => vec![note("speaker", "first"), note("speaker", "second")],
        Event::CallAnswered(answered) if answered.tool_calls.is_empty() => {
            let done = view.session.open_calls.is_empty() && view.session.deferred_calls.is_empty();
            done.then_some(FlowStep::EndTurn(TurnResult::Done)).into_iter().collect()
        }
        _ => Vec::new(),
    }))
}

#[test]
fn a_second_call_on_a_thread_waits_and_then_sees_the_firsts_answer() {
    let mut stage = twice();
    stage.send_message("go");
    assert_eq!(stage.open_call_roles(), ["speaker"]);
    stage.answer_call("speaker", "1");
    assert_eq!(stage.prompt_lines("speaker"), "System: be speaker\nUser: first\nAssistant: 1\nUser: second\n");
    stage.answer_call("speaker", "2");
    assert_eq!(outcomes(&stage), ["done"]);
}

#[test]
fn a_second_call_waits_for_all_rounds_of_the_first() {
    let mut stage = twice();
    stage.send_message("go").answer_with_tool_call("speaker", "look", json!({}));
    assert!(stage.open_call_roles().is_empty(), "a round is under way");
    stage.finish_tool("look", Ok("seen"));
    assert_eq!(stage.prompt_lines("speaker"), "System: be speaker\nUser: first\nAssistant: \nTool: seen\n");
    stage.answer_call("speaker", "1");
    assert!(stage.prompt_lines("speaker").ends_with("Tool: seen\nAssistant: 1\nUser: second\n"));
}

#[test]
fn a_failed_first_call_lets_the_second_go_on() {
    let mut stage = twice();
    stage.send_message("go").fail_call("speaker", segue_core::prompt::FailureKind::Refused);
    assert_eq!(stage.prompt_lines("speaker"), "System: be speaker\nUser: second\n");
}

#[test]
fn a_cancelled_turn_drops_the_call_that_waited_in_it() {
    let mut stage = twice();
    stage.send_message("go").run_command(OperatorCommand::Cancel);
    assert!(stage.session().is_idle() && stage.session().deferred_calls.is_empty());
    stage.send_message("again").answer_call("speaker", "1").answer_call("speaker", "2");
    assert_eq!(outcomes(&stage), ["cancelled", "done"]);
}

#[test]
fn a_call_wished_while_results_come_in_waits_until_the_round_is_over() {
    let spec =
        ClosureFlow::spec_with_role(user_of(&["look"], Scope::per_session())).with_tool(tool("look", ToolRunner::Host));
    let mut stage = SessionHarness::open(ClosureFlow::new(spec, |view, event| match &event.event {
        Event::ToolRunEnded { .. } => vec![note("speaker", "by the way")],
        Event::CallAnswered(_) if view.subject.call.as_ref().is_some_and(|call| call.ask == "note") => Vec::new(),
        _ if matches!(event.event, Event::CallAnswered(_)) => Vec::new(),
        _ => ClosureFlow::react_as_chat(view, event),
    }));
    stage.send_message("look").answer_with_tool_call("speaker", "look", json!({})).finish_tool("look", Ok("seen"));
    assert!(stage.prompt_lines("speaker").ends_with("Assistant: \nTool: seen\n"), "the round goes on first");
    stage.answer_call("speaker", "I saw");
    assert!(stage.prompt_lines("speaker").ends_with("Tool: seen\nAssistant: I saw\nUser: by the way\n"));
    let dropped = events(&stage, |event| matches!(event, Event::ToolRoundDropped { .. }).then_some(()));
    assert!(dropped.is_empty());
}

#[test]
fn a_reset_during_a_round_leaves_the_round_its_thread_and_takes_the_next_call_a_new_one() {
    let mut stage = looking(Scope::per_session());
    stage.send_message("look").answer_with_tool_call("speaker", "look", json!({}));
    stage
        .run_command(OperatorCommand::Forget { role: "speaker".into(), agent: None, peer: None })
        .finish_tool("look", Ok("seen"));
    assert!(stage.prompt_lines("speaker").ends_with("Tool: seen\n"));
    stage.answer_call("speaker", "I saw").send_message("what did you see?");
    assert_eq!(stage.prompt_lines("speaker"), "System: be speaker\nUser: what did you see?\n");
    assert_eq!(stage.session().threads.len(), 1, "the old one is gone");
    assert_eq!(stage.oldest_open_call("speaker").0, CallId(3));
}
