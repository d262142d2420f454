//! Phases: where each graph stands, the path taken to there, and how a person moves it. The graph decides.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use segue_core::decide::OperatorCommand;
use segue_core::event::{PhaseGraphKey, PhaseGraphOwner};
use segue_core::flow::DynFlow;
use segue_core::ids::{PhaseName, Seq, TurnId};
use segue_core::phase::PhaseGraph;
use segue_core::phase::diagram::render_mermaid;
use segue_core::phase::guard::Proposer;
use segue_core::phase::ruling::allowed_phases;
use segue_core::session::{PhaseGraphStatus, SessionState};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::common_types::{CallTotalsView, ParticipantView, serialized_name};
use super::flows::{PhaseView, phase_view};
use super::session_view::{read_session_state, with_session_history};
use super::{AtEventParams, SessionPath};
use crate::extract::{JsonBody, QueryParams, SessionRef};
use crate::history::{PhaseEventEntry, PhaseEventKind, SessionHistory};
use crate::problem::HttpProblem;

/// All graphs of a session.
#[derive(Debug, Serialize, ToSchema)]
pub struct PhaseGraphStatusList {
    /// One by one.
    pub graphs: Vec<PhaseGraphStatusView>,
}

/// A graph, and where it stands.
#[derive(Debug, Serialize, ToSchema)]
pub struct PhaseGraphStatusView {
    /// Its name.
    pub graph: String,
    /// Whose phases.
    pub owner: ParticipantView,
    /// `session`, `role` or `agent`.
    pub attached_to: String,
    /// Where it begins.
    pub start: String,
    /// Where it stands.
    pub current: CurrentPhaseView,
    /// What you could propose now.
    pub allowed_phases: Vec<String>,
    /// Its phases, with what happened in each.
    pub phases: Vec<PhaseStatusView>,
    /// The ways from phase to phase, with how often each was taken.
    pub edges: Vec<PhaseEdgeStatusView>,
    /// What may not be left out.
    pub gates: Vec<GateStatusView>,
    /// The path taken.
    pub visits: Vec<PhaseVisitView>,
    /// Everything that happened to it.
    pub events: Vec<PhaseEventView>,
    /// The graph as a Mermaid diagram.
    pub mermaid: String,
}

/// Where a graph stands.
#[derive(Debug, Serialize, ToSchema)]
pub struct CurrentPhaseView {
    /// The phase.
    pub phase: String,
    /// The how-manieth visit.
    pub visit: u32,
    /// Since when.
    pub since: u64,
    /// Turns begun in this visit.
    pub turns: u32,
    /// The phase before.
    pub previous_phase: Option<String>,
    /// Gates that are open.
    pub open_gates: Vec<String>,
    /// Skips that were allowed and not used.
    pub grants: Vec<PhaseGrantView>,
}

/// A skip that was allowed.
#[derive(Debug, Serialize, ToSchema)]
pub struct PhaseGrantView {
    /// To which phase.
    pub to: String,
    /// By whom.
    pub by: ParticipantView,
    /// What is given up by it.
    pub warning: String,
}

/// A phase, and what happened in it.
#[derive(Debug, Serialize, ToSchema)]
pub struct PhaseStatusView {
    /// The phase as it is declared.
    #[serde(flatten)]
    pub phase: PhaseView,
    /// How often it was entered.
    pub visits: u32,
    /// Turns in it.
    pub turns: u32,
    /// Time in it.
    pub duration_ms: u64,
    /// What was spent in it.
    pub spent: CallTotalsView,
}

/// A way from one phase to another, and how often it was taken.
#[derive(Debug, Serialize, ToSchema)]
pub struct PhaseEdgeStatusView {
    /// From where.
    pub from: String,
    /// To where.
    pub to: String,
    /// What must hold, in words.
    pub guard: String,
    /// How often it was taken.
    pub taken: u32,
    /// How often it was refused.
    pub refused: u32,
}

/// A gate, and whether it is open.
#[derive(Debug, Serialize, ToSchema)]
pub struct GateStatusView {
    /// Its name.
    pub gate: String,
    /// Entering this phase opens it.
    pub opened_by: String,
    /// Entering this phase satisfies it.
    pub satisfied_by: String,
    /// What it bars meanwhile, beside every end.
    pub blocks: Vec<String>,
    /// Whether it is open.
    pub is_open: bool,
}

