//! Serves the status and history of phase graphs, and the commands that move them. The graph decides whether a move is
//! allowed.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use segue_core::decide::OperatorCommand;
use segue_core::event::{PhaseGraphKey, PhaseStateOwner};
use segue_core::flow::DynFlow;
use segue_core::ids::{PhaseName, Seq, TurnId};
use segue_core::phase::{PhaseGraph, PhaseTransitionProposer, render_mermaid};
use segue_core::session::{PhaseGraphStateWithHistory, SessionState};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::common_types::{CallTotalsView, PhaseOwnerOrProposerView, serialized_name};
use super::flows::{PhaseView, phase_view};
use super::session_view::{read_session_state, with_session_history};
use super::{AtEventParams, SessionPathParamDocs};
use crate::extract::{CallerSessionRef, JsonBody, QueryParams};
use crate::history::{PhaseEventHistoryEntry, PhaseEventKind, SessionHistory};
use crate::problem::HttpProblem;
use crate::usage::admit_turn;

/// The phase graphs of a session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PhaseGraphStatusList {
    pub graphs: Vec<PhaseGraphStatusView>,
}

/// A phase graph with its status and history.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PhaseGraphStatusView {
    pub graph: String,
    pub participant: PhaseOwnerOrProposerView,
    /// `session`, `role` or `agent`.
    pub attached_to: String,
    /// The start phase.
    pub start: String,
    pub current: CurrentPhaseView,
    /// The phases that you may propose now.
    pub allowed_phases: Vec<String>,
    /// The phases, with figures for each.
    pub phases: Vec<PhaseStatsView>,
    /// The transitions, with the number of times each was taken.
    pub edges: Vec<PhaseEdgeUsageView>,
    pub gates: Vec<GateStatusView>,
    /// In order.
    pub visits: Vec<PhaseVisitView>,
    /// Entries, refusals and grants, in order.
    pub events: Vec<PhaseEventView>,
    /// The graph as a Mermaid diagram.
    pub mermaid: String,
}

/// The current phase of a graph.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CurrentPhaseView {
    pub phase: String,
    /// The number of the visit; the first is 1.
    pub visit: u32,
    /// When the visit started.
    pub since: u64,
    /// The number of turns started in this visit.
    pub turns: u32,
    /// The number of rounds that the flow counted in this visit.
    pub rounds: u32,
    pub previous_phase: Option<String>,
    pub open_gates: Vec<String>,
    /// Grants that have not been used.
    pub grants: Vec<PhaseGrantView>,
}

/// The user's permission to enter a phase once.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PhaseGrantView {
    pub to: String,
    /// Who gave the grant.
    pub by: PhaseOwnerOrProposerView,
    /// What the grant skips.
    pub warning: String,
}

/// A phase with its figures.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PhaseStatsView {
    /// The phase as declared.
    #[serde(flatten)]
    pub phase: PhaseView,
    pub visits: u32,
    pub turns: u32,
    /// The total time of all visits.
    pub duration_ms: u64,
    pub spent: CallTotalsView,
}

/// A transition with its counters.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PhaseEdgeUsageView {
    pub from: String,
    pub to: String,
    /// The condition of the transition, in words.
    pub guard: String,
    /// How often the transition was taken.
    pub taken: u32,
    /// How often the transition was refused.
    pub refused: u32,
}

/// A gate with its status.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GateStatusView {
    pub gate: String,
    /// The phase that opens the gate.
    pub opened_by: String,
    /// The phase that satisfies the gate when it is left.
    pub satisfied_by: String,
    /// The condition that must hold then, if there is one.
    pub condition: Option<String>,
    /// The phases that an open gate blocks, besides all end phases.
    pub blocks: Vec<String>,
    pub is_open: bool,
}

/// One visit to a phase.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PhaseVisitView {
    /// The number of the visit; the first is 1.
    pub visit: u32,
    pub phase: String,
    /// The event that started the visit.
    pub first_seq: u64,
    /// The event that ended the visit.
    pub end_seq: Option<u64>,
    pub started: u64,
    pub ended: Option<u64>,
    pub turns: u32,
}

