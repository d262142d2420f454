//! The project flow: a team of agents works through phases in a workspace, and gates hold until there is evidence.
//!
//! The phases, agents, edges and gates come from a [`definition`], which is data: the built-in project flow is one, and users
//! write their own in a file. A router chooses the next phase and agents where more than one is possible; code decides
//! everything else. A verdict follows from commands that the engine ran, never from a model's word.
//!
//! This module only dispatches events: `turn` decides what is next, `routing` chooses phase and agents, `agents` follows the
//! agents' work, and `evidence` runs checks and checkpoints.

mod account;
mod actions;
mod agents;
mod artifacts;
mod commands;
mod completion;
mod conditions;
pub mod definition;
mod evidence;
mod fact_display;
pub mod facts;
mod fragments;
mod lessons;
pub(crate) mod mcp_servers;
mod parallel_writers;
mod project_context;
mod rehearsal;
mod routing;
mod settings;
mod spec;
pub mod state;
mod text;
mod tools;
mod turn;
mod workspace_claim;

use std::borrow::Cow;
use std::sync::Arc;

use segue_core::context::RenderedFragment;
use segue_core::event::{AskOutcome, CallOpened, Event, PhaseGraphKey, RecordedEvent, RetryDecision, TurnOutcome};
use segue_core::flow::{
    FactDisplay, Flow, FlowArtifact, FlowContext, FlowRehearsalReply, FlowSpec, FlowStep, FragmentRenderContext,
};
use segue_core::ids::{AskId, FragmentName};
use segue_core::phase::PhaseConditionVerdict;
use segue_core::prompt::{ModelToolSpec, Prompt};
use serde_json::Value;

use crate::workspace_tools::WorkspaceTool;
use definition::{FlowDefinition, FlowDefinitionErrors};
use facts::ProjectFact;
use project_context::{ProjectFlowContext, reply_step};
use settings::ProjectSettings;
use state::ProjectState;

/// The definition of the built-in project flow.
pub const PROJECT_DEFINITION: &str = include_str!("../prompts/project/project.toml");

/// A flow that is declared by a definition.
#[derive(Debug)]
pub struct ProjectFlow {
    definition: Arc<FlowDefinition>,
    /// The text of the definition, if it comes from a file.
    source: Option<Arc<str>>,
    spec: FlowSpec,
}

impl ProjectFlow {
    /// Creates the built-in project flow.
    ///
    /// # Panics
    /// Panics if the built-in definition is invalid, which the tests exclude.
    #[must_use]
    pub fn new() -> Self {
        let definition = FlowDefinition::parse(PROJECT_DEFINITION).expect("the built-in definition is valid");
        Self::from_definition(definition, None)
    }

    /// Creates a flow from the text of a flow file.
    ///
    /// # Errors
    /// Returns every mistake in the text.
    pub fn from_source(source: &str) -> Result<Self, FlowDefinitionErrors> {
        Ok(Self::from_definition(FlowDefinition::parse(source)?, Some(source.into())))
    }

    fn from_definition(definition: FlowDefinition, source: Option<Arc<str>>) -> Self {
        Self { spec: spec::definition_to_spec(&definition), definition: Arc::new(definition), source }
    }

    /// Returns the definition.
    #[must_use]
    pub fn checked_definition(&self) -> &FlowDefinition {
        &self.definition
    }

