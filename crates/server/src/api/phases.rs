//! Phases: where each graph stands, the path taken to there, and how a person moves it. The graph decides.

use std::collections::{BTreeMap, BTreeSet};

use axum::Json;
use segue_core::decide::Command;
use segue_core::event::{Owner, PhaseKey};
use segue_core::flow::Rules;
use segue_core::ids::{PhaseName, Seq, TurnId};
use segue_core::phase::PhaseGraph;
use segue_core::phase::diagram::mermaid;
use segue_core::phase::guard::Proposer;
use segue_core::phase::ruling::allowed;
use segue_core::session::{Stand, State};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::flows::{PhaseView, phase_view};
use super::session_view::{chronicle, state};
use super::shapes::{Party, Spent, word};
use super::{At, Named};
use crate::chronicle::{Chronicle, Move, Moved};
use crate::extract::{Body, Held, Params};
use crate::problem::Problem;

/// All graphs of a session.
#[derive(Debug, Serialize, ToSchema)]
pub struct Phases {
    /// One by one.
    pub graphs: Vec<GraphStand>,
}

/// A graph, and where it stands.
#[derive(Debug, Serialize, ToSchema)]
pub struct GraphStand {
    /// Its name.
    pub graph: String,
    /// Whose phases.
    pub owner: Party,
    /// `session`, `role` or `agent`.
    pub attached: String,
    /// Where it begins.
    pub start: String,
    /// Where it stands.
    pub now: NowView,
    /// What you could propose now.
    pub may_enter: Vec<String>,
    /// Its phases, with what happened in each.
    pub phases: Vec<PhaseStand>,
    /// The ways from phase to phase, with how often each was taken.
    pub edges: Vec<EdgeStand>,
    /// What may not be left out.
    pub gates: Vec<GateStand>,
    /// The path taken.
    pub visits: Vec<VisitView>,
    /// Everything that happened to it.
    pub history: Vec<HistoryItem>,
    /// The graph as a Mermaid diagram.
    pub mermaid: String,
}

/// Where a graph stands.
#[derive(Debug, Serialize, ToSchema)]
pub struct NowView {
    /// The phase.
    pub phase: String,
    /// The how-manieth visit.
    pub visit: u32,
    /// Since when.
    pub since: u64,
    /// Turns begun in this visit.
    pub turns: u32,
    /// The phase before.
    pub came_from: Option<String>,
    /// Gates that are open.
    pub open_gates: Vec<String>,
    /// Skips that were allowed and not used.
    pub grants: Vec<GrantView>,
}

/// A skip that was allowed.
#[derive(Debug, Serialize, ToSchema)]
pub struct GrantView {
    /// To which phase.
    pub to: String,
    /// By whom.
    pub by: Party,
    /// What is given up by it.
    pub warning: String,
}

/// A phase, and what happened in it.
#[derive(Debug, Serialize, ToSchema)]
pub struct PhaseStand {
    /// The phase as it is declared.
    #[serde(flatten)]
    pub about: PhaseView,
    /// How often it was entered.
    pub visits: u32,
    /// Turns in it.
    pub turns: u32,
    /// Time in it.
    pub ms: u64,
    /// What was spent in it.
    pub spent: Spent,
}