/// One stay in a phase.
#[derive(Debug, Serialize, ToSchema)]
pub struct PhaseVisitView {
    /// The how-manieth.
    pub visit: u32,
    /// In which phase.
    pub phase: String,
    /// From which event.
    pub first_seq: u64,
    /// To which event.
    pub end_seq: Option<u64>,
    /// When it began.
    pub started: u64,
    /// When it ended.
    pub ended: Option<u64>,
    /// Turns in it.
    pub turns: u32,
}

/// Something that happened to a graph.
#[derive(Debug, Serialize, ToSchema)]
pub struct PhaseEventView {
    /// Its place.
    pub seq: u64,
    /// When.
    pub at: u64,
    /// In which turn.
    pub turn: Option<String>,
    /// Of which graph.
    pub graph: String,
    /// Whose.
    pub owner: ParticipantView,
    /// `entered`, `refused` or `granted`.
    pub kind: String,
    /// From which phase.
    pub from: Option<String>,
    /// To which.
    pub to: String,
    /// Who wanted it.
    pub proposed_by: ParticipantView,
    /// Of an entry: `proposed`, `granted`, `expired`, `rolled_back` or `same_phase`.
    pub cause: Option<String>,
    /// All of it in a sentence.
    pub summary: String,
    /// What people should be warned of.
    pub warning: Option<String>,
    /// What the proposer said about it.
    pub reason: Option<String>,
    /// What a refused proposer could have entered.
    pub allowed_phases: Vec<String>,
}

/// Something that happened to a graph, as it is shown.
#[must_use]
pub fn phase_event_view(entry: &PhaseEventEntry) -> PhaseEventView {
    let (from, to, by) = match &entry.kind {
        PhaseEventKind::Entered(transition) => (Some(transition.from.to_string()), &transition.to, &transition.by),
        PhaseEventKind::Refused(refusal) => (Some(refusal.from.to_string()), &refusal.to, &refusal.by),
        PhaseEventKind::Granted(grant) => (None, &grant.to, &grant.by),
    };
    let mut item = PhaseEventView {
        seq: entry.position.seq.0,
        at: entry.position.at.0,
        turn: entry.turn.map(|turn| turn.to_string()),
        graph: entry.phase_key.graph.to_string(),
        owner: (&entry.phase_key.owner).into(),
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
            item.kind = "entered".to_owned();
            item.cause = Some(serialized_name(&transition.cause));
            item.summary = format!("{} is entered from {}, by {}", transition.to, transition.from, transition.by);
            item.warning = transition.warning();
            item.reason.clone_from(&transition.note.reason);
        }
        PhaseEventKind::Refused(refusal) => {
            item.kind = "refused".to_owned();
            item.summary = refusal.to_string();
            item.allowed_phases = refusal.allowed.iter().map(ToString::to_string).collect();
        }
        PhaseEventKind::Granted(grant) => {
            item.kind = "granted".to_owned();
            item.summary = format!("{} may be entered once, by the word of {}", grant.to, grant.by);
            item.warning = Some(grant.warning());
        }
    }
    item
}

/// Where each phase graph stands, and how it got there
#[utoipa::path(get, path = "/v1/sessions/{session}/phases", tag = "phases", params(SessionPath, AtEventParams), responses((status = 200, body = PhaseGraphStatusList)))]
pub async fn list_phase_graphs(
    session_ref: SessionRef,
    QueryParams(at): QueryParams<AtEventParams>,
) -> Result<Json<PhaseGraphStatusList>, HttpProblem> {
    let at = at.to_seq()?;
    let (rules, state) = read_session_state(&session_ref, at).await?;
    let mut graphs = Vec::new();
    for key in state.session.phase_graph_keys(rules.spec()) {
        graphs.extend(read_graph_status(&session_ref, &*rules, &state, &key, at).await?);
    }
    Ok(Json(PhaseGraphStatusList { graphs }))
}

