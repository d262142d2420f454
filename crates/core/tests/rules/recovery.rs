//! Calls and tools that were in flight when the process died.

use segue_core::decide::{InputRefusal, OperatorCommand, SessionInput, UnknownCallOutcomeResolution};
use segue_core::event::{Event, RetryDecision, UnknownToolRunOutcomeResolution};
use segue_core::flow::{RoleSpec, ToolRunnerKind, UnknownOutcomePolicy};
use segue_core::ids::{CallId, ToolRunId};
use segue_core::limits::SESSION_LIMITS;
use segue_core::prompt::{CallFailureKind, ModelReply};
use segue_testkit::{ClosureFlow, SessionHarness};
use serde_json::json;

use super::{events, outcomes, tool};

fn chat(unknown: UnknownOutcomePolicy) -> SessionHarness {
    let mut speaker = ClosureFlow::speaker_role();
    speaker.unknown_outcome = unknown;
    SessionHarness::open(ClosureFlow::single_speaker(speaker))
}

#[test]
fn an_unknown_call_is_made_again_under_the_retry_policy() {
    let mut harness = chat(UnknownOutcomePolicy::Retry);
    harness.send_message("hi").crash_and_recover();
    assert_eq!(harness.oldest_open_call("speaker"), (CallId(1), 2));
    assert_eq!(harness.session().ledger.total.unknown_attempts, 1);
    harness.answer_call("speaker", "here");
    assert_eq!(harness.last_reply(), "here");
}

#[test]
fn an_unknown_call_fails_under_the_fail_policy() {
    let mut harness = chat(UnknownOutcomePolicy::Fail);
    harness.send_message("hi").crash_and_recover();
    assert_eq!(outcomes(&harness), ["failed"]);
}

#[test]
fn unknown_call_waits_for_an_operator_under_the_ask_policy() {
    for (how, outcome) in
        [(UnknownCallOutcomeResolution::Retry, "done"), (UnknownCallOutcomeResolution::Fail, "failed")]
    {
        let mut harness = chat(UnknownOutcomePolicy::AskOperator);
        harness.send_message("hi").crash_and_recover();
        let spec = segue_core::flow::FlowSpec::new("x", "x");
        assert!(harness.session().pending_effects(&spec).is_empty(), "it is not made without a decision");
        assert_eq!(harness.session().calls_awaiting_operator().count(), 1);
        let reply = ModelReply::default();
        let answer = SessionInput::Answer { call: CallId(1), attempt: 1, reply, cost_microusd: None, duration_ms: 0 };
        assert!(matches!(harness.try_input(answer), Err(InputRefusal::CallNotPending { .. })));
        harness.crash_and_recover().run_command(OperatorCommand::Resolve { call: CallId(1), resolution: how });
        if how == UnknownCallOutcomeResolution::Retry {
            harness.answer_call("speaker", "here");
        }
        assert_eq!(outcomes(&harness), [outcome]);
        let again = OperatorCommand::Resolve { call: CallId(1), resolution: how };
        assert_eq!(
            harness.try_input(SessionInput::Operator(again)).err(),
            Some(InputRefusal::NoResolutionNeeded { call: CallId(1) })
        );
    }
}

#[test]
fn call_awaiting_an_operator_is_dropped_with_its_turn() {
    let mut harness = chat(UnknownOutcomePolicy::AskOperator);
    harness
        .send_message("hi")
        .crash_and_recover()
        .run_command(OperatorCommand::Cancel { turn: None })
        .send_message("again");
    assert_eq!(harness.open_call_roles(), ["speaker"]);
    assert_eq!(harness.session().calls_awaiting_operator().count(), 0);
}

#[test]
fn scheduled_retry_is_not_unknown() {
    let mut harness = chat(UnknownOutcomePolicy::Fail);
    harness.send_message("hi").fail_call("speaker", CallFailureKind::Overload).crash_and_recover();
    assert_eq!(outcomes(&harness), [""; 0], "it had not started");
    harness.advance_and_tick(1_000).crash_and_recover();
    assert_eq!(outcomes(&harness), ["failed"], "it was due");
}

#[test]
fn call_that_crashes_the_process_each_time_is_given_up() {
    let mut harness = chat(UnknownOutcomePolicy::Retry);
    harness.send_message("hi");
    for _ in 0..SESSION_LIMITS.attempts_per_call_max {
        assert!(harness.session().current_turn.is_some());
        harness.crash_and_recover();
    }
    assert_eq!(outcomes(&harness), ["failed"]);
    assert_eq!(harness.session().ledger.total.unknown_attempts, SESSION_LIMITS.attempts_per_call_max);
}

