//! A flow that counts rounds in a phase with a limit, and completes a phase with evidence.

use std::collections::BTreeSet;

use segue_core::event::{CallRequest, Event, PhaseGraphKey, PhaseStateOwner, TurnOutcome};
use segue_core::flow::FlowStep;
use segue_core::phase::{
    Guard, PhaseConditionVerdict, PhaseEdge, PhaseEntryGate, PhaseGraph, PhaseGraphOwnerKind, PhaseKind, PhaseLimit,
    PhaseSpec, PhaseTransitionNote, PhaseTransitionProposer,
};
use segue_testkit::{ClosureFlow, SessionHarness};

fn key() -> PhaseGraphKey {
    PhaseGraphKey { graph: "work".into(), owner: PhaseStateOwner::Session }
}

pub(crate) fn flow() -> ClosureFlow {
    let edge = |from: &str, to: &str| PhaseEdge { from: from.into(), to: to.into(), guard: Guard::Always };
    let mut build = PhaseSpec::new("build");
    build.limit = Some(PhaseLimit { rounds_max: Some(2), ms_max: Some(60_000), ..PhaseLimit::new("check") });
    let end = PhaseSpec { kind: PhaseKind::End, ..PhaseSpec::new("end") };
    let graph = PhaseGraph {
        name: "work".into(),
        owner_kind: PhaseGraphOwnerKind::Session,
        start: "build".into(),
        phases: vec![build, PhaseSpec::new("check"), end],
        edges: vec![edge("build", "check"), edge("check", "build"), edge("check", "end")],
        gates: vec![PhaseEntryGate {
            name: "checked".into(),
            opened_by: "build".into(),
            satisfied_by: "check".into(),
            condition: Some("passed".into()),
            blocks: BTreeSet::new(),
        }],
    };
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role().with_phase_graph("work")).with_graph(graph);
    let flow = ClosureFlow::new(spec, |view, event| match &event.event {
        Event::CallAnswered(answered) => {
            let to = match &*view.read_text(answered.text) {
                "more" => return vec![FlowStep::CountRound { phase: key() }],
                "again" => "build",
                _ => "end",
            };
            let (by, note) = (PhaseTransitionProposer::Role("speaker".into()), PhaseTransitionNote::default());
            vec![FlowStep::ProposePhase { phase: key(), to: to.into(), by, note }]
        }
        Event::PhaseRoundCounted { .. } | Event::PhaseTransitionRefused { .. } => {
            vec![FlowStep::Call(CallRequest::new("speaker", "reply"))]
        }
        Event::PhaseEntered(entered) if entered.transition.to != "check" => {
            vec![FlowStep::EndTurn(TurnOutcome::Done)]
        }
        _ => ClosureFlow::react_as_chat(view, event),
    });
    flow.with_conditions(|view, _, _| match view.session.phase_graphs[&key()].state.visit_counts.get("check") {
        Some(2..) => PhaseConditionVerdict::Holds,
        Some(_) | None => PhaseConditionVerdict::Fails("it was checked only once".to_owned()),
    })
}

/// Two rounds lead to the check, which fails, is repeated, and passes.
pub(crate) fn play() -> SessionHarness {
    let mut harness = SessionHarness::open(flow());
    harness.send_message("go").answer_call("speaker", "more").answer_call("speaker", "more");
    harness.answer_call("speaker", "done").answer_call("speaker", "again");
    harness.advance_clock(5_000);
    harness.send_message("again").answer_call("speaker", "more").answer_call("speaker", "more");
    harness.answer_call("speaker", "done");
    harness
}
