//! Phases in a session: limits and exits, turn counts, and handovers.

use std::collections::BTreeSet;

use segue_core::decide::{InputRefusal, OperatorCommand, SessionInput};
use segue_core::event::{CallRequest, Event, PhaseGraphKey, PhaseStateOwner, TurnOutcome};
use segue_core::flow::{FlowSpec, FlowStep, RoleSpec};
use segue_core::handover::{HandoverDocument, HandoverProvenance, HandoverSpec};
use segue_core::phase::{
    Guard, PhaseConditionVerdict, PhaseEdge, PhaseEntryGate, PhaseGraph, PhaseGraphOwnerKind, PhaseLimit, PhaseSpec,
    PhaseTransitionCause, PhaseTransitionNote, PhaseTransitionProposer,
};
use segue_core::scope::Scope;
use segue_core::session::Effect;
use segue_testkit::{ClosureFlow, SessionHarness};

use super::{events, outcomes};

fn key() -> PhaseGraphKey {
    PhaseGraphKey { graph: "talk".into(), owner: PhaseStateOwner::Session }
}

fn edge(from: &str, to: &str, guard: Guard) -> PhaseEdge {
    PhaseEdge { from: from.into(), to: to.into(), guard }
}

/// `draft` may last two turns, three rounds or a second, waits included, and leads to `review`; an edge leads back.
fn graph(owner_kind: PhaseGraphOwnerKind) -> PhaseGraph {
    let mut draft = PhaseSpec::new("draft");
    draft.limit = Some(PhaseLimit {
        turns_max: Some(2),
        rounds_max: Some(3),
        ms_max: Some(1_000),
        includes_waiting: true,
        ..PhaseLimit::new("review")
    });
    PhaseGraph {
        name: "talk".into(),
        owner_kind,
        start: "draft".into(),
        phases: vec![draft, PhaseSpec::new("review")],
        edges: vec![edge("draft", "review", Guard::Handover("notes".into())), edge("review", "draft", Guard::Always)],
        gates: Vec::new(),
    }
}

fn spec(speaker: RoleSpec) -> FlowSpec {
    let notes = HandoverSpec { kind: "notes".into(), fields: Vec::new(), repairs_max: 0 };
    ClosureFlow::spec_with_role(speaker.with_phase_graph("talk"))
        .with_graph(graph(PhaseGraphOwnerKind::Session))
        .with_handover(notes)
}

fn chat() -> SessionHarness {
    SessionHarness::open(ClosureFlow::new(
        spec(ClosureFlow::test_role("speaker", Scope::per_phase())),
        ClosureFlow::react_as_chat,
    ))
}

fn phase(harness: &SessionHarness) -> (String, u32, u32, u32) {
    let now = &harness.session().phase_graphs[&key()].state;
    (now.current.to_string(), now.visit, now.turns_started, now.turns_done)
}

fn expiries(harness: &SessionHarness) -> Vec<String> {
    events(harness, |event| match event {
        Event::PhaseEntered(entered) => match &entered.transition.cause {
            PhaseTransitionCause::Expired { limit, .. } => Some(format!("{limit:?} → {}", entered.transition.to)),
            _ => None,
        },
        _ => None,
    })
}

#[test]
fn phase_with_no_turns_left_takes_its_exit() {
    let mut harness = chat();
    harness.send_message("one").answer_call("speaker", "1");
    assert_eq!(phase(&harness), ("draft".into(), 1, 1, 1));
    harness.send_message("two");
    assert_eq!(expiries(&harness), [""; 0], "not in the middle of a turn");
    harness.answer_call("speaker", "2");
    assert_eq!(expiries(&harness), ["Turns → review"]);
    assert_eq!(phase(&harness), ("review".into(), 2, 0, 0));
    harness.send_message("three");
    assert_eq!(harness.prompt_lines("speaker"), "System: be speaker\nUser: three\n", "and with it a new memory");
}

