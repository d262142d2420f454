//! How turns end, what belongs to them, and what goes on beside them. Timers.

use segue_core::decide::{InputRefusal, OperatorCommand, SessionInput};
use segue_core::event::{CallRequest, Event, MessagePriority, TurnResult};
use segue_core::flow::{FlowSpec, FlowStep, ToolDeclaration, ToolRunner, UnknownOutcomePolicy};
use segue_core::ids::TurnId;
use segue_core::limits::{CALLS_PER_TURN_MAX, STEPS_PER_INPUT_MAX};
use segue_core::prompt::FailureKind;
use segue_core::scope::Scope;
use segue_core::session::Effect;
use segue_testkit::{ClosureFlow, SessionHarness};
use serde_json::json;

use super::{events, message, note, outcomes, refused_steps, tool};

fn spec() -> FlowSpec {
    ClosureFlow::spec_with_role(ClosureFlow::speaker_role())
        .with_role(ClosureFlow::test_role("worker", Scope::per_turn()))
}

#[test]
fn a_stalled_turn_ends_and_says_so() {
    let mut stage = SessionHarness::open(ClosureFlow::new(spec(), |_, _| Vec::new()));
    stage.send_message("hello?").send_message("anybody?");
    assert_eq!(outcomes(&stage), ["failed", "failed"]);
    assert!(stage.session().is_idle());
}

#[test]
fn a_turn_whose_calls_were_all_refused_ends() {
    let mut stage = SessionHarness::open(ClosureFlow::new(spec(), |_, event| match &event.event {
        Event::TurnStarted { .. } => {
            vec![
                note("nobody", "x"),
                FlowStep::Call(CallRequest::new("speaker", "sing")),
                FlowStep::EndTurn(TurnResult::Done),
            ]
        }
        Event::TurnEnded { .. } => vec![FlowStep::EndTurn(TurnResult::Done)],
        _ => Vec::new(),
    }));
    stage.send_message("hi");
    assert_eq!(
        refused_steps(&stage),
        [
            "call of `nobody` for `note`: the flow has no such role",
            "call of `speaker` for `sing`: the role has no such ask",
            "end of turn: no turn is running",
        ]
    );
    assert_eq!(outcomes(&stage), ["done"]);
}

#[test]
fn a_flow_that_never_stops_is_stopped_and_nothing_is_recorded() {
    let mut stage = SessionHarness::open(ClosureFlow::new(spec(), |_, event| match &event.event {
        Event::TurnStarted { .. } | Event::FlowFactRecorded { .. } => {
            vec![FlowStep::RecordFact { kind: "again".into(), value: serde_json::Value::Null }]
        }
        _ => Vec::new(),
    }));
    let before = stage.session().clone();
    assert_eq!(stage.try_input(message("go")).err(), Some(InputRefusal::TooManySteps { most: STEPS_PER_INPUT_MAX }));
    assert_eq!(stage.session(), &before);
}

#[test]
fn a_flow_that_calls_and_calls_comes_to_the_end_of_its_turn() {
    let mut stage = SessionHarness::open(ClosureFlow::new(spec(), |_, event| match &event.event {
        Event::TurnStarted { .. } | Event::CallAnswered(_) => vec![note("speaker", "again")],
        _ => Vec::new(),
    }));
    stage.send_message("go");
    stage.with_checks_at_end(|stage| {
        for _ in 0..CALLS_PER_TURN_MAX {
            stage.answer_call("speaker", "ok");
        }
    });
    assert_eq!(outcomes(&stage), ["failed"]);
    assert!(refused_steps(&stage)[0].contains("does the flow loop?"));
    stage.send_message("a new turn may call again").answer_call("speaker", "ok");
}

