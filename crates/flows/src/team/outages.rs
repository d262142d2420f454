//! Failures of model calls. A provider outage suspends the agent, which returns to where it was; after a quarter of an
//! hour a person is asked.

use segue_core::event::CallOpened;
use segue_core::flow::FlowStep;
use segue_core::ids::AgentName;
use segue_core::prompt::{CallFailure, CallFailureKind};

use super::coder::{abort_attempt, continue_coder, fail_attempt};
use super::facts::TeamFailureKind;
use super::graphs::{MONITORING, REQUEST, SUSPEND, WAITING};
use super::spec::{ARCHITECT_AGENT, CODER_ROLE, PRODUCT_MANAGER_ROLE};
use super::team_context::{TeamFlowContext, propose_agent_phase, propose_architect};
use super::{planning, product_manager, requests};
use crate::limits::{SUSPENDED_MS_MAX, SUSPENDED_RETRY_MS};

const RETRY_TIMER_PREFIX: &str = "retry:";

/// Handles a call that failed for good.
pub(super) fn handle_call_failed(
    context: &TeamFlowContext<'_>,
    call: &CallOpened,
    failure: Option<&CallFailure>,
) -> Vec<FlowStep> {
    let why = failure.map_or_else(|| "the answer was lost when the process died".to_owned(), ToString::to_string);
    if call.role == *PRODUCT_MANAGER_ROLE {
        return product_manager::fail_turn(&why);
    }
    let is_outage = failure.is_none_or(|failure| is_outage(failure.kind));
    match (call.role.as_str(), call.agent.as_ref()) {
        (CODER_ROLE, Some(agent)) if is_outage => suspend_agent(agent, &why),
        (CODER_ROLE, Some(agent)) => {
            let mut steps = vec![propose_agent_phase(agent, SUSPEND, why.clone())];
            steps.extend(fail_attempt(agent, why, TeamFailureKind::Environment));
            steps
        }
        (_, _) if call.metadata.get("stories").is_some() && !is_outage => {
            planning::handle_inspection_failure(context, &why)
        }
        _ if is_outage => suspend_agent(&ARCHITECT_AGENT.into(), &why),
        _ => {
            // The architect cannot answer this request; its story needs a person.
            let peer = call.peer.clone();
            peer.map(|agent| abort_attempt(context, &agent, &why, TeamFailureKind::Environment)).unwrap_or_default()
        }
    }
}

fn is_outage(kind: CallFailureKind) -> bool {
    kind.is_transient()
}

fn suspend_agent(agent: &AgentName, why: &str) -> Vec<FlowStep> {
    let timer = format!("{RETRY_TIMER_PREFIX}{agent}");
    vec![propose_agent_phase(agent, SUSPEND, why), FlowStep::SetTimer { name: timer, after_ms: SUSPENDED_RETRY_MS }]
}

/// Tries again after a suspension, or asks a person if it has lasted too long.
pub(super) fn handle_timer(context: &TeamFlowContext<'_>, name: &str) -> Vec<FlowStep> {
    let Some(agent) = name.strip_prefix(RETRY_TIMER_PREFIX).map(AgentName::from) else { return Vec::new() };
    if context.phase(&agent) != *SUSPEND {
        return Vec::new();
    }
    let now = context.view.session.last_event_at;
    let has_lasted =
        |since: Option<segue_core::ids::UnixMillis>| since.is_some_and(|since| now.ms_since(since) >= SUSPENDED_MS_MAX);
    if agent == *ARCHITECT_AGENT {
        let mut steps = Vec::new();
        if has_lasted(context.state().architect_suspended_since) {
            let reason = "the architect's model has not answered for a quarter of an hour".to_owned();
            steps.extend(requests::escalate(context, ARCHITECT_AGENT, reason, TeamFailureKind::Transient));
        }
        let back_to = context.view.session.phase_graphs.get(&super::team_context::phase_key(&agent));
        let back_to = back_to.and_then(|status| status.state.came_from.clone());
        let back_to = back_to.map_or_else(|| MONITORING.to_owned(), |phase| phase.to_string());
        steps.push(propose_architect(&back_to, "tries again"));
        return steps;
    }
    let coder = context.coder(&agent);
    if has_lasted(coder.suspended_since) {
        let why = "the model has not answered for a quarter of an hour";
        return fail_attempt(&agent, why, TeamFailureKind::Transient);
    }
    let back_to = coder.suspended_from.map_or_else(|| WAITING.to_owned(), |phase| phase.to_string());
    vec![propose_agent_phase(&agent, &back_to, "tries again")]
}

/// The architect left its suspension: open requests are put to it again.
pub(super) fn handle_architect_phase_entered(context: &TeamFlowContext<'_>, to: &str, from: &str) -> Vec<FlowStep> {
    match (from, to) {
        (SUSPEND, super::graphs::DISPATCHING) => planning::ask_architect_for_stories(context),
        (SUSPEND, REQUEST) => requests::continue_requests(context),
        (_, MONITORING) => super::dispatcher::begin_dispatch(context),
        _ => Vec::new(),
    }
}

/// Continues every coder that has something to do, after a pause.
pub(super) fn continue_all_coders(context: &TeamFlowContext<'_>) -> Vec<FlowStep> {
    let coders: Vec<AgentName> = context.coders().collect();
    coders.iter().flat_map(|agent| continue_coder(context, agent)).collect()
}
