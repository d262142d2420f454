//! How turns end, what belongs to them, and what goes on beside them. Timers.

use segue_core::decide::{Command, Input, Refusal};
use segue_core::event::{CallWish, Event, Lane, Outcome};
use segue_core::flow::{FlowSpec, Runs, Step, ToolDef, UnknownPolicy};
use segue_core::ids::TurnId;
use segue_core::limits::{CALLS_PER_TURN_MAX, STEPS_PER_INPUT_MAX};
use segue_core::prompt::FailureKind;
use segue_core::scope::Scope;
use segue_core::session::Act;
use segue_testkit::{Puppet, Stage};
use serde_json::json;

use super::{events, message, note, outcomes, refused_steps, tool};

fn spec() -> FlowSpec {
    Puppet::spec_of(Puppet::speaker()).role(Puppet::role("worker", Scope::turn()))
}

#[test]
fn a_stalled_turn_ends_and_says_so() {
    let mut stage = Stage::open(Puppet::new(spec(), |_, _| Vec::new()));
    stage.say("hello?").say("anybody?");
    assert_eq!(outcomes(&stage), ["failed", "failed"]);
    assert!(stage.session().is_idle());
}

#[test]
fn a_turn_whose_calls_were_all_refused_ends() {
    let mut stage = Stage::open(Puppet::new(spec(), |_, event| match &event.event {
        Event::TurnStarted { .. } => {
            vec![note("nobody", "x"), Step::Call(CallWish::new("speaker", "sing")), Step::EndTurn(Outcome::Done)]
        }
        Event::TurnEnded { .. } => vec![Step::EndTurn(Outcome::Done)],
        _ => Vec::new(),
    }));
    stage.say("hi");
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
    let mut stage = Stage::open(Puppet::new(spec(), |_, event| match &event.event {
        Event::TurnStarted { .. } | Event::Fact { .. } => {
            vec![Step::Note { kind: "again".into(), value: serde_json::Value::Null }]
        }
        _ => Vec::new(),
    }));
    let before = stage.session().clone();
    assert_eq!(stage.try_give(message("go")).err(), Some(Refusal::TooManySteps { most: STEPS_PER_INPUT_MAX }));
    assert_eq!(stage.session(), &before);
}

#[test]
fn a_flow_that_calls_and_calls_comes_to_the_end_of_its_turn() {
    let mut stage = Stage::open(Puppet::new(spec(), |_, event| match &event.event {
        Event::TurnStarted { .. } | Event::CallAnswered(_) => vec![note("speaker", "again")],
        _ => Vec::new(),
    }));
    stage.say("go");
    stage.unchecked(|stage| {
        for _ in 0..CALLS_PER_TURN_MAX {
            stage.answer("speaker", "ok");
        }
    });
    assert_eq!(outcomes(&stage), ["failed"]);
    assert!(refused_steps(&stage)[0].contains("does the flow loop?"));
    stage.say("a new turn may call again").answer("speaker", "ok");
}

#[test]
fn the_end_of_a_turn_ends_what_is_owed_for_it() {
    let mut stage = Stage::open(Puppet::new(spec(), |_, event| match &event.event {
        Event::TurnStarted { .. } => vec![note("speaker", "a"), note("worker", "b")],
        Event::CallAnswered(_) => vec![Step::EndTurn(Outcome::Done)],
        // What is owed no more must not be mourned as a failure of the turn.
        Event::CallCancelled { .. } => vec![Step::EndTurn(Outcome::Failed { reason: "cancelled".into() })],
        _ => Vec::new(),
    }));
    stage.say("go").answer("worker", "done");
    assert_eq!(outcomes(&stage), ["done"]);
    assert!(stage.session().is_idle());
}

/// A flow in which a worker works on and on beside the turns, and each turn is a talk of the speaker.
fn with_background() -> Stage {
    Stage::open(Puppet::new(spec(), |view, event| match (&event.event, view.about.call.as_deref()) {
        (Event::TurnStarted { turn: TurnId(1), .. }, _) => {
            vec![Step::EndTurn(Outcome::Done), note("worker", "begin")]
        }
        (Event::CallAnswered(_), Some(call)) if call.role == "worker" => vec![
            Step::Post {
                from: "worker".into(),
                to: "worker".into(),
                lane: Lane::Ordinary,
                topic: "next".into(),
                text: "go on".into(),
                answers: None,
            },
            Step::SetTimer { name: "pause".into(), after_ms: 10 },
        ],
        (Event::MessagePosted(posted), _) => vec![Step::Take { agent: posted.to.clone() }],
        (Event::MessageTaken { .. } | Event::TimerFired { .. }, _) => vec![note("worker", "go on")],
        _ => Puppet::chats(view, event),
    }))
}

