//! Phases within a session: limits and their ways out, what a turn counts for, who hears of a handover.

use std::collections::BTreeSet;

use segue_core::decide::{InputRefusal, OperatorCommand, SessionInput};
use segue_core::event::{CallRequest, Event, PhaseGraphKey, PhaseGraphOwner, TurnResult};
use segue_core::flow::{FlowSpec, FlowStep, RoleSpec};
use segue_core::handover::{HandoverDocument, HandoverProvenance, HandoverSpec};
use segue_core::phase::guard::{Guard, Proposer};
use segue_core::phase::state::{PhaseProposal, TransitionCause};
use segue_core::phase::{PhaseEdge, PhaseGate, PhaseGraph, PhaseLimit, PhaseOwnerKind, PhaseSpec};
use segue_core::scope::Scope;
use segue_core::session::Effect;
use segue_testkit::{ClosureFlow, SessionHarness};

use super::{events, outcomes};

fn key() -> PhaseGraphKey {
    PhaseGraphKey { graph: "talk".into(), owner: PhaseGraphOwner::Session }
}

fn edge(from: &str, to: &str, guard: Guard) -> PhaseEdge {
    PhaseEdge { from: from.into(), to: to.into(), guard }
}

/// `draft` may last two turns or a second and leads to `review`; from there the way leads back.
fn graph(attached: PhaseOwnerKind) -> PhaseGraph {
    let mut draft = PhaseSpec::new("draft");
    draft.limit = Some(PhaseLimit { turns_max: Some(2), ms_max: Some(1_000), exit: "review".into() });
    PhaseGraph {
        name: "talk".into(),
        owner_kind: attached,
        start: "draft".into(),
        phases: vec![draft, PhaseSpec::new("review")],
        edges: vec![edge("draft", "review", Guard::Handover("notes".into())), edge("review", "draft", Guard::Always)],
        gates: Vec::new(),
    }
}

fn spec(speaker: RoleSpec) -> FlowSpec {
    let notes = HandoverSpec { kind: "notes".into(), fields: Vec::new(), repairs_max: 0 };
    ClosureFlow::spec_with_role(speaker.with_phase_graph("talk"))
        .with_graph(graph(PhaseOwnerKind::Session))
        .with_handover(notes)
}

fn chat() -> SessionHarness {
    SessionHarness::open(ClosureFlow::new(
        spec(ClosureFlow::test_role("speaker", Scope::per_phase())),
        ClosureFlow::react_as_chat,
    ))
}

fn phase(stage: &SessionHarness) -> (String, u32, u32, u32) {
    let now = &stage.session().phase_graphs[&key()].state;
    (now.current.to_string(), now.visit, now.turns_started, now.turns_done)
}

fn expiries(stage: &SessionHarness) -> Vec<String> {
    events(stage, |event| match event {
        Event::PhaseEntered(entered) => match &entered.transition.cause {
            TransitionCause::Expired { limit, .. } => Some(format!("{limit:?} → {}", entered.transition.to)),
            _ => None,
        },
        _ => None,
    })
}

#[test]
fn a_phase_whose_turns_are_used_up_takes_the_declared_way_out() {
    let mut stage = chat();
    stage.send_message("one").answer_call("speaker", "1");
    assert_eq!(phase(&stage), ("draft".into(), 1, 1, 1));
    stage.send_message("two");
    assert_eq!(expiries(&stage), [""; 0], "not in the middle of a turn");
    stage.answer_call("speaker", "2");
    assert_eq!(expiries(&stage), ["Turns → review"]);
    assert_eq!(phase(&stage), ("review".into(), 2, 0, 0));
    stage.send_message("three");
    assert_eq!(stage.prompt_lines("speaker"), "System: be speaker\nUser: three\n", "and with it a new memory");
}