    fn with_context<T>(
        &self,
        view: &FlowContext<'_, ProjectState>,
        use_context: impl FnOnce(&ProjectFlowContext<'_>) -> T,
    ) -> T {
        let settings = ProjectSettings::parse(&self.definition, &view.session.settings);
        use_context(&ProjectFlowContext { view, definition: &self.definition, spec: &self.spec, settings: &settings })
    }
}

impl Default for ProjectFlow {
    fn default() -> Self {
        Self::new()
    }
}

fn react_to_event(context: &ProjectFlowContext<'_>, event: &RecordedEvent) -> Vec<FlowStep> {
    match (&event.event, context.view.subject.call.as_deref()) {
        (Event::TurnStarted { .. }, _) => turn::handle_turn_started(context),
        (Event::CallAnswered(answered), Some(call)) if fragments::is_router(call.role.as_str()) => {
            routing::handle_router_answer(context, call, answered)
        }
        (Event::CallAnswered(answered), Some(call)) => agents::handle_agent_answer(context, call, answered),
        (Event::CallFailed { next: RetryDecision::GiveUp, failure, .. }, Some(call)) => {
            handle_call_failure(context, call, &failure.to_string())
        }
        (
            Event::CallOutcomeUnknown { next: RetryDecision::GiveUp, .. }
            | Event::CallResolved { next: RetryDecision::GiveUp, .. },
            Some(call),
        ) => handle_call_failure(context, call, "the answer was lost when the process died"),
        (Event::ToolRunOpened(opened), _) => agents::handle_flow_tool(context, opened),
        (Event::ToolRunEnded { .. }, _) => handle_tool_ended(context),
        (Event::ToolRoundDropped { reason, .. }, _) => agents::end_stranded_agents(context, reason),
        (Event::StepRefused { reason, .. }, _) => handle_refused_step(context, reason),
        (Event::PhaseEntered(entered), _) => {
            let released = workspace_claim::release_after_transition(context);
            released.into_iter().chain(turn::handle_phase_entered(context, entered)).collect()
        }
        (Event::PhaseTransitionRefused { .. }, _) if context.view.session.current_turn.is_some() => {
            turn::advance_unless_waiting(context)
        }
        (Event::PhaseRoundCounted { .. }, _) => turn::notice_loop_or_advance(context),
        (Event::SkipGranted { grant, .. }, _) => handle_grant(context, &grant.to_string()),
        (Event::AskEnded { ask, outcome }, _) => handle_ask_ended(context, *ask, outcome),
        (Event::TurnEnded { .. }, _) => {
            workspace_claim::release_claim(context, "the session waits for the user").into_iter().collect()
        }
        (Event::CommandIssued { command, arguments }, _) => commands::run_command(context, command, arguments),
        (event, _) => ProjectFact::from_event(event).map(|fact| react_to_fact(context, &fact)).unwrap_or_default(),
    }
}

fn react_to_fact(context: &ProjectFlowContext<'_>, fact: &ProjectFact) -> Vec<FlowStep> {
    match fact {
        ProjectFact::AgentTurnEnd { turn, .. } | ProjectFact::TurnOpened { turn, .. } => {
            let closed = context.state().turns.back().is_some_and(|last| last.id == *turn && last.is_closed);
            let count = || FlowStep::CountRound { phase: spec::phases_key() };
            if closed { vec![count()] } else { Vec::new() }
        }
        ProjectFact::PlanApproved { .. }
        | ProjectFact::VerdictReached(_)
        | ProjectFact::ContentRestored { .. }
        | ProjectFact::LoopNoticed { .. } => turn::advance_unless_waiting(context),
        _ => Vec::new(),
    }
}

/// Continues when the workspace has answered. What an answer changes was applied to the state.
fn handle_ask_ended(context: &ProjectFlowContext<'_>, ask: AskId, outcome: &AskOutcome) -> Vec<FlowStep> {
    let claim = workspace_claim::handle_claim_answer(context, ask, outcome);
    if !claim.is_empty() {
        return claim;
    }
    let lost = lessons::report_lost_lesson(context, ask, outcome);
    lost.into_iter().chain(turn::advance_unless_waiting(context)).collect()
}

fn handle_call_failure(context: &ProjectFlowContext<'_>, call: &CallOpened, why: &str) -> Vec<FlowStep> {
    match fragments::is_router(call.role.as_str()) {
        true => routing::handle_router_failure(context, why),
        false => agents::handle_agent_failure(context, call, why),
    }
}

fn handle_tool_ended(context: &ProjectFlowContext<'_>) -> Vec<FlowStep> {
    let Some(opened) = &context.view.subject.tool else { return Vec::new() };
    if opened.requested_by.is_some() {
        return agents::handle_agent_tool_ended(context, opened);
    }
    if opened.tool.as_str() == WorkspaceTool::RestoreCheckpoint.name() {
        return evidence::handle_restored(context).unwrap_or_else(|| commands::handle_user_restore(context));
    }
    if opened.tool.as_str() == WorkspaceTool::RemoveCopy.name() {
        return turn::handle_copy_removed(context);
    }
    turn::advance_unless_waiting(context)
}

/// A step that the engine refused may leave an agent without anything to do. A refused call of the router ends the turn.
fn handle_refused_step(context: &ProjectFlowContext<'_>, reason: &str) -> Vec<FlowStep> {
    if context.view.session.current_turn.is_none() {
        return Vec::new();
    }
    if context.state().open_turn().is_some() {
        return agents::end_stranded_agents(context, reason);
    }
    let has_work = !context.view.session.open_calls.is_empty() || evidence::has_open_flow_run(context);
    let stalled = !has_work && context.state().stopped.is_none() && context.state().decision.is_none();
    if stalled { vec![FlowStep::EndTurn(TurnOutcome::Failed { reason: reason.to_owned() })] } else { Vec::new() }
}

/// Warns about what a grant skips, and uses it at once if nothing is running.
fn handle_grant(context: &ProjectFlowContext<'_>, warning: &str) -> Vec<FlowStep> {
    let reply = reply_step(format!("Warning: {warning}."));
    match context.view.session.current_turn {
        Some(_) => vec![reply],
        None => vec![reply, FlowStep::StartTurn],
    }
}

impl Flow for ProjectFlow {
    type State = ProjectState;

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn definition(&self) -> Option<&str> {
        self.source.as_deref()
    }

