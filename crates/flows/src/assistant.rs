//! The assistant flow: works with a person's records over many turns.
//!
//! Each turn passes five nodes: Understand interprets the message, Think decides what to do, Act carries out the steps of the
//! plan, Reply writes the answer, and Summarize updates the memory. The memory has three layers (entities, conversation,
//! reasoning), and each node is shown only the parts that it needs.
//!
//! The kinds of records are declared by a [`domain`], which is data. This module only dispatches events: `turn` decides how a
//! turn continues, `step` does so for one step of a plan, and `prompt_context` and `fragments` build the prompts.

mod answer;
mod answer_schema;
mod artifacts;
mod assistant_context;
pub mod calendar;
mod conversation;
pub mod domain;
mod fact_display;
pub mod facts;
mod fragments;
mod planned_read;
mod planned_search;
pub mod prompt_context;
mod reasoning;
pub mod registry;
mod rehearsal;
pub mod settings;
mod snapshot;
pub mod spec;
pub mod state;
mod step;
mod tool_runs;
pub mod tools;
mod turn;
mod undo;

use segue_core::context::RenderedFragment;
use segue_core::event::{CallOpened, Event, RecordedEvent, RetryDecision};
use segue_core::flow::{
    FactDisplay, Flow, FlowArtifact, FlowContext, FlowRehearsalReply, FlowSpec, FlowStep, FragmentRenderContext,
};
use segue_core::ids::FragmentName;
use segue_core::prompt::Prompt;
use serde_json::Value;

use crate::prompt_overrides;
use assistant_context::AssistantSessionContext;
use domain::DomainSchema;
use facts::AssistantFact;
use settings::{AssistantSettings, ConfiguredDomains};
use state::AssistantState;

/// The `assistant` flow with the domains that its sessions may use.
#[derive(Debug)]
pub struct AssistantFlow {
    spec: FlowSpec,
    domains: ConfiguredDomains,
}

impl AssistantFlow {
    /// Creates the flow with the built-in domains.
    #[must_use]
    pub fn new() -> Self {
        Self::with_domains(ConfiguredDomains::new(DomainSchema::built_in()))
    }

    /// Creates the flow with the given domains.
    #[must_use]
    pub fn with_domains(domains: ConfiguredDomains) -> Self {
        Self { spec: spec::assistant_flow_spec(&domains), domains }
    }

    fn parse_session_settings(&self, view: &FlowContext<'_, AssistantState>) -> (AssistantSettings, Vec<String>) {
        AssistantSettings::parse(&view.session.settings, &self.domains)
    }

    fn react_to_event(&self, view: &FlowContext<'_, AssistantState>, event: &RecordedEvent) -> Vec<FlowStep> {
        let (settings, complaints) = self.parse_session_settings(view);
        if let Event::SessionOpened(_) = &event.event {
            return if complaints.is_empty() {
                Vec::new()
            } else {
                vec![AssistantFact::InvalidSettings { complaints }.into_step()]
            };
        }
        let Some(domain) = settings.domain.clone() else {
            let why = complaints.first().map_or("the session has no domain", String::as_str);
            return if matches!(event.event, Event::TurnStarted { .. }) {
                turn::fail_turn_without_domain(why)
            } else {
                Vec::new()
            };
        };
        let context = &AssistantSessionContext { view, settings: &settings, domain: &domain };
        match (&event.event, view.subject.call.as_deref()) {
            (Event::TurnStarted { .. }, _) => turn::handle_turn_started(context),
            (Event::CallAnswered(answered), Some(call)) => turn::handle_node_answer(context, call, answered),
            (Event::CallFailed { next: RetryDecision::GiveUp, failure, .. }, Some(call)) => {
                turn::handle_node_failure(context, call, &failure.to_string())
            }
            (
                Event::CallOutcomeUnknown { next: RetryDecision::GiveUp, .. }
                | Event::CallResolved { next: RetryDecision::GiveUp, .. },
                Some(call),
            ) => turn::handle_node_failure(context, call, "the answer was lost when the process died"),
            (Event::ToolRunEnded { outcome, text, .. }, _) => {
                let opened = view.subject.tool.as_ref();
                opened.map(|opened| tool_runs::handle_tool_ended(context, opened, *outcome, *text)).unwrap_or_default()
            }
            (Event::ReplySent(reply), _) => turn::handle_reply_sent(context, reply),
            (Event::TurnEnded { outcome, .. }, _) => turn::handle_turn_ended(context, outcome),
            (Event::CommandIssued { command, arguments }, _) if command == spec::UNDO_COMMAND => {
                undo::start_undo(context, arguments)
            }
            (event, _) => {
                AssistantFact::from_event(event).map(|fact| self.react_to_fact(context, &fact)).unwrap_or_default()
            }
        }
    }