async fn read_graph_status(
    session_ref: &SessionRef,
    flow: &dyn DynFlow,
    state: &SessionState,
    key: &PhaseGraphKey,
    at: Option<Seq>,
) -> Result<Option<PhaseGraphStatusView>, HttpProblem> {
    let Some(graph) = flow.spec().graphs.get(&key.graph) else { return Ok(None) };
    let engine = &session_ref.app.engine;
    let conditions = engine
        .evaluate_guard_conditions(&session_ref.session, flow, state, key)
        .await
        .map_err(|error| session_ref.to_problem(error))?;
    let stand = state.session.phase_graph_status(graph, key);
    let may_enter = allowed_phases(graph, &stand.state, &Proposer::User, &conditions);
    let path = with_session_history(session_ref, at, |chronicle| PhasePath::from_history(chronicle, graph, key, state))
        .await?;
    let gates = graph.gates.iter().map(|gate| GateStatusView {
        gate: gate.name.clone(),
        opened_by: gate.opened_by.to_string(),
        satisfied_by: gate.satisfied_by.to_string(),
        blocks: gate.blocks.iter().map(ToString::to_string).collect(),
        is_open: stand.state.open_gates.contains(&gate.name),
    });
    Ok(Some(PhaseGraphStatusView {
        graph: graph.name.to_string(),
        owner: (&key.owner).into(),
        attached_to: serialized_name(&graph.owner_kind),
        start: graph.start.to_string(),
        current: current_phase_view(&stand),
        allowed_phases: may_enter.iter().map(ToString::to_string).collect(),
        phases: path.phase_statuses(graph, state),
        edges: path.edge_statuses(graph),
        gates: gates.collect(),
        events: path.events,
        visits: path.visits,
        mermaid: render_mermaid(graph, Some(&stand.state)),
    }))
}

fn current_phase_view(stand: &PhaseGraphStatus) -> CurrentPhaseView {
    let now = &stand.state;
    let grant = |grant: &segue_core::phase::state::SkipGrant| PhaseGrantView {
        to: grant.to.to_string(),
        by: (&grant.by).into(),
        warning: grant.warning(),
    };
    CurrentPhaseView {
        phase: now.current.to_string(),
        visit: now.visit,
        since: now.since.0,
        turns: now.turns_started,
        previous_phase: now.came_from.as_ref().map(ToString::to_string),
        open_gates: now.open_gates.iter().cloned().collect(),
        grants: now.grants.iter().map(grant).collect(),
    }
}

/// What happened to one graph.
struct PhasePath {
    visits: Vec<PhaseVisitView>,
    events: Vec<PhaseEventView>,
    ends_at: u64,
}

impl PhasePath {
    fn from_history(history: &SessionHistory, graph: &PhaseGraph, key: &PhaseGraphKey, state: &SessionState) -> Self {
        let moves: Vec<&PhaseEventEntry> =
            history.phase_events.iter().filter(|moved| moved.phase_key == *key).collect();
        let began = state.session.opened_at.0;
        let mut visits = vec![PhaseVisitView {
            visit: 1,
            phase: graph.start.to_string(),
            first_seq: 1,
            end_seq: None,
            started: began,
            ended: None,
            turns: 0,
        }];
        for moved in &moves {
            let PhaseEventKind::Entered(transition) = &moved.kind else { continue };
            if !transition.begins_visit() {
                continue;
            }
            let visit = u32::try_from(visits.len()).unwrap_or(u32::MAX).saturating_add(1);
            if let Some(last) = visits.last_mut() {
                last.end_seq = Some(moved.position.seq.0);
                last.ended = Some(moved.position.at.0);
            }
            visits.push(PhaseVisitView {
                visit,
                phase: transition.to.to_string(),
                first_seq: moved.position.seq.0,
                end_seq: None,
                started: moved.position.at.0,
                ended: None,
                turns: 0,
            });
        }
        for visit in &mut visits {
            let is_within = |seq: Seq| seq.0 >= visit.first_seq && visit.end_seq.is_none_or(|to| seq.0 < to);
            let begun = history.turns.values().filter(|turn| is_within(turn.started.seq)).map(|turn| turn.turn);
            // A turn that moved here counts once somebody speaks here.
            let spoken = history.calls.values().filter(|call| {
                is_within(call.position.seq) && call.phase.as_ref().is_some_and(|phase| *phase == visit.phase.as_str())
            });
            let turns: BTreeSet<TurnId> = begun.chain(spoken.filter_map(|call| call.turn)).collect();
            visit.turns = u32::try_from(turns.len()).unwrap_or(u32::MAX);
        }
        Self { visits, events: moves.into_iter().map(phase_event_view).collect(), ends_at: history.last_at.0 }
    }