#[test]
fn the_end_of_a_turn_ends_what_is_owed_for_it() {
    let mut stage = SessionHarness::open(ClosureFlow::new(spec(), |_, event| match &event.event {
        Event::TurnStarted { .. } => vec![note("speaker", "a"), note("worker", "b")],
        Event::CallAnswered(_) => vec![FlowStep::EndTurn(TurnResult::Done)],
        // What is owed no more must not be mourned as a failure of the turn.
        Event::CallCancelled { .. } => vec![FlowStep::EndTurn(TurnResult::Failed { reason: "cancelled".into() })],
        _ => Vec::new(),
    }));
    stage.send_message("go").answer_call("worker", "done");
    assert_eq!(outcomes(&stage), ["done"]);
    assert!(stage.session().is_idle());
}

/// A flow in which a worker works on and on beside the turns, and each turn is a talk of the speaker.
fn with_background() -> SessionHarness {
    SessionHarness::open(ClosureFlow::new(spec(), |view, event| match (&event.event, view.subject.call.as_deref()) {
        (Event::TurnStarted { turn: TurnId(1), .. }, _) => {
            vec![FlowStep::EndTurn(TurnResult::Done), note("worker", "begin")]
        }
        (Event::CallAnswered(_), Some(call)) if call.role == "worker" => vec![
            FlowStep::Send {
                from: "worker".into(),
                to: "worker".into(),
                priority: MessagePriority::Normal,
                topic: "next".into(),
                text: "go on".into(),
                in_reply_to: None,
            },
            FlowStep::SetTimer { name: "pause".into(), after_ms: 10 },
        ],
        (Event::AgentMessageSent(posted), _) => vec![FlowStep::Receive { agent: posted.to.clone() }],
        (Event::AgentMessageReceived { .. } | Event::TimerFired { .. }, _) => vec![note("worker", "go on")],
        _ => ClosureFlow::react_as_chat(view, event),
    }))
}

#[test]
fn work_beside_the_turns_is_no_turns_and_does_not_end_with_one() {
    let mut stage = with_background();
    stage.send_message("start").send_message("hi");
    assert_eq!(stage.open_call_roles(), ["worker", "speaker"]);
    stage.answer_call("worker", "done a bit");
    assert_eq!(turns(&stage), [Some(TurnId(2)), None], "its next step was taken during turn 2, not for it");
    stage.advance_and_tick(20);
    assert_eq!(
        stage.session().deferred_calls.len() + stage.session().open_calls.len(),
        3,
        "nor are its timers the turn's"
    );
    stage.answer_call("speaker", "hello");
    assert_eq!(outcomes(&stage), ["done", "done"]);
    assert!(stage.open_call_roles().contains(&"worker".to_owned()), "the worker works on");
    assert_eq!(stage.session().ledger.current_turn.answered_calls, 1, "and is not on the turn's account");
}

#[test]
fn a_role_that_remembers_a_turn_does_not_mix_it_with_what_goes_on_beside_it() {
    let mut stage = SessionHarness::open(ClosureFlow::new(spec(), |view, event| {
        match (&event.event, view.subject.call.as_deref()) {
            (Event::TurnStarted { turn: TurnId(1), .. }, _) => {
                vec![FlowStep::EndTurn(TurnResult::Done), note("worker", "beside")]
            }
            (Event::TurnStarted { .. }, _) => vec![note("worker", "within")],
            (Event::CallAnswered(_), Some(call)) if call.turn.is_none() => vec![note("worker", "still beside")],
            _ => Vec::new(),
        }
    }));
    stage.send_message("one").send_message("two");
    stage.answer_call("worker", "b");
    let open: Vec<_> = stage.session().open_calls.keys().copied().collect();
    let lines =
        |call| -> Vec<String> { stage.prompt_for_call(call).messages.iter().map(|message| message.text()).collect() };
    assert_eq!(lines(open[0]), ["be worker", "within"]);
    assert_eq!(
        lines(open[1]),
        ["be worker", "still beside"],
        "the turn took its slot; what stood there is left behind"
    );
}