#[test]
fn phase_past_its_deadline_takes_its_exit_at_the_next_tick() {
    let mut harness = chat();
    let spec = spec(ClosureFlow::speaker_role());
    let at = harness.session().next_wake_at(&spec).expect("there is a deadline");
    assert_eq!(at, harness.session().opened_at.plus_ms(1_000));
    harness.advance_and_tick(at.ms_since(harness.now()) - 2);
    assert_eq!(expiries(&harness), [""; 0]);
    harness.advance_and_tick(0);
    assert_eq!(expiries(&harness), ["Time → review"]);
    assert_eq!(harness.session().next_wake_at(&spec), None, "looking was enough");
}

#[test]
fn message_after_the_deadline_arrives_in_the_next_phase() {
    let mut harness = chat();
    harness.advance_clock(5_000);
    harness.send_message("late");
    assert_eq!(phase(&harness), ("review".into(), 2, 1, 0));
}

#[test]
fn phase_expires_in_the_middle_of_a_turn() {
    let mut harness = chat();
    let spec = spec(ClosureFlow::speaker_role());
    harness.send_message("one");
    let at = harness.session().next_wake_at(&spec).expect("the deadline is watched during a turn, too");
    harness.advance_and_tick(at.ms_since(harness.now()));
    assert_eq!(expiries(&harness), ["Time → review"]);
    assert_eq!(harness.session().next_wake_at(&spec), None);
    assert_eq!(harness.open_call_roles(), ["speaker"], "the flow decides what becomes of pending work");
    harness.answer_call("speaker", "1");
    assert_eq!(outcomes(&harness), ["done"]);
}

/// A flow that counts a round after each answer and calls the speaker again, without ever ending its turn.
fn looping() -> SessionHarness {
    let flow = ClosureFlow::new(spec(ClosureFlow::speaker_role()), |view, event| match &event.event {
        Event::CallAnswered(_) => vec![FlowStep::CountRound { phase: key() }],
        Event::PhaseRoundCounted { .. } if view.session.phase_graphs[&key()].state.current == "draft" => {
            vec![FlowStep::Call(CallRequest::new("speaker", "reply"))]
        }
        Event::PhaseEntered(_) => vec![FlowStep::EndTurn(TurnOutcome::Done)],
        _ => ClosureFlow::react_as_chat(view, event),
    });
    SessionHarness::open(flow)
}

#[test]
fn rounds_bound_a_loop_inside_one_turn() {
    let mut harness = looping();
    harness.send_message("go").answer_call("speaker", "1").answer_call("speaker", "2");
    assert_eq!(harness.session().phase_graphs[&key()].state.rounds, 2);
    assert_eq!(expiries(&harness), [""; 0]);
    harness.answer_call("speaker", "3");
    assert_eq!(expiries(&harness), ["Rounds → review"]);
    assert_eq!(harness.session().phase_graphs[&key()].state.rounds, 0);
    assert_eq!(outcomes(&harness), ["done"]);
}

#[test]
fn round_of_an_unknown_graph_is_refused() {
    let stranger = PhaseGraphKey { graph: "walk".into(), owner: PhaseStateOwner::Session };
    let mut harness = SessionHarness::open(ClosureFlow::new(spec(ClosureFlow::speaker_role()), move |view, event| {
        match &event.event {
            Event::TurnStarted { .. } => {
                vec![FlowStep::CountRound { phase: stranger.clone() }, FlowStep::EndTurn(TurnOutcome::Done)]
            }
            _ => ClosureFlow::react_as_chat(view, event),
        }
    }));
    harness.send_message("go");
    let refused = events(&harness, |event| match event {
        Event::StepRefused { step, reason } => Some(format!("{step}: {reason}")),
        _ => None,
    });
    assert_eq!(refused, ["count of a round: there is no graph `walk`"]);
}

