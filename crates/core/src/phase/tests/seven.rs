//! The rules of a project's seven phases. Prefixes name the row of the requirements checklist.

use crate::ids::{PhaseName, UnixMillis};
use crate::phase::guard::{PhaseConditionVerdict, PhaseGuardInputs, PhaseTransitionProposer};
use crate::phase::limit::{expiry_transition, visit_deadline};
use crate::phase::ruling::{PhaseProposalRuling, PhaseRefusalReason, allowed_phases, rule_on_proposal};
use crate::phase::state::{
    ExpiredPhaseLimit, PhaseGraphState, PhaseProposal, PhaseTransitionCause, PhaseTransitionNote, SkippedRequirement,
};
use crate::phase::user_override::{OneTimePhaseGrantRefusal, PhaseRollbackRefusal, issue_skip_grant, plan_rollback};
use expect_test::expect;

use super::{accepted, names, proposal, refused, router, seven, walked};

const WORK: [&str; 7] = ["chat", "brainstorm", "plan", "execute", "verification", "chores", "reflection"];

/// The transition table of the requirements, repeated here to check the data against it.
const TABLE: [(&str, &[&str]); 7] = [
    ("chat", &["brainstorm", "plan", "execute"]),
    ("brainstorm", &["chat", "plan", "execute"]),
    ("plan", &["execute"]),
    ("execute", &["chat", "verification"]),
    ("verification", &["chat", "execute", "chores"]),
    ("chores", &["reflection"]),
    ("reflection", &["chat"]),
];

/// The usual path to each phase.
fn at(phase: &str) -> PhaseGraphState {
    let path: &[&str] = match phase {
        "chat" => &[],
        "brainstorm" => &["brainstorm"],
        "plan" => &["plan"],
        "execute" => &["execute"],
        "verification" => &["execute", "verification"],
        "chores" => &["execute", "verification", "chores"],
        "reflection" => &["execute", "verification", "chores", "reflection"],
        "end" => &["end"],
        other => panic!("no way to {other}"),
    };
    walked(&seven(), path)
}

#[test]
fn t1_every_phase_has_purpose_criteria_and_constraints() {
    let graph = seven();
    assert_eq!(graph.validate(), Ok(()));
    for name in WORK {
        let phase = graph.find_phase(&name.into()).expect("each of the seven is there");
        assert!(!phase.purpose.is_empty() && !phase.criteria.is_empty() && !phase.constraints.is_empty(), "{name}");
        assert!(!phase.agents.is_empty() || name == "reflection", "{name}");
    }
}

#[test]
fn t2_listed_transitions_are_accepted_and_all_others_refused() {
    let graph = seven();
    for (from, listed) in TABLE {
        let state = at(from);
        for to in WORK.into_iter().filter(|to| *to != from) {
            if listed.contains(&to) {
                let transition = accepted(&graph, &state, to);
                assert_eq!(
                    (transition.from, transition.to, transition.cause),
                    (from.into(), to.into(), PhaseTransitionCause::Proposed)
                );
            } else {
                assert_eq!(refused(&graph, &state, to).why, PhaseRefusalReason::NoEdge, "{from} to {to}");
            }
        }
    }
}

#[test]
fn t3_refusal_keeps_the_phase_and_lists_allowed_phases() {
    let graph = seven();
    let state = at("chores");
    let refusal = refused(&graph, &state, "end");
    assert_eq!(refusal.allowed, names(&["reflection"]));
    assert_eq!(refusal.from, state.current);
    expect!["`end` cannot be entered from `chores`: there is no edge to it; allowed now: `reflection`"]
        .assert_eq(&refusal.to_string());
    expect!["`deploy` cannot be entered from `chores`: there is no such phase; allowed now: `reflection`"]
        .assert_eq(&refused(&graph, &state, "deploy").to_string());
}