#[test]
fn work_beside_the_turns_is_no_turns_and_does_not_end_with_one() {
    let mut stage = with_background();
    stage.say("start").say("hi");
    assert_eq!(stage.open_roles(), ["worker", "speaker"]);
    stage.answer("worker", "done a bit");
    assert_eq!(turns(&stage), [Some(TurnId(2)), None], "its next step was taken during turn 2, not for it");
    stage.pass(20);
    assert_eq!(stage.session().deferred.len() + stage.session().calls.len(), 3, "nor are its timers the turn's");
    stage.answer("speaker", "hello");
    assert_eq!(outcomes(&stage), ["done", "done"]);
    assert!(stage.open_roles().contains(&"worker".to_owned()), "the worker works on");
    assert_eq!(stage.session().ledger.turn.answered, 1, "and is not on the turn's account");
}

#[test]
fn a_role_that_remembers_a_turn_does_not_mix_it_with_what_goes_on_beside_it() {
    let mut stage = Stage::open(Puppet::new(spec(), |view, event| match (&event.event, view.about.call.as_deref()) {
        (Event::TurnStarted { turn: TurnId(1), .. }, _) => {
            vec![Step::EndTurn(Outcome::Done), note("worker", "beside")]
        }
        (Event::TurnStarted { .. }, _) => vec![note("worker", "within")],
        (Event::CallAnswered(_), Some(call)) if call.turn.is_none() => vec![note("worker", "still beside")],
        _ => Vec::new(),
    }));
    stage.say("one").say("two");
    stage.answer("worker", "b");
    let open: Vec<_> = stage.session().calls.keys().copied().collect();
    let lines = |call| -> Vec<String> { stage.prompt_of(call).messages.iter().map(|message| message.text()).collect() };
    assert_eq!(lines(open[0]), ["be worker", "within"]);
    assert_eq!(
        lines(open[1]),
        ["be worker", "still beside"],
        "the turn took its slot; what stood there is left behind"
    );
}

/// The turns of the open calls, by their numbers.
fn turns(stage: &Stage) -> Vec<Option<TurnId>> {
    stage.session().calls.values().map(|open| open.opened.turn).collect()
}

#[test]
fn a_waiting_call_goes_on_for_whom_it_was_wished_whoever_it_waited_for() {
    let mut stage = Stage::open(Puppet::new(spec(), |_, event| match &event.event {
        Event::TurnStarted { turn: TurnId(1), .. } => {
            vec![Step::EndTurn(Outcome::Done), note("speaker", "beside"), note("speaker", "beside again")]
        }
        Event::TurnStarted { .. } => vec![note("speaker", "within"), note("worker", "within")],
        _ => Vec::new(),
    }));
    stage.say("one").say("two");
    stage.answer("speaker", "1");
    assert_eq!(turns(&stage), [Some(TurnId(2)), None], "the second wish beside the turns comes first");
    stage.answer("speaker", "2");
    assert_eq!(turns(&stage), [Some(TurnId(2)), Some(TurnId(2))], "and then the one within");
}

#[test]
fn a_round_goes_on_for_whom_it_was_begun() {
    let look = ToolDef { unknown: UnknownPolicy::Fail, ..tool("look", Runs::Host) };
    let role = |name: &str| Puppet::role(name, Scope::session()).may_use("look");
    let spec = Puppet::spec_of(role("speaker")).role(role("worker")).tool(look);
    let mut stage = Stage::open(Puppet::new(spec, |_, event| match &event.event {
        Event::TurnStarted { turn: TurnId(1), .. } => vec![Step::EndTurn(Outcome::Done), note("worker", "beside")],
        Event::TurnStarted { .. } => vec![note("speaker", "within")],
        _ => Vec::new(),
    }));
    stage.say("one").say("two");
    stage.wants_tool("worker", "look", json!({})).wants_tool("speaker", "look", json!({})).crash();
    assert_eq!(turns(&stage), [None, Some(TurnId(2))], "both ended in one decision");
}

fn with_timers() -> Stage {
    Stage::open(Puppet::new(spec(), |_, event| match &event.event {
        Event::TurnStarted { turn, .. } => vec![
            Step::SetTimer { name: "bell".into(), after_ms: 100 },
            Step::SetTimer { name: "bell".into(), after_ms: 300 },
            Step::SetTimer { name: format!("other {turn}"), after_ms: 200 },
            Step::StopTimer { name: "never set".into() },
        ],
        Event::TimerFired { name, .. } if name == "bell" => vec![Step::EndTurn(Outcome::Done)],
        _ => Vec::new(),
    }))
}