#[test]
fn r10_phase_time_excludes_waiting_for_a_person() {
    let mut graph = graph(PhaseGraphOwnerKind::Session);
    graph.phases[0].limit = Some(PhaseLimit { ms_max: Some(1_000), ..PhaseLimit::new("review") });
    let notes = HandoverSpec { kind: "notes".into(), fields: Vec::new(), repairs_max: 0 };
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role().with_phase_graph("talk"))
        .with_graph(graph)
        .with_handover(notes);
    let mut harness = SessionHarness::open(ClosureFlow::new(spec.clone(), ClosureFlow::react_as_chat));
    assert_eq!(harness.session().next_wake_at(&spec), None, "nobody has said anything yet");
    harness.advance_and_tick(60_000);
    assert_eq!(expiries(&harness), [""; 0]);

    // Work counts, and waiting between turns does not.
    harness.send_message("one").advance_clock(600);
    harness.answer_call("speaker", "1");
    assert_eq!(harness.session().next_wake_at(&spec), None);
    harness.advance_clock(60_000);
    harness.send_message("two");
    let at = harness.session().next_wake_at(&spec).expect("the clock runs again");
    let left = at.ms_since(harness.now());
    assert!((300..=400).contains(&left), "{left} ms are left of the second");
    harness.advance_and_tick(left);
    assert_eq!(expiries(&harness), ["Time → review"]);
}

#[test]
fn t9_gate_is_closed_by_evidence_that_the_flow_sees_on_leaving() {
    let draft = PhaseSpec::new("draft");
    let graph = PhaseGraph {
        phases: vec![draft, PhaseSpec::new("review"), PhaseSpec::new("publish")],
        edges: vec![
            edge("draft", "review", Guard::Always),
            edge("review", "draft", Guard::Always),
            edge("review", "publish", Guard::Always),
            edge("publish", "draft", Guard::Always),
        ],
        gates: vec![PhaseEntryGate {
            name: "reviewed".into(),
            opened_by: "draft".into(),
            satisfied_by: "review".into(),
            condition: Some("approved".into()),
            blocks: BTreeSet::from(["publish".into()]),
        }],
        ..graph(PhaseGraphOwnerKind::Session)
    };
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role().with_phase_graph("talk")).with_graph(graph);
    let flow = ClosureFlow::new(spec, ClosureFlow::react_as_chat).with_conditions(|view, _, condition| {
        match (condition, view.session.last_reply.is_some()) {
            ("approved", true) => PhaseConditionVerdict::Holds,
            ("approved", false) => PhaseConditionVerdict::Fails("nobody has replied".to_owned()),
            _ => panic!("unexpected condition {condition}"),
        }
    });
    let mut harness = SessionHarness::open(flow);
    let propose = |to: &str| OperatorCommand::Propose { phase: key(), to: to.into(), reason: None };
    let open_gates = |harness: &SessionHarness| harness.session().phase_graphs[&key()].state.open_gates.len();
    harness.run_command(propose("review"));
    assert_eq!(open_gates(&harness), 1, "entering is no evidence");
    harness.run_command(propose("publish"));
    let refused = events(&harness, |event| match event {
        Event::PhaseTransitionRefused { refusal, .. } => Some(refusal.to_string()),
        _ => None,
    });
    assert_eq!(
        refused,
        ["`publish` cannot be entered from `review`: gate `reviewed` is open, and leaving `review` now lacks the \
          condition `approved` (nobody has replied) (only the user can grant a skip); allowed now: `draft`"]
    );
    harness.send_message("please").answer_call("speaker", "fine");
    harness.run_command(propose("publish"));
    assert_eq!((phase(&harness).0.as_str(), open_gates(&harness)), ("publish", 0));
}