/// An entry, refusal or grant in a phase graph.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PhaseEventView {
    pub seq: u64,
    pub at: u64,
    pub turn: Option<String>,
    pub graph: String,
    pub participant: PhaseOwnerOrProposerView,
    /// `entered`, `refused` or `granted`.
    #[serde(rename = "type")]
    pub kind: String,
    pub from: Option<String>,
    pub to: String,
    /// Who proposed the transition or gave the grant.
    pub proposed_by: PhaseOwnerOrProposerView,
    /// For an entry `proposed`, `granted`, `expired`, `rolled_back` or `same_phase`.
    pub cause: Option<String>,
    /// The event in one sentence.
    pub summary: String,
    /// A warning to show to the user.
    pub warning: Option<String>,
    /// The reason that the proposer gave.
    pub reason: Option<String>,
    /// The phases that a refused proposer could have entered.
    pub allowed_phases: Vec<String>,
}

/// Builds the view of an entry, refusal or grant.
#[must_use]
pub(crate) fn phase_event_view(entry: &PhaseEventHistoryEntry) -> PhaseEventView {
    let (from, to, by) = match &entry.kind {
        PhaseEventKind::Entered(transition) => (Some(transition.from.to_string()), &transition.to, &transition.by),
        PhaseEventKind::Refused(refusal) => (Some(refusal.from.to_string()), &refusal.to, &refusal.by),
        PhaseEventKind::Granted(grant) => (None, &grant.to, &grant.by),
    };
    let mut event = PhaseEventView {
        seq: entry.position.seq.0,
        at: entry.position.at.0,
        turn: entry.turn.map(|turn| turn.to_string()),
        graph: entry.phase_key.graph.to_string(),
        participant: (&entry.phase_key.owner).into(),
        kind: String::new(),
        from,
        to: to.to_string(),
        proposed_by: by.into(),
        cause: None,
        summary: String::new(),
        warning: None,
        reason: None,
        allowed_phases: Vec::new(),
    };
    match &entry.kind {
        PhaseEventKind::Entered(transition) => {
            event.kind = "entered".to_owned();
            event.cause = Some(serialized_name(&transition.cause));
            event.summary =
                format!("entered {} from {}, proposed by {}", transition.to, transition.from, transition.by);
            event.warning = transition.describe_skips_or_blocked_exit();
            event.reason.clone_from(&transition.note.reason);
        }
        PhaseEventKind::Refused(refusal) => {
            event.kind = "refused".to_owned();
            event.summary = refusal.to_string();
            event.allowed_phases = refusal.allowed.iter().map(ToString::to_string).collect();
        }
        PhaseEventKind::Granted(grant) => {
            event.kind = "granted".to_owned();
            event.summary = format!("{} granted the entry of {} once", grant.by, grant.to);
            event.warning = Some(grant.to_string());
        }
    }
    event
}

/// List the phase graphs of a session
#[utoipa::path(get, path = "/v1/sessions/{session}/phases", tag = "phases", params(SessionPathParamDocs, AtEventParams), responses((status = 200, body = PhaseGraphStatusList)))]
pub(crate) async fn list_phase_graphs(
    session_ref: CallerSessionRef,
    QueryParams(at): QueryParams<AtEventParams>,
) -> Result<Json<PhaseGraphStatusList>, HttpProblem> {
    let at = at.to_seq()?;
    let (flow, state) = read_session_state(&session_ref, at).await?;
    let mut graphs = Vec::new();
    for key in state.session.phase_graph_keys(flow.spec()) {
        graphs.extend(read_graph_status(&session_ref, &*flow, &state, &key, at).await?);
    }
    Ok(Json(PhaseGraphStatusList { graphs }))
}