/// The turns of the open calls, by their numbers.
fn turns(stage: &SessionHarness) -> Vec<Option<TurnId>> {
    stage.session().open_calls.values().map(|open| open.opened.turn).collect()
}

#[test]
fn a_waiting_call_goes_on_for_whom_it_was_wished_whoever_it_waited_for() {
    let mut stage = SessionHarness::open(ClosureFlow::new(spec(), |_, event| match &event.event {
        Event::TurnStarted { turn: TurnId(1), .. } => {
            vec![FlowStep::EndTurn(TurnResult::Done), note("speaker", "beside"), note("speaker", "beside again")]
        }
        Event::TurnStarted { .. } => vec![note("speaker", "within"), note("worker", "within")],
        _ => Vec::new(),
    }));
    stage.send_message("one").send_message("two");
    stage.answer_call("speaker", "1");
    assert_eq!(turns(&stage), [Some(TurnId(2)), None], "the second wish beside the turns comes first");
    stage.answer_call("speaker", "2");
    assert_eq!(turns(&stage), [Some(TurnId(2)), Some(TurnId(2))], "and then the one within");
}

#[test]
fn a_round_goes_on_for_whom_it_was_begun() {
    let look = ToolDeclaration { unknown_outcome: UnknownOutcomePolicy::Fail, ..tool("look", ToolRunner::Host) };
    let role = |name: &str| ClosureFlow::test_role(name, Scope::per_session()).with_tool("look");
    let spec = ClosureFlow::spec_with_role(role("speaker")).with_role(role("worker")).with_tool(look);
    let mut stage = SessionHarness::open(ClosureFlow::new(spec, |_, event| match &event.event {
        Event::TurnStarted { turn: TurnId(1), .. } => {
            vec![FlowStep::EndTurn(TurnResult::Done), note("worker", "beside")]
        }
        Event::TurnStarted { .. } => vec![note("speaker", "within")],
        _ => Vec::new(),
    }));
    stage.send_message("one").send_message("two");
    stage
        .answer_with_tool_call("worker", "look", json!({}))
        .answer_with_tool_call("speaker", "look", json!({}))
        .crash_and_recover();
    assert_eq!(turns(&stage), [None, Some(TurnId(2))], "both ended in one decision");
}

fn with_timers() -> SessionHarness {
    SessionHarness::open(ClosureFlow::new(spec(), |_, event| match &event.event {
        Event::TurnStarted { turn, .. } => vec![
            FlowStep::SetTimer { name: "bell".into(), after_ms: 100 },
            FlowStep::SetTimer { name: "bell".into(), after_ms: 300 },
            FlowStep::SetTimer { name: format!("other {turn}"), after_ms: 200 },
            FlowStep::StopTimer { name: "never set".into() },
        ],
        Event::TimerFired { name, .. } if name == "bell" => vec![FlowStep::EndTurn(TurnResult::Done)],
        _ => Vec::new(),
    }))
}

#[test]
fn timers_fire_when_their_time_has_come_and_not_before() {
    let mut stage = with_timers();
    stage.send_message("wait").take_log();
    stage.advance_and_tick(150);
    assert_eq!(stage.take_log(), "", "the first bell was replaced");
    stage.advance_and_tick(60);
    assert_eq!(stage.take_log(), "w3 timer other t1 fired\n");
    stage.advance_and_tick(100);
    assert_eq!(stage.take_log(), "w2 timer bell fired\nt1 done\n");
    stage.advance_and_tick(1_000_000);
    assert_eq!(stage.take_log(), "", "each fires once");
}

#[test]
fn a_session_says_when_to_look_again_and_looking_moves_it_on() {
    let mut stage = with_timers();
    stage.send_message("wait");
    for _ in 0..2 {
        let Some(Effect::Wake { at }) = stage.session().pending_effects(&spec()).pop() else { panic!("a timer runs") };
        assert!(at > stage.now());
        let before = stage.journal().len();
        stage.advance_and_tick(at.ms_since(stage.now()));
        assert!(stage.journal().len() > before, "waking was worth it");
    }
    assert!(stage.session().pending_effects(&spec()).is_empty());
}

