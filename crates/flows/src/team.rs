//! The team flow: a product manager, an architect and several coders build what a spec asks for, in a git repository.
//!
//! All agents are agents of one session. Code dispatches: it alone assigns stories to coders, and from the assignment the
//! engine computes which thread an agent continues. Models write plans, code and reviews; whether a phase is entered, a
//! diff is acceptable, a review counts or a commit is merged is decided by code. Git and tests are run by host tools that
//! the flow starts itself.
//!
//! This module only dispatches events. `dispatcher` gives out work, `coder` and `requests` follow a story through its
//! phases, `merging` brings it into the integration branch, and `express` handles hot fixes and the knowledge file.

mod artifacts;
mod coder;
mod commands;
pub mod diff;
mod dispatcher;
mod express;
mod fact_display;
pub mod facts;
mod fragments;
pub mod graphs;
pub mod knowledge;
pub mod mail;
mod merging;
mod outages;
pub mod path_pattern;
mod planning;
mod product_manager;
pub mod product_spec;
mod prompts;
mod rehearsal;
pub mod repository_tools;
mod requests;
pub mod review;
pub mod settings;
pub mod spec;
pub mod state;
pub mod story;
mod team_context;
mod tool_runs;

use segue_core::context::RenderedFragment;
use segue_core::event::{
    CallAnswered, CallOpened, Event, PhaseGraphKey, PhaseStateOwner, RecordedEvent, RetryDecision,
};
use segue_core::flow::{
    FactDisplay, Flow, FlowArtifact, FlowContext, FlowRehearsalReply, FlowSpec, FlowStep, FragmentRenderContext,
};
use segue_core::ids::{AgentName, FragmentName, MessageId};
use segue_core::phase::PhaseConditionVerdict;
use segue_core::prompt::Prompt;
use serde_json::Value;

use facts::TeamFact;
use settings::TeamSettings;
use spec::{
    ARCHITECT_AGENT, ARCHITECT_ROLE, CODER_ROLE, PRODUCT_MANAGER_AGENT, PRODUCT_MANAGER_ROLE,
    SINGLE_CONTEXT_ARCHITECT_ROLE,
};
use state::TeamState;
use story::StoryWorkflowKind;
use team_context::TeamFlowContext;

/// The `team` flow.
#[derive(Debug)]
pub struct TeamFlow {
    spec: FlowSpec,
}

impl TeamFlow {
    /// Creates the flow.
    #[must_use]
    pub fn new() -> Self {
        Self { spec: spec::team_flow_spec() }
    }
}

impl Default for TeamFlow {
    fn default() -> Self {
        Self::new()
    }
}

impl Flow for TeamFlow {
    type State = TeamState;

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn validate_settings(&self, settings: &Value) -> Vec<String> {
        TeamSettings::parse(settings).1
    }

    fn apply(&self, state: &mut TeamState, event: &RecordedEvent) {
        state.apply_event(event);
    }

    fn react(&self, view: &FlowContext<'_, TeamState>, event: &RecordedEvent) -> Vec<FlowStep> {
        let (settings, _) = TeamSettings::parse(&view.session.settings);
        let context = &TeamFlowContext { view, settings: &settings };
        match (&event.event, view.subject.call.as_deref()) {
            (Event::TurnStarted { .. }, _) => product_manager::handle_turn_started(context),
            (Event::TurnEnded { .. }, _) => {
                let mut steps = dispatcher::begin_dispatch(context);
                steps.extend(dispatcher::start_account_turn(context));
                steps
            }
            (Event::CommandIssued { command, arguments }, _) => commands::handle_command(context, command, arguments),
            (Event::AgentMessageSent(sent), _) => handle_message_sent(context, sent),
            (Event::AgentMessageReceived { message }, _) => handle_message_received(context, *message),
            (Event::CallOpened(opened), _) => coder::handle_call_opened(context, opened),
            (Event::CallAnswered(answered), Some(call)) => handle_answer(context, call, answered),
            (Event::CallFailed { next: RetryDecision::GiveUp, failure, .. }, Some(call)) => {
                outages::handle_call_failed(context, call, Some(failure))
            }
            (
                Event::CallOutcomeUnknown { next: RetryDecision::GiveUp, .. }
                | Event::CallResolved { next: RetryDecision::GiveUp, .. },
                Some(call),
            ) => outages::handle_call_failed(context, call, None),
            (Event::ToolRunOpened(opened), _) => tool_runs::answer_flow_tool(context, opened),
            (Event::ToolRunEnded { outcome, text, value, .. }, _) => match &view.subject.tool {
                Some(opened) => {
                    tool_runs::handle_repository_tool_ended(context, opened, *outcome, *text, value.as_ref())
                }
                None => Vec::new(),
            },
            (Event::TimerFired { name, .. }, _) => outages::handle_timer(context, name),
            (phase @ Event::PhaseEntered(_), _) => handle_phase_entered(context, phase),
            (fact, _) => TeamFact::from_event(fact).map(|fact| handle_fact(context, fact)).unwrap_or_default(),
        }
    }