async fn read_graph_status(
    session_ref: &CallerSessionRef,
    flow: &dyn DynFlow,
    state: &SessionState,
    key: &PhaseGraphKey,
    at: Option<Seq>,
) -> Result<Option<PhaseGraphStatusView>, HttpProblem> {
    let Some(graph) = flow.spec().graphs.get(&key.graph) else { return Ok(None) };
    let engine = &session_ref.app.engine;
    let allowed = engine
        .allowed_phases(&session_ref.session, flow, state, key, &PhaseTransitionProposer::User)
        .await
        .map_err(|error| session_ref.to_problem(error))?;
    let status = state.session.phase_graph_status(graph, key);
    let path =
        with_session_history(session_ref, at, |history| PhaseGraphHistory::from_history(history, graph, key, state))
            .await?;
    let gates = graph.gates.iter().map(|gate| GateStatusView {
        gate: gate.name.clone(),
        opened_by: gate.opened_by.to_string(),
        satisfied_by: gate.satisfied_by.to_string(),
        condition: gate.condition.clone(),
        blocks: gate.blocks.iter().map(ToString::to_string).collect(),
        is_open: status.state.open_gates.contains(&gate.name),
    });
    Ok(Some(PhaseGraphStatusView {
        graph: graph.name.to_string(),
        participant: (&key.owner).into(),
        attached_to: serialized_name(&graph.owner_kind),
        start: graph.start.to_string(),
        current: current_phase_view(&status),
        allowed_phases: allowed.iter().map(ToString::to_string).collect(),
        phases: path.phase_statuses(graph, state),
        edges: path.edge_statuses(graph),
        gates: gates.collect(),
        events: path.events,
        visits: path.visits,
        mermaid: render_mermaid(graph, Some(&status.state)),
    }))
}

fn current_phase_view(status: &PhaseGraphStateWithHistory) -> CurrentPhaseView {
    let now = &status.state;
    let grant = |grant: &segue_core::phase::OneTimePhaseGrant| PhaseGrantView {
        to: grant.to.to_string(),
        by: (&grant.by).into(),
        warning: grant.to_string(),
    };
    CurrentPhaseView {
        phase: now.current.to_string(),
        visit: now.visit,
        since: now.since.0,
        turns: now.turns_started,
        rounds: now.rounds,
        previous_phase: now.came_from.as_ref().map(ToString::to_string),
        open_gates: now.open_gates.iter().cloned().collect(),
        grants: now.grants.iter().map(grant).collect(),
    }
}

/// The visits and events of one graph.
struct PhaseGraphHistory {
    visits: Vec<PhaseVisitView>,
    events: Vec<PhaseEventView>,
    ends_at: u64,
}

impl PhaseGraphHistory {
    fn from_history(history: &SessionHistory, graph: &PhaseGraph, key: &PhaseGraphKey, state: &SessionState) -> Self {
        let entries: Vec<&PhaseEventHistoryEntry> =
            history.phase_events.iter().filter(|entry| entry.phase_key == *key).collect();
        let started = state.session.opened_at.0;
        let mut visits = vec![PhaseVisitView {
            visit: 1,
            phase: graph.start.to_string(),
            first_seq: 1,
            end_seq: None,
            started,
            ended: None,
            turns: 0,
        }];
        for entry in &entries {
            let PhaseEventKind::Entered(transition) = &entry.kind else { continue };
            if !transition.is_visit_start() {
                continue;
            }
            let visit = u32::try_from(visits.len()).unwrap_or(u32::MAX).saturating_add(1);
            if let Some(last) = visits.last_mut() {
                last.end_seq = Some(entry.position.seq.0);
                last.ended = Some(entry.position.at.0);
            }
            visits.push(PhaseVisitView {
                visit,
                phase: transition.to.to_string(),
                first_seq: entry.position.seq.0,
                end_seq: None,
                started: entry.position.at.0,
                ended: None,
                turns: 0,
            });
        }
        for visit in &mut visits {
            let is_within = |seq: Seq| seq.0 >= visit.first_seq && visit.end_seq.is_none_or(|to| seq.0 < to);
            let started_turns = history.turns.values().filter(|turn| is_within(turn.started.seq)).map(|turn| turn.turn);
            // The turn that entered this phase counts here if a call was made in the phase.
            let calls = history.calls.values().filter(|call| {
                is_within(call.position.seq) && call.phase.as_ref().is_some_and(|phase| *phase == visit.phase.as_str())
            });
            let turns: BTreeSet<TurnId> = started_turns.chain(calls.filter_map(|call| call.turn)).collect();
            visit.turns = u32::try_from(turns.len()).unwrap_or(u32::MAX);
        }
        Self { visits, events: entries.into_iter().map(phase_event_view).collect(), ends_at: history.last_at.0 }
    }

