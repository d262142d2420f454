//! Closing a session, and forking it.

use segue_core::decide::{InputRefusal, OperatorCommand, SessionInput};
use segue_core::event::{Event, SessionOpened, TurnOutcome};
use segue_core::flow::{FlowStep, ToolRunnerKind};
use segue_core::scope::Scope;
use segue_testkit::{ClosureFlow, SessionHarness};
use serde_json::json;

use super::{message, note, outcomes, refused_steps, tool};

fn chat() -> SessionHarness {
    SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()))
}

#[test]
fn closed_session_has_no_pending_work_and_accepts_no_messages() {
    let mut harness = chat();
    harness.send_message("one").send_message("two").run_command(OperatorCommand::Close);
    assert_eq!(outcomes(&harness), ["cancelled"]);
    assert!(harness.session().is_idle(), "a queued message does not start a turn");
    let refusal = harness.try_input(message("three")).expect_err("it is closed");
    assert_eq!(refusal, InputRefusal::Closed { reason: "closed on request".into() });
    let before = harness.journal().len();
    harness.run_command(OperatorCommand::Close).advance_and_tick(1_000).crash_and_recover();
    assert_eq!(harness.journal().len(), before);
}

#[test]
fn closing_cancels_work_outside_turns_and_nothing_new_starts() {
    let worker = ClosureFlow::test_role("worker", Scope::per_session()).with_tool("look");
    let spec = ClosureFlow::spec_with_role(worker)
        .with_role(ClosureFlow::speaker_role())
        .with_tool(tool("look", ToolRunnerKind::Host));
    let mut harness = SessionHarness::open(ClosureFlow::new(spec, |_, event| match &event.event {
        Event::TurnStarted { .. } => vec![
            FlowStep::EndTurn(TurnOutcome::Done),
            note("worker", "a"),
            note("worker", "b"),
            note("speaker", "c"),
            FlowStep::SetTimer { name: "later".into(), after_ms: 10 },
        ],
        Event::CallCancelled { .. } => vec![
            note("worker", "again"),
            FlowStep::RunTool { tool: "look".into(), arguments: json!({}), agent: None },
            FlowStep::SetTimer { name: "again".into(), after_ms: 1 },
        ],
        _ => Vec::new(),
    }));
    harness.send_message("go").answer_with_tool_call("worker", "look", json!({})).take_new_event_lines();
    harness.run_command(OperatorCommand::Close);
    assert!(harness.session().is_idle() && harness.session().timers.is_empty());
    assert_eq!(
        refused_steps(&harness),
        [
            "call of `worker` for `note`: the session is closed",
            "run of `look`: the session is closed",
            "timer `again`: the session is closed",
        ]
    );
}

#[test]
fn a_flow_that_closes_its_session_may_still_finish_the_turn() {
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role());
    let mut harness = SessionHarness::open(ClosureFlow::new(spec, |view, event| match &event.event {
        Event::TurnStarted { .. } => {
            let mut steps = vec![
                FlowStep::CloseSession { reason: "done".into() },
                FlowStep::CloseSession { reason: "twice".into() },
            ];
            steps.extend(ClosureFlow::react_as_chat(view, event));
            steps
        }
        _ => ClosureFlow::react_as_chat(view, event),
    }));
    harness.send_message("bye").answer_call("speaker", "farewell");
    assert_eq!((harness.last_reply().as_str(), outcomes(&harness)), ("farewell", vec!["done".to_owned()]));
    assert_eq!(harness.session().closed_reason.as_deref(), Some("done"));
}

#[test]
fn fork_during_a_turn_starts_between_turns_with_the_same_threads() {
    let mut harness = chat();
    harness.send_message("one").answer_call("speaker", "1").send_message("two").fork();
    assert_eq!(outcomes(&harness), ["done", "cancelled"]);
    assert_eq!(harness.session().id, Some("copy".into()));
    harness.send_message("another two");
    assert_eq!(harness.prompt_lines("speaker"), "System: be speaker\nUser: one\nAssistant: 1\nUser: another two\n");
}

#[test]
fn fork_of_a_closed_session_is_open() {
    let mut harness = chat();
    harness.send_message("one").answer_call("speaker", "1").run_command(OperatorCommand::Close).fork();
    harness.send_message("two").answer_call("speaker", "2");
    assert_eq!(harness.last_reply(), "2");
}

#[test]
fn fork_before_a_turn_starts_the_turn() {
    let mut harness = chat();
    harness.send_message("one");
    let received =
        harness.journal().iter().position(|recorded| matches!(recorded.event, Event::UserMessageReceived(_)));
    let mut copy = harness.fork_at(received.expect("it was received") + 1);
    assert_eq!(copy.open_call_roles(), ["speaker"]);
    copy.answer_call("speaker", "1");
}

#[test]
fn a_session_is_opened_once_and_before_anything_else() {
    let mut harness = chat();
    let opened = SessionOpened {
        flow_definition: None,
        format: 1,
        session: "again".into(),
        flow: "puppet".into(),
        title: None,
        mid_turn_policy: segue_core::event::MidTurnPolicy::Queue,
        settings: serde_json::Value::Null,
        model_overrides: std::collections::BTreeMap::new(),
        child_origin: None,
    };
    assert_eq!(harness.try_input(SessionInput::Open(opened)).err(), Some(InputRefusal::AlreadyOpen));
    let mut unopened = harness.copy_empty();
    for input in
        [message("hi"), SessionInput::Tick, SessionInput::Recovered, SessionInput::Operator(OperatorCommand::Close)]
    {
        assert_eq!(unopened.try_input(input).err(), Some(InputRefusal::NotOpen));
    }
}