#[test]
fn t4_a_hand_off_within_a_phase_changes_nothing_but_is_ruled() {
    let graph = seven();
    let state = at("execute");
    let transition = accepted(&graph, &state, "execute");
    assert_eq!(transition.cause, PhaseTransitionCause::SamePhase);
    assert!(!transition.is_visit_start());
    let mut after = state.clone();
    after.apply_transition(&transition, UnixMillis(99_000));
    assert_eq!(after, state);
}

#[test]
fn t5_transition_contains_its_note() {
    let graph = seven();
    let note = PhaseTransitionNote {
        proposer_label: Some("Planner".to_owned()),
        reason: Some("the plan is approved".to_owned()),
        message: Some("build it as planned".to_owned()),
        summary: Some("three steps, none begun".to_owned()),
    };
    let by = PhaseTransitionProposer::Agent("planner-1".into());
    let proposal = PhaseProposal { to: "execute".into(), by: by.clone(), note: note.clone() };
    let PhaseProposalRuling::Enter(transition) =
        rule_on_proposal(&graph, &at("plan"), &proposal, &PhaseGuardInputs::default())
    else {
        panic!("an edge leads there")
    };
    assert_eq!((transition.from.as_str(), transition.to.as_str()), ("plan", "execute"));
    assert_eq!((transition.by, transition.note), (by, note));
}

#[test]
fn t6_since_and_visit_change_only_with_the_phase() {
    let graph = seven();
    let mut state = at("plan");
    assert_eq!((state.visit, state.since), (2, UnixMillis(1000)));
    state.count_turn_started_in_visit();
    state.apply_transition(&accepted(&graph, &state, "plan"), UnixMillis(5000));
    assert_eq!((state.visit, state.since, state.turns_started), (2, UnixMillis(1000), 1));
    state.apply_transition(&accepted(&graph, &state, "execute"), UnixMillis(6000));
    assert_eq!((state.visit, state.since, state.turns_started), (3, UnixMillis(6000), 0));
    assert_eq!(state.came_from, Some("plan".into()));
}

#[test]
fn t9_execute_leads_to_verification_before_chores_even_by_detours() {
    let graph = seven();
    let mut detour = walked(&graph, &["execute", "chat"]);
    assert_eq!(refused(&graph, &detour, "chores").why, PhaseRefusalReason::NoEdge);
    // An edge alone would allow it; the gate does not.
    let mut wider = graph.clone();
    wider.edges.push(crate::phase::PhaseEdge { from: "chat".into(), to: "chores".into(), guard: Default::default() });
    assert!(matches!(refused(&wider, &detour, "chores").why, PhaseRefusalReason::GatesOpen(_)));
    detour.apply_transition(&accepted(&graph, &detour, "execute"), UnixMillis(3000));
    detour.apply_transition(&accepted(&graph, &detour, "verification"), UnixMillis(4000));
    assert_eq!(detour.open_gates.iter().collect::<Vec<_>>(), ["learn", "tidy", "verify"], "entering is no evidence");
    let leaving = accepted(&graph, &detour, "chores");
    assert_eq!(leaving.closes_gates, ["verify"]);
}

#[test]
fn t9_verification_is_satisfied_by_evidence_when_it_is_left() {
    let graph = seven();
    let state = at("verification");
    let conditions = |verdict| PhaseGuardInputs {
        verdicts: std::collections::BTreeMap::from([("verified".to_owned(), verdict)]),
        ..PhaseGuardInputs::default()
    };
    let propose =
        |to: &str, conditions: &PhaseGuardInputs| rule_on_proposal(&graph, &state, &proposal(to, router()), conditions);
    let failed = conditions(PhaseConditionVerdict::Fails("two tests fail".to_owned()));
    let PhaseProposalRuling::Refuse(refusal) = propose("chores", &failed) else { panic!("there is no evidence") };
    expect!["`chores` cannot be entered from `verification`: gate `verify` is open, and leaving `verification` now lacks the condition `verified` (two tests fail) (only the user can grant a skip); allowed now: `chat`, `execute`"].assert_eq(&refusal.to_string());

    // Without evidence the phase can be left for phases that the gate does not block, and stays open.
    for to in ["execute", "chat"] {
        let PhaseProposalRuling::Enter(transition) = propose(to, &failed) else {
            panic!("the gate does not block `{to}`")
        };
        assert_eq!(transition.closes_gates, [""; 0]);
    }
    let PhaseProposalRuling::Enter(transition) = propose("chores", &conditions(PhaseConditionVerdict::Holds)) else {
        panic!("there is evidence")
    };
    assert_eq!(transition.closes_gates, ["verify"]);
}