    fn phase_statuses(&self, graph: &PhaseGraph, state: &SessionState) -> Vec<PhaseStatsView> {
        let status = |phase: &segue_core::phase::PhaseSpec| {
            let visits: Vec<&PhaseVisitView> =
                self.visits.iter().filter(|visit| phase.name == visit.phase.as_str()).collect();
            let account = state.session.ledger.by_phase.get(&format!("{}/{}", graph.name, phase.name));
            PhaseStatsView {
                phase: phase_view(phase),
                visits: u32::try_from(visits.len()).unwrap_or(u32::MAX),
                turns: visits.iter().map(|visit| visit.turns).sum(),
                duration_ms: visits
                    .iter()
                    .map(|visit| visit.ended.unwrap_or(self.ends_at).saturating_sub(visit.started))
                    .sum(),
                spent: account.copied().unwrap_or_default().into(),
            }
        };
        graph.phases.iter().map(status).collect()
    }

    fn edge_statuses(&self, graph: &PhaseGraph) -> Vec<PhaseEdgeUsageView> {
        let mut counts: BTreeMap<(&str, &str, &str), u32> = BTreeMap::new();
        for event in self.events.iter().filter(|event| event.cause.as_deref() != Some("same_phase")) {
            let from = event.from.as_deref().unwrap_or_default();
            *counts.entry((from, event.to.as_str(), event.kind.as_str())).or_default() += 1;
        }
        let count = |from: &PhaseName, to: &PhaseName, kind: &str| {
            counts.get(&(from.as_str(), to.as_str(), kind)).copied().unwrap_or(0)
        };
        let edge = |edge: &segue_core::phase::PhaseEdge| PhaseEdgeUsageView {
            from: edge.from.to_string(),
            to: edge.to.to_string(),
            guard: edge.guard.to_string(),
            taken: count(&edge.from, &edge.to, "entered"),
            refused: count(&edge.from, &edge.to, "refused"),
        };
        graph.edges.iter().map(edge).collect()
    }
}

/// A transition to propose.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ProposePhaseRequest {
    /// The phase to enter.
    pub to: String,
    #[serde(default)]
    pub reason: Option<String>,
    /// The graph; required if the session has several.
    #[serde(default)]
    pub graph: Option<String>,
    /// The role or agent that moves through the graph; required if several have one.
    #[serde(default)]
    pub participant: Option<String>,
}

/// A grant to give.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GrantPhaseRequest {
    /// The phase that may be entered once.
    pub to: String,
    /// The graph; required if the session has several.
    #[serde(default)]
    pub graph: Option<String>,
    /// The role or agent that moves through the graph; required if several have one.
    #[serde(default)]
    pub participant: Option<String>,
}

/// The visit to return to.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PhaseRollbackRequest {
    /// The number of the visit.
    pub visit: u32,
    /// The graph; required if the session has several.
    #[serde(default)]
    pub graph: Option<String>,
    /// The role or agent that moves through the graph; required if several have one.
    #[serde(default)]
    pub participant: Option<String>,
}

/// Propose a transition to a phase
#[utoipa::path(post, path = "/v1/sessions/{session}/phases/propose", tag = "phases", params(SessionPathParamDocs), request_body = ProposePhaseRequest, responses((status = 200, body = PhaseGraphStatusView)))]
pub(crate) async fn propose_phase(
    session_ref: CallerSessionRef,
    JsonBody(request): JsonBody<ProposePhaseRequest>,
) -> Result<Json<PhaseGraphStatusView>, HttpProblem> {
    let ProposePhaseRequest { to, reason, graph, participant } = request;
    let phase = |phase| OperatorCommand::Propose { phase, to: to.into(), reason };
    run_phase_command(&session_ref, graph.as_deref(), participant.as_deref(), phase).await
}

/// Grant the entry of a phase once, regardless of guards and gates
#[utoipa::path(post, path = "/v1/sessions/{session}/phases/grant", tag = "phases", params(SessionPathParamDocs), request_body = GrantPhaseRequest, responses((status = 200, body = PhaseGraphStatusView)))]
pub(crate) async fn grant_phase_entry(
    session_ref: CallerSessionRef,
    JsonBody(request): JsonBody<GrantPhaseRequest>,
) -> Result<Json<PhaseGraphStatusView>, HttpProblem> {
    let GrantPhaseRequest { to, graph, participant } = request;
    run_phase_command(&session_ref, graph.as_deref(), participant.as_deref(), |phase| OperatorCommand::Grant {
        phase,
        to: to.into(),
    })
    .await
}

