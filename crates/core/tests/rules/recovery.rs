//! Calls and tools that were under way when the process died.

use segue_core::decide::{InputRefusal, OperatorCommand, SessionInput, UnknownCallResolution};
use segue_core::event::{Event, RetryDecision};
use segue_core::flow::{RoleSpec, ToolRunner, UnknownOutcomePolicy};
use segue_core::ids::CallId;
use segue_core::limits::ATTEMPTS_PER_CALL_MAX;
use segue_core::prompt::{FailureKind, ModelReply};
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
    let mut stage = chat(UnknownOutcomePolicy::Retry);
    stage.send_message("hi").crash_and_recover();
    assert_eq!(stage.oldest_open_call("speaker"), (CallId(1), 2));
    assert_eq!(stage.session().ledger.total.unknown_attempts, 1);
    stage.answer_call("speaker", "here");
    assert_eq!(stage.last_reply(), "here");
}

#[test]
fn an_unknown_call_fails_under_the_fail_policy() {
    let mut stage = chat(UnknownOutcomePolicy::Fail);
    stage.send_message("hi").crash_and_recover();
    assert_eq!(outcomes(&stage), ["failed"]);
}

#[test]
fn an_unknown_call_waits_for_a_person_under_the_ask_policy() {
    for (how, outcome) in [(UnknownCallResolution::Retry, "done"), (UnknownCallResolution::Fail, "failed")] {
        let mut stage = chat(UnknownOutcomePolicy::AskOperator);
        stage.send_message("hi").crash_and_recover();
        let spec = segue_core::flow::FlowSpec::new("x", "x");
        assert!(stage.session().pending_effects(&spec).is_empty(), "nobody makes it unasked");
        assert_eq!(stage.session().calls_awaiting_operator().count(), 1);
        let reply = ModelReply::default();
        let answer = SessionInput::Answer { call: CallId(1), attempt: 1, reply, cost_microusd: None, duration_ms: 0 };
        assert!(matches!(stage.try_input(answer), Err(InputRefusal::CallNotPending { .. })));
        stage.crash_and_recover().run_command(OperatorCommand::Resolve { call: CallId(1), resolution: how });
        if how == UnknownCallResolution::Retry {
            stage.answer_call("speaker", "here");
        }
        assert_eq!(outcomes(&stage), [outcome]);
        let again = OperatorCommand::Resolve { call: CallId(1), resolution: how };
        assert_eq!(
            stage.try_input(SessionInput::Operator(again)).err(),
            Some(InputRefusal::NoResolutionNeeded { call: CallId(1) })
        );
    }
}

#[test]
fn a_held_call_is_dropped_with_its_turn() {
    let mut stage = chat(UnknownOutcomePolicy::AskOperator);
    stage.send_message("hi").crash_and_recover().run_command(OperatorCommand::Cancel).send_message("again");
    assert_eq!(stage.open_call_roles(), ["speaker"]);
    assert_eq!(stage.session().calls_awaiting_operator().count(), 0);
}

#[test]
fn a_try_that_was_still_to_come_is_not_unknown() {
    let mut stage = chat(UnknownOutcomePolicy::Fail);
    stage.send_message("hi").fail_call("speaker", FailureKind::Overload).crash_and_recover();
    assert_eq!(outcomes(&stage), [""; 0], "it had not begun");
    stage.advance_and_tick(1_000).crash_and_recover();
    assert_eq!(outcomes(&stage), ["failed"], "it was due");
}

#[test]
fn a_call_that_kills_the_process_each_time_is_given_up_in_the_end() {
    let mut stage = chat(UnknownOutcomePolicy::Retry);
    stage.send_message("hi");
    for _ in 0..ATTEMPTS_PER_CALL_MAX {
        assert!(stage.session().current_turn.is_some());
        stage.crash_and_recover();
    }
    assert_eq!(outcomes(&stage), ["failed"]);
    assert_eq!(stage.session().ledger.total.unknown_attempts, ATTEMPTS_PER_CALL_MAX);
}

#[test]
fn recovering_twice_in_a_row_says_no_more_than_is_true() {
    let mut stage = chat(UnknownOutcomePolicy::AskOperator);
    stage.send_message("hi").crash_and_recover();
    let before = stage.journal().len();
    stage.crash_and_recover().crash_and_recover();
    assert_eq!(stage.journal().len(), before, "what is held was not in flight again");
}

#[test]
fn a_finished_call_is_never_made_twice() {
    let mut stage = chat(UnknownOutcomePolicy::Retry);
    stage
        .send_message("one")
        .answer_call("speaker", "1")
        .send_message("two")
        .crash_and_recover()
        .answer_call("speaker", "2")
        .crash_and_recover();
    let opened = events(&stage, |event| match event {
        Event::CallOpened(opened) => Some(opened.call),
        _ => None,
    });
    let unknown = events(&stage, |event| match event {
        Event::CallOutcomeUnknown { call, next: RetryDecision::Retry { .. }, .. } => Some(*call),
        _ => None,
    });
    assert_eq!((opened, unknown), (vec![CallId(1), CallId(2)], vec![CallId(2)]));
}

#[test]
fn a_tool_under_way_is_run_again_or_its_end_is_told_as_unknown() {
    let worker = |name: &str| -> RoleSpec {
        ClosureFlow::test_role(name, segue_core::scope::Scope::per_session()).with_tool("look")
    };
    for (policy, told) in [
        (UnknownOutcomePolicy::Retry, "found it"),
        (UnknownOutcomePolicy::Fail, "the process died while this ran; it may or may not have had its effect"),
    ] {
        let look = segue_core::flow::ToolDeclaration { unknown_outcome: policy, ..tool("look", ToolRunner::Host) };
        let mut stage = SessionHarness::open(ClosureFlow::new(
            ClosureFlow::spec_with_role(worker("speaker")).with_tool(look),
            ClosureFlow::react_as_chat,
        ));
        stage.send_message("look").answer_with_tool_call("speaker", "look", json!({})).crash_and_recover();
        if policy == UnknownOutcomePolicy::Retry {
            stage.finish_tool("look", Ok("found it"));
        }
        assert!(stage.prompt_lines("speaker").ends_with(&format!("Tool: {told}\n")));
    }
}
