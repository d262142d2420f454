//! Calls that nobody wants any more while a model is at work on them: they may be billed, and the ledger says so until it is
//! known what became of them.

use segue_core::codec;
use segue_core::decide::{Command, Input};
use segue_core::event::{Busy, CallWish, Event, Outcome};
use segue_core::flow::{Step, UnknownPolicy};
use segue_core::ids::CallId;
use segue_core::ledger::Tally;
use segue_core::prompt::{Failure, FailureKind, Reply, Spent, Usage};
use segue_core::scope::Scope;
use segue_core::session::State;
use segue_testkit::{Puppet, Stage};

use super::{events, note};

fn chat() -> Stage {
    Stage::open(Puppet::chat(Puppet::speaker()))
}

/// What was cancelled, and whether that was under way.
fn cancelled(stage: &Stage) -> Vec<(u32, bool)> {
    events(stage, |event| match event {
        Event::CallCancelled { call, in_flight, .. } => Some((call.0, *in_flight)),
        _ => None,
    })
}

fn answer(call: u32, text: &str) -> Input {
    let usage = Some(Usage { input: 100, output: 20, ..Usage::default() });
    let reply = Reply { text: text.into(), usage, ..Reply::default() };
    Input::Answer { call: CallId(call), attempt: 1, reply, cost_microusd: Some(7), ms: 5 }
}

fn failure(call: u32, spent: Option<Spent>) -> Input {
    let failure = Failure { spent, ..Failure::new(FailureKind::Network, "cut off") };
    Input::Failure { call: CallId(call), attempt: 1, failure }
}

fn interrupts(text: &str) -> Input {
    Input::Message { text: text.to_owned(), key: None, busy: Some(Busy::Interrupt), images: Vec::new() }
}

#[test]
fn whoever_stops_a_call_under_way_is_told_that_it_may_be_billed() {
    let stops = [
        ("stopped by hand", Input::Operator(Command::Cancel)),
        ("the session was closed", Input::Operator(Command::Close)),
        ("another message took its place", interrupts("no, wait")),
    ];
    for (why, stop) in stops {
        let mut stage = chat();
        stage.say("hi").log();
        stage.give(stop);
        let line = format!("c1 cancelled in flight, maybe billed: {why}\n");
        assert!(stage.log().contains(&line), "{why}");
        let ledger = &stage.session().ledger;
        let one = Tally { unknown: 1, ..Tally::default() };
        assert_eq!((ledger.total, ledger.roles["speaker"], ledger.models["plain"]), (one, one, one), "{why}");
    }
}

#[test]
fn a_flow_that_goes_on_without_a_call_leaves_it_as_one_of_unknown_end() {
    let role = Puppet::role("speaker", Scope::model());
    let sample = |sample| Step::Call(CallWish { sample, ..CallWish::new("speaker", "reply") });
    let mut stage = Stage::open(Puppet::new(Puppet::spec_of(role), move |view, event| match &event.event {
        Event::TurnStarted { .. } => vec![sample(0), sample(1), sample(2)],
        Event::CallAnswered(_) => {
            let cancel = Step::Cancel { call: CallId(2), reason: "one is enough".into() };
            [vec![cancel], Puppet::chats(view, event)].concat()
        }
        _ => Vec::new(),
    }));
    stage.say("hi").give(answer(1, "enough"));
    assert_eq!(cancelled(&stage), [(2, true), (3, true)], "one by a step, one with its turn");
    let turn = stage.session().ledger.turn;
    assert_eq!((turn.answered, turn.unknown), (1, 2));
}

#[test]
fn what_was_of_unknown_end_is_counted_once_when_it_is_heard_of() {
    let paid = Spent { usage: Some(Usage { input: 100, output: 3, ..Usage::default() }), cost_microusd: Some(5) };
    let late = Tally { late: 1, input: 100, output: 20, cost_microusd: 7, ..Tally::default() };
    let lost = Tally { failed: 1, input: 100, output: 3, cost_microusd: 5, ..Tally::default() };
    let nothing = Tally { failed: 1, ..Tally::default() };
    for (news, known) in [(answer(1, "too late"), late), (failure(1, Some(paid)), lost), (failure(1, None), nothing)] {
        let mut stage = chat();
        stage.say("hi").command(Command::Cancel).give(news.clone());
        let ledger = &stage.session().ledger;
        assert_eq!((ledger.total, ledger.turn, ledger.roles["speaker"]), (known, known, known));
        assert!(stage.try_give(news).is_err(), "it is heard of once");
    }
}

