//! Starts turns and continues them after a batch or a phase transition.

use segue_core::event::{CallRequest, PhaseEntered, TurnOutcome};
use segue_core::flow::{FlowStep, NewOrStoredReplyText};
use segue_core::phase::{PhaseTransitionNote, PhaseTransitionProposer};
use segue_core::signal::SignalForm;
use serde_json::json;

use super::analysis::{ClaimMapShape, analyse_claim_map};
use super::commands::ConciergeTurnCommand;
use super::consent::{self, ExpertBatchConsentAnswer};
use super::facts::{ConciergeFact, ExpertBatchPurpose, ExpertBatchResult};
use super::messages::{self, record_refusal};
use super::settings::{ConciergeSettings, ExpertBatchTrigger, PlanPresentationTiming};
use super::spec::{
    ASK_CONSENT_QUESTION, ASK_EXECUTION_QUESTION, ASK_PRESENT, ASK_REPLY, ASK_STANCE_QUESTION, CONCIERGE_ROLE,
    EXECUTOR_PHASE, STARTER_PHASE, concierge_phase_key,
};
use super::stance::{self, ReplyStance, ReplyStanceChoice, ReplyStanceReason};
use super::state::ConciergeFlowContext;
use super::{batch, claim_map, handovers, questions};
use crate::template::fill_template;

/// Handles the start of a turn: resolves a pending confirmation, resumes a failed batch, or answers the message.
pub(super) fn handle_turn_started(
    view: &ConciergeFlowContext<'_>,
    settings: &ConciergeSettings,
    is_retry: bool,
) -> Vec<FlowStep> {
    let state = view.state;
    let message = messages::current_turn_user_text(view);
    match state.turn_command {
        Some(ConciergeTurnCommand::ConfirmBatch) => return start_confirmed_batch(view, settings),
        Some(ConciergeTurnCommand::MakePlan) => {
            let request = questions::question_request(view, settings, ASK_EXECUTION_QUESTION, json!({}));
            return vec![FlowStep::Call(request)];
        }
        None => {}
    }
    if state.pending_confirmation.is_some() {
        // The wording of a yes differs between languages, so the concierge is asked what the answer means.
        return match settings.signal_form(state.model_signal_form) {
            SignalForm::Structured => {
                let request = questions::question_request(view, settings, ASK_CONSENT_QUESTION, json!({}));
                vec![FlowStep::Call(request)]
            }
            SignalForm::Inline => settle_confirmation(view, settings, None),
        };
    }
    if let Some(failed) = &state.batch {
        if is_retry || consent::is_retry_request(&message) {
            return batch::resume_batch(view, settings, failed);
        }
        let why = "the user asked something else".to_owned();
        let mut steps = vec![ConciergeFact::BatchAbandoned { batch: failed.request.number, why }.into_step()];
        if failed.request.task.is_some() {
            steps.push(record_refusal(None, "BATCH", "no_answer", &[]));
        }
        steps.extend(start_batch_or_reply(view, settings));
        return steps;
    }
    start_batch_or_reply(view, settings)
}

/// Acts on the user's answer to the question whether a batch may be started. `by_concierge` is what the answer means to
/// the concierge. If the wording says the opposite, the user is asked again, and nothing is spent on a guess.
pub(super) fn settle_confirmation(
    view: &ConciergeFlowContext<'_>,
    settings: &ConciergeSettings,
    by_concierge: Option<ExpertBatchConsentAnswer>,
) -> Vec<FlowStep> {
    let state = view.state;
    let message = messages::current_turn_user_text(view);
    let purpose = state.pending_confirmation.as_ref().map(|request| request.purpose);
    let by_wording = match purpose {
        Some(ExpertBatchPurpose::Plan) => consent::parse_plan_consent(&message),
        _ => consent::parse_consent(&message),
    };
    let is_second = state.is_confirmation_unclear;
    let (fact, notice) = match consent::combine_consent(by_wording, by_concierge) {
        Some(ExpertBatchConsentAnswer::Yes) => return start_confirmed_batch(view, settings),
        Some(ExpertBatchConsentAnswer::No) => (ConciergeFact::BatchDeclined, "declined"),
        Some(ExpertBatchConsentAnswer::Unclear) | None if is_second => (ConciergeFact::BatchDeclined, "no_yes"),
        Some(ExpertBatchConsentAnswer::Unclear) => (ConciergeFact::ConfirmationUnclear, "unsettled"),
        None => {
            let text = fill_template(include_str!("../../prompts/concierge/confirm_again.md"), &());
            let question = FlowStep::Reply { text: NewOrStoredReplyText::New(text), role: None, call: None };
            let fact = ConciergeFact::ConfirmationRepeated.into_step();
            return vec![fact, question, FlowStep::EndTurn(TurnOutcome::Done)];
        }
    };
    let mut steps = vec![fact.into_step(), record_refusal(None, "BATCH", notice, &[])];
    steps.extend(start_batch_or_reply(view, settings));
    steps
}

