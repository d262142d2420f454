//! Calls that fail, are tried again, are given up, and answers that come when nobody waits any more.

use segue_core::decide::{Command, Input, Refusal};
use segue_core::event::{Busy, CallWish, Event, Next};
use segue_core::flow::{Retries, Step};
use segue_core::ids::CallId;
use segue_core::limits::RETRY_AFTER_MS_MAX;
use segue_core::prompt::{Failure, FailureKind, Reply, Spent};
use segue_core::scope::Scope;
use segue_core::session::{Act, CallStatus};
use segue_testkit::{Puppet, Stage};

use super::{events, outcomes};

fn chat() -> Stage {
    Stage::open(Puppet::chat(Puppet::speaker()))
}

fn answer(call: u32, attempt: u32, text: &str) -> Input {
    let reply = Reply { text: text.to_owned(), ..Reply::default() };
    Input::Answer { call: CallId(call), attempt, reply, cost_microusd: Some(10), ms: 5 }
}

fn failure(call: u32, attempt: u32, kind: FailureKind) -> Input {
    Input::Failure { call: CallId(call), attempt, failure: Failure::new(kind, "no") }
}

/// How long after its failure each further try was to be made.
fn waits(stage: &Stage) -> Vec<u64> {
    stage
        .journal()
        .iter()
        .filter_map(|recorded| match &recorded.event {
            Event::CallFailed { next: Next::Retry { at }, .. } => Some(at.since(recorded.at)),
            _ => None,
        })
        .collect()
}

#[test]
fn a_passing_failure_is_tried_again_ever_later_and_then_given_up() {
    let mut stage = chat();
    stage.chance(0);
    stage.say("hi");
    for attempt in 1..=4 {
        stage.give(failure(1, attempt, FailureKind::Overload));
    }
    assert_eq!(waits(&stage), [250, 500, 1000], "half the backoff, and no jitter");
    assert_eq!(outcomes(&stage), ["failed"]);
    assert!(stage.session().is_idle());
}

#[test]
fn jitter_spreads_retries_over_half_the_backoff() {
    let retries = Retries::default();
    for attempt in 2..40 {
        let waits: Vec<u64> = (0..2_000).map(|chance| retries.wait_ms(attempt, chance * 977)).collect();
        let whole = (retries.backoff_ms << (attempt - 2).min(20)).min(retries.backoff_ms_max);
        assert!(waits.iter().all(|wait| (whole / 2..=whole).contains(wait)), "try {attempt}: {waits:?}");
        assert!(waits.iter().any(|wait| *wait > whole * 3 / 4) && waits.iter().any(|wait| *wait < whole * 3 / 4));
    }
}

#[test]
fn a_failure_that_will_not_pass_is_not_tried_again() {
    for kind in [FailureKind::BadKey, FailureKind::Refused, FailureKind::ContextTooLong, FailureKind::BadRequest] {
        let mut stage = chat();
        stage.say("hi").give(failure(1, 1, kind));
        assert_eq!(outcomes(&stage), ["failed"], "{kind}");
    }
}

#[test]
fn a_vendor_that_says_when_to_come_back_is_heard() {
    let mut stage = chat();
    let limited = |attempt, ms| Input::Failure {
        call: CallId(1),
        attempt,
        failure: Failure { retry_after_ms: Some(ms), ..Failure::new(FailureKind::RateLimit, "slow down") },
    };
    stage.say("hi").give(limited(1, 45_000));
    assert_eq!(waits(&stage), [45_000]);
    let due = stage.journal().last().expect("it failed").at.after(45_000);
    let owed = stage.session().owed(&segue_core::flow::FlowSpec::new("x", "x"));
    assert_eq!(owed, [Act::Call { call: CallId(1), attempt: 2, not_before: due }]);
    stage.give(limited(2, 1));
    assert!(waits(&stage)[1] >= 500, "but our own backoff is the least");
    stage.give(limited(3, RETRY_AFTER_MS_MAX + 1));
    assert_eq!(outcomes(&stage), ["failed"], "nobody waits for hours in the middle of a turn");
}

#[test]
fn an_answer_to_a_try_that_was_given_up_is_refused_while_another_is_under_way() {
    let mut stage = chat();
    stage.say("hi").give(failure(1, 1, FailureKind::Timeout));
    assert_eq!(stage.session().calls[&CallId(1)].status, CallStatus::Waiting(stage.now().after(257)));
    assert_eq!(stage.try_give(answer(1, 1, "late")).err(), Some(Refusal::NotOwed { call: CallId(1), attempt: 1 }));
    stage.give(answer(1, 2, "in time"));
    assert_eq!(stage.said(), "in time");
}