    fn phase_statuses(&self, graph: &PhaseGraph, state: &SessionState) -> Vec<PhaseStatusView> {
        let stand = |phase: &segue_core::phase::PhaseSpec| {
            let visits: Vec<&PhaseVisitView> =
                self.visits.iter().filter(|visit| phase.name == visit.phase.as_str()).collect();
            let account = state.session.ledger.by_phase.get(&format!("{}/{}", graph.name, phase.name));
            PhaseStatusView {
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
        graph.phases.iter().map(stand).collect()
    }

    fn edge_statuses(&self, graph: &PhaseGraph) -> Vec<PhaseEdgeStatusView> {
        let mut counts: BTreeMap<(&str, &str, &str), u32> = BTreeMap::new();
        for item in self.events.iter().filter(|item| item.cause.as_deref() != Some("same_phase")) {
            let from = item.from.as_deref().unwrap_or_default();
            *counts.entry((from, item.to.as_str(), item.kind.as_str())).or_default() += 1;
        }
        let count = |from: &PhaseName, to: &PhaseName, is: &str| {
            counts.get(&(from.as_str(), to.as_str(), is)).copied().unwrap_or(0)
        };
        let edge = |edge: &segue_core::phase::PhaseEdge| PhaseEdgeStatusView {
            from: edge.from.to_string(),
            to: edge.to.to_string(),
            guard: edge.guard.to_string(),
            taken: count(&edge.from, &edge.to, "entered"),
            refused: count(&edge.from, &edge.to, "refused"),
        };
        graph.edges.iter().map(edge).collect()
    }
}

/// Which phase to propose.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ProposePhaseRequest {
    /// The phase to enter.
    pub to: String,
    /// Why.
    #[serde(default)]
    pub reason: Option<String>,
    /// Which graph, if there are several.
    #[serde(default)]
    pub graph: Option<String>,
    /// Whose: a role or an agent, if several have it.
    #[serde(default)]
    pub owner: Option<String>,
}

/// Which phase to allow.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantPhaseRequest {
    /// The phase that may be entered once.
    pub to: String,
    /// Which graph, if there are several.
    #[serde(default)]
    pub graph: Option<String>,
    /// Whose: a role or an agent, if several have it.
    #[serde(default)]
    pub owner: Option<String>,
}

/// Where to go back to.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RollBackRequest {
    /// The number of the visit.
    pub visit: u32,
    /// Which graph, if there are several.
    #[serde(default)]
    pub graph: Option<String>,
    /// Whose: a role or an agent, if several have it.
    #[serde(default)]
    pub owner: Option<String>,
}

/// Propose a phase
#[utoipa::path(post, path = "/v1/sessions/{session}/phases/propose", tag = "phases", params(SessionPath), request_body = ProposePhaseRequest, responses((status = 200, body = PhaseGraphStatusView)))]
pub async fn propose_phase(
    session_ref: SessionRef,
    JsonBody(wanted): JsonBody<ProposePhaseRequest>,
) -> Result<Json<PhaseGraphStatusView>, HttpProblem> {
    let ProposePhaseRequest { to, reason, graph, owner } = wanted;
    let phase = |phase| OperatorCommand::Propose { phase, to: to.into(), reason };
    run_phase_command(&session_ref, graph.as_deref(), owner.as_deref(), phase).await
}