#[test]
fn turn_with_a_transition_counts_in_the_phases_with_calls() {
    let speaker = ClosureFlow::test_role("speaker", Scope::per_phase());
    let mut harness = SessionHarness::open(ClosureFlow::new(spec(speaker), |view, event| match &event.event {
        Event::CallAnswered(_) => match view.session.phase_graphs[&key()].state.visit {
            1 => {
                let hand = FlowStep::MakeHandover {
                    kind: "notes".into(),
                    document: HandoverDocument::new(),
                    calls: Vec::new(),
                    provenance: HandoverProvenance::Emitted,
                };
                let by = PhaseTransitionProposer::Role("speaker".into());
                vec![
                    hand,
                    FlowStep::ProposePhase {
                        phase: key(),
                        to: "review".into(),
                        by,
                        note: PhaseTransitionNote::default(),
                    },
                    FlowStep::Call(CallRequest::new("speaker", "reply")),
                ]
            }
            _ => vec![FlowStep::EndTurn(TurnOutcome::Done)],
        },
        _ => ClosureFlow::react_as_chat(view, event),
    }));
    harness.send_message("one").answer_call("speaker", "draft");
    assert_eq!(phase(&harness), ("review".into(), 2, 1, 0), "the same turn is the first of the new visit");
    harness.answer_call("speaker", "review");
    assert_eq!(phase(&harness), ("review".into(), 2, 1, 1));
    harness.send_message("two");
    assert_eq!(phase(&harness), ("review".into(), 2, 2, 1));
}

#[test]
fn turn_of_the_transition_alone_does_not_count_for_the_phase() {
    let mut harness = chat();
    harness.send_message("one");
    harness.run_command(OperatorCommand::Grant { phase: key(), to: "review".into() });
    harness.run_command(OperatorCommand::Propose { phase: key(), to: "review".into(), reason: None });
    harness.answer_call("speaker", "1");
    assert_eq!(phase(&harness), ("review".into(), 2, 0, 0));
    harness.send_message("two");
    assert_eq!(phase(&harness), ("review".into(), 2, 1, 0), "the first turn in a phase is its first");
}

#[test]
fn refused_proposal_is_recorded_and_changes_nothing() {
    let mut harness = chat();
    let propose = |to: &str| OperatorCommand::Propose { phase: key(), to: to.into(), reason: None };
    harness.run_command(propose("review")).run_command(propose("nowhere")).run_command(propose("draft"));
    let refused = events(&harness, |event| match event {
        Event::PhaseTransitionRefused { refusal, .. } => Some(refusal.to.to_string()),
        _ => None,
    });
    assert_eq!(refused, ["review", "nowhere"]);
    assert_eq!(phase(&harness).1, 1, "a hand-off within a phase begins no visit");
    let stranger = PhaseGraphKey { graph: "walk".into(), owner: PhaseStateOwner::Session };
    let refusal =
        harness.try_input(SessionInput::Operator(OperatorCommand::RollBack { phase: stranger, visit: 1 })).err();
    assert_eq!(
        refusal,
        Some(InputRefusal::PhaseCommandRefused("the flow has no phase graph `walk`; it has `talk`".into()))
    );
    assert!(harness.try_input(SessionInput::Operator(OperatorCommand::RollBack { phase: key(), visit: 9 })).is_err());
}

#[test]
fn permanently_blocked_exit_sets_no_wake() {
    let mut a = PhaseSpec::new("a");
    a.limit = Some(PhaseLimit { ms_max: Some(10), includes_waiting: true, ..PhaseLimit::new("b") });
    let mut graph = PhaseGraph {
        name: "talk".into(),
        owner_kind: PhaseGraphOwnerKind::Session,
        start: "start".into(),
        phases: vec![PhaseSpec::new("start"), a, PhaseSpec::new("b"), PhaseSpec::new("c")],
        edges: ["start a", "a b", "b a", "b c", "c a"]
            .map(|phases| phases.split_once(' ').expect("there are two phases"))
            .map(|(from, to)| edge(from, to, Guard::Always))
            .into(),
        gates: vec![PhaseEntryGate {
            name: "first".into(),
            opened_by: "start".into(),
            satisfied_by: "a".into(),
            condition: None,
            blocks: BTreeSet::from(["c".into()]),
        }],
    };
    let spec_with = |graph: &PhaseGraph| {
        ClosureFlow::spec_with_role(ClosureFlow::speaker_role().with_phase_graph("talk")).with_graph(graph.clone())
    };
    let spec = spec_with(&graph);
    let mut harness = SessionHarness::open(ClosureFlow::new(spec.clone(), ClosureFlow::react_as_chat));
    harness.run_command(OperatorCommand::Propose { phase: key(), to: "a".into(), reason: None });
    assert!(harness.session().next_wake_at(&spec).is_some());
    // With a later version of the graph, a gate that only completing `a` satisfies blocks the exit of `a`.
    graph.gates[0].blocks.insert("b".into());
    assert_eq!(harness.session().next_wake_at(&spec_with(&graph)), None, "a tick would change nothing");
    let Some(Effect::Wake { at }) = harness.session().pending_effects(&spec).pop() else {
        panic!("there is a deadline")
    };
    harness.advance_and_tick(at.ms_since(harness.now()));
    assert_eq!(phase(&harness).0, "b");
}

