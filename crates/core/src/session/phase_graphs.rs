//! The phase graphs of a session: which exist, their status, and how events change it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use super::apply::keep_newest;
use super::{PhaseGraphStateWithHistory, Session};
use crate::event::{PhaseEntered, PhaseGraphKey, PhaseStateOwner};
use crate::flow::FlowSpec;
use crate::ids::{AgentName, PhaseName, RoleName, UnixMillis};
use crate::limits::PAST_PHASE_STATES_MAX;
use crate::phase::guard::PhaseGuardInputs;
use crate::phase::limit::waiting_extends_visit;
use crate::phase::ruling::allowed_phases;
use crate::phase::state::PhaseGraphState;
use crate::phase::{PhaseConditionVerdict, PhaseGraph, PhaseGraphOwnerKind, PhaseTransitionProposer};
use crate::scope::PhaseVisit;

impl Session {
    /// Returns the key of the phase graph that `role` follows when `agent` plays it.
    #[must_use]
    pub(crate) fn phase_graph_key_for_role(
        spec: &FlowSpec,
        role: &RoleName,
        agent: Option<&AgentName>,
    ) -> Option<PhaseGraphKey> {
        let graph = spec.graphs.get(spec.roles.get(role)?.graph.as_ref()?)?;
        let owner = match (graph.owner_kind, agent) {
            (PhaseGraphOwnerKind::Session, _) => PhaseStateOwner::Session,
            (PhaseGraphOwnerKind::Agent, Some(agent)) => PhaseStateOwner::Agent(agent.clone()),
            (PhaseGraphOwnerKind::Role | PhaseGraphOwnerKind::Agent, _) => PhaseStateOwner::Role(role.clone()),
        };
        Some(PhaseGraphKey { graph: graph.name.clone(), owner })
    }

    /// Returns the keys of all phase graphs with a state: those of the session and its roles, and those of known
    /// agents.
    #[must_use]
    pub fn phase_graph_keys(&self, spec: &FlowSpec) -> Vec<PhaseGraphKey> {
        let mut keys: Vec<PhaseGraphKey> = Vec::new();
        for graph in spec.graphs.values() {
            let key = |owner: PhaseStateOwner| PhaseGraphKey { graph: graph.name.clone(), owner };
            match graph.owner_kind {
                PhaseGraphOwnerKind::Session => keys.push(key(PhaseStateOwner::Session)),
                PhaseGraphOwnerKind::Role => {
                    let roles = spec.roles.values().filter(|role| role.graph.as_ref() == Some(&graph.name));
                    keys.extend(roles.map(|role| key(PhaseStateOwner::Role(role.name.clone()))));
                }
                PhaseGraphOwnerKind::Agent => {}
            }
        }
        let others: Vec<PhaseGraphKey> = self.phase_graphs.keys().filter(|key| !keys.contains(key)).cloned().collect();
        keys.extend(others);
        keys
    }

    /// Returns the status of a graph, which is its start if it has not moved.
    #[must_use]
    pub fn phase_graph_status(&self, graph: &PhaseGraph, key: &PhaseGraphKey) -> PhaseGraphStateWithHistory {
        self.phase_graphs.get(key).map(|status| PhaseGraphStateWithHistory::clone(status)).unwrap_or_else(|| {
            PhaseGraphStateWithHistory {
                state: PhaseGraphState::new(graph, self.last_event_at),
                past_states: VecDeque::new(),
                handover_kinds: BTreeSet::new(),
                counted_turn: None,
            }
        })
    }

    /// Returns the phases of a graph that `by` may enter now, in the graph's order. The current phase is included only
    /// if it can be entered again. `evaluate` evaluates the conditions of guards, which only the flow knows.
    #[must_use]
    pub fn allowed_phases(
        &self,
        spec: &FlowSpec,
        key: &PhaseGraphKey,
        by: &PhaseTransitionProposer,
        evaluate: impl Fn(&str) -> PhaseConditionVerdict,
    ) -> Vec<PhaseName> {
        let Some(graph) = spec.graphs.get(&key.graph) else { return Vec::new() };
        let status = self.phase_graph_status(graph, key);
        allowed_phases(graph, &status.state, by, &status.guard_inputs(graph, evaluate))
    }