#[test]
fn the_account_of_another_turn_is_left_alone() {
    let mut stage = chat();
    stage.say("one").command(Command::Cancel).say("two").command(Command::Cancel);
    stage.give(answer(1, "to the first"));
    let ledger = &stage.session().ledger;
    assert_eq!((ledger.total.unknown, ledger.total.late), (1, 1));
    assert_eq!((ledger.turn.unknown, ledger.turn.late), (1, 0), "the second may still be billed");
}

#[test]
fn a_try_that_had_not_begun_is_not_billed() {
    let mut stage = chat();
    stage.say("hi").fail("speaker", FailureKind::Overload).command(Command::Cancel);
    assert_eq!(cancelled(&stage), [(1, false)], "it waited for its next try");
    assert!(stage.try_give(failure(1, None)).is_err(), "so nothing is known of it that was not known before");
    stage.say("again").fail("speaker", FailureKind::Overload).advance(60_000).command(Command::Cancel);
    assert_eq!(cancelled(&stage), [(1, false), (2, true)], "its time had come");
    let total = stage.session().ledger.total;
    assert_eq!((total.failed, total.unknown), (2, 1));
}

#[test]
fn a_call_that_a_person_must_decide_about_is_counted_once() {
    let mut speaker = Puppet::speaker();
    speaker.unknown = UnknownPolicy::Ask;
    let mut stage = Stage::open(Puppet::chat(speaker));
    stage.say("hi").crash().command(Command::Cancel);
    assert_eq!((cancelled(&stage), stage.session().ledger.total.unknown), (vec![(1, false)], 1));
}

#[test]
fn what_one_decision_opens_and_ends_was_never_made() {
    let spec = Puppet::spec_of(Puppet::speaker());
    let mut stage = Stage::open(Puppet::new(spec, |_, event| match &event.event {
        Event::TurnStarted { .. } => vec![note("speaker", "go"), Step::EndTurn(Outcome::Done)],
        _ => Vec::new(),
    }));
    stage.say("hi");
    assert_eq!((cancelled(&stage), stage.session().ledger.total), (vec![(1, false)], Tally::default()));
}

#[test]
fn a_flow_that_ends_its_turn_over_a_call_lost_in_a_crash_counts_it_once() {
    let spec = Puppet::spec_of(Puppet::speaker());
    let mut stage = Stage::open(Puppet::new(spec, |view, event| match &event.event {
        Event::CallUnknown { .. } => vec![Step::EndTurn(Outcome::Done)],
        _ => Puppet::chats(view, event),
    }));
    stage.say("hi").crash();
    assert_eq!((cancelled(&stage), stage.session().ledger.total.unknown), (vec![(1, false)], 1));
}

#[test]
fn a_copy_did_not_make_what_it_was_copied_in_the_middle_of() {
    let mut stage = chat();
    stage.say("hi").fork();
    assert_eq!((cancelled(&stage), stage.session().ledger.total), (vec![(1, false)], Tally::default()));
}

#[test]
fn an_old_journal_in_which_nothing_is_said_of_it_counts_nothing() {
    let mut stage = chat();
    stage.say("hi");
    let old = br#"{"is":"call_cancelled","call":1,"reason":"stopped by hand"}"#;
    let read = codec::decode(stage.session().seq.next(), stage.now(), old).expect("it can be read");
    let flow = Puppet::chat(Puppet::speaker());
    let state = State::fold(&flow, stage.journal().iter().chain([&read]));
    assert_eq!((state.session.calls.len(), state.session.ledger.total), (0, Tally::default()));
}
