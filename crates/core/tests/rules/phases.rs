//! Phases within a session: limits and their ways out, what a turn counts for, who hears of a handover.

use std::collections::BTreeSet;

use segue_core::decide::{Command, Input, Refusal};
use segue_core::event::{CallWish, Event, Outcome, Owner, PhaseKey};
use segue_core::flow::{FlowSpec, RoleSpec, Step};
use segue_core::handover::{Document, Provenance, Schema};
use segue_core::phase::guard::{Guard, Proposer};
use segue_core::phase::state::{How, Proposal};
use segue_core::phase::{Attached, Edge, Gate, Phase, PhaseGraph, PhaseLimit};
use segue_core::scope::Scope;
use segue_core::session::Act;
use segue_testkit::{Puppet, Stage};

use super::{events, outcomes};

fn key() -> PhaseKey {
    PhaseKey { graph: "talk".into(), owner: Owner::Session }
}

fn edge(from: &str, to: &str, guard: Guard) -> Edge {
    Edge { from: from.into(), to: to.into(), guard }
}

/// `draft` may last two turns or a second and leads to `review`; from there the way leads back.
fn graph(attached: Attached) -> PhaseGraph {
    let mut draft = Phase::named("draft");
    draft.limit = Some(PhaseLimit { turns_max: Some(2), ms_max: Some(1_000), exit: "review".into() });
    PhaseGraph {
        name: "talk".into(),
        attached,
        start: "draft".into(),
        phases: vec![draft, Phase::named("review")],
        edges: vec![edge("draft", "review", Guard::Handover("notes".into())), edge("review", "draft", Guard::Always)],
        gates: Vec::new(),
    }
}

fn spec(speaker: RoleSpec) -> FlowSpec {
    let notes = Schema { kind: "notes".into(), fields: Vec::new(), repairs_max: 0 };
    Puppet::spec_of(speaker.lives_by("talk")).graph(graph(Attached::Session)).handover(notes)
}

fn chat() -> Stage {
    Stage::open(Puppet::new(spec(Puppet::role("speaker", Scope::phase())), Puppet::chats))
}

fn phase(stage: &Stage) -> (String, u32, u32, u32) {
    let now = &stage.session().phases[&key()].now;
    (now.current.to_string(), now.visit, now.turns, now.turns_done)
}

fn expiries(stage: &Stage) -> Vec<String> {
    events(stage, |event| match event {
        Event::PhaseEntered(entered) => match &entered.transition.how {
            How::Expired { limit, .. } => Some(format!("{limit:?} → {}", entered.transition.to)),
            _ => None,
        },
        _ => None,
    })
}

#[test]
fn a_phase_whose_turns_are_used_up_takes_the_declared_way_out() {
    let mut stage = chat();
    stage.say("one").answer("speaker", "1");
    assert_eq!(phase(&stage), ("draft".into(), 1, 1, 1));
    stage.say("two");
    assert_eq!(expiries(&stage), [""; 0], "not in the middle of a turn");
    stage.answer("speaker", "2");
    assert_eq!(expiries(&stage), ["Turns → review"]);
    assert_eq!(phase(&stage), ("review".into(), 2, 0, 0));
    stage.say("three");
    assert_eq!(stage.prompt_lines("speaker"), "System: be speaker\nUser: three\n", "and with it a new memory");
}

#[test]
fn a_phase_whose_time_is_over_takes_the_declared_way_out_when_it_is_looked_at() {
    let mut stage = chat();
    let spec = spec(Puppet::speaker());
    let at = stage.session().wake_at(&spec).expect("there is a deadline");
    assert_eq!(at, stage.session().opened.after(1_000));
    stage.pass(at.since(stage.now()) - 2);
    assert_eq!(expiries(&stage), [""; 0]);
    stage.pass(0);
    assert_eq!(expiries(&stage), ["Time → review"]);
    assert_eq!(stage.session().wake_at(&spec), None, "looking was enough");
}

#[test]
fn a_message_after_the_deadline_finds_the_phase_left() {
    let mut stage = chat();
    stage.advance(5_000);
    stage.say("late");
    assert_eq!(phase(&stage), ("review".into(), 2, 1, 0));
}

#[test]
fn a_deadline_that_passes_during_a_turn_waits_for_its_end_and_wakes_nobody() {
    let mut stage = chat();
    let spec = spec(Puppet::speaker());
    stage.say("one").pass(5_000);
    assert_eq!(stage.session().wake_at(&spec), None, "looking again and again would change nothing");
    stage.answer("speaker", "1");
    assert_eq!(expiries(&stage), ["Time → review"]);
}

#[test]
fn a_turn_that_moves_on_counts_where_somebody_spoke() {
    let speaker = Puppet::role("speaker", Scope::phase());
    let mut stage = Stage::open(Puppet::new(spec(speaker), |view, event| match &event.event {
        Event::CallAnswered(_) => match view.session.phases[&key()].now.visit {
            1 => {
                let hand = Step::Hand {
                    kind: "notes".into(),
                    document: Document::new(),
                    calls: Vec::new(),
                    how: Provenance::Emitted,
                };
                let go = Proposal::new("review", Proposer::Role("speaker".into()));
                vec![hand, Step::Propose { phase: key(), proposal: go }, Step::Call(CallWish::new("speaker", "reply"))]
            }
            _ => vec![Step::EndTurn(Outcome::Done)],
        },
        _ => Puppet::chats(view, event),
    }));
    stage.say("one").answer("speaker", "draft");
    assert_eq!(phase(&stage), ("review".into(), 2, 1, 0), "the same turn is the first of the new visit");
    stage.answer("speaker", "review");
    assert_eq!(phase(&stage), ("review".into(), 2, 1, 1));
    stage.say("two");
    assert_eq!(phase(&stage), ("review".into(), 2, 2, 1));
}

