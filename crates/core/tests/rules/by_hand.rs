//! Decisions of somebody who only writes down what it is told: nothing is begun, and whoever does what is owed begins it.

use segue_core::decide::Command;
use segue_core::event::{Event, Outcome};
use segue_core::scope::Scope;
use segue_testkit::{Puppet, Stage};

use super::{note, outcomes};

fn chat() -> Stage {
    Stage::open(Puppet::chat(Puppet::speaker()))
}

#[test]
fn a_message_waits_for_somebody_who_answers_it() {
    let mut stage = chat();
    stage.by_hand(|stage| {
        stage.say("hi").pass(1_000).log();
    });
    assert_eq!((stage.session().queue.len(), stage.session().turn.is_some()), (1, false));
    assert!(stage.session().calls.is_empty() && !stage.session().is_idle(), "it is owed, and nobody has begun");
    stage.crash();
    expect_test::expect![[r#"
        t1 begins with m1
        c1 speaker asked reply on plain, th1 new: nothing was remembered here yet
    "#]]
    .assert_eq(&stage.log());
    stage.answer("speaker", "yes");
    assert_eq!(stage.session().ledger.total.unknown, 0);
}

#[test]
fn what_waits_behind_a_turn_that_is_stopped_waits_on() {
    let mut stage = chat();
    stage.say("one").say("two").log();
    stage.by_hand(|stage| {
        stage.command(Command::Cancel);
    });
    assert_eq!(stage.log(), "c1 cancelled in flight, maybe billed: stopped by hand\nt1 cancelled\n");
    stage.crash().answer("speaker", "to two");
    assert_eq!((stage.said().as_str(), outcomes(&stage).len()), ("to two", 2));
    assert_eq!(stage.session().ledger.total.unknown, 1, "only the one that was made");
}

#[test]
fn a_copy_made_before_a_turn_begins_has_made_no_call_when_it_is_taken_up() {
    let mut stage = chat();
    stage.say("one").answer("speaker", "1").say("two");
    let received = stage.journal().iter().rposition(|event| matches!(event.event, Event::MessageReceived(_)));
    let mut copy = stage.copy_by_hand_at(received.expect("it was said") + 1);
    assert!(copy.session().calls.is_empty() && !copy.session().is_idle());
    copy.crash().answer("speaker", "2");
    let total = copy.session().ledger.total;
    assert_eq!((copy.said().as_str(), total.answered, total.unknown), ("2", 2, 0));
}

#[test]
fn a_call_that_a_flow_wishes_is_opened_by_whoever_makes_it() {
    let worker = Puppet::role("worker", Scope::session());
    let spec = Puppet::spec_of(Puppet::speaker()).role(worker);
    let mut stage = Stage::open(Puppet::new(spec, |view, event| match &event.event {
        Event::TurnEnded { outcome: Outcome::Cancelled, .. } => {
            vec![note("worker", "clean up"), note("worker", "twice")]
        }
        _ => Puppet::chats(view, event),
    }));
    stage.say("hi");
    stage.log();
    stage.by_hand(|stage| {
        stage.command(Command::Cancel);
    });
    expect_test::expect![[r#"
        c1 cancelled in flight, maybe billed: stopped by hand
        t1 cancelled
        call of worker for note waits for somebody to make it
        call of worker for note waits for somebody to make it
    "#]]
    .assert_eq(&stage.log());
    assert!(!stage.session().is_idle());
    stage.cast("worker", "strong");
    stage.crash();
    expect_test::expect![[r#"
        waiting call 1 goes on
        c2 worker asked note on strong, th2 new: nothing was remembered here yet
    "#]]
    .assert_eq(&stage.log());
    stage.answer("worker", "done").answer("worker", "done");
    assert!(stage.session().is_idle());
}

#[test]
fn what_is_closed_by_hand_owes_nothing() {
    let mut stage = chat();
    stage.say("one").say("two").by_hand(|stage| {
        stage.command(Command::Close);
    });
    assert!(stage.session().is_idle());
}