#[test]
fn late_reply_is_refused() {
    let mut stage = chat();
    stage.say("hi").give(answer(1, 1, "first"));
    let before = stage.journal().len();
    assert_eq!(stage.try_give(answer(1, 1, "first")).err(), Some(Refusal::NotOwed { call: CallId(1), attempt: 1 }));
    assert_eq!(
        stage.try_give(failure(1, 1, FailureKind::Network)).err(),
        Some(Refusal::NotOwed { call: CallId(1), attempt: 1 })
    );
    assert!(stage.try_give(answer(9, 1, "never asked")).is_err());
    assert_eq!(stage.journal().len(), before);
}

#[test]
fn an_answer_after_giving_up_is_kept_and_paid_for_and_changes_nothing_else() {
    let mut stage = chat();
    stage.say("hi").give(failure(1, 1, FailureKind::BadKey));
    let threads = stage.session().threads.clone();
    stage.log();
    stage.give(answer(1, 1, "sorry for the delay"));
    assert_eq!(stage.log(), "c1 answered too late; kept and not used\n");
    assert_eq!(stage.session().threads, threads);
    assert_eq!(stage.said(), "");
    let total = stage.session().ledger.total;
    assert_eq!((total.answered, total.late, total.cost_microusd, total.output), (0, 1, 10, 4));
    assert!(stage.try_give(answer(1, 1, "again")).is_err(), "it comes once");
    stage.say("again");
    assert!(!stage.prompt_lines("speaker").contains("delay"));
}

#[test]
fn the_answer_to_a_cancelled_call_is_kept_and_paid_for_too() {
    let mut stage = chat();
    stage.say("hi").command(Command::Cancel).give(answer(1, 1, "never mind"));
    let late = events(&stage, |event| match event {
        Event::CallAnsweredLate { call, .. } => Some(*call),
        _ => None,
    });
    assert_eq!(late, [CallId(1)]);
    assert_eq!(stage.session().ledger.turn.late, 1, "on the account of the turn it was made in");
}

#[test]
fn a_failure_after_giving_up_is_recorded_for_what_it_took_and_the_flow_is_not_told() {
    let mut stage = chat();
    stage.say("hi").fail("speaker", FailureKind::Overload).command(Command::Cancel).say("again");
    let spent = Spent { usage: None, cost_microusd: Some(7) };
    let took = |spent| Failure { spent, ..Failure::new(FailureKind::Network, "cut off") };
    let late = |spent| Input::Failure { call: CallId(1), attempt: 2, failure: took(spent) };
    assert!(
        stage.try_give(late(None)).is_err(),
        "of one that nobody thought was under way, that it took nothing is no news"
    );
    stage.give(late(Some(spent)));
    assert!(stage.session().turn.is_some(), "the turn that runs has nothing to do with it");
    let ledger = &stage.session().ledger;
    assert_eq!((ledger.total.failed, ledger.total.cost_microusd, ledger.turn.failed), (2, 7, 0));
    assert!(stage.try_give(late(Some(spent))).is_err(), "it comes once");
    stage.give(answer(2, 1, "yes"));
    assert_eq!(stage.said(), "yes");
}

#[test]
fn a_late_answer_is_awaited_where_the_flow_went_on_and_not_where_the_user_stopped_it() {
    let went_on = |stage: &mut Stage| {
        stage.say("hi").give(answer(1, 1, "enough"));
    };
    let mut stage = Stage::open(two_are_asked());
    went_on(&mut stage);
    assert!(stage.session().is_idle() && stage.session().awaits_late(CallId(2)));
    assert!(!stage.session().awaits_late(CallId(1)), "that one was answered");
    stage.say("next").command(Command::Cancel);
    assert!(!stage.session().awaits_late(CallId(3)) && !stage.session().awaits_late(CallId(4)));
    assert!(stage.session().awaits_late(CallId(2)), "it was of another turn");
    stage.give(answer(2, 1, "late"));
    assert!(!stage.session().awaits_late(CallId(2)), "it came");

    let mut stage = Stage::open(two_are_asked());
    went_on(&mut stage);
    stage.command(Command::Close);
    assert!(!stage.session().awaits_late(CallId(2)), "nothing is waited for in a closed session");

    let mut stage = Stage::open(two_are_asked());
    stage.say("hi");
    let interrupts = Input::Message { text: "no".into(), key: None, busy: Some(Busy::Interrupt), images: Vec::new() };
    stage.give(interrupts);
    assert!(!stage.session().awaits_late(CallId(1)) && !stage.session().awaits_late(CallId(2)));
}

/// Each turn asks two, and the first answer ends it.
fn two_are_asked() -> Puppet {
    let speakers = |count| CallWish { sample: count, ..CallWish::new("speaker", "reply") };
    let role = Puppet::role("speaker", Scope::model());
    Puppet::new(Puppet::spec_of(role), move |view, event| match &event.event {
        Event::TurnStarted { .. } => vec![Step::Call(speakers(0)), Step::Call(speakers(1))],
        _ => Puppet::chats(view, event),
    })
}