#[test]
fn a_timer_that_was_due_while_the_process_was_down_fires_at_once() {
    let mut stage = with_timers();
    stage.send_message("wait");
    stage.advance_clock(10_000);
    stage.crash_and_recover();
    assert_eq!(outcomes(&stage), ["done"]);
}

#[test]
fn an_interrupted_turn_leaves_the_next_one_alone() {
    let mut stage = SessionHarness::open(ClosureFlow::new(spec(), |view, event| match &event.event {
        // A flow that ends the turn when a call is cancelled must not end the turn that comes after.
        Event::CallCancelled { .. } => vec![FlowStep::EndTurn(TurnResult::Failed { reason: "cancelled".into() })],
        _ => ClosureFlow::react_as_chat(view, event),
    }));
    stage.send_message("one");
    stage.apply_input(SessionInput::Message {
        text: "two".into(),
        idempotency_key: None,
        mid_turn_policy: Some(segue_core::event::MidTurnPolicy::Interrupt),
        images: Vec::new(),
    });
    assert_eq!(outcomes(&stage), ["interrupted"]);
    assert_eq!(stage.open_call_roles(), ["speaker"]);
    stage.run_command(OperatorCommand::Cancel);
    let said = events(&stage, |event| matches!(event, Event::ReplySent(_)).then_some(()));
    assert!(said.is_empty());
}

#[test]
fn a_failed_turn_is_tried_again_with_what_was_said_in_it() {
    let mut stage = SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()));
    let nothing = |stage: &mut SessionHarness| stage.try_input(SessionInput::Operator(OperatorCommand::Retry)).err();
    assert_eq!(nothing(&mut stage), Some(InputRefusal::LastTurnNotFailed));
    stage.send_message("hello");
    assert_eq!(nothing(&mut stage), Some(InputRefusal::Busy), "it runs");
    stage.fail_call("speaker", FailureKind::InvalidApiKey).crash_and_recover().run_command(OperatorCommand::Retry);
    let turn = stage.session().current_turn.clone().expect("a turn runs");
    assert_eq!((turn.id, turn.messages.len()), (TurnId(2), 1));
    assert_eq!(
        stage.prompt_for_role("speaker").messages.last().map(|message| message.text()).as_deref(),
        Some("hello")
    );
    let started = events(&stage, |event| match event {
        Event::TurnStarted { messages, retry_of: again, .. } => Some((messages.clone(), *again)),
        _ => None,
    });
    let message = turn.messages[0].message;
    assert_eq!(started, [(vec![message], None), (vec![message], Some(TurnId(1)))]);
    stage
        .fail_call("speaker", FailureKind::InvalidApiKey)
        .run_command(OperatorCommand::Retry)
        .answer_call("speaker", "hi");
    assert_eq!(outcomes(&stage), ["failed", "failed", "done"]);
    assert_eq!(nothing(&mut stage), Some(InputRefusal::LastTurnNotFailed));
}

#[test]
fn a_failed_turn_is_over_once_something_else_is_said() {
    let mut stage = SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()));
    stage
        .send_message("hello")
        .fail_call("speaker", FailureKind::InvalidApiKey)
        .send_message("never mind")
        .answer_call("speaker", "ok");
    assert_eq!(
        stage.try_input(SessionInput::Operator(OperatorCommand::Retry)).err(),
        Some(InputRefusal::LastTurnNotFailed)
    );
    stage.send_message("again").run_command(OperatorCommand::Cancel);
    assert_eq!(
        stage.try_input(SessionInput::Operator(OperatorCommand::Retry)).err(),
        Some(InputRefusal::LastTurnNotFailed),
        "stopped, not failed"
    );
}
