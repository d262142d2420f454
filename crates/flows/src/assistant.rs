//! A helper that works with a person's records over many turns. Each turn goes through five nodes: Understand takes the
//! message against what is known, Think decides, Act does the steps, Reply speaks, Summarize remembers. What is remembered
//! has three layers (what exists, what was said, what was decided), and every node is shown its own slice of them.
//!
//! What the records are is a [`domain`], which is data. This module wires the parts: which of them an event is for. How a turn
//! goes on is decided in `turn`, how a step does in `step`, what each node is shown in `context` and `fragments`.

mod answer;
mod artifacts;
mod assistant_context;
pub mod calendar;
pub mod conversation;
pub mod domain;
mod fact_display;
pub mod facts;
mod fragments;
pub mod prompt_context;
pub mod reasoning;
pub mod registry;
mod rehearsal;
pub mod settings;
pub mod spec;
pub mod state;
mod step;
mod tool_runs;
pub mod tools;
mod turn;
mod undo;

use segue_core::context::RenderedFragment;
use segue_core::event::{CallOpened, Event, RecordedEvent, RetryDecision};
use segue_core::flow::artifact::Artifact;
use segue_core::flow::{FactDisplay, Flow, FlowContext, FlowSpec, FlowStep, FragmentRequest};
use segue_core::ids::FragmentName;
use segue_core::prompt::Prompt;
use serde_json::Value;

use assistant_context::AssistantContext;
use domain::DomainSchema;
use facts::Fact;
use settings::{DomainCatalog, Settings};
use state::AssistantState;

/// The flow.
#[derive(Debug)]
pub struct AssistantFlow {
    spec: FlowSpec,
    domains: DomainCatalog,
}

impl AssistantFlow {
    /// The flow with the domains that come with it.
    #[must_use]
    pub fn new() -> Self {
        Self::with_domains(DomainCatalog::new(DomainSchema::built_in()))
    }

    /// The flow with these domains.
    #[must_use]
    pub fn with_domains(domains: DomainCatalog) -> Self {
        Self { spec: spec::assistant_flow_spec(&domains), domains }
    }

    fn parse_session_settings(&self, view: &FlowContext<'_, AssistantState>) -> (Settings, Vec<String>) {
        Settings::parse(&view.session.settings, &self.domains)
    }

    fn react_to_fact(&self, context: &AssistantContext<'_>, fact: &Fact) -> Vec<FlowStep> {
        match fact {
            Fact::Planned(_) | Fact::PlanFailed { .. } | Fact::StepEnded(_) => turn::advance_turn(context),
            Fact::TurnSummarized(summarized) => turn::start_compaction_or_end_turn(context, summarized),
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
        Settings::parse(settings, &self.domains).1
    }

    fn apply(&self, state: &mut AssistantState, event: &RecordedEvent) {
        state.apply_event(event);
    }

    fn react(&self, view: &FlowContext<'_, AssistantState>, event: &RecordedEvent) -> Vec<FlowStep> {
        let (settings, complaints) = self.parse_session_settings(view);
        if let Event::SessionOpened(_) = &event.event {
            let is_sound = complaints.is_empty();
            return if is_sound { Vec::new() } else { vec![Fact::InvalidSettings { complaints }.into_step()] };
        }
        let Some(domain) = settings.domain.clone() else {
            let why = complaints.first().map_or("there is no domain", String::as_str);
            return if matches!(event.event, Event::TurnStarted { .. }) {
                turn::fail_turn_without_domain(why)
            } else {
                Vec::new()
            };
        };
        let desk = &AssistantContext { view, settings: &settings, domain: &domain };
        match (&event.event, view.subject.call.as_deref()) {
            (Event::TurnStarted { .. }, _) => turn::handle_turn_started(desk),
            (Event::CallAnswered(answered), Some(call)) => turn::handle_node_answer(desk, call, answered),
            (Event::CallFailed { next: RetryDecision::GiveUp, failure, .. }, Some(call)) => {
                turn::handle_node_failure(desk, call, &failure.to_string())
            }
            (
                Event::CallOutcomeUnknown { next: RetryDecision::GiveUp, .. }
                | Event::CallResolved { next: RetryDecision::GiveUp, .. },
                Some(call),
            ) => turn::handle_node_failure(desk, call, "the answer was lost when the process died"),
            (Event::ToolRunEnded { outcome, text, .. }, _) => {
                let opened = view.subject.tool.as_ref();
                opened.map(|opened| tool_runs::handle_tool_ended(desk, opened, *outcome, *text)).unwrap_or_default()
            }
            (Event::ReplySent(said), _) => turn::handle_reply_sent(desk, said),
            (Event::TurnEnded { outcome, .. }, _) => turn::handle_turn_ended(desk, outcome),
            (Event::CommandIssued { command, arguments }, _) if command == spec::UNDO_COMMAND => {
                undo::start_undo(desk, arguments)
            }
            (event, _) => Fact::from_event(event).map(|fact| self.react_to_fact(desk, &fact)).unwrap_or_default(),
        }
    }

    fn render_fragment(
        &self,
        view: &FlowContext<'_, AssistantState>,
        asking: &FragmentRequest<'_>,
        name: &FragmentName,
    ) -> RenderedFragment {
        let (settings, _) = self.parse_session_settings(view);
        let Some(domain) = settings.domain.clone() else {
            return RenderedFragment::Omitted("there is no domain".to_owned());
        };
        let desk = &AssistantContext { view, settings: &settings, domain: &domain };
        fragments::render_fragment(desk, asking, name.as_str())
    }

    fn rehearsal_reply(
        &self,
        view: &FlowContext<'_, AssistantState>,
        call: &CallOpened,
        _prompt: &Prompt,
    ) -> Option<String> {
        let (settings, _) = self.parse_session_settings(view);
        let domain = settings.domain.clone()?;
        rehearsal::rehearse_node_answer(&AssistantContext { view, settings: &settings, domain: &domain }, call)
    }

    fn describe_fact(&self, state: &AssistantState, kind: &str, value: &Value) -> FactDisplay {
        fact_display::describe_assistant_fact(state, kind, value)
    }

    fn artifacts(&self, view: &FlowContext<'_, AssistantState>) -> Vec<Artifact> {
        let (settings, _) = self.parse_session_settings(view);
        let Some(domain) = settings.domain.clone() else { return Vec::new() };
        artifacts::build_artifacts(&AssistantContext { view, settings: &settings, domain: &domain })
    }

    fn check_command(
        &self,
        view: &FlowContext<'_, AssistantState>,
        command: &str,
        arguments: &Value,
    ) -> Result<(), String> {
        if command != spec::UNDO_COMMAND {
            return Err(format!("`{command}` cannot be followed"));
        }
        if view.session.current_turn.is_some() {
            return Err("a turn is running; wait for its end, or stop it first".to_owned());
        }
        undo::find_undoable_write(view.state, arguments).map(|_| ())
    }
}
