//! Proposals, grants, rollbacks and limits: the graph decides, and what it decides is recorded either way.

use super::Refusal;
use super::draft::Draft;
use crate::event::{Event, PhaseEntered, PhaseKey, PhaseRefused};
use crate::flow::About;
use crate::ids::PhaseName;
use crate::phase::PhaseGraph;
use crate::phase::authority::{grant, rollback};
use crate::phase::guard::{Conditions, Proposer};
use crate::phase::limit::expiry;
use crate::phase::ruling::{Ruling, judge};
use crate::phase::state::{Note, Proposal, Transition};
use crate::session::Stand;

impl<'a> Draft<'a> {
    /// Rules on a proposal and records the ruling.
    pub fn propose(&mut self, phase: PhaseKey, proposal: &Proposal) {
        let Some((graph, stand)) = self.stand(&phase) else {
            self.refuse_step(format!("proposal of `{}`", proposal.to), format!("there is no graph `{}`", phase.graph));
            return;
        };
        let conditions = self.conditions(graph, &phase, &stand);
        match judge(graph, &stand.now, proposal, &conditions) {
            Ruling::Enter(transition) => self.record(Event::PhaseEntered(PhaseEntered { phase, transition })),
            Ruling::Refuse(refusal) => self.record(Event::PhaseRefused(PhaseRefused { phase, refusal })),
        }
    }

    pub fn propose_by_hand(&mut self, phase: PhaseKey, to: PhaseName, reason: Option<String>) -> Result<(), Refusal> {
        self.stand(&phase).ok_or_else(|| self.no_graph(&phase))?;
        let note = Note { reason, ..Note::default() };
        self.propose(phase, &Proposal { to, by: Proposer::User, note });
        Ok(())
    }

    pub fn grant(&mut self, phase: PhaseKey, to: &PhaseName) -> Result<(), Refusal> {
        let (graph, stand) = self.stand(&phase).ok_or_else(|| self.no_graph(&phase))?;
        let grant = grant(graph, &stand.now, &Proposer::User, to).map_err(|why| Refusal::Phase(why.to_string()))?;
        self.record(Event::SkipGranted { phase, grant });
        Ok(())
    }

    pub fn roll_back(&mut self, phase: PhaseKey, visit: u32) -> Result<(), Refusal> {
        let (graph, stand) = self.stand(&phase).ok_or_else(|| self.no_graph(&phase))?;
        let past = stand.past.iter().find(|past| past.visit == visit).ok_or_else(|| {
            let known: Vec<String> =
                stand.past.iter().map(|past| format!("{} ({})", past.visit, past.current)).collect();
            Refusal::Phase(format!("visit {visit} cannot be gone back to; there are {}", known.join(", ")))
        })?;
        let transition = rollback(graph, &stand.now, past, &Proposer::User, Note::default())
            .map_err(|why| Refusal::Phase(why.to_string()))?;
        self.record(Event::PhaseEntered(PhaseEntered { phase, transition }));
        Ok(())
    }

    /// Takes the declared way out of a phase whose turns or time are used up. Between turns only: a turn is never
    /// moved under its own feet.
    pub fn expire_phases(&mut self) -> bool {
        if self.session().turn.is_some() || self.session().closed.is_some() {
            return false;
        }
        let Some((phase, transition)) = self.expired() else { return false };
        self.record(Event::PhaseEntered(PhaseEntered { phase, transition }));
        true
    }

    fn expired(&self) -> Option<(PhaseKey, Transition)> {
        let spec = self.spec();
        self.session().phases.iter().find_map(|(key, stand)| {
            let transition = expiry(spec.graphs.get(&key.graph)?, &stand.now, self.env.now)?;
            Some((key.clone(), transition))
        })
    }

    fn stand(&self, phase: &PhaseKey) -> Option<(&'a PhaseGraph, Stand)> {
        let graph = self.spec().graphs.get(&phase.graph)?;
        Some((graph, self.session().stand(graph, phase)))
    }

    fn no_graph(&self, phase: &PhaseKey) -> Refusal {
        let known: Vec<String> = self.spec().graphs.keys().map(|name| format!("`{name}`")).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        Refusal::Phase(format!("the flow has no phase graph `{}`; it has {known}", phase.graph))
    }

    fn conditions(&self, graph: &PhaseGraph, phase: &PhaseKey, stand: &Stand) -> Conditions {
        let about = About::default();
        let holds = graph.conditions_at(&stand.now.current).into_iter();
        let holds = holds.map(|name| (name.to_owned(), self.rules.holds(self.sight(&about), phase, name)));
        Conditions { handovers: stand.handed.clone(), holds: holds.collect() }
    }
}