#[test]
fn a_turn_that_only_brought_the_phase_does_not_count_for_it() {
    let mut stage = chat();
    stage.say("one");
    stage.command(Command::Grant { phase: key(), to: "review".into() });
    stage.command(Command::Propose { phase: key(), to: "review".into(), reason: None });
    stage.answer("speaker", "1");
    assert_eq!(phase(&stage), ("review".into(), 2, 0, 0));
    stage.say("two");
    assert_eq!(phase(&stage), ("review".into(), 2, 1, 0), "the first turn in a phase is its first");
}

#[test]
fn a_refused_proposal_is_recorded_and_moves_nothing() {
    let mut stage = chat();
    let propose = |to: &str| Command::Propose { phase: key(), to: to.into(), reason: None };
    stage.command(propose("review")).command(propose("nowhere")).command(propose("draft"));
    let refused = events(&stage, |event| match event {
        Event::PhaseRefused(refused) => Some(refused.refusal.to.to_string()),
        _ => None,
    });
    assert_eq!(refused, ["review", "nowhere"]);
    assert_eq!(phase(&stage).1, 1, "a hand-off within a phase begins no visit");
    let stranger = PhaseKey { graph: "walk".into(), owner: Owner::Session };
    let refusal = stage.try_give(Input::Operator(Command::RollBack { phase: stranger, visit: 1 })).err();
    assert_eq!(refusal, Some(Refusal::Phase("the flow has no phase graph `walk`; it has `talk`".into())));
    assert!(stage.try_give(Input::Operator(Command::RollBack { phase: key(), visit: 9 })).is_err());
}

#[test]
fn a_way_out_that_is_barred_for_good_wakes_nobody() {
    let limit = |exit: &str| Some(PhaseLimit { turns_max: None, ms_max: Some(10), exit: exit.into() });
    let mut a = Phase::named("a");
    a.limit = limit("b");
    let graph = PhaseGraph {
        name: "talk".into(),
        attached: Attached::Session,
        start: "start".into(),
        phases: vec![Phase::named("start"), a, Phase::named("b")],
        edges: vec![edge("start", "a", Guard::Always), edge("a", "b", Guard::Always), edge("b", "a", Guard::Always)],
        gates: vec![Gate {
            name: "first".into(),
            opened_by: "start".into(),
            satisfied_by: "a".into(),
            blocks: BTreeSet::from(["b".into()]),
        }],
    };
    // In `a` with the gate open (as after a rollback) the way out leads back to `a`: there is nothing to be done.
    let spec = Puppet::spec_of(Puppet::speaker().lives_by("talk")).graph(graph);
    let mut stage = Stage::open(Puppet::new(spec.clone(), Puppet::chats));
    stage.command(Command::Propose { phase: key(), to: "a".into(), reason: None });
    assert!(stage.session().phases[&key()].now.open_gates.is_empty());
    let Some(Act::Wake { at }) = stage.session().owed(&spec).pop() else { panic!("there is a deadline") };
    let mut session = stage.session().clone();
    let stand = session.phases.get_mut(&key()).expect("it stands");
    std::sync::Arc::make_mut(stand).now.open_gates.insert("first".into());
    assert_eq!(session.wake_at(&spec), None);
    stage.pass(at.since(stage.now()));
    assert_eq!(phase(&stage).0, "b");
}

#[test]
fn an_agents_graph_begins_with_its_first_call_and_hears_of_handovers_from_then_on() {
    let notes = Schema { kind: "notes".into(), fields: Vec::new(), repairs_max: 0 };
    let spec = Puppet::spec_of(Puppet::speaker().lives_by("talk")).graph(graph(Attached::Agent)).handover(notes);
    let of_ann = PhaseKey { graph: "talk".into(), owner: Owner::Agent("ann".into()) };
    let proposed = of_ann.clone();
    let mut stage = Stage::open(Puppet::new(spec.clone(), move |_, event| match &event.event {
        Event::TurnStarted { .. } => {
            let wish = CallWish::new("speaker", "note").by(&"ann".into());
            vec![Step::EndTurn(Outcome::Done), Step::Call(wish)]
        }
        Event::CallAnswered(_) => vec![
            Step::Hand { kind: "notes".into(), document: Document::new(), calls: Vec::new(), how: Provenance::Built },
            Step::Propose { phase: proposed.clone(), proposal: Proposal::new("review", Proposer::Agent("ann".into())) },
        ],
        _ => Vec::new(),
    }));
    assert_eq!(stage.session().wake_at(&spec), None, "nobody is in it yet");
    stage.advance(5_000);
    stage.say("go");
    let begun = stage.now();
    assert_eq!(stage.session().wake_at(&spec), Some(begun.after(1_000)), "its time runs from its first call");
    stage.answer("speaker", "done");
    assert_eq!(stage.session().phases[&of_ann].now.current, "review");
    assert_eq!(outcomes(&stage), ["done"]);
}