    fn render_fragment(
        &self,
        view: &FlowContext<'_, TeamState>,
        request: &FragmentRenderContext<'_>,
        name: &FragmentName,
    ) -> RenderedFragment {
        let (settings, _) = TeamSettings::parse(&view.session.settings);
        fragments::render_fragment(&TeamFlowContext { view, settings: &settings }, request, name.as_str())
    }

    fn evaluate_condition(
        &self,
        view: &FlowContext<'_, TeamState>,
        phase: &PhaseGraphKey,
        condition: &str,
    ) -> PhaseConditionVerdict {
        evaluate_condition(view, phase, condition)
    }

    fn describe_fact(&self, _state: &TeamState, kind: &str, value: &Value) -> FactDisplay {
        fact_display::describe_team_fact(kind, value)
    }

    fn artifacts(&self, view: &FlowContext<'_, TeamState>) -> Vec<FlowArtifact> {
        let (settings, _) = TeamSettings::parse(&view.session.settings);
        artifacts::build_artifacts(&TeamFlowContext { view, settings: &settings })
    }

    fn rehearsal_reply(
        &self,
        view: &FlowContext<'_, TeamState>,
        call: &CallOpened,
        prompt: &Prompt,
    ) -> Option<FlowRehearsalReply> {
        let (settings, _) = TeamSettings::parse(&view.session.settings);
        rehearsal::rehearse_reply(&TeamFlowContext { view, settings: &settings }, call, prompt)
    }

    fn check_command(&self, view: &FlowContext<'_, TeamState>, command: &str, arguments: &Value) -> Result<(), String> {
        let (settings, _) = TeamSettings::parse(&view.session.settings);
        commands::check_command(&TeamFlowContext { view, settings: &settings }, command, arguments)
    }
}

/// Delivers a message: the code and the architect read their mail at once, coders when they wait for it.
fn handle_message_sent(context: &TeamFlowContext<'_>, sent: &segue_core::event::AgentMessageSent) -> Vec<FlowStep> {
    let is_coder = context.coders().any(|coder| coder == sent.to);
    match sent.topic.as_str() {
        mail::SPEC_TOPIC | mail::REQUEST_TOPIC => vec![FlowStep::Receive { agent: ARCHITECT_AGENT.into() }],
        mail::STORY_TOPIC | mail::RESPONSE_TOPIC if is_coder => vec![FlowStep::Receive { agent: sent.to.clone() }],
        _ => Vec::new(),
    }
}

fn handle_message_received(context: &TeamFlowContext<'_>, message: MessageId) -> Vec<FlowStep> {
    let Some(received) = context.state().mail.get(&message) else { return Vec::new() };
    match received.topic.as_str() {
        mail::SPEC_TOPIC => planning::handle_spec_received(context),
        mail::REQUEST_TOPIC => requests::handle_request_received(context, message),
        mail::STORY_TOPIC => {
            vec![team_context::propose_agent_phase(&received.to, graphs::SETUP, "a story was assigned")]
        }
        mail::RESPONSE_TOPIC => match received.in_reply_to {
            Some(request) => requests::handle_response(context, &received.to, request),
            None => Vec::new(),
        },
        mail::KNOWLEDGE_UPDATE_TOPIC | mail::HOT_FIX_TOPIC => {
            let body: Value = serde_json::from_str(&context.view.read_text(received.text)).unwrap_or_default();
            let story = body["story"].as_str().unwrap_or_default();
            let is_own = |agent: &AgentName| {
                context.state().assignment(agent).is_some_and(|assignment| assignment.story == story)
            };
            let coder = context.coders().find(is_own);
            coder
                .map(|coder| team_context::propose_agent_phase(&coder, graphs::SETUP, "express work"))
                .into_iter()
                .collect()
        }
        _ => Vec::new(),
    }
}

