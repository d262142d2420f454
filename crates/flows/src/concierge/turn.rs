//! How a turn begins and how it goes on once everyone has been heard.

use segue_core::event::{CallRequest, PhaseEntered, TurnResult};
use segue_core::flow::{FlowContext, FlowStep};
use segue_core::phase::guard::Proposer;
use segue_core::phase::state::PhaseProposal;

use super::analysis::{MapShape, analyse_claim_map};
use super::consent::{self, BatchConsent};
use super::facts::{BatchPurpose, BatchResult, Fact};
use super::messages::{self, record_refusal};
use super::settings::{BatchTrigger, PlanTiming, Settings};
use super::spec::{ASK_PRESENT, ASK_REPLY, CONCIERGE_ROLE, EXECUTOR_PHASE, STARTER_PHASE, concierge_phase_key};
use super::stance::{self, StanceReason};
use super::state::ConciergeState;
use super::{batch, claim_map, handovers};

type ConciergeView<'a> = FlowContext<'a, ConciergeState>;

/// A turn begins.
pub(super) fn handle_turn_started(view: &ConciergeView<'_>, settings: &Settings, is_retry: bool) -> Vec<FlowStep> {
    let state = view.state;
    let message = messages::latest_user_text(view);
    if let Some(begun) = &state.pending_confirmation {
        let read =
            if begun.purpose == BatchPurpose::Plan { consent::parse_plan_consent } else { consent::parse_consent };
        let (fact, told) = match read(&message) {
            BatchConsent::Yes => {
                let mut steps = vec![Fact::BatchConfirmed.into_step()];
                steps.extend(batch::start_batch(view, settings, begun.clone()));
                return steps;
            }
            BatchConsent::No => (Fact::BatchDeclined, "declined"),
            BatchConsent::Unclear if state.is_confirmation_unclear => (Fact::BatchDeclined, "no_yes"),
            BatchConsent::Unclear => (Fact::ConfirmationUnclear, "unsettled"),
        };
        let mut steps = vec![fact.into_step(), record_refusal(None, "BATCH", told, &[])];
        steps.extend(start_batch_or_reply(view, settings));
        return steps;
    }
    if let Some(left) = &state.batch {
        if is_retry || consent::is_retry_request(&message) {
            return batch::resume_batch(view, settings, left);
        }
        let why = "the user went on with something else".to_owned();
        let mut steps = vec![Fact::BatchAbandoned { batch: left.request.number, why }.into_step()];
        if left.request.task.is_some() {
            steps.push(record_refusal(None, "BATCH", "no_answer", &[]));
        }
        steps.extend(start_batch_or_reply(view, settings));
        return steps;
    }
    start_batch_or_reply(view, settings)
}

fn start_batch_or_reply(view: &ConciergeView<'_>, settings: &Settings) -> Vec<FlowStep> {
    let state = view.state;
    let phase = current_phase(view);
    let opens = phase == STARTER_PHASE && state.opening_result.is_none();
    // A plan that waits to be presented is what everyone was asked for last.
    let has_news = state.pending_findings.is_some() || (phase == EXECUTOR_PHASE && state.active_plan.is_none());
    let purpose = match settings.batch {
        _ if opens => Some(BatchPurpose::OpeningQuestion),
        BatchTrigger::EveryTurn if !has_news => Some(BatchPurpose::EveryTurn),
        BatchTrigger::EveryTurn | BatchTrigger::OnSignal => None,
    };
    match purpose {
        Some(purpose) => {
            let begun = batch::new_batch_request(view, settings, purpose, None, state.unanswered_messages.clone());
            batch::start_batch(view, settings, begun)
        }
        None => vec![call_concierge(view, settings)],
    }
}

/// The phase the concierge is in.
pub(super) fn current_phase(view: &ConciergeView<'_>) -> String {
    let stand = view.session.phase_graphs.get(&concierge_phase_key());
    stand.map_or_else(|| STARTER_PHASE.to_owned(), |stand| stand.state.current.to_string())
}

/// The concierge's turn to speak: a plan that is not there yet is presented, anything else is answered.
fn call_concierge(view: &ConciergeView<'_>, settings: &Settings) -> FlowStep {
    let presents = current_phase(view) == EXECUTOR_PHASE && view.state.active_plan.is_none();
    let wish = CallRequest::new(CONCIERGE_ROLE, if presents { ASK_PRESENT } else { ASK_REPLY });
    FlowStep::Call(CallRequest { model: settings.concierge.clone(), ..wish })
}