#[test]
fn recovering_twice_records_nothing_false() {
    let mut harness = chat(UnknownOutcomePolicy::AskOperator);
    harness.send_message("hi").crash_and_recover();
    let before = harness.journal().len();
    harness.crash_and_recover().crash_and_recover();
    assert_eq!(harness.journal().len(), before, "what is held was not in flight again");
}

#[test]
fn a_finished_call_is_never_made_twice() {
    let mut harness = chat(UnknownOutcomePolicy::Retry);
    harness
        .send_message("one")
        .answer_call("speaker", "1")
        .send_message("two")
        .crash_and_recover()
        .answer_call("speaker", "2")
        .crash_and_recover();
    let opened = events(&harness, |event| match event {
        Event::CallOpened(opened) => Some(opened.call),
        _ => None,
    });
    let unknown = events(&harness, |event| match event {
        Event::CallOutcomeUnknown { call, next: RetryDecision::Retry { .. }, .. } => Some(*call),
        _ => None,
    });
    assert_eq!((opened, unknown), (vec![CallId(1), CallId(2)], vec![CallId(2)]));
}

#[test]
fn running_tool_is_retried_or_its_outcome_is_unknown() {
    let worker = |name: &str| -> RoleSpec {
        ClosureFlow::test_role(name, segue_core::scope::Scope::per_session()).with_tool("look")
    };
    for (policy, told) in [
        (UnknownOutcomePolicy::Retry, "found it"),
        (UnknownOutcomePolicy::Fail, "the process died while this was running; it may or may not have taken effect"),
    ] {
        let look =
            segue_core::flow::FlowToolDeclaration { unknown_outcome: policy, ..tool("look", ToolRunnerKind::Host) };
        let mut harness = SessionHarness::open(ClosureFlow::new(
            ClosureFlow::spec_with_role(worker("speaker")).with_tool(look),
            ClosureFlow::react_as_chat,
        ));
        harness.send_message("look").answer_with_tool_call("speaker", "look", json!({})).crash_and_recover();
        if policy == UnknownOutcomePolicy::Retry {
            harness.finish_tool("look", Ok("found it"));
        }
        assert!(harness.prompt_lines("speaker").ends_with(&format!("Tool: {told}\n")));
    }
}

#[test]
fn tool_run_of_unknown_outcome_waits_for_an_operator_if_its_declaration_says_so() {
    let resolve = |resolution, text: Option<&str>| OperatorCommand::ResolveToolRun {
        run: ToolRunId(1),
        resolution,
        text: text.map(str::to_owned),
    };
    let cases = [
        (UnknownToolRunOutcomeResolution::RunAgain, None, "Tool: found it\n", false),
        (UnknownToolRunOutcomeResolution::Fail, None, "it may or may not have taken effect\n", true),
        (UnknownToolRunOutcomeResolution::Fail, Some("it was not sent"), "Tool: it was not sent\n", true),
        (UnknownToolRunOutcomeResolution::Done, Some("it was sent"), "Tool: it was sent\n", false),
    ];
    for (resolution, text, told, failed) in cases {
        let look = segue_core::flow::FlowToolDeclaration {
            unknown_outcome: UnknownOutcomePolicy::AskOperator,
            ..tool("look", ToolRunnerKind::Host)
        };
        let role = ClosureFlow::test_role("speaker", segue_core::scope::Scope::per_session()).with_tool("look");
        let spec = ClosureFlow::spec_with_role(role).with_tool(look);
        let mut harness = SessionHarness::open(ClosureFlow::new(spec, ClosureFlow::react_as_chat));
        harness.send_message("look").answer_with_tool_call("speaker", "look", json!({}));
        let early = harness.try_input(SessionInput::Operator(resolve(resolution, text))).err();
        assert!(matches!(early, Some(InputRefusal::ToolRunNotHeld { .. })), "it is running: {early:?}");
        harness.crash_and_recover().crash_and_recover();
        assert_eq!(harness.session().held_tool_runs.len(), 1);
        assert!(harness.session().is_at_rest());
        let approve = OperatorCommand::Approve { run: ToolRunId(1), arguments: None, remember: false, by: None };
        assert!(harness.try_input(SessionInput::Operator(approve)).is_err(), "nobody asked for approval");
        harness.run_command(resolve(resolution, text));
        if resolution == UnknownToolRunOutcomeResolution::RunAgain {
            harness.finish_tool("look", Ok("found it"));
        }
        assert!(harness.prompt_lines("speaker").ends_with(told), "{}", harness.prompt_lines("speaker"));
        assert_eq!(harness.prompt_for_role("speaker").messages.last().map(|message| message.failed), Some(failed));
    }
}