    fn apply(&self, state: &mut ProjectState, event: &RecordedEvent) {
        state.apply_event(&self.definition, event);
    }

    fn react(&self, view: &FlowContext<'_, ProjectState>, event: &RecordedEvent) -> Vec<FlowStep> {
        self.with_context(view, |context| react_to_event(context, event))
    }

    fn render_fragment(
        &self,
        view: &FlowContext<'_, ProjectState>,
        request: &FragmentRenderContext<'_>,
        name: &FragmentName,
    ) -> RenderedFragment {
        self.with_context(view, |context| fragments::render_fragment(context, request, name.as_str()))
    }

    fn describe_tool<'t>(
        &self,
        view: &FlowContext<'_, ProjectState>,
        declared: &'t ModelToolSpec,
    ) -> Option<Cow<'t, ModelToolSpec>> {
        mcp_servers::describe_mcp_tool(&view.state.mcp, declared)
    }

    fn evaluate_condition(
        &self,
        view: &FlowContext<'_, ProjectState>,
        _phase: &PhaseGraphKey,
        condition: &str,
    ) -> PhaseConditionVerdict {
        self.with_context(view, |context| conditions::evaluate_condition(context, condition))
    }

    fn describe_fact(&self, _state: &ProjectState, kind: &str, value: &Value) -> FactDisplay {
        fact_display::describe_project_fact(&self.definition, kind, value)
    }

    fn artifacts(&self, view: &FlowContext<'_, ProjectState>) -> Vec<FlowArtifact> {
        self.with_context(view, artifacts::build_artifacts)
    }

    fn rehearsal_reply(
        &self,
        view: &FlowContext<'_, ProjectState>,
        call: &CallOpened,
        _prompt: &Prompt,
    ) -> Option<FlowRehearsalReply> {
        self.with_context(view, |context| rehearsal::rehearse_reply(context, call))
    }

    fn check_command(
        &self,
        view: &FlowContext<'_, ProjectState>,
        command: &str,
        arguments: &Value,
    ) -> Result<(), String> {
        self.with_context(view, |context| commands::check_command(context, command, arguments))
    }
}