fn start_confirmed_batch(view: &ConciergeFlowContext<'_>, settings: &ConciergeSettings) -> Vec<FlowStep> {
    let Some(request) = view.state.pending_confirmation.clone() else {
        return vec![FlowStep::EndTurn(TurnOutcome::Done)];
    };
    let mut steps = vec![ConciergeFact::BatchConfirmed.into_step()];
    steps.extend(batch::start_batch(view, settings, request));
    steps
}

fn start_batch_or_reply(view: &ConciergeFlowContext<'_>, settings: &ConciergeSettings) -> Vec<FlowStep> {
    let state = view.state;
    let phase = current_phase(view);
    let is_first_question = phase == STARTER_PHASE && state.opening_result.is_none();
    // Findings or a plan that the user has not seen yet come from the latest batch, so no new one is needed.
    let has_unseen_result =
        state.pending_findings.is_some() || (phase == EXECUTOR_PHASE && state.active_plan.is_none());
    let purpose = match settings.batch {
        _ if is_first_question => Some(ExpertBatchPurpose::OpeningQuestion),
        ExpertBatchTrigger::EveryTurn if !has_unseen_result => Some(ExpertBatchPurpose::EveryTurn),
        ExpertBatchTrigger::EveryTurn | ExpertBatchTrigger::OnSignal => None,
    };
    match purpose {
        Some(purpose) => {
            let request = batch::new_batch_request(view, settings, purpose, None, state.unanswered_messages.clone());
            batch::start_batch(view, settings, request)
        }
        None => vec![call_concierge(view, settings)],
    }
}

/// Returns the current phase of the concierge.
pub(super) fn current_phase(view: &ConciergeFlowContext<'_>) -> String {
    let graph = view.session.phase_graphs.get(&concierge_phase_key());
    graph.map_or_else(|| STARTER_PHASE.to_owned(), |graph| graph.state.current.to_string())
}

/// Returns the number of turns that the current phase has started.
pub(super) fn turns_in_phase(view: &ConciergeFlowContext<'_>) -> u32 {
    view.session.phase_graphs.get(&concierge_phase_key()).map_or(0, |graph| graph.state.turns_started)
}

/// Calls the concierge: to present the plan if the executor has none yet, otherwise to reply.
fn call_concierge(view: &ConciergeFlowContext<'_>, settings: &ConciergeSettings) -> FlowStep {
    let presents_plan = current_phase(view) == EXECUTOR_PHASE && view.state.active_plan.is_none();
    let request = CallRequest::new(CONCIERGE_ROLE, if presents_plan { ASK_PRESENT } else { ASK_REPLY });
    FlowStep::Call(CallRequest { model: settings.concierge.clone(), ..request })
}

/// Continues the turn after a batch is complete.
pub(super) fn handle_batch_result(
    view: &ConciergeFlowContext<'_>,
    settings: &ConciergeSettings,
    purpose: ExpertBatchPurpose,
    result: &ExpertBatchResult,
) -> Vec<FlowStep> {
    match purpose {
        ExpertBatchPurpose::OpeningQuestion => choose_stance_and_reply(view, settings, result),
        ExpertBatchPurpose::EveryTurn => vec![call_concierge(view, settings)],
        ExpertBatchPurpose::Plan => vec![propose_phase(EXECUTOR_PHASE)],
        ExpertBatchPurpose::StepHelp => vec![end_turn_if_replied(view)],
    }
}

/// Ends the turn, unless the user has got no reply in it.
pub(super) fn end_turn_if_replied(view: &ConciergeFlowContext<'_>) -> FlowStep {
    if view.state.replied_in_turn {
        FlowStep::EndTurn(TurnOutcome::Done)
    } else {
        ConciergeFact::EmptyReply { call: None, notice: None }.into_step()
    }
}

/// Calls the concierge once more after an empty reply. After a second one the user gets a neutral sentence.
pub(super) fn retry_empty_reply(view: &ConciergeFlowContext<'_>, settings: &ConciergeSettings) -> Vec<FlowStep> {
    if view.state.empty_replies > 1 {
        let text = fill_template(include_str!("../../prompts/concierge/no_words.md"), &());
        let text = NewOrStoredReplyText::New(text.trim_end().to_owned());
        let reply = FlowStep::Reply { text, role: Some(CONCIERGE_ROLE.into()), call: None };
        return vec![reply, FlowStep::EndTurn(TurnOutcome::Done)];
    }
    vec![call_concierge(view, settings)]
}

