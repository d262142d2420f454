//! Decides which phase and agents come next. Where only one answer is possible, code decides; otherwise the router is asked,
//! with a schema that lists exactly the possible phases and agents.

mod answer;

use segue_core::event::{CallAnswered, CallOpened, CallRequest, TurnOutcome};
use segue_core::flow::FlowStep;
use segue_core::ids::{AgentName, PhaseName};
use segue_core::phase::{PhaseTransitionNote, PhaseTransitionProposer};
use serde_json::{Value, json};

use super::definition::{CompletionMode, EdgeDefinition, PhaseDefinition, PhaseKindDefinition};
use super::facts::{AskUserReason, NextPhaseAndAgents, ProjectFact, RoutingDecisionMaker};
use super::project_context::ProjectFlowContext;
use super::spec::{ASK_ROUTE, is_talk_phase, phases_key};
use super::tools::ROUTER_ROLE;
use super::{account, conditions};
use crate::limits::{HANDOFF_SUMMARY_CHARS_MAX, REFUSED_DECISIONS_MAX, ROUTED_AGENTS_MAX, ROUTING_REPAIRS_MAX};
use crate::project::text::truncate_chars;

pub(super) use answer::{RoutingAnswerError, parse_routing_answer};

/// A phase that may come next, with the agents that may work in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NextPhaseOption {
    pub(super) phase: PhaseName,
    /// The agents, the default one first. Empty if the phase ends the flow.
    pub(super) agents: Vec<AgentName>,
    /// Whether all agents work, so that there is nothing to choose.
    pub(super) all_agents: bool,
    /// Whether the phase ends the flow.
    pub(super) ends: bool,
}

impl NextPhaseOption {
    /// Returns whether code can carry it out without asking.
    fn needs_no_router_choice(&self) -> bool {
        self.all_agents || self.agents.len() <= 1
    }
}

/// Returns the agents that may work in a phase now.
fn phase_option(context: &ProjectFlowContext<'_>, phase: &PhaseDefinition) -> NextPhaseOption {
    let name: PhaseName = phase.name.as_str().into();
    if phase.kind != PhaseKindDefinition::Work {
        return NextPhaseOption { phase: name, agents: Vec::new(), all_agents: true, ends: true };
    }
    if phase.completion == CompletionMode::Reflection {
        let agents = context.state().agents_to_reflect();
        return NextPhaseOption { phase: name, agents, all_agents: true, ends: false };
    }
    let agents = phase.agents.iter().map(|agent| agent.as_str().into()).collect();
    NextPhaseOption { phase: name, agents, all_agents: false, ends: false }
}

/// Returns what may come next, in the order of the definition, with the current phase first if it may continue.
pub(super) fn route_options(context: &ProjectFlowContext<'_>) -> Vec<NextPhaseOption> {
    let phase = context.phase();
    let state = context.state();
    let stay = phase_option(context, phase);
    let reflects = phase.completion == CompletionMode::Reflection;
    // A phase that was entered is worked in before it is left.
    let is_untouched = state.visit.turns_closed == 0 && !context.has_unrouted_message();
    if is_untouched && !is_talk_phase(phase) && !stay.agents.is_empty() {
        return vec![stay];
    }
    let may_stay = match phase.completion {
        CompletionMode::Answer => true,
        CompletionMode::Reflection => !stay.agents.is_empty(),
        CompletionMode::Complete => !state.visit.completed || phase.agents.len() > 1 || context.has_unrouted_message(),
    };
    if reflects && may_stay {
        return vec![stay];
    }
    let has_queued_messages = !context.view.session.queued_messages.is_empty();
    let legal = context.phases_router_may_choose();
    let next = context.definition.phases.iter().filter(|next| legal.contains(&next.name.as_str().into()));
    // A message that waits is answered before the session is closed.
    let next = next.filter(|next| next.kind == PhaseKindDefinition::Work || !has_queued_messages);
    let next = next.map(|next| phase_option(context, next)).filter(|option| option.phase.as_str() != phase.name);
    Some(stay).filter(|_| may_stay).into_iter().chain(next).collect()
}

/// Returns what the router can choose from. Without a new message of the user, this is less than what is possible: no phase
/// that another one replaces, and no work that was just done to no effect.
pub(super) fn offered_options(context: &ProjectFlowContext<'_>) -> Vec<NextPhaseOption> {
    let options = route_options(context);
    if context.has_unrouted_message() {
        return options;
    }
    without_pointless_work(context, without_replaced_phases(context, options))
}