#[test]
fn agents_graph_starts_with_its_first_call_and_sees_later_handovers() {
    let notes = HandoverSpec { kind: "notes".into(), fields: Vec::new(), repairs_max: 0 };
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role().with_phase_graph("talk"))
        .with_graph(graph(PhaseGraphOwnerKind::Agent))
        .with_handover(notes);
    let of_ann = PhaseGraphKey { graph: "talk".into(), owner: PhaseStateOwner::Agent("ann".into()) };
    let proposed = of_ann.clone();
    let mut harness = SessionHarness::open(ClosureFlow::new(spec.clone(), move |_, event| match &event.event {
        Event::TurnStarted { .. } => {
            let request = CallRequest { agent: Some("ann".into()), ..CallRequest::new("speaker", "note") };
            vec![FlowStep::EndTurn(TurnOutcome::Done), FlowStep::Call(request)]
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
                to: "review".into(),
                by: PhaseTransitionProposer::Agent("ann".into()),
                note: PhaseTransitionNote::default(),
            },
        ],
        _ => Vec::new(),
    }));
    assert_eq!(harness.session().next_wake_at(&spec), None, "no agent is in it yet");
    harness.advance_clock(5_000);
    harness.send_message("go");
    let started = harness.now();
    assert_eq!(
        harness.session().next_wake_at(&spec),
        Some(started.plus_ms(1_000)),
        "its time runs from its first call"
    );
    harness.answer_call("speaker", "done");
    assert_eq!(harness.session().phase_graphs[&of_ann].state.current, "review");
    assert_eq!(outcomes(&harness), ["done"]);
}

#[test]
fn handover_opens_guards_only_of_its_owners_graph() {
    let notes = HandoverSpec { kind: "notes".into(), fields: Vec::new(), repairs_max: 0 };
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role().with_phase_graph("talk"))
        .with_graph(graph(PhaseGraphOwnerKind::Agent))
        .with_handover(notes);
    let graph_of = |agent: &str| PhaseGraphKey { graph: "talk".into(), owner: PhaseStateOwner::Agent(agent.into()) };
    let propose = move |agent: &str| FlowStep::ProposePhase {
        phase: graph_of(agent),
        to: "review".into(),
        by: PhaseTransitionProposer::Agent(agent.into()),
        note: PhaseTransitionNote::default(),
    };
    let mut harness = SessionHarness::open(ClosureFlow::new(spec, move |_, event| match &event.event {
        Event::TurnStarted { .. } => {
            let call = |agent: &str| {
                FlowStep::Call(CallRequest { agent: Some(agent.into()), ..CallRequest::new("speaker", "note") })
            };
            vec![call("ann"), call("bob")]
        }
        Event::CallAnswered(answered) if answered.call.0 == 1 => vec![
            FlowStep::MakeHandover {
                kind: "notes".into(),
                document: HandoverDocument::new(),
                calls: vec![answered.call],
                provenance: HandoverProvenance::Emitted,
            },
            propose("ann"),
            propose("bob"),
        ],
        _ => Vec::new(),
    }));
    harness.send_message("go").answer_call("speaker", "done");
    let phase_of = |agent: &str| harness.session().phase_graphs[&graph_of(agent)].state.current.to_string();
    assert_eq!((phase_of("ann"), phase_of("bob")), ("review".to_owned(), "draft".to_owned()));
}
