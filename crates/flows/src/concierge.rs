//! The `concierge` flow: several experts answer, one role replies. On the first turn all experts get the user's question.
//! A mapper without memory extracts the positions in their answers, a deterministic [`analysis`] measures the map, and
//! the concierge replies to the user from a [`brief`] of it. The concierge then passes through three phases (starter,
//! explorer, executor). Each phase has its own thread, and only a handover crosses from one to the next.
//!
//! This module dispatches events to the parts: `batch` runs the experts and the mapper, `reply` interprets the concierge's
//! replies, `turn` starts and continues turns, `fragments` renders prompts.

pub mod analysis;
mod artifacts;
mod batch;
pub mod brief;
pub mod claim_map;
pub mod commands;
mod consent;
mod fact_display;
pub mod facts;
mod fragments;
mod handovers;
mod instruction_echo;
pub mod leaks;
mod messages;
mod phrases;
pub mod plan;
mod plan_request;
mod questions;
mod rehearsal;
mod reply;
mod sample_echo;
pub mod settings;
pub mod spec;
pub mod stance;
pub mod state;
mod turn;

use segue_core::context::RenderedFragment;
use segue_core::event::{CallOpened, Event, RecordedEvent, RetryDecision, TurnOutcome};
use segue_core::flow::{
    FactDisplay, Flow, FlowArtifact, FlowContext, FlowRehearsalReply, FlowSpec, FlowStep, FragmentRenderContext,
};
use segue_core::ids::FragmentName;
use segue_core::prompt::Prompt;
use segue_core::signal::BlockSet;
use serde_json::Value;

use crate::prompt_overrides;
use facts::ConciergeFact;
use settings::ConciergeSettings;
use spec::{CONCIERGE_ROLE, EXECUTOR_PHASE, EXPERT_ROLE, MAPPER_ROLE};
use state::ConciergeState;

/// A flow in which several experts answer and the concierge speaks to the user.
#[derive(Debug)]
pub struct ConciergeFlow {
    spec: FlowSpec,
    blocks: BlockSet,
}

impl ConciergeFlow {
    /// Creates the flow.
    #[must_use]
    pub fn new() -> Self {
        Self { spec: spec::concierge_flow_spec(), blocks: spec::signal_block_names() }
    }

    /// Handles a call that failed for good.
    fn handle_call_failure(
        &self,
        view: &FlowContext<'_, ConciergeState>,
        settings: &ConciergeSettings,
        call: &CallOpened,
        why: String,
    ) -> Vec<FlowStep> {
        match call.role.as_str() {
            EXPERT_ROLE => batch::handle_expert_call_end(view, settings, call, false),
            _ if view.session.current_turn.is_none() => Vec::new(),
            MAPPER_ROLE => batch::handle_mapper_failure(view, call, why),
            CONCIERGE_ROLE => reply::handle_concierge_failure(self, view, settings, call, why),
            _ => Vec::new(),
        }
    }

    fn react_to_event(&self, view: &FlowContext<'_, ConciergeState>, event: &RecordedEvent) -> Vec<FlowStep> {
        let (settings, complaints) = ConciergeSettings::parse(&self.spec.settings, &view.session.settings);
        let settings = &settings;
        match (&event.event, view.subject.call.as_deref()) {
            (Event::SessionOpened(_), _) if !complaints.is_empty() => {
                vec![ConciergeFact::InvalidSettings { complaints }.into_step()]
            }
            (Event::CommandIssued { command, arguments }, _) => commands::react_to_command(view, command, arguments),
            (Event::TurnStarted { retry_of, .. }, _) => turn::handle_turn_started(view, settings, retry_of.is_some()),
            (Event::CallOpened(opened), _) if opened.role == *EXPERT_ROLE => {
                batch::start_answer_timer(view, settings, opened)
            }
            (Event::CallAnswered(answered), Some(call)) => match call.role.as_str() {
                EXPERT_ROLE => batch::handle_expert_call_end(view, settings, call, true),
                MAPPER_ROLE => batch::handle_map_reply(view, settings, call, answered),
                CONCIERGE_ROLE => reply::handle_concierge_reply(self, view, settings, call, answered),
                _ => Vec::new(),
            },
            (Event::CallFailed { next: RetryDecision::GiveUp, failure, .. }, Some(call)) => {
                self.handle_call_failure(view, settings, call, failure.to_string())
            }
            (
                Event::CallOutcomeUnknown { next: RetryDecision::GiveUp, .. }
                | Event::CallResolved { next: RetryDecision::GiveUp, .. },
                Some(call),
            ) => self.handle_call_failure(view, settings, call, "the reply was lost when the process died".to_owned()),
            (Event::CallCancelled { .. }, Some(call)) if call.role == *EXPERT_ROLE => {
                batch::handle_expert_call_end(view, settings, call, false)
            }
            (Event::TimerFired { name, .. }, _) => batch::handle_answer_timeout(view, name),
            (Event::PhaseEntered(entered), _) => turn::handle_phase_entered(view, settings, entered),
            (Event::PhaseTransitionRefused { graph_key, refusal }, _)
                if *graph_key == spec::concierge_phase_key()
                    && refusal.to == *EXECUTOR_PHASE
                    && view.subject.turn.is_some()
                    && view.session.current_turn.is_some() =>
            {
                vec![FlowStep::EndTurn(TurnOutcome::Failed { reason: refusal.to_string() })]
            }
            (event, _) => ConciergeFact::from_event(event)
                .map(|fact| self.react_to_fact(view, settings, fact))
                .unwrap_or_default(),
        }
    }