#[test]
fn a_phase_whose_time_is_over_takes_the_declared_way_out_when_it_is_looked_at() {
    let mut stage = chat();
    let spec = spec(ClosureFlow::speaker_role());
    let at = stage.session().next_wake_at(&spec).expect("there is a deadline");
    assert_eq!(at, stage.session().opened_at.plus_ms(1_000));
    stage.advance_and_tick(at.ms_since(stage.now()) - 2);
    assert_eq!(expiries(&stage), [""; 0]);
    stage.advance_and_tick(0);
    assert_eq!(expiries(&stage), ["Time → review"]);
    assert_eq!(stage.session().next_wake_at(&spec), None, "looking was enough");
}

#[test]
fn a_message_after_the_deadline_finds_the_phase_left() {
    let mut stage = chat();
    stage.advance_clock(5_000);
    stage.send_message("late");
    assert_eq!(phase(&stage), ("review".into(), 2, 1, 0));
}

#[test]
fn a_deadline_that_passes_during_a_turn_waits_for_its_end_and_wakes_nobody() {
    let mut stage = chat();
    let spec = spec(ClosureFlow::speaker_role());
    stage.send_message("one").advance_and_tick(5_000);
    assert_eq!(stage.session().next_wake_at(&spec), None, "looking again and again would change nothing");
    stage.answer_call("speaker", "1");
    assert_eq!(expiries(&stage), ["Time → review"]);
}

#[test]
fn a_turn_that_moves_on_counts_where_somebody_spoke() {
    let speaker = ClosureFlow::test_role("speaker", Scope::per_phase());
    let mut stage = SessionHarness::open(ClosureFlow::new(spec(speaker), |view, event| match &event.event {
        Event::CallAnswered(_) => match view.session.phase_graphs[&key()].state.visit {
            1 => {
                let hand = FlowStep::MakeHandover {
                    kind: "notes".into(),
                    document: HandoverDocument::new(),
                    calls: Vec::new(),
                    provenance: HandoverProvenance::Emitted,
                };
                let go = PhaseProposal::new("review", Proposer::Role("speaker".into()));
                vec![
                    hand,
                    FlowStep::ProposePhase { phase: key(), proposal: go },
                    FlowStep::Call(CallRequest::new("speaker", "reply")),
                ]
            }
            _ => vec![FlowStep::EndTurn(TurnResult::Done)],
        },
        _ => ClosureFlow::react_as_chat(view, event),
    }));
    stage.send_message("one").answer_call("speaker", "draft");
    assert_eq!(phase(&stage), ("review".into(), 2, 1, 0), "the same turn is the first of the new visit");
    stage.answer_call("speaker", "review");
    assert_eq!(phase(&stage), ("review".into(), 2, 1, 1));
    stage.send_message("two");
    assert_eq!(phase(&stage), ("review".into(), 2, 2, 1));
}

#[test]
fn a_turn_that_only_brought_the_phase_does_not_count_for_it() {
    let mut stage = chat();
    stage.send_message("one");
    stage.run_command(OperatorCommand::Grant { phase: key(), to: "review".into() });
    stage.run_command(OperatorCommand::Propose { phase: key(), to: "review".into(), reason: None });
    stage.answer_call("speaker", "1");
    assert_eq!(phase(&stage), ("review".into(), 2, 0, 0));
    stage.send_message("two");
    assert_eq!(phase(&stage), ("review".into(), 2, 1, 0), "the first turn in a phase is its first");
}

#[test]
fn a_refused_proposal_is_recorded_and_moves_nothing() {
    let mut stage = chat();
    let propose = |to: &str| OperatorCommand::Propose { phase: key(), to: to.into(), reason: None };
    stage.run_command(propose("review")).run_command(propose("nowhere")).run_command(propose("draft"));
    let refused = events(&stage, |event| match event {
        Event::PhaseTransitionRefused(refused) => Some(refused.refusal.to.to_string()),
        _ => None,
    });
    assert_eq!(refused, ["review", "nowhere"]);
    assert_eq!(phase(&stage).1, 1, "a hand-off within a phase begins no visit");
    let stranger = PhaseGraphKey { graph: "walk".into(), owner: PhaseGraphOwner::Session };
    let refusal =
        stage.try_input(SessionInput::Operator(OperatorCommand::RollBack { phase: stranger, visit: 1 })).err();
    assert_eq!(
        refusal,
        Some(InputRefusal::PhaseCommandRefused("the flow has no phase graph `walk`; it has `talk`".into()))
    );
    assert!(stage.try_input(SessionInput::Operator(OperatorCommand::RollBack { phase: key(), visit: 9 })).is_err());
}

