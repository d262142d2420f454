//! Handles proposals, grants, rollbacks and limits of phases. The graph decides, and its ruling is recorded.

use super::InputRefusal;
use super::draft::DecisionDraft;
use crate::event::{Event, PhaseEntered, PhaseGraphKey};
use crate::flow::EventSubject;
use crate::ids::PhaseName;
use crate::phase::PhaseGraph;
use crate::phase::guard::PhaseTransitionProposer;
use crate::phase::limit::expiry_transition;
use crate::phase::ruling::{PhaseProposalRuling, rule_on_proposal};
use crate::phase::state::{PhaseProposal, PhaseTransition, PhaseTransitionNote};
use crate::phase::user_override::{issue_skip_grant, plan_rollback};
use crate::session::PhaseGraphStateWithHistory;

impl<'a> DecisionDraft<'a> {
    /// Rules on a proposal and records the ruling.
    pub(crate) fn record_proposal_ruling(&mut self, phase: PhaseGraphKey, proposal: &PhaseProposal) {
        let Some((graph, status)) = self.phase_status(&phase) else {
            self.refuse_step(format!("proposal of `{}`", proposal.to), format!("there is no graph `{}`", phase.graph));
            return;
        };
        let subject = EventSubject::default();
        let context = self.flow_context(&subject);
        let conditions = status.guard_inputs(graph, |name| self.flow.evaluate_condition(context, &phase, name));
        match rule_on_proposal(graph, &status.state, proposal, &conditions) {
            PhaseProposalRuling::Enter(transition) => {
                self.record_event(Event::PhaseEntered(PhaseEntered { graph_key: phase, transition }))
            }
            PhaseProposalRuling::Refuse(refusal) => {
                self.record_event(Event::PhaseTransitionRefused { graph_key: phase, refusal })
            }
        }
    }

    pub(crate) fn propose_phase_as_user(
        &mut self,
        phase: PhaseGraphKey,
        to: PhaseName,
        reason: Option<String>,
    ) -> Result<(), InputRefusal> {
        self.phase_status(&phase).ok_or_else(|| self.unknown_graph_refusal(&phase))?;
        let note = PhaseTransitionNote { reason, ..PhaseTransitionNote::default() };
        self.record_proposal_ruling(phase, &PhaseProposal { to, by: PhaseTransitionProposer::User, note });
        Ok(())
    }

    pub(crate) fn grant_skip(&mut self, phase: PhaseGraphKey, to: &PhaseName) -> Result<(), InputRefusal> {
        let (graph, status) = self.phase_status(&phase).ok_or_else(|| self.unknown_graph_refusal(&phase))?;
        let grant = issue_skip_grant(graph, &status.state, &PhaseTransitionProposer::User, to)
            .map_err(|why| InputRefusal::PhaseCommandRefused(why.to_string()))?;
        self.record_event(Event::SkipGranted { graph_key: phase, grant });
        Ok(())
    }

    pub(crate) fn roll_back_phase(&mut self, phase: PhaseGraphKey, visit: u32) -> Result<(), InputRefusal> {
        let (graph, status) = self.phase_status(&phase).ok_or_else(|| self.unknown_graph_refusal(&phase))?;
        let past = status.past_states.iter().find(|past| past.visit == visit).ok_or_else(|| {
            let known: Vec<String> =
                status.past_states.iter().map(|past| format!("{} ({})", past.visit, past.current)).collect();
            InputRefusal::PhaseCommandRefused(format!(
                "visit {visit} cannot be restored; possible visits are {}",
                known.join(", ")
            ))
        })?;
        let transition =
            plan_rollback(graph, &status.state, past, &PhaseTransitionProposer::User, PhaseTransitionNote::default())
                .map_err(|why| InputRefusal::PhaseCommandRefused(why.to_string()))?;
        self.record_event(Event::PhaseEntered(PhaseEntered { graph_key: phase, transition }));
        Ok(())
    }

    /// Counts a round, and enters the exit of the phase if it was the last one allowed.
    pub(crate) fn count_round(&mut self, phase: PhaseGraphKey) {
        if self.phase_status(&phase).is_none() {
            self.refuse_step("count of a round", format!("there is no graph `{}`", phase.graph));
            return;
        }
        self.record_event(Event::PhaseRoundCounted { graph_key: phase.clone() });
        if let Some(transition) = self.find_expiry_transition(&phase).filter(|_| self.session().closed_reason.is_none())
        {
            self.record_event(Event::PhaseEntered(PhaseEntered { graph_key: phase, transition }));
        }
    }

    /// Enters the exit of a phase whose turns or time are used up, also during a turn. Returns true if there was one.
    pub(crate) fn enter_exit_of_expired_phase(&mut self) -> bool {
        let session = self.session();
        if session.closed_reason.is_some() {
            return false;
        }
        let mut keys = session.phase_graphs.keys();
        let expired = keys.find_map(|key| self.find_expiry_transition(key).map(|transition| (key.clone(), transition)));
        let Some((graph_key, transition)) = expired else { return false };
        self.record_event(Event::PhaseEntered(PhaseEntered { graph_key, transition }));
        true
    }

    fn find_expiry_transition(&self, phase: &PhaseGraphKey) -> Option<PhaseTransition> {
        let session = self.session();
        let (graph, status) = (self.spec().graphs.get(&phase.graph)?, session.phase_graphs.get(phase)?);
        expiry_transition(graph, &status.state, self.env.now, session.waiting_for_others_since())
    }

    fn phase_status(&self, phase: &PhaseGraphKey) -> Option<(&'a PhaseGraph, PhaseGraphStateWithHistory)> {
        let graph = self.spec().graphs.get(&phase.graph)?;
        Some((graph, self.session().phase_graph_status(graph, phase)))
    }

    fn unknown_graph_refusal(&self, phase: &PhaseGraphKey) -> InputRefusal {
        let known: Vec<String> = self.spec().graphs.keys().map(|name| format!("`{name}`")).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        InputRefusal::PhaseCommandRefused(format!("the flow has no phase graph `{}`; it has {known}", phase.graph))
    }
}
