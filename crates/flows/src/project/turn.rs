//! Moves a session forward: after every event that ends something, decides what is next.

use segue_core::event::{PhaseEntered, TurnOutcome};
use segue_core::flow::FlowStep;
use segue_core::ids::PhaseName;
use segue_core::phase::{PhaseTransitionCause, PhaseTransitionNote, PhaseTransitionProposer};

use super::definition::{CompletionMode, PhaseKindDefinition, PlanApprovalMode};
use super::facts::{AskUserReason, PlanApprover, ProjectFact};
use super::project_context::{ProjectFlowContext, reply_step};
use super::routing::route;
use super::spec::{is_talk_phase, phases_key};
use super::tools::ROUTER_ROLE;
use super::{account, agents, evidence, mcp_servers, parallel_writers, workspace_claim};
use crate::limits::{LOOP_TIMES_MAX, LOOP_TIMES_WARN, LOOP_WINDOW_TURNS};

/// Starts a turn. A message in a phase whose work is done enters another phase first, if the phase says so.
pub(super) fn handle_turn_started(context: &ProjectFlowContext<'_>) -> Vec<FlowStep> {
    let phase = context.phase();
    let reflected = phase.completion != CompletionMode::Reflection || context.state().agents_to_reflect().is_empty();
    let is_done = context.state().visit.turns_closed > 0 && reflected;
    match phase.on_message.as_ref().filter(|_| is_done && context.has_user_message()) {
        Some(to) => {
            let (to, note) = (to.as_str().into(), PhaseTransitionNote::default());
            vec![FlowStep::ProposePhase { phase: phases_key(), to, by: PhaseTransitionProposer::Engine, note }]
        }
        None => advance_unless_waiting(context),
    }
}

/// Returns whether something that the flow waits for is still pending.
fn is_waiting(context: &ProjectFlowContext<'_>) -> bool {
    let session = context.view.session;
    let routes =
        session.open_calls.values().any(|call| call.opened.role == *ROUTER_ROLE && call.opened.recomputation.is_none())
            || session.deferred_calls.values().any(|wait| wait.request.role == *ROUTER_ROLE);
    routes || evidence::has_open_flow_run(context) || !session.open_asks.is_empty()
}

/// Decides what is next, if nothing is pending.
pub(super) fn advance_unless_waiting(context: &ProjectFlowContext<'_>) -> Vec<FlowStep> {
    let (session, state) = (context.view.session, context.state());
    let is_idle = session.current_turn.is_none() || session.closed_reason.is_some();
    if is_idle || is_waiting(context) || state.open_turn().is_some() || state.stopped.is_some() {
        return Vec::new();
    }
    if let Some(steps) = parallel_writers::merge_next_copy(context) {
        return steps;
    }
    let listing = mcp_servers::request_listing(context);
    let prepared: Vec<FlowStep> =
        listing.into_iter().chain(evidence::prepare_workspace_for_turn(context).into_iter().flatten()).collect();
    if !prepared.is_empty() {
        return prepared;
    }
    let phase = context.phase();
    if let Some(decision) = &state.decision {
        if decision.phase.as_str() != phase.name {
            return Vec::new();
        }
        let prepared = workspace_claim::request_claim(context)
            .or_else(|| evidence::prepare_workspace_for_visit(context))
            .or_else(|| parallel_writers::create_copies(context, decision));
        return prepared.unwrap_or_else(|| agents::start_routing_turn(context, decision));
    }
    if phase.kind != PhaseKindDefinition::Work {
        return finish_session(context);
    }
    if let Some(steps) = request_plan_approval(context).or_else(|| verify_completed_visit(context)) {
        return steps;
    }
    if is_talk_phase(phase) && state.answered_turn == session.current_turn.as_ref().map(|turn| turn.id) {
        return vec![FlowStep::EndTurn(TurnOutcome::Done)];
    }
    if state.turns_since_message >= context.definition.limits.routing_turns_max {
        return context.stop_to_ask_user(AskUserReason::RoutingTurns);
    }
    route(context)
}

/// Does what must be done after the agents of a phase have completed. Work on the content needs the workspace's claim.
fn verify_completed_visit(context: &ProjectFlowContext<'_>) -> Option<Vec<FlowStep>> {
    let steps = evidence::check_workspace_after_visit(context)?;
    let uses_workspace = steps.iter().any(|step| matches!(step, FlowStep::RunTool { .. }));
    let claim = if uses_workspace { workspace_claim::request_claim(context) } else { None };
    Some(claim.unwrap_or(steps))
}