    fn react_to_fact(&self, context: &AssistantSessionContext<'_>, fact: &AssistantFact) -> Vec<FlowStep> {
        match fact {
            AssistantFact::Planned(_) | AssistantFact::PlanFailed { .. } | AssistantFact::StepEnded(_) => {
                turn::advance_turn(context)
            }
            AssistantFact::TurnSummarized(summarized) => turn::start_compaction_or_end_turn(context, summarized),
            _ => Vec::new(),
        }
    }
}

impl Default for AssistantFlow {
    fn default() -> Self {
        Self::new()
    }
}

impl Flow for AssistantFlow {
    type State = AssistantState;

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn validate_settings(&self, settings: &Value) -> Vec<String> {
        let mut problems = AssistantSettings::parse(settings, &self.domains).1;
        problems.extend(prompt_overrides::find_prompt_override_problems(self.spec.name.as_str(), settings));
        problems
    }

    fn apply(&self, state: &mut AssistantState, event: &RecordedEvent) {
        state.apply_event(event);
    }

    fn react(&self, view: &FlowContext<'_, AssistantState>, event: &RecordedEvent) -> Vec<FlowStep> {
        let react = || self.react_to_event(view, event);
        prompt_overrides::with_overrides(self.spec.name.as_str(), &view.session.settings, react).0
    }

    fn render_fragment(
        &self,
        view: &FlowContext<'_, AssistantState>,
        request: &FragmentRenderContext<'_>,
        name: &FragmentName,
    ) -> RenderedFragment {
        let (settings, _) = self.parse_session_settings(view);
        let Some(domain) = settings.domain.clone() else {
            return RenderedFragment::Omitted("the session has no domain".to_owned());
        };
        let context = &AssistantSessionContext { view, settings: &settings, domain: &domain };
        prompt_overrides::render_with_overrides(self.spec.name.as_str(), &view.session.settings, || {
            fragments::render_fragment(context, request, name.as_str())
        })
    }

    fn rehearsal_reply(
        &self,
        view: &FlowContext<'_, AssistantState>,
        call: &CallOpened,
        _prompt: &Prompt,
    ) -> Option<FlowRehearsalReply> {
        let (settings, _) = self.parse_session_settings(view);
        let domain = settings.domain.clone()?;
        let context = AssistantSessionContext { view, settings: &settings, domain: &domain };
        rehearsal::rehearse_node_answer(&context, call).map(FlowRehearsalReply::from)
    }

    fn describe_fact(&self, state: &AssistantState, kind: &str, value: &Value) -> FactDisplay {
        fact_display::describe_assistant_fact(state, kind, value)
    }

    fn artifacts(&self, view: &FlowContext<'_, AssistantState>) -> Vec<FlowArtifact> {
        let (settings, _) = self.parse_session_settings(view);
        let Some(domain) = settings.domain.clone() else { return Vec::new() };
        artifacts::build_artifacts(&AssistantSessionContext { view, settings: &settings, domain: &domain })
    }

    fn check_command(
        &self,
        view: &FlowContext<'_, AssistantState>,
        command: &str,
        arguments: &Value,
    ) -> Result<(), String> {
        if command != spec::UNDO_COMMAND {
            return Err(format!("flow `assistant` has no command `{command}`; it has `{}`", spec::UNDO_COMMAND));
        }
        if view.session.current_turn.is_some() {
            return Err("a turn is running; wait until it ends, or stop it first".to_owned());
        }
        undo::find_undoable_write(view.state, arguments).map(|_| ())
    }
}