#[test]
fn t9_limit_neither_satisfies_a_gate_nor_leads_through_one() {
    let graph = seven();
    for (phase, exit) in [("execute", "chat"), ("verification", "chat"), ("chores", "reflection")] {
        let mut state = at(phase);
        let open = state.open_gates.clone();
        (0..20).for_each(|_| state.count_round_in_visit());
        let transition = expiry_transition(&graph, &state, UnixMillis(9000), None).expect("all rounds are used");
        assert_eq!((transition.to.as_str(), transition.closes_gates.as_slice()), (exit, &[][..]), "{phase}");
        state.apply_transition(&transition, UnixMillis(9000));
        assert_eq!(state.open_gates, open);
    }
}

#[test]
fn t10_verification_may_return_to_execute_and_is_required_again() {
    let graph = seven();
    let state = walked(&graph, &["execute", "verification", "execute"]);
    let verified = walked(&graph, &["execute", "verification", "chores"]);
    assert_eq!(verified.open_gates.iter().collect::<Vec<_>>(), ["learn", "tidy"]);
    assert_eq!(state.open_gates.iter().collect::<Vec<_>>(), ["learn", "tidy", "verify"]);
    assert_eq!(state.visit_counts.get("execute"), Some(&2));
}

#[test]
fn t11_chores_leads_to_reflection_only() {
    assert_eq!(
        allowed_phases(&seven(), &at("chores"), &router(), &PhaseGuardInputs::default()),
        names(&["reflection"])
    );
}

#[test]
fn t24_the_end_cannot_be_reached_around_an_open_gate() {
    let graph = seven();
    for path in [&["execute", "chat"][..], &["execute", "verification", "chat"], &["plan", "execute", "chat"]] {
        let state = walked(&graph, path);
        assert!(matches!(refused(&graph, &state, "end").why, PhaseRefusalReason::GatesOpen(_)), "{path:?}");
    }
    expect![
        "`end` cannot be entered from `chat`: gate `verify` is open, so after `execute` `verification` must be completed first, \
         with the condition `verified`, and gate `tidy` is open, so after `execute` `chores` must be completed first, \
         and gate `learn` is open, so after `execute` `reflection` must be completed first, \
         with the condition `everyone reflected` (only the user can grant a skip); allowed now: `brainstorm`, `plan`, `execute`"
    ]
    .assert_eq(&refused(&graph, &walked(&graph, &["execute", "chat"]), "end").to_string());
    accepted(&graph, &at("chat"), "end");
    accepted(&graph, &at("reflection"), "end");
}

#[test]
fn t24_nothing_follows_the_end() {
    let graph = seven();
    let state = at("end");
    for to in WORK.into_iter().chain(["end"]) {
        let refusal = refused(&graph, &state, to);
        assert_eq!((refusal.why, refusal.allowed), (PhaseRefusalReason::Terminal, Vec::new()));
    }
    assert_eq!(
        issue_skip_grant(&graph, &state, &PhaseTransitionProposer::User, &"chat".into()),
        Err(OneTimePhaseGrantRefusal::Terminal { current: "end".into() })
    );
}