/// Leaves out the phases that an edge replaces, if the edge can be taken.
fn without_replaced_phases(
    context: &ProjectFlowContext<'_>,
    mut options: Vec<NextPhaseOption>,
) -> Vec<NextPhaseOption> {
    let phase = &context.phase().name;
    let edges = context.definition.edges.iter().filter(|edge| edge.from == *phase);
    let can_be_taken = |edge: &&EdgeDefinition| options.iter().any(|option| edge.leads_to(option.phase.as_str()));
    let replaced: Vec<&String> = edges.filter(can_be_taken).flat_map(|edge| edge.instead_of.names()).collect();
    options.retain(|option| !replaced.iter().any(|name| *name == option.phase.as_str()));
    options
}

/// Leaves out agents that completed their work on the current content without a change, if its checks passed: they have nothing
/// left to do. Returns all options if none would remain.
fn without_pointless_work(context: &ProjectFlowContext<'_>, options: Vec<NextPhaseOption>) -> Vec<NextPhaseOption> {
    let Some(verdict) = context.state().current_verdict().filter(|verdict| verdict.passed) else { return options };
    let mut remaining = options.clone();
    for option in remaining.iter_mut().filter(|option| !option.all_agents) {
        let idle = context.state().agents_idle_on(&verdict.digest, &option.phase);
        option.agents.retain(|agent| !idle.contains(agent));
    }
    remaining.retain(|option| option.all_agents || !option.agents.is_empty());
    if remaining.is_empty() { options } else { remaining }
}

/// Returns whether a phase could be entered if it had not been entered too often, and no other way leads on.
fn is_out_of_visits(context: &ProjectFlowContext<'_>, options: &[NextPhaseOption]) -> bool {
    let phase = context.phase();
    let targets = context.definition.edges.iter().filter(|edge| edge.from == phase.name);
    let exhausted = targets.flat_map(|edge| edge.to.names()).any(|to| !conditions::has_visits_left(context, to));
    let leads_on = |option: &NextPhaseOption| {
        let definition = context.definition.find_phase(option.phase.as_str());
        option.phase.as_str() != phase.name && definition.is_some_and(|phase| !is_talk_phase(phase))
    };
    exhausted && !is_talk_phase(phase) && !options.iter().any(leads_on)
}

/// Decides what comes next, or asks the router.
pub(super) fn route(context: &ProjectFlowContext<'_>) -> Vec<FlowStep> {
    let state = context.state();
    if let Some(grant) = context.phase_state().and_then(|phase| phase.grants.first())
        && let Some(phase) = context.definition.find_phase(grant.to.as_str())
        && !is_talk_phase(context.phase())
    {
        let option = phase_option(context, phase);
        let agents = option.agents.iter().take(if option.all_agents { usize::MAX } else { 1 }).cloned().collect();
        return record_routing_decision(
            context,
            option.phase,
            agents,
            "the user granted it",
            RoutingDecisionMaker::User,
            None,
        );
    }
    let options = route_options(context);
    if is_out_of_visits(context, &options) {
        return context.stop_to_ask_user(AskUserReason::Visits);
    }
    if state.refused_decisions >= REFUSED_DECISIONS_MAX {
        return route_to_default_agent(context, "two proposals in a row were refused");
    }
    match offered_options(context).as_slice() {
        [] => context.stop_to_ask_user(AskUserReason::Loop),
        [only] if only.needs_no_router_choice() => {
            let agents = only.agents.clone();
            record_routing_decision(
                context,
                only.phase.clone(),
                agents,
                "the only possibility",
                RoutingDecisionMaker::Code,
                None,
            )
        }
        options => vec![FlowStep::Call(CallRequest {
            output_schema: routing_schema(options),
            metadata: json!({"turns": state.turns_total}),
            ..CallRequest::new(ROUTER_ROLE, ASK_ROUTE)
        })],
    }
}

/// Has a default agent work, because the router gave no usable answer: that of the only phase that can come next, or else
/// that of the current phase.
fn route_to_default_agent(context: &ProjectFlowContext<'_>, why: &str) -> Vec<FlowStep> {
    let option = match <[NextPhaseOption; 1]>::try_from(offered_options(context)) {
        Ok([only]) => only,
        Err(_) => phase_option(context, context.phase()),
    };
    let agents: Vec<AgentName> =
        if option.all_agents { option.agents } else { option.agents.into_iter().take(1).collect() };
    if agents.is_empty() {
        return context.stop_to_ask_user(AskUserReason::Loop);
    }
    record_routing_decision(context, option.phase, agents, why, RoutingDecisionMaker::Default, None)
}