/// Proposes a phase on behalf of the concierge. The graph decides.
pub(super) fn propose_phase(phase: &str) -> FlowStep {
    FlowStep::ProposePhase {
        phase: concierge_phase_key(),
        to: phase.into(),
        by: PhaseTransitionProposer::Role(CONCIERGE_ROLE.into()),
        note: PhaseTransitionNote::default(),
    }
}

/// Continues after a phase was entered: builds a missing handover if it was entered by hand, and has the executor present
/// its plan.
pub(super) fn handle_phase_entered(
    view: &ConciergeFlowContext<'_>,
    settings: &ConciergeSettings,
    entered: &PhaseEntered,
) -> Vec<FlowStep> {
    let transition = &entered.transition;
    if entered.graph_key == concierge_phase_key()
        && transition.is_visit_start()
        && view.state.visit.received_handover.is_none()
    {
        return handovers::build_missing_handover(view, transition.to.as_str()).into_iter().collect();
    }
    let presents_plan = entered.graph_key == concierge_phase_key()
        && transition.to == *EXECUTOR_PHASE
        && transition.by == PhaseTransitionProposer::Role(CONCIERGE_ROLE.into())
        && transition.is_visit_start()
        && view.state.plan_research.is_some()
        && view.session.current_turn.is_some();
    match settings.synthesis {
        _ if !presents_plan => Vec::new(),
        PlanPresentationTiming::SameTurn => vec![call_concierge(view, settings)],
        PlanPresentationTiming::NextTurn => vec![end_turn_if_replied(view)],
    }
}

/// Chooses the stance and calls the concierge. If neither a setting nor the wording of the message says how the user wants
/// to be answered, the concierge is asked first, since the wording differs between languages.
fn choose_stance_and_reply(
    view: &ConciergeFlowContext<'_>,
    settings: &ConciergeSettings,
    result: &ExpertBatchResult,
) -> Vec<FlowStep> {
    let choice =
        stance::choose_stance(settings.stance, &unanswered_messages_text(view), None, batch_result_shape(view, result));
    let is_explicit = matches!(choice.reason, ReplyStanceReason::UserSetting | ReplyStanceReason::MessageCue(_));
    if !is_explicit && settings.signal_form(view.state.model_signal_form) == SignalForm::Structured {
        let request = questions::question_request(view, settings, ASK_STANCE_QUESTION, json!({}));
        return vec![FlowStep::Call(request)];
    }
    vec![record_stance(choice), call_concierge(view, settings)]
}

/// Records the stance that the user wants according to the concierge, or the one that suits the map, and calls the
/// concierge for its reply.
pub(super) fn reply_with_stance(
    view: &ConciergeFlowContext<'_>,
    settings: &ConciergeSettings,
    by_concierge: Option<ReplyStance>,
) -> Vec<FlowStep> {
    let shape = view.state.opening_result.as_ref().and_then(|result| batch_result_shape(view, result));
    let choice = stance::choose_stance(settings.stance, &unanswered_messages_text(view), by_concierge, shape);
    vec![record_stance(choice), call_concierge(view, settings)]
}

fn unanswered_messages_text(view: &ConciergeFlowContext<'_>) -> String {
    let texts = view.state.unanswered_messages.iter().map(|(_, text)| view.read_text(*text).to_string());
    texts.collect::<Vec<_>>().join("\n\n")
}

fn record_stance(choice: ReplyStanceChoice) -> FlowStep {
    let reason = match choice.reason {
        ReplyStanceReason::UserSetting => "it is set".to_owned(),
        ReplyStanceReason::MessageCue(cue) => format!("the message says \"{cue}\""),
        ReplyStanceReason::ConciergeAnswer => "the concierge says that the user wants it".to_owned(),
        ReplyStanceReason::ClaimMapShape(shape) => format!("it suits the shape {}", shape.name()),
        ReplyStanceReason::Fallback => "no other stance applies".to_owned(),
    };
    ConciergeFact::StanceChosen { stance: choice.stance, reason }.into_step()
}

/// Returns the shape of a mapped result.
pub(super) fn batch_result_shape(view: &ConciergeFlowContext<'_>, result: &ExpertBatchResult) -> Option<ClaimMapShape> {
    let ExpertBatchResult::Mapped { text, answers, .. } = result else { return None };
    let parsed = claim_map::parse_claim_map(&view.read_text(*text), *answers).ok()?;
    Some(analyse_claim_map(&parsed.map, *answers).shape)
}