    fn react_to_fact(
        &self,
        view: &FlowContext<'_, ConciergeState>,
        settings: &ConciergeSettings,
        fact: ConciergeFact,
    ) -> Vec<FlowStep> {
        match fact {
            ConciergeFact::BatchDispatched { .. } | ConciergeFact::AnswerTimedOut { .. } => {
                batch::close_batch_if_done(view, settings)
            }
            ConciergeFact::BatchClosed { .. } => batch::process_closed_batch(view, settings),
            ConciergeFact::EmptyReply { .. } => turn::retry_empty_reply(view, settings),
            ConciergeFact::BatchCompleted { purpose, result, .. } => {
                turn::handle_batch_result(view, settings, purpose, &result)
            }
            _ => Vec::new(),
        }
    }
}

impl Default for ConciergeFlow {
    fn default() -> Self {
        Self::new()
    }
}

impl Flow for ConciergeFlow {
    type State = ConciergeState;

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn validate_settings(&self, settings: &Value) -> Vec<String> {
        prompt_overrides::find_prompt_override_problems(self.spec.name.as_str(), settings)
    }

    fn apply(&self, state: &mut ConciergeState, event: &RecordedEvent) {
        state.apply_event(event);
    }

    fn react(&self, view: &FlowContext<'_, ConciergeState>, event: &RecordedEvent) -> Vec<FlowStep> {
        let react = || self.react_to_event(view, event);
        prompt_overrides::with_overrides(self.spec.name.as_str(), &view.session.settings, react).0
    }

    fn check_command(
        &self,
        view: &FlowContext<'_, ConciergeState>,
        command: &str,
        arguments: &Value,
    ) -> Result<(), String> {
        commands::check_command(view, command, arguments)
    }

    fn render_fragment(
        &self,
        view: &FlowContext<'_, ConciergeState>,
        request: &FragmentRenderContext<'_>,
        name: &FragmentName,
    ) -> RenderedFragment {
        prompt_overrides::render_with_overrides(self.spec.name.as_str(), &view.session.settings, || {
            fragments::render_fragment(view, request, name.as_str(), &self.spec.settings)
        })
    }

    fn describe_fact(&self, state: &ConciergeState, kind: &str, value: &Value) -> FactDisplay {
        fact_display::describe_concierge_fact(state, kind, value)
    }

    fn summarize_answer(
        &self,
        view: &FlowContext<'_, ConciergeState>,
        call: &CallOpened,
        answer: &str,
    ) -> Option<String> {
        match call.role.as_str() {
            MAPPER_ROLE => Some(fact_display::summarize_map_reply(view.state, answer)),
            CONCIERGE_ROLE => fact_display::summarize_concierge_reply(answer, &self.blocks),
            _ => None,
        }
    }

    fn artifacts(&self, view: &FlowContext<'_, ConciergeState>) -> Vec<FlowArtifact> {
        artifacts::list_artifacts(view)
    }

    fn rehearsal_reply(
        &self,
        view: &FlowContext<'_, ConciergeState>,
        call: &CallOpened,
        prompt: &Prompt,
    ) -> Option<FlowRehearsalReply> {
        rehearsal::rehearse_reply(view, call, prompt, &self.spec.settings).map(FlowRehearsalReply::from)
    }
}