/// Everyone has been heard.
pub(super) fn handle_batch_result(
    view: &ConciergeView<'_>,
    settings: &Settings,
    purpose: BatchPurpose,
    result: &BatchResult,
) -> Vec<FlowStep> {
    match purpose {
        BatchPurpose::OpeningQuestion => vec![record_stance(view, settings, result), call_concierge(view, settings)],
        BatchPurpose::EveryTurn => vec![call_concierge(view, settings)],
        BatchPurpose::Plan => vec![propose_phase(EXECUTOR_PHASE)],
        BatchPurpose::StepHelp => vec![end_turn_if_replied(view)],
    }
}

/// The turn ends, unless the user was told nothing in it.
pub(super) fn end_turn_if_replied(view: &ConciergeView<'_>) -> FlowStep {
    if view.state.replied_in_turn {
        FlowStep::EndTurn(TurnResult::Done)
    } else {
        Fact::EmptyReply { call: None, notice: None }.into_step()
    }
}

/// The user was told nothing: whoever has the word now is asked, once.
pub(super) fn retry_empty_reply(view: &ConciergeView<'_>, settings: &Settings) -> Vec<FlowStep> {
    if view.state.empty_replies > 1 {
        let reason = "the answer held nothing to show; say \"retry\" to try again".to_owned();
        return vec![FlowStep::EndTurn(TurnResult::Failed { reason })];
    }
    vec![call_concierge(view, settings)]
}

/// The concierge asks to be let into a phase; the graph decides.
pub(super) fn propose_phase(phase: &str) -> FlowStep {
    FlowStep::ProposePhase {
        phase: concierge_phase_key(),
        proposal: PhaseProposal::new(phase, Proposer::Role(CONCIERGE_ROLE.into())),
    }
}

/// The graph let the concierge into a phase: if it is there to present a plan, it does. Who was let in by hand with nothing
/// handed over gets what the rules can say.
pub(super) fn handle_phase_entered(
    view: &ConciergeView<'_>,
    settings: &Settings,
    entered: &PhaseEntered,
) -> Vec<FlowStep> {
    let transition = &entered.transition;
    if entered.graph_key == concierge_phase_key()
        && transition.begins_visit()
        && view.state.visit.received_handover.is_none()
    {
        return handovers::build_missing_handover(view, transition.to.as_str()).into_iter().collect();
    }
    let presents = entered.graph_key == concierge_phase_key()
        && transition.to == *EXECUTOR_PHASE
        && transition.by == Proposer::Role(CONCIERGE_ROLE.into())
        && transition.begins_visit()
        && view.state.plan_research.is_some()
        && view.session.current_turn.is_some();
    match settings.synthesis {
        _ if !presents => Vec::new(),
        PlanTiming::SameTurn => vec![call_concierge(view, settings)],
        PlanTiming::NextTurn => vec![end_turn_if_replied(view)],
    }
}

fn record_stance(view: &ConciergeView<'_>, settings: &Settings, result: &BatchResult) -> FlowStep {
    let said: Vec<String> =
        view.state.unanswered_messages.iter().map(|(_, text)| view.read_text(*text).to_string()).collect();
    let choice = stance::choose_stance(settings.stance, &said.join("\n\n"), batch_result_shape(view, result));
    let because = match choice.reason {
        StanceReason::UserSetting => "it is set".to_owned(),
        StanceReason::MessageCue(cue) => format!("the message says \"{cue}\""),
        StanceReason::MapShape(shape) => format!("it suits the shape {}", shape.name()),
        StanceReason::Fallback => "nothing speaks for another".to_owned(),
    };
    Fact::StanceChosen { stance: choice.stance, reason: because }.into_step()
}

/// The shape of what is known, where there is a map.
pub(super) fn batch_result_shape(view: &ConciergeView<'_>, result: &BatchResult) -> Option<MapShape> {
    let BatchResult::Mapped { text, answers, .. } = result else { return None };
    let reading = claim_map::parse_claim_map(&view.read_text(*text), *answers).ok()?;
    Some(analyse_claim_map(&reading.map, *answers).shape)
}