#[test]
fn t12_only_the_user_grants_a_skip_and_is_warned() {
    let graph = seven();
    let mut state = at("execute");
    let to = PhaseName::from("end");
    for by in [
        router(),
        PhaseTransitionProposer::Agent("executor".into()),
        PhaseTransitionProposer::Tool("shell".into()),
        PhaseTransitionProposer::Engine,
    ] {
        let refusal = issue_skip_grant(&graph, &state, &by, &to).expect_err("no authority");
        assert_eq!(refusal, OneTimePhaseGrantRefusal::NotAuthorized { by, to: to.clone() });
    }
    let given = issue_skip_grant(&graph, &state, &PhaseTransitionProposer::User, &to).expect("the user may");
    expect![
        "`end` may be entered once; this may skip phase `verification` (gate `verify`); \
         phase `chores` (gate `tidy`); phase `reflection` (gate `learn`); \
         the missing edge from `execute` to `end`"
    ]
    .assert_eq(&given.to_string());

    state.add_grant(given);
    let transition = accepted(&graph, &state, "end");
    expect![
        "`end` was entered with a grant, which skipped phase `verification` (gate `verify`); phase `chores` (gate `tidy`); \
         phase `reflection` (gate `learn`); the missing edge from `execute` to `end`"
    ]
    .assert_eq(&transition.describe_skips_or_blocked_exit().expect("a skip warns"));
    state.apply_transition(&transition, UnixMillis(9000));
    assert!(state.grants.is_empty() && state.open_gates.is_empty());
}

#[test]
fn grant_allows_one_transition_and_closes_skipped_gates() {
    let graph = seven();
    let mut state = at("chat");
    // Given in advance, before the gate is open.
    state.add_grant(
        issue_skip_grant(&graph, &state, &PhaseTransitionProposer::Operator, &"chores".into())
            .expect("an operator may"),
    );
    state.apply_transition(&accepted(&graph, &state, "execute"), UnixMillis(1));
    let transition = accepted(&graph, &state, "chores");
    assert_eq!(transition.closes_gates, ["verify"]);
    assert_eq!(transition.opens_gates, [""; 0]);
    let PhaseTransitionCause::Granted { skips } = &transition.cause else { panic!("it needs the grant") };
    assert_eq!(skips.0[0], SkippedRequirement::Gate { gate: "verify".to_owned(), phase: "verification".into() });
    state.apply_transition(&transition, UnixMillis(2));
    state.apply_transition(&accepted(&graph, &state, "reflection"), UnixMillis(3));
    state.apply_transition(&accepted(&graph, &state, "chat"), UnixMillis(4));
    state.apply_transition(&accepted(&graph, &state, "execute"), UnixMillis(5));
    assert_eq!(refused(&graph, &state, "chores").why, PhaseRefusalReason::NoEdge);
}

#[test]
fn unneeded_grant_ends_with_the_transition() {
    let graph = seven();
    let mut state = at("verification");
    state.add_grant(
        issue_skip_grant(&graph, &state, &PhaseTransitionProposer::User, &"chores".into()).expect("the user may"),
    );
    let transition = accepted(&graph, &state, "chores");
    assert_eq!(transition.cause, PhaseTransitionCause::Proposed);
    state.apply_transition(&transition, UnixMillis(1));
    assert!(state.grants.is_empty());
}

#[test]
fn grant_can_be_revoked_and_is_not_duplicated() {
    let graph = seven();
    let mut state = at("execute");
    for _ in 0..3 {
        state.add_grant(
            issue_skip_grant(&graph, &state, &PhaseTransitionProposer::User, &"end".into()).expect("the user may"),
        );
    }
    assert_eq!(state.grants.len(), 1);
    state.revoke_grant(&"end".into());
    refused(&graph, &state, "end");
    assert!(issue_skip_grant(&graph, &state, &PhaseTransitionProposer::User, &"execute".into()).is_err());
    assert!(issue_skip_grant(&graph, &state, &PhaseTransitionProposer::User, &"nowhere".into()).is_err());
}