/// Returns the JSON schema of the router's answer. The names are in the order in which they should be written, because schemas
/// are sent with sorted keys: a model that must name agents first chooses the phase to fit them.
pub(super) fn routing_schema(options: &[NextPhaseOption]) -> Value {
    let phases: Vec<&str> = options.iter().map(|option| option.phase.as_str()).collect();
    let mut agents: Vec<&str> = Vec::new();
    for agent in options.iter().flat_map(|option| &option.agents) {
        if !agents.contains(&agent.as_str()) {
            agents.push(agent.as_str());
        }
    }
    json!({
        "type": "object",
        "required": ["because", "phase", "who"],
        "properties": {
            "because": {"type": "string"},
            "phase": {"enum": phases},
            "user_words": {"type": ["string", "null"]},
            "who": {"type": "array", "items": {"enum": agents}, "maxItems": ROUTED_AGENTS_MAX},
        },
    })
}

/// Records a decision and proposes its phase. The agents start when the phase was entered.
fn record_routing_decision(
    context: &ProjectFlowContext<'_>,
    phase: PhaseName,
    agents: Vec<AgentName>,
    reason: &str,
    by: RoutingDecisionMaker,
    user_words: Option<String>,
) -> Vec<FlowStep> {
    let proposer = match by {
        RoutingDecisionMaker::Router => PhaseTransitionProposer::Role(ROUTER_ROLE.into()),
        RoutingDecisionMaker::Code | RoutingDecisionMaker::Default | RoutingDecisionMaker::User => {
            PhaseTransitionProposer::Engine
        }
    };
    let finished_by = context.state().turns.back().and_then(|turn| turn.completions.iter().next_back());
    let label = match (by, finished_by) {
        (RoutingDecisionMaker::Router, _) => "router".to_owned(),
        (_, Some((agent, _))) => context.display_name(agent),
        (_, None) => "engine".to_owned(),
    };
    let summary = account::handoff_summary(context);
    let note = PhaseTransitionNote {
        proposer_label: Some(label),
        reason: Some(reason.to_owned()),
        message: Some(account::transition_message(context, &phase, &agents, reason)),
        summary: summary.map(|summary| truncate_chars(&summary, HANDOFF_SUMMARY_CHARS_MAX)),
    };
    let decision = NextPhaseAndAgents { phase: phase.clone(), agents, reason: reason.to_owned(), by, user_words };
    vec![
        ProjectFact::Decided(decision).into_step(),
        FlowStep::ProposePhase { phase: phases_key(), to: phase, by: proposer, note },
    ]
}

/// Handles the router's answer.
pub(super) fn handle_router_answer(
    context: &ProjectFlowContext<'_>,
    call: &CallOpened,
    answered: &CallAnswered,
) -> Vec<FlowStep> {
    if !context.is_event_of_current_turn() || context.state().open_turn().is_some() {
        return Vec::new();
    }
    let options = route_options(context);
    let text = context.view.read_text(answered.text);
    let parsed = match parse_routing_answer(&text, &options, &context.phase_name(), &context.user_text()) {
        Ok(parsed) => parsed,
        Err(errors) => {
            let complaints = errors.iter().map(ToString::to_string).collect();
            return reject_decision(context, call, complaints);
        }
    };
    let mut steps = Vec::new();
    if !parsed.unknown_agents.is_empty() {
        let fact = ProjectFact::UnknownAgents { names: parsed.unknown_agents, phase: parsed.phase.clone() };
        steps.push(fact.into_step());
        if parsed.agents.is_empty() {
            let complaint = RoutingAnswerError::UnknownAgents { phase: parsed.phase };
            steps.extend(reject_decision(context, call, vec![complaint.to_string()]));
            return steps;
        }
    }
    let decided = record_routing_decision(
        context,
        parsed.phase,
        parsed.agents,
        &parsed.reason,
        RoutingDecisionMaker::Router,
        parsed.user_words,
    );
    steps.into_iter().chain(decided).collect()
}

/// Asks the router once more, or has the default agent work.
fn reject_decision(context: &ProjectFlowContext<'_>, call: &CallOpened, complaints: Vec<String>) -> Vec<FlowStep> {
    let rejected = ProjectFact::DecisionRejected { call: call.call, complaints }.into_step();
    let next = if context.state().rejected_decisions < ROUTING_REPAIRS_MAX {
        vec![FlowStep::Call(CallRequest {
            output_schema: routing_schema(&offered_options(context)),
            metadata: json!({"turns": context.state().turns_total}),
            ..CallRequest::new(ROUTER_ROLE, ASK_ROUTE)
        })]
    } else {
        route_to_default_agent(context, "the router gave no usable answer")
    };
    std::iter::once(rejected).chain(next).collect()
}

/// Handles a call of the router that failed for good. The user can retry the turn.
pub(super) fn handle_router_failure(context: &ProjectFlowContext<'_>, why: &str) -> Vec<FlowStep> {
    if !context.is_event_of_current_turn() {
        return Vec::new();
    }
    vec![FlowStep::EndTurn(TurnOutcome::Failed { reason: format!("the router cannot be reached: {why}") })]
}