/// A way from one phase to another, and how often it was taken.
#[derive(Debug, Serialize, ToSchema)]
pub struct EdgeStand {
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
pub struct GateStand {
    /// Its name.
    pub gate: String,
    /// Entering this phase opens it.
    pub opened_by: String,
    /// Entering this phase satisfies it.
    pub satisfied_by: String,
    /// What it bars meanwhile, beside every end.
    pub blocks: Vec<String>,
    /// Whether it is open.
    pub open: bool,
}

/// One stay in a phase.
#[derive(Debug, Serialize, ToSchema)]
pub struct VisitView {
    /// The how-manieth.
    pub visit: u32,
    /// In which phase.
    pub phase: String,
    /// From which event.
    pub from: u64,
    /// To which event.
    pub to: Option<u64>,
    /// When it began.
    pub began: u64,
    /// When it ended.
    pub ended: Option<u64>,
    /// Turns in it.
    pub turns: u32,
}

/// Something that happened to a graph.
#[derive(Debug, Serialize, ToSchema)]
pub struct HistoryItem {
    /// Its place.
    pub seq: u64,
    /// When.
    pub at: u64,
    /// In which turn.
    pub turn: Option<String>,
    /// Of which graph.
    pub graph: String,
    /// Whose.
    pub owner: Party,
    /// `entered`, `refused` or `granted`.
    pub is: String,
    /// From which phase.
    pub from: Option<String>,
    /// To which.
    pub to: String,
    /// Who wanted it.
    pub by: Party,
    /// Of an entry: `proposed`, `granted`, `expired`, `rolled_back` or `same_phase`.
    pub how: Option<String>,
    /// All of it in a sentence.
    pub words: String,
    /// What people should be warned of.
    pub warning: Option<String>,
    /// What the proposer said about it.
    pub reason: Option<String>,
    /// What a refused proposer could have entered.
    pub allowed: Vec<String>,
}

/// Something that happened to a graph, as it is shown.
#[must_use]
pub fn history_item(moved: &Move) -> HistoryItem {
    let (from, to, by) = match &moved.what {
        Moved::Entered(transition) => (Some(transition.from.to_string()), &transition.to, &transition.by),
        Moved::Refused(refusal) => (Some(refusal.from.to_string()), &refusal.to, &refusal.by),
        Moved::Granted(grant) => (None, &grant.to, &grant.by),
    };
    let mut item = HistoryItem {
        seq: moved.place.seq.0,
        at: moved.place.at.0,
        turn: moved.turn.map(|turn| turn.to_string()),
        graph: moved.key.graph.to_string(),
        owner: (&moved.key.owner).into(),
        is: String::new(),
        from,
        to: to.to_string(),
        by: by.into(),
        how: None,
        words: String::new(),
        warning: None,
        reason: None,
        allowed: Vec::new(),
    };
    match &moved.what {
        Moved::Entered(transition) => {
            item.is = "entered".to_owned();
            item.how = Some(word(&transition.how));
            item.words = format!("{} is entered from {}, by {}", transition.to, transition.from, transition.by);
            item.warning = transition.warning();
            item.reason.clone_from(&transition.note.reason);
        }
        Moved::Refused(refusal) => {
            item.is = "refused".to_owned();
            item.words = refusal.to_string();
            item.allowed = refusal.allowed.iter().map(ToString::to_string).collect();
        }
        Moved::Granted(grant) => {
            item.is = "granted".to_owned();
            item.words = format!("{} may be entered once, by the word of {}", grant.to, grant.by);
            item.warning = Some(grant.warning());
        }
    }
    item
}

/// Where each phase graph stands, and how it got there
#[utoipa::path(get, path = "/v1/sessions/{session}/phases", tag = "phases", params(Named, At), responses((status = 200, body = Phases)))]
pub async fn list(held: Held, Params(at): Params<At>) -> Result<Json<Phases>, Problem> {
    let at = at.seq()?;
    let (rules, state) = state(&held, at).await?;
    let mut graphs = Vec::new();
    for key in state.session.phase_keys(rules.spec()) {
        graphs.extend(graph_stand(&held, &*rules, &state, &key, at).await?);
    }
    Ok(Json(Phases { graphs }))
}

async fn graph_stand(
    held: &Held,
    rules: &dyn Rules,
    state: &State,
    key: &PhaseKey,
    at: Option<Seq>,
) -> Result<Option<GraphStand>, Problem> {
    let Some(graph) = rules.spec().graphs.get(&key.graph) else { return Ok(None) };
    let engine = &held.app.engine;
    let conditions = engine.conditions(&held.session, rules, state, key).await.map_err(|error| held.problem(error))?;
    let stand = state.session.stand(graph, key);
    let may_enter = allowed(graph, &stand.now, &Proposer::User, &conditions);
    let path = chronicle(held, at, |chronicle| Path::of(chronicle, graph, key, state)).await?;
    let gates = graph.gates.iter().map(|gate| GateStand {
        gate: gate.name.clone(),
        opened_by: gate.opened_by.to_string(),
        satisfied_by: gate.satisfied_by.to_string(),
        blocks: gate.blocks.iter().map(ToString::to_string).collect(),
        open: stand.now.open_gates.contains(&gate.name),
    });
    Ok(Some(GraphStand {
        graph: graph.name.to_string(),
        owner: (&key.owner).into(),
        attached: word(&graph.attached),
        start: graph.start.to_string(),
        now: now(&stand),
        may_enter: may_enter.iter().map(ToString::to_string).collect(),
        phases: path.phases(graph, state),
        edges: path.edges(graph),
        gates: gates.collect(),
        history: path.history,
        visits: path.visits,
        mermaid: mermaid(graph, Some(&stand.now)),
    }))
}

fn now(stand: &Stand) -> NowView {
    let now = &stand.now;
    let grant = |grant: &segue_core::phase::state::Grant| GrantView {
        to: grant.to.to_string(),
        by: (&grant.by).into(),
        warning: grant.warning(),
    };
    NowView {
        phase: now.current.to_string(),
        visit: now.visit,
        since: now.since.0,
        turns: now.turns,
        came_from: now.came_from.as_ref().map(ToString::to_string),
        open_gates: now.open_gates.iter().cloned().collect(),
        grants: now.grants.iter().map(grant).collect(),
    }
}

/// What happened to one graph.
struct Path {
    visits: Vec<VisitView>,
    history: Vec<HistoryItem>,
    until: u64,
}

impl Path {
    fn of(chronicle: &Chronicle, graph: &PhaseGraph, key: &PhaseKey, state: &State) -> Self {
        let moves: Vec<&Move> = chronicle.moves.iter().filter(|moved| moved.key == *key).collect();
        let began = state.session.opened.0;
        let mut visits = vec![VisitView {
            visit: 1,
            phase: graph.start.to_string(),
            from: 1,
            to: None,
            began,
            ended: None,
            turns: 0,
        }];
        for moved in &moves {
            let Moved::Entered(transition) = &moved.what else { continue };
            if !transition.begins_visit() {
                continue;
            }
            let visit = u32::try_from(visits.len()).unwrap_or(u32::MAX).saturating_add(1);
            if let Some(last) = visits.last_mut() {
                last.to = Some(moved.place.seq.0);
                last.ended = Some(moved.place.at.0);
            }
            visits.push(VisitView {
                visit,
                phase: transition.to.to_string(),
                from: moved.place.seq.0,
                to: None,
                began: moved.place.at.0,
                ended: None,
                turns: 0,
            });
        }
        for visit in &mut visits {
            let is_within = |seq: Seq| seq.0 >= visit.from && visit.to.is_none_or(|to| seq.0 < to);
            let begun = chronicle.turns.values().filter(|turn| is_within(turn.started_at.seq)).map(|turn| turn.turn);
            // A turn that moved here counts once somebody speaks here.
            let spoken = chronicle.calls.values().filter(|call| {
                is_within(call.place.seq) && call.phase.as_ref().is_some_and(|phase| *phase == visit.phase.as_str())
            });
            let turns: BTreeSet<TurnId> = begun.chain(spoken.filter_map(|call| call.turn)).collect();
            visit.turns = u32::try_from(turns.len()).unwrap_or(u32::MAX);
        }
        Self { visits, history: moves.into_iter().map(history_item).collect(), until: chronicle.at.0 }
    }