#[test]
fn turn_limit_is_reached_after_the_last_allowed_turn() {
    let graph = seven();
    let mut state = at("plan");
    for turn in 1..=6 {
        assert_eq!(expiry_transition(&graph, &state, UnixMillis(9000), None), None, "before turn {turn}");
        state.count_turn_started_in_visit();
        assert_eq!(state.turns_started, turn);
        assert_eq!(expiry_transition(&graph, &state, UnixMillis(9000), None), None, "during turn {turn}");
        state.count_turn_ended_in_visit();
    }
    let transition = expiry_transition(&graph, &state, UnixMillis(9000), None).expect("six turns are over");
    assert_eq!((transition.to.as_str(), &transition.by), ("chat", &PhaseTransitionProposer::Engine));
    assert_eq!(
        transition.cause,
        PhaseTransitionCause::Expired { limit: ExpiredPhaseLimit::Turns, blocked_by: Vec::new() }
    );
    state.apply_transition(&transition, UnixMillis(9000));
    state.count_turn_ended_in_visit();
    assert_eq!((state.turns_started, state.turns_done), (0, 0));
}

#[test]
fn time_limit_is_reached_at_the_deadline_and_not_before() {
    let graph = seven();
    let state = at("execute");
    let over = visit_deadline(&graph, &state, None).expect("execute has a limit on time");
    assert_eq!(over, UnixMillis(3_601_000));
    assert_eq!(expiry_transition(&graph, &state, UnixMillis(over.0 - 1), None), None);
    let transition = expiry_transition(&graph, &state, over, None).expect("the time is over");
    assert_eq!(
        transition.cause,
        PhaseTransitionCause::Expired { limit: ExpiredPhaseLimit::Time, blocked_by: Vec::new() }
    );
    assert_eq!(transition.to.as_str(), "chat");
    assert_eq!(visit_deadline(&graph, &at("chat"), None), None);
    assert_eq!(expiry_transition(&graph, &at("chat"), UnixMillis(u64::MAX), None), None);
}

#[test]
fn r10_waiting_for_others_extends_a_visit_unless_the_limit_includes_it() {
    let mut graph = seven();
    let mut state = at("execute");
    let (started, hour) = (state.since, 3_600_000);
    let waiting = Some(started.plus_ms(10));
    assert_eq!(visit_deadline(&graph, &state, waiting), None, "the clock stands still");
    assert_eq!(expiry_transition(&graph, &state, UnixMillis(u64::MAX), waiting), None);
    state.waited_ms = 500;
    assert_eq!(visit_deadline(&graph, &state, None), Some(started.plus_ms(hour + 500)));
    let used_up = Some(started.plus_ms(hour + 500));
    assert!(expiry_transition(&graph, &state, UnixMillis(u64::MAX), used_up).is_some(), "it was over before the wait");
    graph.phases[3].limit.as_mut().expect("execute has a limit").includes_waiting = true;
    assert_eq!(visit_deadline(&graph, &state, waiting), Some(started.plus_ms(hour)));
}

#[test]
fn blocked_exit_leads_to_the_phase_that_satisfies_the_gate() {
    let mut graph = seven();
    graph.phases[0].limit = super::turns_limit(1, "end");
    assert_eq!(graph.validate(), Ok(()));
    let mut state = walked(&graph, &["execute", "chat"]);
    state.count_turn_started_in_visit();
    state.count_turn_ended_in_visit();
    let transition = expiry_transition(&graph, &state, UnixMillis(0), None).expect("one turn is over");
    assert_eq!(transition.to.as_str(), "verification");
    assert_eq!(
        transition.cause,
        PhaseTransitionCause::Expired { limit: ExpiredPhaseLimit::Turns, blocked_by: vec!["verify".to_owned()] }
    );
    assert!(transition.describe_skips_or_blocked_exit().is_some());

    let mut idle = PhaseGraphState::new(&graph, UnixMillis(0));
    idle.count_turn_started_in_visit();
    idle.count_turn_ended_in_visit();
    assert_eq!(expiry_transition(&graph, &idle, UnixMillis(0), None).expect("one turn is over").to.as_str(), "end");
}

#[test]
fn limit_that_leads_back_to_its_phase_does_not_loop() {
    let mut graph = seven();
    graph.phases[0].limit = super::turns_limit(1, "chat");
    assert!(graph.validate().is_err());
    let mut state = at("chat");
    state.count_turn_started_in_visit();
    state.count_turn_ended_in_visit();
    assert_eq!(expiry_transition(&graph, &state, UnixMillis(0), None), None);
}