#[test]
fn timers_fire_when_their_time_has_come_and_not_before() {
    let mut stage = with_timers();
    stage.say("wait").log();
    stage.pass(150);
    assert_eq!(stage.log(), "", "the first bell was replaced");
    stage.pass(60);
    assert_eq!(stage.log(), "w3 timer other t1 fired\n");
    stage.pass(100);
    assert_eq!(stage.log(), "w2 timer bell fired\nt1 done\n");
    stage.pass(1_000_000);
    assert_eq!(stage.log(), "", "each fires once");
}

#[test]
fn a_session_says_when_to_look_again_and_looking_moves_it_on() {
    let mut stage = with_timers();
    stage.say("wait");
    for _ in 0..2 {
        let Some(Act::Wake { at }) = stage.session().owed(&spec()).pop() else { panic!("a timer runs") };
        assert!(at > stage.now());
        let before = stage.journal().len();
        stage.pass(at.since(stage.now()));
        assert!(stage.journal().len() > before, "waking was worth it");
    }
    assert!(stage.session().owed(&spec()).is_empty());
}

#[test]
fn a_timer_that_was_due_while_the_process_was_down_fires_at_once() {
    let mut stage = with_timers();
    stage.say("wait");
    stage.advance(10_000);
    stage.crash();
    assert_eq!(outcomes(&stage), ["done"]);
}

#[test]
fn an_interrupted_turn_leaves_the_next_one_alone() {
    let mut stage = Stage::open(Puppet::new(spec(), |view, event| match &event.event {
        // A flow that ends the turn when a call is cancelled must not end the turn that comes after.
        Event::CallCancelled { .. } => vec![Step::EndTurn(Outcome::Failed { reason: "cancelled".into() })],
        _ => Puppet::chats(view, event),
    }));
    stage.say("one");
    stage.give(Input::Message {
        text: "two".into(),
        key: None,
        busy: Some(segue_core::event::Busy::Interrupt),
        images: Vec::new(),
    });
    assert_eq!(outcomes(&stage), ["interrupted"]);
    assert_eq!(stage.open_roles(), ["speaker"]);
    stage.command(Command::Cancel);
    let said = events(&stage, |event| matches!(event, Event::Said(_)).then_some(()));
    assert!(said.is_empty());
}

#[test]
fn a_failed_turn_is_tried_again_with_what_was_said_in_it() {
    let mut stage = Stage::open(Puppet::chat(Puppet::speaker()));
    let nothing = |stage: &mut Stage| stage.try_give(Input::Operator(Command::Retry)).err();
    assert_eq!(nothing(&mut stage), Some(Refusal::NothingFailed));
    stage.say("hello");
    assert_eq!(nothing(&mut stage), Some(Refusal::Busy), "it runs");
    stage.fail("speaker", FailureKind::BadKey).crash().command(Command::Retry);
    let turn = stage.session().turn.clone().expect("a turn runs");
    assert_eq!((turn.id, turn.messages.len()), (TurnId(2), 1));
    assert_eq!(stage.prompt("speaker").messages.last().map(|message| message.text()).as_deref(), Some("hello"));
    let started = events(&stage, |event| match event {
        Event::TurnStarted { messages, again, .. } => Some((messages.clone(), *again)),
        _ => None,
    });
    let message = turn.messages[0].message;
    assert_eq!(started, [(vec![message], None), (vec![message], Some(TurnId(1)))]);
    stage.fail("speaker", FailureKind::BadKey).command(Command::Retry).answer("speaker", "hi");
    assert_eq!(outcomes(&stage), ["failed", "failed", "done"]);
    assert_eq!(nothing(&mut stage), Some(Refusal::NothingFailed));
}

#[test]
fn a_failed_turn_is_over_once_something_else_is_said() {
    let mut stage = Stage::open(Puppet::chat(Puppet::speaker()));
    stage.say("hello").fail("speaker", FailureKind::BadKey).say("never mind").answer("speaker", "ok");
    assert_eq!(stage.try_give(Input::Operator(Command::Retry)).err(), Some(Refusal::NothingFailed));
    stage.say("again").command(Command::Cancel);
    assert_eq!(
        stage.try_give(Input::Operator(Command::Retry)).err(),
        Some(Refusal::NothingFailed),
        "stopped, not failed"
    );
}