fn handle_answer(context: &TeamFlowContext<'_>, call: &CallOpened, answered: &CallAnswered) -> Vec<FlowStep> {
    match call.role.as_str() {
        PRODUCT_MANAGER_ROLE => product_manager::handle_product_manager_answer(context, call, answered),
        CODER_ROLE => coder::handle_coder_answer(context, call, answered),
        ARCHITECT_ROLE | SINGLE_CONTEXT_ARCHITECT_ROLE if call.metadata.get("stories").is_some() => {
            planning::handle_stories_answer(context, call, answered)
        }
        ARCHITECT_ROLE | SINGLE_CONTEXT_ARCHITECT_ROLE => requests::handle_architect_answer(context, call, answered),
        _ => Vec::new(),
    }
}

fn handle_phase_entered(context: &TeamFlowContext<'_>, event: &Event) -> Vec<FlowStep> {
    let Some((agent, to, from)) = coder::parse_agent_phase_event(event) else { return Vec::new() };
    match agent.as_str() {
        ARCHITECT_AGENT => outages::handle_architect_phase_entered(context, to, from),
        PRODUCT_MANAGER_AGENT => Vec::new(),
        _ => {
            let mut steps = coder::handle_phase_entered(context, agent, to);
            if from == graphs::AWAIT_MERGE && to != graphs::SUSPEND {
                steps.extend(merging::start_next_merge(context));
            }
            steps
        }
    }
}

fn handle_fact(context: &TeamFlowContext<'_>, fact: TeamFact) -> Vec<FlowStep> {
    match fact {
        TeamFact::Assigned(_)
        | TeamFact::StoryMoved { .. }
        | TeamFact::StoryRequeued { .. }
        | TeamFact::ExpressQueued { .. }
        | TeamFact::Unassigned { .. } => dispatcher::begin_dispatch(context),
        TeamFact::Merged { .. } | TeamFact::DispatchEnded => dispatcher::begin_dispatch(context),
        TeamFact::DispatchBegun => dispatcher::handle_dispatch_begun(context),
        TeamFact::Resumed | TeamFact::GivenBack { .. } => commands::continue_team(context),
        TeamFact::ReviewPartRead { request, .. } => requests::request_next_review_part(context, request),
        TeamFact::TaskGiven { agent, task } => tool_runs::continue_after_refused_work(context, &agent, &task),
        TeamFact::EscalationEnded { .. }
            if context.state().escalations.is_empty() && context.architect_phase() == *graphs::ESCALATED =>
        {
            vec![team_context::propose_architect(graphs::MONITORING, "nothing needs the user any more")]
        }
        TeamFact::SpecEnded { missing, .. } => dispatcher::handle_spec_ended(context, &missing),
        _ => Vec::new(),
    }
}

fn evaluate_condition(
    view: &FlowContext<'_, TeamState>,
    phase: &PhaseGraphKey,
    condition: &str,
) -> PhaseConditionVerdict {
    let fails = |why: &str| PhaseConditionVerdict::Fails(why.to_owned());
    let PhaseStateOwner::Agent(agent) = &phase.owner else { return fails("only agents have such a state") };
    if let Some(wanted) = condition.strip_prefix(graphs::CAME_FROM) {
        let status = view.session.phase_graphs.get(phase);
        let is_suspended = status.is_some_and(|status| status.state.current == *graphs::SUSPEND);
        let coder = view.state.coders.get(agent);
        let origin = match (is_suspended, coder) {
            (true, Some(coder)) => coder.suspended_from.clone(),
            (false, Some(coder)) => coder.return_to.clone(),
            (_, None) => status.and_then(|status| status.state.came_from.clone()),
        };
        return match origin {
            Some(origin) if origin == *wanted => PhaseConditionVerdict::Holds,
            Some(origin) => PhaseConditionVerdict::Fails(format!("it came from {origin}")),
            None => fails("it came from nowhere"),
        };
    }
    let kind = view.state.story_of(agent).map(|progress| progress.story.kind);
    let holds = match condition {
        graphs::IS_EXPRESS => kind.is_some_and(StoryWorkflowKind::is_express),
        graphs::IS_ORDINARY => kind == Some(StoryWorkflowKind::Ordinary),
        graphs::NOTHING_CHANGED => view.state.coders.get(agent).is_some_and(|coder| coder.files.is_empty()),
        _ => return PhaseConditionVerdict::Fails(format!("there is no condition `{condition}`")),
    };
    if holds { PhaseConditionVerdict::Holds } else { PhaseConditionVerdict::Fails(format!("this is not {condition}")) }
}