/// Restore the phase state of an earlier visit
///
/// Nothing is deleted from the journal.
#[utoipa::path(post, path = "/v1/sessions/{session}/phases/rollback", tag = "phases", params(SessionPathParamDocs), request_body = PhaseRollbackRequest, responses((status = 200, body = PhaseGraphStatusView)))]
pub(crate) async fn roll_back_phase(
    session_ref: CallerSessionRef,
    JsonBody(request): JsonBody<PhaseRollbackRequest>,
) -> Result<Json<PhaseGraphStatusView>, HttpProblem> {
    let PhaseRollbackRequest { visit, graph, participant } = request;
    run_phase_command(&session_ref, graph.as_deref(), participant.as_deref(), |phase| OperatorCommand::RollBack {
        phase,
        visit,
    })
    .await
}

async fn run_phase_command(
    session_ref: &CallerSessionRef,
    graph: Option<&str>,
    participant: Option<&str>,
    command: impl FnOnce(PhaseGraphKey) -> OperatorCommand,
) -> Result<Json<PhaseGraphStatusView>, HttpProblem> {
    let (flow, before) = read_session_state(session_ref, None).await?;
    let key = select_phase_key(before.session.phase_graph_keys(flow.spec()), graph, participant)?;
    let _admitted = admit_turn(session_ref).await?;
    let engine = &session_ref.app.engine;
    engine
        .apply_command(&session_ref.session, command(key.clone()))
        .await
        .map_err(|error| session_ref.to_problem(error))?;
    let refused = with_session_history(session_ref, None, |history| {
        let mut entries = history
            .phase_events
            .iter()
            .filter(|entry| entry.position.seq > before.session.last_seq && entry.phase_key == key);
        entries.find_map(|entry| match &entry.kind {
            PhaseEventKind::Refused(refusal)
                if matches!(refusal.by, PhaseTransitionProposer::User | PhaseTransitionProposer::Operator) =>
            {
                Some(refusal.clone())
            }
            PhaseEventKind::Refused(_) | PhaseEventKind::Entered(_) | PhaseEventKind::Granted(_) => None,
        })
    });
    if let Some(refusal) = refused.await? {
        let allowed: Vec<String> = refusal.allowed.iter().map(ToString::to_string).collect();
        return Err(HttpProblem::new("phase-refused", refusal.to_string()).with_extension("allowed_phases", allowed));
    }
    let (flow, after) = read_session_state(session_ref, None).await?;
    let none = || HttpProblem::not_found(format!("there is no graph `{}`", key.graph));
    read_graph_status(session_ref, &*flow, &after, &key, None).await?.map(Json).ok_or_else(none)
}

/// Selects the graph that matches `graph` and `participant`; the only graph if both are absent.
fn select_phase_key(
    keys: Vec<PhaseGraphKey>,
    graph: Option<&str>,
    participant: Option<&str>,
) -> Result<PhaseGraphKey, HttpProblem> {
    let belongs_to = |key: &PhaseGraphKey, name: &str| match &key.owner {
        PhaseStateOwner::Session => false,
        PhaseStateOwner::Role(role) => *role == name,
        PhaseStateOwner::Agent(agent) => *agent == name,
    };
    let names: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
    let matching = |key: &PhaseGraphKey| {
        graph.is_none_or(|graph| key.graph == graph) && participant.is_none_or(|name| belongs_to(key, name))
    };
    let mut matching = keys.into_iter().filter(matching);
    match (matching.next(), matching.next()) {
        (Some(only), None) => Ok(only),
        (Some(_), Some(_)) => {
            let detail =
                format!("several graphs match; choose one with `graph` and `participant`: {}", names.join(", "));
            Err(HttpProblem::bad_request(detail).with_extension("field", "graph"))
        }
        (None, _) if names.is_empty() => Err(HttpProblem::not_found("this flow has no phases")),
        (None, _) => Err(HttpProblem::not_found(format!("no graph matches; the session has {}", names.join(", ")))),
    }
}
