//! How turns end, what belongs to them, work outside turns, and timers.

use segue_core::decide::{InputRefusal, OperatorCommand, SessionInput};
use segue_core::event::{AgentMessagePriority, CallRequest, Event, TurnOutcome};
use segue_core::flow::{FlowSpec, FlowStep, FlowToolDeclaration, ToolRunnerKind, UnknownOutcomePolicy};
use segue_core::ids::TurnId;
use segue_core::limits::SESSION_LIMITS;
use segue_core::prompt::CallFailureKind;
use segue_core::scope::{Scope, ThreadEndTrigger};
use segue_core::session::Effect;
use segue_testkit::{ClosureFlow, SessionHarness};
use serde_json::json;

use super::{events, message, note, outcomes, refused_steps, tool};

fn spec() -> FlowSpec {
    ClosureFlow::spec_with_role(ClosureFlow::speaker_role())
        .with_role(ClosureFlow::test_role("worker", Scope::per_session().ended_by(ThreadEndTrigger::Turn)))
}

#[test]
fn stalled_turn_fails_with_the_reason() {
    let mut harness = SessionHarness::open(ClosureFlow::new(spec(), |_, _| Vec::new()));
    harness.send_message("hello?").send_message("anybody?");
    assert_eq!(outcomes(&harness), ["failed", "failed"]);
    assert!(harness.session().is_idle());
}

#[test]
fn a_turn_whose_calls_were_all_refused_ends() {
    let mut harness = SessionHarness::open(ClosureFlow::new(spec(), |_, event| match &event.event {
        Event::TurnStarted { .. } => {
            vec![
                note("nobody", "x"),
                FlowStep::Call(CallRequest::new("speaker", "sing")),
                FlowStep::EndTurn(TurnOutcome::Done),
            ]
        }
        Event::TurnEnded { .. } => vec![FlowStep::EndTurn(TurnOutcome::Done)],
        _ => Vec::new(),
    }));
    harness.send_message("hi");
    assert_eq!(
        refused_steps(&harness),
        [
            "call of `nobody` for `note`: the flow has no such role",
            "call of `speaker` for `sing`: the role has no such ask",
            "end of turn: no turn is running",
        ]
    );
    assert_eq!(outcomes(&harness), ["done"]);
}

#[test]
fn a_flow_that_never_stops_is_stopped_and_nothing_is_recorded() {
    let mut harness = SessionHarness::open(ClosureFlow::new(spec(), |_, event| match &event.event {
        Event::TurnStarted { .. } | Event::FlowFactRecorded { .. } => {
            vec![FlowStep::RecordFact { kind: "again".into(), value: serde_json::Value::Null }]
        }
        _ => Vec::new(),
    }));
    let before = harness.session().clone();
    assert_eq!(
        harness.try_input(message("go")).err(),
        Some(InputRefusal::TooManySteps { most: SESSION_LIMITS.steps_per_input_max })
    );
    assert_eq!(harness.session(), &before);
}

#[test]
fn flow_that_keeps_calling_reaches_the_call_limit() {
    let mut harness = SessionHarness::open(ClosureFlow::new(spec(), |_, event| match &event.event {
        Event::TurnStarted { .. } | Event::CallAnswered(_) => vec![note("speaker", "again")],
        _ => Vec::new(),
    }));
    harness.send_message("go");
    harness.with_checks_at_end(|harness| {
        for _ in 0..SESSION_LIMITS.calls_per_turn_max {
            harness.answer_call("speaker", "ok");
        }
    });
    assert_eq!(outcomes(&harness), ["failed"]);
    assert!(refused_steps(&harness)[0].contains("the flow may be in a loop"));
    harness.send_message("a new turn may call again").answer_call("speaker", "ok");
}

#[test]
fn end_of_a_turn_cancels_its_pending_work() {
    let mut harness = SessionHarness::open(ClosureFlow::new(spec(), |_, event| match &event.event {
        Event::TurnStarted { .. } => vec![note("speaker", "a"), note("worker", "b")],
        Event::CallAnswered(_) => vec![FlowStep::EndTurn(TurnOutcome::Done)],
        // Cancelled work must not count as a failure of the turn.
        Event::CallCancelled { .. } => vec![FlowStep::EndTurn(TurnOutcome::Failed { reason: "cancelled".into() })],
        _ => Vec::new(),
    }));
    harness.send_message("go").answer_call("worker", "done");
    assert_eq!(outcomes(&harness), ["done"]);
    assert!(harness.session().is_idle());
}