/// Allow a phase to be entered once, whatever stands in the way
#[utoipa::path(post, path = "/v1/sessions/{session}/phases/grant", tag = "phases", params(SessionPath), request_body = GrantPhaseRequest, responses((status = 200, body = PhaseGraphStatusView)))]
pub async fn grant_phase_entry(
    session_ref: SessionRef,
    JsonBody(wanted): JsonBody<GrantPhaseRequest>,
) -> Result<Json<PhaseGraphStatusView>, HttpProblem> {
    let GrantPhaseRequest { to, graph, owner } = wanted;
    run_phase_command(&session_ref, graph.as_deref(), owner.as_deref(), |phase| OperatorCommand::Grant {
        phase,
        to: to.into(),
    })
    .await
}

/// Go back to how things stood in an earlier visit; nothing is deleted
#[utoipa::path(post, path = "/v1/sessions/{session}/phases/rollback", tag = "phases", params(SessionPath), request_body = RollBackRequest, responses((status = 200, body = PhaseGraphStatusView)))]
pub async fn roll_back_phase(
    session_ref: SessionRef,
    JsonBody(wanted): JsonBody<RollBackRequest>,
) -> Result<Json<PhaseGraphStatusView>, HttpProblem> {
    let RollBackRequest { visit, graph, owner } = wanted;
    run_phase_command(&session_ref, graph.as_deref(), owner.as_deref(), |phase| OperatorCommand::RollBack {
        phase,
        visit,
    })
    .await
}

async fn run_phase_command(
    session_ref: &SessionRef,
    graph: Option<&str>,
    of: Option<&str>,
    command: impl FnOnce(PhaseGraphKey) -> OperatorCommand,
) -> Result<Json<PhaseGraphStatusView>, HttpProblem> {
    let (rules, before) = read_session_state(session_ref, None).await?;
    let key = select_phase_key(before.session.phase_graph_keys(rules.spec()), graph, of)?;
    let engine = &session_ref.app.engine;
    engine
        .apply_command(&session_ref.session, command(key.clone()))
        .await
        .map_err(|error| session_ref.to_problem(error))?;
    let refused = with_session_history(session_ref, None, |chronicle| {
        let mut moves = chronicle
            .phase_events
            .iter()
            .filter(|moved| moved.position.seq > before.session.last_seq && moved.phase_key == key);
        moves.find_map(|moved| match &moved.kind {
            PhaseEventKind::Refused(refusal) if refusal.by.has_user_authority() => Some(refusal.clone()),
            PhaseEventKind::Refused(_) | PhaseEventKind::Entered(_) | PhaseEventKind::Granted(_) => None,
        })
    });
    if let Some(refusal) = refused.await? {
        let allowed: Vec<String> = refusal.allowed.iter().map(ToString::to_string).collect();
        return Err(HttpProblem::new("phase-refused", refusal.to_string()).with_extension("allowed", allowed));
    }
    let (rules, after) = read_session_state(session_ref, None).await?;
    let none = || HttpProblem::not_found(format!("there is no graph `{}`", key.graph));
    read_graph_status(session_ref, &*rules, &after, &key, None).await?.map(Json).ok_or_else(none)
}

/// Which graph is meant: the only one, or the one that fits what was said.
fn select_phase_key(
    keys: Vec<PhaseGraphKey>,
    graph: Option<&str>,
    of: Option<&str>,
) -> Result<PhaseGraphKey, HttpProblem> {
    let is_of = |key: &PhaseGraphKey, name: &str| match &key.owner {
        PhaseGraphOwner::Session => false,
        PhaseGraphOwner::Role(role) => *role == name,
        PhaseGraphOwner::Agent(agent) => *agent == name,
    };
    let named: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
    let fitting =
        |key: &PhaseGraphKey| graph.is_none_or(|graph| key.graph == graph) && of.is_none_or(|of| is_of(key, of));
    let mut fitting = keys.into_iter().filter(fitting);
    match (fitting.next(), fitting.next()) {
        (Some(only), None) => Ok(only),
        (Some(_), Some(_)) => {
            let detail =
                format!("several graphs could be meant; say which with `graph` and `of`: {}", named.join(", "));
            Err(HttpProblem::bad_request(detail).with_extension("field", "graph"))
        }
        (None, _) if named.is_empty() => Err(HttpProblem::not_found("this flow has no phases")),
        (None, _) => Err(HttpProblem::not_found(format!("no graph is like that; there are {}", named.join(", ")))),
    }
}