#[test]
fn a_rollback_restores_phase_and_gates_under_a_new_visit() {
    let graph = seven();
    let past = walked(&graph, &["execute"]);
    let mut state = walked(&graph, &["execute", "verification", "chores"]);
    state.add_grant(
        issue_skip_grant(&graph, &state, &PhaseTransitionProposer::User, &"end".into()).expect("the user may"),
    );
    let transition =
        plan_rollback(&graph, &state, &past, &PhaseTransitionProposer::User, PhaseTransitionNote::default())
            .expect("it lies behind");
    assert_eq!(transition.cause, PhaseTransitionCause::RolledBack { to_visit: 2 });
    state.apply_transition(&transition, UnixMillis(7000));
    assert_eq!(state.current.as_str(), "execute");
    assert_eq!((state.visit, state.since), (5, UnixMillis(7000)));
    assert_eq!(state.open_gates, past.open_gates);
    assert!(state.grants.is_empty());
    assert_eq!(state.visit_counts.get("execute"), Some(&2));
}

#[test]
fn rollback_to_the_current_visit_restarts_it() {
    let graph = seven();
    let mut state = at("execute");
    let past = state.clone();
    state.count_turn_started_in_visit();
    let again = plan_rollback(&graph, &state, &past, &PhaseTransitionProposer::User, PhaseTransitionNote::default())
        .expect("it has begun");
    state.apply_transition(&again, UnixMillis(5000));
    assert_eq!((state.current.as_str(), state.visit, state.turns_started), ("execute", 3, 0));
    assert_eq!(state.open_gates, past.open_gates);
}

#[test]
fn only_the_user_can_roll_back_from_the_end() {
    let graph = seven();
    let past = at("chat");
    let state = at("end");
    plan_rollback(&graph, &state, &past, &PhaseTransitionProposer::Operator, PhaseTransitionNote::default())
        .expect("an operator may");
    let asked = plan_rollback(&graph, &state, &past, &router(), PhaseTransitionNote::default());
    assert_eq!(asked, Err(PhaseRollbackRefusal::NotAuthorized { by: router() }));
    let ahead = plan_rollback(&graph, &past, &state, &PhaseTransitionProposer::User, PhaseTransitionNote::default());
    assert_eq!(ahead, Err(PhaseRollbackRefusal::NotPast { to: 2, current: 1 }));
    let mut smaller = graph.clone();
    smaller.phases.remove(0);
    let gone = plan_rollback(&smaller, &state, &past, &PhaseTransitionProposer::User, PhaseTransitionNote::default());
    assert_eq!(gone, Err(PhaseRollbackRefusal::PhaseGone { phase: "chat".into() }));
}

#[test]
fn user_can_leave_a_phase_that_was_removed_from_the_graph() {
    let mut graph = seven();
    let mut state = at("plan");
    graph.phases.retain(|phase| phase.name != "plan");
    graph.edges.retain(|edge| edge.from != "plan" && edge.to != "plan");
    assert_eq!(refused(&graph, &state, "execute").why, PhaseRefusalReason::NoEdge);
    assert_eq!(expiry_transition(&graph, &state, UnixMillis(u64::MAX), None), None);
    state.add_grant(
        issue_skip_grant(&graph, &state, &PhaseTransitionProposer::User, &"execute".into()).expect("the user may"),
    );
    accepted(&graph, &state, "execute");
}

#[test]
fn tools_and_models_follow_the_phase() {
    let mut graph = seven();
    let reflection = &graph.phases[6];
    assert!(reflection.tools.allows(&"learn".into()) && !reflection.tools.allows(&"shell".into()));
    let plan = &mut graph.phases[2];
    assert!(plan.tools.allows(&"shell".into()));
    assert_eq!(plan.model_for_role(&"planner".into()), None);
    plan.model = Some("small".into());
    plan.models.insert("planner".into(), "large".into());
    assert_eq!(plan.model_for_role(&"planner".into()), Some(&"large".into()));
    assert_eq!(plan.model_for_role(&"router".into()), Some(&"small".into()));
}