/// A flow in which a worker runs outside turns, and each turn calls the speaker.
fn with_background() -> SessionHarness {
    SessionHarness::open(ClosureFlow::new(spec(), |view, event| match (&event.event, view.subject.call.as_deref()) {
        (Event::TurnStarted { turn: TurnId(1), .. }, _) => {
            vec![FlowStep::EndTurn(TurnOutcome::Done), note("worker", "begin")]
        }
        (Event::CallAnswered(_), Some(call)) if call.role == "worker" => vec![
            FlowStep::Send {
                from: "worker".into(),
                to: "worker".into(),
                priority: AgentMessagePriority::Normal,
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
fn work_outside_turns_does_not_end_with_a_turn() {
    let mut harness = with_background();
    harness.send_message("start").send_message("hi");
    assert_eq!(harness.open_call_roles(), ["worker", "speaker"]);
    harness.answer_call("worker", "done a bit");
    assert_eq!(turns(&harness), [Some(TurnId(2)), None], "its next step was taken during turn 2, not for it");
    harness.advance_and_tick(20);
    assert_eq!(
        harness.session().deferred_calls.len() + harness.session().open_calls.len(),
        3,
        "nor are its timers the turn's"
    );
    harness.answer_call("speaker", "hello");
    assert_eq!(outcomes(&harness), ["done", "done"]);
    assert!(harness.open_call_roles().contains(&"worker".to_owned()), "the worker works on");
    assert_eq!(harness.session().ledger.current_turn.answered_calls, 1, "and is not on the turn's account");
}

#[test]
fn per_turn_scope_keeps_work_outside_turns_separate() {
    let mut harness = SessionHarness::open(ClosureFlow::new(spec(), |view, event| {
        match (&event.event, view.subject.call.as_deref()) {
            (Event::TurnStarted { turn: TurnId(1), .. }, _) => {
                vec![FlowStep::EndTurn(TurnOutcome::Done), note("worker", "beside")]
            }
            (Event::TurnStarted { .. }, _) => vec![note("worker", "within")],
            (Event::CallAnswered(_), Some(call)) if call.turn.is_none() => vec![note("worker", "still beside")],
            _ => Vec::new(),
        }
    }));
    harness.send_message("one").send_message("two");
    harness.answer_call("worker", "b");
    let open: Vec<_> = harness.session().open_calls.keys().copied().collect();
    let lines =
        |call| -> Vec<String> { harness.prompt_for_call(call).messages.iter().map(|message| message.text()).collect() };
    assert_eq!(lines(open[0]), ["be worker", "within"]);
    assert_eq!(
        lines(open[1]),
        ["be worker", "still beside"],
        "the turn took its slot; what stood there is left behind"
    );
}

/// The turns of the open calls.
fn turns(harness: &SessionHarness) -> Vec<Option<TurnId>> {
    harness.session().open_calls.values().map(|open| open.opened.turn).collect()
}

#[test]
fn deferred_call_resumes_in_the_turn_that_requested_it() {
    let mut harness = SessionHarness::open(ClosureFlow::new(spec(), |_, event| match &event.event {
        Event::TurnStarted { turn: TurnId(1), .. } => {
            vec![FlowStep::EndTurn(TurnOutcome::Done), note("speaker", "beside"), note("speaker", "beside again")]
        }
        Event::TurnStarted { .. } => vec![note("speaker", "within"), note("worker", "within")],
        _ => Vec::new(),
    }));
    harness.send_message("one").send_message("two");
    harness.answer_call("speaker", "1");
    assert_eq!(turns(&harness), [Some(TurnId(2)), None], "the second wish beside the turns comes first");
    harness.answer_call("speaker", "2");
    assert_eq!(turns(&harness), [Some(TurnId(2)), Some(TurnId(2))], "and then the one within");
}

#[test]
fn tool_round_continues_in_the_turn_that_started_it() {
    let look =
        FlowToolDeclaration { unknown_outcome: UnknownOutcomePolicy::Fail, ..tool("look", ToolRunnerKind::Host) };
    let role = |name: &str| ClosureFlow::test_role(name, Scope::per_session()).with_tool("look");
    let spec = ClosureFlow::spec_with_role(role("speaker")).with_role(role("worker")).with_tool(look);
    let mut harness = SessionHarness::open(ClosureFlow::new(spec, |_, event| match &event.event {
        Event::TurnStarted { turn: TurnId(1), .. } => {
            vec![FlowStep::EndTurn(TurnOutcome::Done), note("worker", "beside")]
        }
        Event::TurnStarted { .. } => vec![note("speaker", "within")],
        _ => Vec::new(),
    }));
    harness.send_message("one").send_message("two");
    harness
        .answer_with_tool_call("worker", "look", json!({}))
        .answer_with_tool_call("speaker", "look", json!({}))
        .crash_and_recover();
    assert_eq!(turns(&harness), [None, Some(TurnId(2))], "both ended in one decision");
}

fn with_timers() -> SessionHarness {
    SessionHarness::open(ClosureFlow::new(spec(), |_, event| match &event.event {
        Event::TurnStarted { turn, .. } => vec![
            FlowStep::SetTimer { name: "bell".into(), after_ms: 100 },
            FlowStep::SetTimer { name: "bell".into(), after_ms: 300 },
            FlowStep::SetTimer { name: format!("other {turn}"), after_ms: 200 },
            FlowStep::StopTimer { name: "never set".into() },
        ],
        Event::TimerFired { name, .. } if name == "bell" => vec![FlowStep::EndTurn(TurnOutcome::Done)],
        _ => Vec::new(),
    }))
}

#[test]
fn timers_fire_when_due_and_not_before() {
    let mut harness = with_timers();
    harness.send_message("wait").take_new_event_lines();
    harness.advance_and_tick(150);
    assert_eq!(harness.take_new_event_lines(), "", "the first bell was replaced");
    harness.advance_and_tick(60);
    assert_eq!(harness.take_new_event_lines(), "w3 timer other t1 fired\n");
    harness.advance_and_tick(100);
    assert_eq!(harness.take_new_event_lines(), "w2 timer bell fired\nt1 done\n");
    harness.advance_and_tick(1_000_000);
    assert_eq!(harness.take_new_event_lines(), "", "each fires once");
}

#[test]
fn session_reports_its_next_wake_and_a_tick_advances_it() {
    let mut harness = with_timers();
    harness.send_message("wait");
    for _ in 0..2 {
        let Some(Effect::Wake { at }) = harness.session().pending_effects(&spec()).pop() else {
            panic!("a timer runs")
        };
        assert!(at > harness.now());
        let before = harness.journal().len();
        harness.advance_and_tick(at.ms_since(harness.now()));
        assert!(harness.journal().len() > before, "waking was worth it");
    }
    assert!(harness.session().pending_effects(&spec()).is_empty());
}

#[test]
fn timer_due_during_downtime_fires_at_recovery() {
    let mut harness = with_timers();
    harness.send_message("wait");
    harness.advance_clock(10_000);
    harness.crash_and_recover();
    assert_eq!(outcomes(&harness), ["done"]);
}

#[test]
fn interrupted_turn_does_not_affect_the_next_one() {
    let mut harness = SessionHarness::open(ClosureFlow::new(spec(), |view, event| match &event.event {
        // A flow that ends the turn when a call is cancelled must not end the next turn.
        Event::CallCancelled { .. } => vec![FlowStep::EndTurn(TurnOutcome::Failed { reason: "cancelled".into() })],
        _ => ClosureFlow::react_as_chat(view, event),
    }));
    harness.send_message("one");
    harness.apply_input(SessionInput::Message {
        text: "two".into(),
        idempotency_key: None,
        mid_turn_policy: Some(segue_core::event::MidTurnPolicy::Interrupt),
        images: Vec::new(),
    });
    assert_eq!(outcomes(&harness), ["interrupted"]);
    assert_eq!(harness.open_call_roles(), ["speaker"]);
    harness.run_command(OperatorCommand::Cancel { turn: None });
    let said = events(&harness, |event| matches!(event, Event::ReplySent(_)).then_some(()));
    assert!(said.is_empty());
}

#[test]
fn failed_turn_is_retried_with_its_messages() {
    let mut harness = SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()));
    let nothing = |harness: &mut SessionHarness| {
        harness.try_input(SessionInput::Operator(OperatorCommand::Retry { turn: None })).err()
    };
    assert_eq!(nothing(&mut harness), Some(InputRefusal::LastTurnNotFailed));
    harness.send_message("hello");
    assert_eq!(nothing(&mut harness), Some(InputRefusal::Busy), "it runs");
    harness
        .fail_call("speaker", CallFailureKind::InvalidApiKey)
        .crash_and_recover()
        .run_command(OperatorCommand::Retry { turn: None });
    let turn = harness.session().current_turn.clone().expect("a turn runs");
    assert_eq!((turn.id, turn.messages.len()), (TurnId(2), 1));
    assert_eq!(
        harness.prompt_for_role("speaker").messages.last().map(|message| message.text()).as_deref(),
        Some("hello")
    );
    let started = events(&harness, |event| match event {
        Event::TurnStarted { messages, retry_of: again, .. } => Some((messages.clone(), *again)),
        _ => None,
    });
    let message = turn.messages[0].message;
    assert_eq!(started, [(vec![message], None), (vec![message], Some(TurnId(1)))]);
    harness
        .fail_call("speaker", CallFailureKind::InvalidApiKey)
        .run_command(OperatorCommand::Retry { turn: None })
        .answer_call("speaker", "hi");
    assert_eq!(outcomes(&harness), ["failed", "failed", "done"]);
    assert_eq!(nothing(&mut harness), Some(InputRefusal::LastTurnNotFailed));
}

#[test]
fn failed_turn_cannot_be_retried_after_another_message() {
    let mut harness = SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()));
    harness
        .send_message("hello")
        .fail_call("speaker", CallFailureKind::InvalidApiKey)
        .send_message("never mind")
        .answer_call("speaker", "ok");
    assert_eq!(
        harness.try_input(SessionInput::Operator(OperatorCommand::Retry { turn: None })).err(),
        Some(InputRefusal::LastTurnNotFailed)
    );
    harness.send_message("again").run_command(OperatorCommand::Cancel { turn: None });
    assert_eq!(
        harness.try_input(SessionInput::Operator(OperatorCommand::Retry { turn: None })).err(),
        Some(InputRefusal::LastTurnNotFailed),
        "stopped, not failed"
    );
}

#[test]
fn r9_delayed_cancel_does_not_end_the_next_turn() {
    let mut harness = SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()));
    let cancel = |turn| SessionInput::Operator(OperatorCommand::Cancel { turn: Some(TurnId(turn)) });
    harness.send_message("one").answer_call("speaker", "hi").send_message("two");
    let stale = InputRefusal::StaleTurn { named: TurnId(1), current: TurnId(2) };
    assert_eq!(harness.try_input(cancel(1)).err(), Some(stale));
    assert!(harness.session().current_turn.is_some(), "turn 2 still runs");
    harness.apply_input(cancel(2));
    assert_eq!(outcomes(&harness), ["done", "cancelled"]);
    assert_eq!(harness.try_input(cancel(2)).err(), Some(InputRefusal::NoTurnRunning));
}

#[test]
fn r9_delayed_retry_does_not_repeat_another_turn() {
    let mut harness = SessionHarness::open(ClosureFlow::single_speaker(ClosureFlow::speaker_role()));
    let retry = |turn| SessionInput::Operator(OperatorCommand::Retry { turn: Some(TurnId(turn)) });
    harness.send_message("one").fail_call("speaker", CallFailureKind::InvalidApiKey);
    harness.apply_input(retry(1));
    harness.fail_call("speaker", CallFailureKind::InvalidApiKey);
    let stale = InputRefusal::StaleTurn { named: TurnId(1), current: TurnId(2) };
    assert_eq!(harness.try_input(retry(1)).err(), Some(stale), "a repeated request retries once");
    harness.apply_input(retry(2));
    harness.answer_call("speaker", "hi");
    assert_eq!(outcomes(&harness), ["failed", "failed", "done"]);
}