#[test]
fn a_way_out_that_is_barred_for_good_wakes_nobody() {
    let limit = |exit: &str| Some(PhaseLimit { turns_max: None, ms_max: Some(10), exit: exit.into() });
    let mut a = PhaseSpec::new("a");
    a.limit = limit("b");
    let graph = PhaseGraph {
        name: "talk".into(),
        owner_kind: PhaseOwnerKind::Session,
        start: "start".into(),
        phases: vec![PhaseSpec::new("start"), a, PhaseSpec::new("b")],
        edges: vec![edge("start", "a", Guard::Always), edge("a", "b", Guard::Always), edge("b", "a", Guard::Always)],
        gates: vec![PhaseGate {
            name: "first".into(),
            opened_by: "start".into(),
            satisfied_by: "a".into(),
            blocks: BTreeSet::from(["b".into()]),
        }],
    };
    // In `a` with the gate open (as after a rollback) the way out leads back to `a`: there is nothing to be done.
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role().with_phase_graph("talk")).with_graph(graph);
    let mut stage = SessionHarness::open(ClosureFlow::new(spec.clone(), ClosureFlow::react_as_chat));
    stage.run_command(OperatorCommand::Propose { phase: key(), to: "a".into(), reason: None });
    assert!(stage.session().phase_graphs[&key()].state.open_gates.is_empty());
    let Some(Effect::Wake { at }) = stage.session().pending_effects(&spec).pop() else { panic!("there is a deadline") };
    let mut session = stage.session().clone();
    let stand = session.phase_graphs.get_mut(&key()).expect("it stands");
    std::sync::Arc::make_mut(stand).state.open_gates.insert("first".into());
    assert_eq!(session.next_wake_at(&spec), None);
    stage.advance_and_tick(at.ms_since(stage.now()));
    assert_eq!(phase(&stage).0, "b");
}

#[test]
fn an_agents_graph_begins_with_its_first_call_and_hears_of_handovers_from_then_on() {
    let notes = HandoverSpec { kind: "notes".into(), fields: Vec::new(), repairs_max: 0 };
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role().with_phase_graph("talk"))
        .with_graph(graph(PhaseOwnerKind::Agent))
        .with_handover(notes);
    let of_ann = PhaseGraphKey { graph: "talk".into(), owner: PhaseGraphOwner::Agent("ann".into()) };
    let proposed = of_ann.clone();
    let mut stage = SessionHarness::open(ClosureFlow::new(spec.clone(), move |_, event| match &event.event {
        Event::TurnStarted { .. } => {
            let wish = CallRequest::new("speaker", "note").with_agent(&"ann".into());
            vec![FlowStep::EndTurn(TurnResult::Done), FlowStep::Call(wish)]
        }
        Event::CallAnswered(_) => vec![
            FlowStep::MakeHandover {
                kind: "notes".into(),
                document: HandoverDocument::new(),
                calls: Vec::new(),
                provenance: HandoverProvenance::Built,
            },
            FlowStep::ProposePhase {
                phase: proposed.clone(),
                proposal: PhaseProposal::new("review", Proposer::Agent("ann".into())),
            },
        ],
        _ => Vec::new(),
    }));
    assert_eq!(stage.session().next_wake_at(&spec), None, "nobody is in it yet");
    stage.advance_clock(5_000);
    stage.send_message("go");
    let begun = stage.now();
    assert_eq!(stage.session().next_wake_at(&spec), Some(begun.plus_ms(1_000)), "its time runs from its first call");
    stage.answer_call("speaker", "done");
    assert_eq!(stage.session().phase_graphs[&of_ann].state.current, "review");
    assert_eq!(outcomes(&stage), ["done"]);
}