    fn phases(&self, graph: &PhaseGraph, state: &State) -> Vec<PhaseStand> {
        let stand = |phase: &segue_core::phase::Phase| {
            let visits: Vec<&VisitView> =
                self.visits.iter().filter(|visit| phase.name == visit.phase.as_str()).collect();
            let account = state.session.ledger.phases.get(&format!("{}/{}", graph.name, phase.name));
            PhaseStand {
                about: phase_view(phase),
                visits: u32::try_from(visits.len()).unwrap_or(u32::MAX),
                turns: visits.iter().map(|visit| visit.turns).sum(),
                ms: visits.iter().map(|visit| visit.ended.unwrap_or(self.until).saturating_sub(visit.began)).sum(),
                spent: account.copied().unwrap_or_default().into(),
            }
        };
        graph.phases.iter().map(stand).collect()
    }

    fn edges(&self, graph: &PhaseGraph) -> Vec<EdgeStand> {
        let mut counts: BTreeMap<(&str, &str, &str), u32> = BTreeMap::new();
        for item in self.history.iter().filter(|item| item.how.as_deref() != Some("same_phase")) {
            let from = item.from.as_deref().unwrap_or_default();
            *counts.entry((from, item.to.as_str(), item.is.as_str())).or_default() += 1;
        }
        let count = |from: &PhaseName, to: &PhaseName, is: &str| {
            counts.get(&(from.as_str(), to.as_str(), is)).copied().unwrap_or(0)
        };
        let edge = |edge: &segue_core::phase::Edge| EdgeStand {
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
pub struct Propose {
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
    pub of: Option<String>,
}

/// Which phase to allow.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct GrantSkip {
    /// The phase that may be entered once.
    pub to: String,
    /// Which graph, if there are several.
    #[serde(default)]
    pub graph: Option<String>,
    /// Whose: a role or an agent, if several have it.
    #[serde(default)]
    pub of: Option<String>,
}

/// Where to go back to.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RollBack {
    /// The number of the visit.
    pub visit: u32,
    /// Which graph, if there are several.
    #[serde(default)]
    pub graph: Option<String>,
    /// Whose: a role or an agent, if several have it.
    #[serde(default)]
    pub of: Option<String>,
}

/// Propose a phase
#[utoipa::path(post, path = "/v1/sessions/{session}/phases/propose", tag = "phases", params(Named), request_body = Propose, responses((status = 200, body = GraphStand)))]
pub async fn propose(held: Held, Body(wanted): Body<Propose>) -> Result<Json<GraphStand>, Problem> {
    let Propose { to, reason, graph, of } = wanted;
    let phase = |phase| Command::Propose { phase, to: to.into(), reason };
    move_graph(&held, graph.as_deref(), of.as_deref(), phase).await
}

/// Allow a phase to be entered once, whatever stands in the way
#[utoipa::path(post, path = "/v1/sessions/{session}/phases/grant", tag = "phases", params(Named), request_body = GrantSkip, responses((status = 200, body = GraphStand)))]
pub async fn grant(held: Held, Body(wanted): Body<GrantSkip>) -> Result<Json<GraphStand>, Problem> {
    let GrantSkip { to, graph, of } = wanted;
    move_graph(&held, graph.as_deref(), of.as_deref(), |phase| Command::Grant { phase, to: to.into() }).await
}

/// Go back to how things stood in an earlier visit; nothing is deleted
#[utoipa::path(post, path = "/v1/sessions/{session}/phases/rollback", tag = "phases", params(Named), request_body = RollBack, responses((status = 200, body = GraphStand)))]
pub async fn rollback(held: Held, Body(wanted): Body<RollBack>) -> Result<Json<GraphStand>, Problem> {
    let RollBack { visit, graph, of } = wanted;
    move_graph(&held, graph.as_deref(), of.as_deref(), |phase| Command::RollBack { phase, visit }).await
}

async fn move_graph(
    held: &Held,
    graph: Option<&str>,
    of: Option<&str>,
    command: impl FnOnce(PhaseKey) -> Command,
) -> Result<Json<GraphStand>, Problem> {
    let (rules, before) = state(held, None).await?;
    let key = meant(before.session.phase_keys(rules.spec()), graph, of)?;
    let engine = &held.app.engine;
    engine.command(&held.session, command(key.clone())).await.map_err(|error| held.problem(error))?;
    let refused = chronicle(held, None, |chronicle| {
        let mut moves = chronicle.moves.iter().filter(|moved| moved.place.seq > before.session.seq && moved.key == key);
        moves.find_map(|moved| match &moved.what {
            Moved::Refused(refusal) if refusal.by.speaks_for_user() => Some(refusal.clone()),
            Moved::Refused(_) | Moved::Entered(_) | Moved::Granted(_) => None,
        })
    });
    if let Some(refusal) = refused.await? {
        let allowed: Vec<String> = refusal.allowed.iter().map(ToString::to_string).collect();
        return Err(Problem::new("phase-refused", refusal.to_string()).with("allowed", allowed));
    }
    let (rules, after) = state(held, None).await?;
    let none = || Problem::no_such_thing(format!("there is no graph `{}`", key.graph));
    graph_stand(held, &*rules, &after, &key, None).await?.map(Json).ok_or_else(none)
}

/// Which graph is meant: the only one, or the one that fits what was said.
fn meant(keys: Vec<PhaseKey>, graph: Option<&str>, of: Option<&str>) -> Result<PhaseKey, Problem> {
    let is_of = |key: &PhaseKey, name: &str| match &key.owner {
        Owner::Session => false,
        Owner::Role(role) => *role == name,
        Owner::Agent(agent) => *agent == name,
    };
    let named: Vec<String> = keys.iter().map(|key| format!("`{key}`")).collect();
    let fitting = |key: &PhaseKey| graph.is_none_or(|graph| key.graph == graph) && of.is_none_or(|of| is_of(key, of));
    let mut fitting = keys.into_iter().filter(fitting);
    match (fitting.next(), fitting.next()) {
        (Some(only), None) => Ok(only),
        (Some(_), Some(_)) => {
            let detail =
                format!("several graphs could be meant; say which with `graph` and `of`: {}", named.join(", "));
            Err(Problem::bad_request(detail).with("field", "graph"))
        }
        (None, _) if named.is_empty() => Err(Problem::no_such_thing("this flow has no phases")),
        (None, _) => Err(Problem::no_such_thing(format!("no graph is like that; there are {}", named.join(", ")))),
    }
}