    /// Returns the current phase visit in the role's graph.
    #[must_use]
    pub(crate) fn current_visit(
        &self,
        spec: &FlowSpec,
        role: &RoleName,
        agent: Option<&AgentName>,
    ) -> Option<PhaseVisit> {
        let key = Self::phase_graph_key_for_role(spec, role, agent)?;
        let status = self.phase_graph_status(spec.graphs.get(&key.graph)?, &key);
        Some(PhaseVisit { graph: key.graph, phase: status.state.current, number: status.state.visit })
    }

    /// Returns the current phases as a short text.
    #[must_use]
    pub fn phases_label(&self) -> String {
        let phases = self.phase_graphs.iter().filter(|(key, _)| !matches!(key.owner, PhaseStateOwner::Agent(_)));
        phases.map(|(_, status)| status.state.current.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Adds the time since the last event to the visits that it extends, if the session waited.
    pub(super) fn add_waited_time(&mut self, spec: &FlowSpec, now: UnixMillis) {
        if now <= self.last_event_at {
            return;
        }
        let Some(since) = self.waiting_for_others_since() else { return };
        for (key, status) in &mut self.phase_graphs {
            let graph = spec.graphs.get(&key.graph);
            if graph.is_some_and(|graph| waiting_extends_visit(graph, &status.state)) {
                let state = &mut Arc::make_mut(status).state;
                state.waited_ms = state.waited_ms.saturating_add(now.ms_since(since));
            }
        }
    }

    /// Starts the graphs of the session and its roles.
    pub(super) fn start_phase_graphs(&mut self, spec: &FlowSpec) {
        for graph in spec.graphs.values() {
            match graph.owner_kind {
                PhaseGraphOwnerKind::Session => {
                    self.phase_graph_status_mut(
                        spec,
                        &PhaseGraphKey { graph: graph.name.clone(), owner: PhaseStateOwner::Session },
                    );
                }
                PhaseGraphOwnerKind::Role => {
                    for role in spec.roles.values().filter(|role| role.graph.as_ref() == Some(&graph.name)) {
                        let owner = PhaseStateOwner::Role(role.name.clone());
                        self.phase_graph_status_mut(spec, &PhaseGraphKey { graph: graph.name.clone(), owner });
                    }
                }
                PhaseGraphOwnerKind::Agent => {}
            }
        }
    }

    pub(super) fn apply_phase_entered(&mut self, spec: &FlowSpec, entered: &PhaseEntered, at: UnixMillis) {
        let turn = self.current_turn.as_ref().map(|turn| turn.id);
        let Some(status) = self.phase_graph_status_mut(spec, &entered.graph_key) else { return };
        if !entered.transition.is_visit_start() {
            return;
        }
        status.past_states.push_back(status.state.clone());
        keep_newest(&mut status.past_states, PAST_PHASE_STATES_MAX);
        status.state.apply_transition(&entered.transition, at);
        status.handover_kinds.clear();
        // The turn of the transition counts for the new visit only if a call is opened in it.
        if status.counted_turn == turn {
            status.counted_turn = None;
        }
    }

    pub(crate) fn phase_graph_status_mut(
        &mut self,
        spec: &FlowSpec,
        key: &PhaseGraphKey,
    ) -> Option<&mut PhaseGraphStateWithHistory> {
        if !self.phase_graphs.contains_key(key) {
            let status = self.phase_graph_status(spec.graphs.get(&key.graph)?, key);
            self.phase_graphs.insert(key.clone(), Arc::new(status));
        }
        self.phase_graphs.get_mut(key).map(Arc::make_mut)
    }
}

impl PhaseGraphStateWithHistory {
    /// Returns what the guards and gates of the current phase depend on. `evaluate` evaluates the named conditions.
    pub(crate) fn guard_inputs(
        &self,
        graph: &PhaseGraph,
        evaluate: impl Fn(&str) -> PhaseConditionVerdict,
    ) -> PhaseGuardInputs {
        let names = graph.condition_names_from(&self.state.current).into_iter();
        let verdicts = names.map(|name| (name.to_owned(), evaluate(name))).collect();
        PhaseGuardInputs { handovers: self.handover_kinds.clone(), verdicts }
    }
}
