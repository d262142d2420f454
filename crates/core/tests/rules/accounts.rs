//! The ledger: what was spent, by whom, on what, in which phase and turn.

use segue_core::decide::Input;
use segue_core::event::{CallWish, CountedBy, Event, Outcome};
use segue_core::flow::Step;
use segue_core::ledger::Tally;
use segue_core::phase::guard::Guard;
use segue_core::phase::{Attached, Edge, Phase, PhaseGraph};
use segue_core::prompt::{Failure, FailureKind, Reply, Spent, Usage};
use segue_core::scope::Scope;
use segue_testkit::{Puppet, Stage};

use super::events;

fn two_phases() -> PhaseGraph {
    let edge = |from: &str, to: &str| Edge { from: from.into(), to: to.into(), guard: Guard::Always };
    PhaseGraph {
        name: "talk".into(),
        attached: Attached::Session,
        start: "open".into(),
        phases: vec![Phase::named("open"), Phase::named("late")],
        edges: vec![edge("open", "late"), edge("late", "open")],
        gates: Vec::new(),
    }
}

/// Each turn the speaker and, on another model, the expert are asked.
fn stage() -> Stage {
    let spec = Puppet::spec_of(Puppet::speaker().lives_by("talk"))
        .role(Puppet::role("expert", Scope::Fresh))
        .graph(two_phases());
    let mut stage = Stage::open(Puppet::new(spec, |view, event| match &event.event {
        Event::TurnStarted { .. } => {
            vec![Step::Call(CallWish::new("speaker", "reply")), Step::Call(CallWish::new("expert", "reply"))]
        }
        Event::CallAnswered(_) | Event::CallFailed { .. } if view.session.calls.is_empty() => {
            vec![Step::EndTurn(Outcome::Done)]
        }
        _ => Vec::new(),
    }));
    stage.cast("expert", "wise");
    stage
}

fn reply(stage: &mut Stage, role: &str, usage: Option<Usage>, cost_microusd: Option<u64>) {
    let (call, attempt) = stage.open_call(role);
    let reply = Reply { text: "one two three".into(), reasoning: "hm hm".into(), usage, ..Reply::default() };
    stage.give(Input::Answer { call, attempt, reply, cost_microusd, ms: 1 });
}

#[test]
fn sums_agree_by_role_model_phase_and_turn() {
    let mut stage = stage();
    let vendors = Usage { input: 100, output: 20, cached: 60, reasoning: 5, ..Usage::default() };
    stage.say("hello there");
    reply(&mut stage, "speaker", Some(vendors), Some(7));
    reply(&mut stage, "expert", None, Some(3));
    let phase = segue_core::event::PhaseKey { graph: "talk".into(), owner: segue_core::event::Owner::Session };
    stage.command(segue_core::decide::Command::Propose { phase, to: "late".into(), reason: None });
    stage.say("again").fail("expert", FailureKind::Refused);
    reply(&mut stage, "speaker", Some(vendors), Some(5));

    let ledger = &stage.session().ledger;
    let tally = |answered, input, output, cached, cost_microusd| Tally {
        answered,
        input,
        output,
        cached,
        cost_microusd,
        ..Tally::default()
    };
    // The expert's prompt has "be expert" and "hello there" with a frame each; its answer has five words.
    assert_eq!(ledger.roles["expert"], Tally { failed: 1, ..tally(1, 12, 5, 0, 3) });
    assert_eq!(ledger.roles["speaker"], tally(2, 200, 40, 120, 12));
    assert_eq!(ledger.models["wise"], ledger.roles["expert"]);
    assert_eq!(ledger.models["plain"], ledger.roles["speaker"]);
    assert_eq!(ledger.phases["talk/open"], tally(1, 100, 20, 60, 7));
    assert_eq!(ledger.phases["talk/late"], tally(1, 100, 20, 60, 5));
    assert_eq!(ledger.turn, Tally { failed: 1, ..tally(1, 100, 20, 60, 5) });
    assert_eq!(ledger.total, Tally { failed: 1, ..tally(3, 212, 45, 120, 15) });
    assert_eq!(ledger.total.cost(), Some(15));
    let counted = events(&stage, |event| match event {
        Event::CallAnswered(answered) => Some(answered.counted_by),
        _ => None,
    });
    assert_eq!(counted, [CountedBy::Vendor, CountedBy::Us, CountedBy::Vendor]);
}

#[test]
fn an_unknown_price_makes_the_sum_unknown_and_says_how_often() {
    let mut stage = stage();
    stage.say("hello");
    reply(&mut stage, "speaker", None, Some(7));
    reply(&mut stage, "expert", None, None);
    let ledger = &stage.session().ledger;
    assert_eq!((ledger.total.cost(), ledger.total.cost_microusd, ledger.total.unpriced), (None, 7, 1));
    assert_eq!(ledger.roles["speaker"].cost(), Some(7));
}

#[test]
fn an_answer_that_was_lost_is_paid_for_all_the_same() {
    let mut stage = stage();
    stage.say("hello");
    let usage = Usage { input: 100, output: 20, cached: 60, ..Usage::default() };
    let mut lose = |role: &str, spent: Option<Spent>| {
        let (call, attempt) = stage.open_call(role);
        let failure = Failure { spent, ..Failure::new(FailureKind::Unusable, "no") };
        stage.give(Input::Failure { call, attempt, failure });
    };
    lose("speaker", Some(Spent { usage: Some(usage), cost_microusd: Some(7) }));
    lose("expert", Some(Spent::default()));
    let ledger = &stage.session().ledger;
    let speaker = Tally { failed: 1, input: 100, output: 20, cached: 60, cost_microusd: 7, ..Tally::default() };
    assert_eq!(ledger.roles["speaker"], speaker);
    assert_eq!(ledger.roles["expert"], Tally { failed: 1, unpriced: 1, ..Tally::default() }, "nobody knows how much");
    assert_eq!((ledger.total.cost(), ledger.total.cost_microusd, ledger.total.failed), (None, 7, 2));
}