/// Has a submitted plan approved, by the user or by the setting.
fn request_plan_approval(context: &ProjectFlowContext<'_>) -> Option<Vec<FlowStep>> {
    let state = context.state();
    let waits = context.phase().plan && state.visit.plan_submitted && state.visit.completed;
    state.plan.as_ref().filter(|status| waits && status.approved_by.is_none())?;
    if context.settings.plan_approval == PlanApprovalMode::Auto {
        return Some(vec![ProjectFact::PlanApproved { by: PlanApprover::Auto }.into_step()]);
    }
    // A message of the user that is newer than the plan is feedback, which the agent works on first.
    (!context.has_unrouted_message()).then(|| context.stop_to_ask_user(AskUserReason::PlanApproval))
}

/// Continues after the copy of an agent was merged and removed.
pub(super) fn handle_copy_removed(context: &ProjectFlowContext<'_>) -> Vec<FlowStep> {
    // The routing turn was counted before its copies were merged.
    let steps = if context.view.session.current_turn.is_some() { notice_loop_or_advance(context) } else { Vec::new() };
    if steps.is_empty() { advance_unless_waiting(context) } else { steps }
}

/// Reacts to a routing turn that was counted: merges the copies of its agents, notices loops, then continues.
pub(super) fn notice_loop_or_advance(context: &ProjectFlowContext<'_>) -> Vec<FlowStep> {
    if let Some(steps) = parallel_writers::merge_next_copy(context) {
        return steps;
    }
    let state = context.state();
    let Some(turn) = state.turns.back().filter(|turn| turn.decision.phase == context.phase_name()) else {
        return Vec::new();
    };
    let (times, has_progress) = state.count_routing_repetitions(LOOP_WINDOW_TURNS);
    if times < LOOP_TIMES_WARN || is_talk_phase(context.phase()) {
        return advance_unless_waiting(context);
    }
    let (phase, agents) = (turn.decision.phase.clone(), turn.decision.agents.clone());
    let noticed = ProjectFact::LoopNoticed { phase, agents, times }.into_step();
    if times >= LOOP_TIMES_MAX && !has_progress {
        // The flow has stopped before it reacts to the loop.
        let mut steps = context.stop_to_ask_user(AskUserReason::Loop);
        steps.insert(1, noticed);
        return steps;
    }
    vec![noticed]
}

/// Reacts to a transition.
pub(super) fn handle_phase_entered(context: &ProjectFlowContext<'_>, entered: &PhaseEntered) -> Vec<FlowStep> {
    let transition = &entered.transition;
    let is_running = context.view.session.current_turn.is_some();
    match &transition.cause {
        PhaseTransitionCause::Expired { .. } => handle_phase_limit_expired(context),
        PhaseTransitionCause::RolledBack { .. } if is_running => vec![FlowStep::EndTurn(TurnOutcome::Cancelled)],
        PhaseTransitionCause::RolledBack { to_visit } => {
            vec![reply_step(account::render_rollback_reply(context, *to_visit))]
        }
        _ if context.state().decision.is_some() => carry_out_decision(context),
        _ if !transition.is_visit_start() => Vec::new(),
        _ if is_running && context.state().open_turn().is_some() => interrupt_turn(&transition.to),
        _ if is_running => advance_unless_waiting(context),
        _ => vec![FlowStep::StartTurn],
    }
}

/// Continues with the decision whose phase was entered.
fn carry_out_decision(context: &ProjectFlowContext<'_>) -> Vec<FlowStep> {
    if context.phase().kind != PhaseKindDefinition::Work {
        finish_session(context)
    } else {
        advance_unless_waiting(context)
    }
}

/// The user moved to another phase while agents worked: their work is cancelled, and the phase is worked in.
fn interrupt_turn(to: &PhaseName) -> Vec<FlowStep> {
    let why = format!("the user entered `{to}`");
    vec![
        ProjectFact::TurnAbandoned { turn: 0, why }.into_step(),
        FlowStep::EndTurn(TurnOutcome::Cancelled),
        FlowStep::StartTurn,
    ]
}

fn handle_phase_limit_expired(context: &ProjectFlowContext<'_>) -> Vec<FlowStep> {
    let is_running = context.view.session.current_turn.is_some();
    match (is_running, is_talk_phase(context.phase())) {
        (true, true) => context.stop_to_ask_user(AskUserReason::PhaseLimit),
        (true, false) => advance_unless_waiting(context),
        (false, true) => vec![reply_step(account::render_stop(context, AskUserReason::PhaseLimit))],
        (false, false) => vec![FlowStep::StartTurn],
    }
}

/// Ends the session with an account of what was done.
fn finish_session(context: &ProjectFlowContext<'_>) -> Vec<FlowStep> {
    let reason =
        "the work has ended; start a new session, or fork this one to continue from an earlier point".to_owned();
    vec![
        reply_step(account::render_end(context)),
        FlowStep::SetResult(account::result_json(context)),
        FlowStep::EndTurn(TurnOutcome::Done),
        FlowStep::CloseSession { reason },
    ]
}
