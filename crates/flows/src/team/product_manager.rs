//! The product manager talks to the user: it works out the spec, shows it, and answers questions while the team works.

use segue_core::event::{CallAnswered, CallOpened, CallRequest, TurnOutcome};
use segue_core::flow::{FlowStep, NewOrStoredReplyText};
use segue_core::signal::find_json_where;
use serde_json::Value;

use super::facts::TeamFact;
use super::graphs::{AWAIT_USER, PREVIEW, WORKING};
use super::planning::accept_spec;
use super::product_spec::ProductSpec;
use super::spec::{INTERVIEW_ASK, PRODUCT_MANAGER_AGENT, PRODUCT_MANAGER_ROLE};
use super::team_context::{TeamFlowContext, propose_product_manager};
use super::{dispatcher, express, prompts};

/// Starts a turn: the spec of the settings is used once; after that the product manager answers. A turn without a message
/// is for what the team itself has to say: the account of a spec that has ended, or a spec that a command changed.
pub(super) fn handle_turn_started(context: &TeamFlowContext<'_>) -> Vec<FlowStep> {
    let state = context.state();
    let has_message = context.view.session.current_turn.as_ref().is_some_and(|turn| !turn.messages.is_empty());
    if !has_message {
        let mut steps = match state.account_is_due {
            true => dispatcher::give_account(context),
            false => reply_as_product_manager(&prompts::render_spec_preview(&state.draft, "")),
        };
        steps.push(FlowStep::EndTurn(TurnOutcome::Done));
        return steps;
    }
    if let Some(spec) = context.settings.spec.clone().filter(|_| state.spec_number == 0 && !state.has_draft) {
        let mut steps = vec![propose_product_manager(WORKING, "the spec is given")];
        if context.settings.is_headless {
            // The turn lasts until the team has finished.
            steps.extend(accept_spec(context, spec));
            return steps;
        }
        steps.push(TeamFact::SpecDrafted { spec: spec.clone(), missing: Vec::new() }.into_step());
        steps.extend(reply_as_product_manager(&prompts::render_spec_preview(&spec, "")));
        steps.push(propose_product_manager(PREVIEW, "the spec is complete"));
        steps.push(FlowStep::EndTurn(TurnOutcome::Done));
        return steps;
    }
    let mut request = CallRequest::new(PRODUCT_MANAGER_ROLE, INTERVIEW_ASK);
    request.agent = Some(PRODUCT_MANAGER_AGENT.into());
    vec![propose_product_manager(WORKING, "the user wrote"), FlowStep::Call(request)]
}

/// Handles the product manager's answer: what it says, and what it understood of the spec.
pub(super) fn handle_product_manager_answer(
    context: &TeamFlowContext<'_>,
    _call: &CallOpened,
    answered: &CallAnswered,
) -> Vec<FlowStep> {
    let text = context.view.read_text(answered.text);
    let found = find_json_where(&text, |value| value.get("say").is_some() || value.get("spec").is_some()).value;
    let said = found.as_ref().and_then(|value| value.get("say")?.as_str());
    let said = said.map_or_else(|| text.trim().to_owned(), |said| said.trim().to_owned());
    let mut steps = Vec::new();
    if let Some(fix) = found.as_ref().and_then(|value| value.get("hot_fix")).filter(|fix| fix.is_object())
        && let Ok(fix) = express::read_hot_fix(fix)
    {
        steps.extend(express::queue_hot_fix(context, fix, PRODUCT_MANAGER_AGENT));
    }
    let newer = found.as_ref().and_then(|value| value.get("spec")).filter(|spec| spec.is_object());
    match newer {
        Some(newer) => steps.extend(update_spec_draft(context, newer, &said)),
        None => {
            steps.extend(reply_as_product_manager(&said));
            steps.push(propose_product_manager(AWAIT_USER, "the product manager answered"));
        }
    }
    steps.push(FlowStep::EndTurn(TurnOutcome::Done));
    steps
}

fn update_spec_draft(context: &TeamFlowContext<'_>, newer: &Value, said: &str) -> Vec<FlowStep> {
    let state = context.state();
    let mut spec = if state.has_draft {
        state.draft.clone()
    } else {
        state.spec.clone().filter(|_| state.spec_is_running).unwrap_or_default()
    };
    spec.merge_newer(ProductSpec::from_value(newer));
    let missing = spec.missing_fields();
    let mut steps = vec![TeamFact::SpecDrafted { spec: spec.clone(), missing: missing.clone() }.into_step()];
    match missing.first() {
        Some(field) => {
            steps.extend(reply_as_product_manager(&prompts::render_missing_field(said, *field)));
            steps.push(propose_product_manager(AWAIT_USER, "a field of the spec is missing"));
        }
        None => {
            steps.extend(reply_as_product_manager(&prompts::render_spec_preview(&spec, said)));
            steps.push(propose_product_manager(PREVIEW, "the spec is complete"));
        }
    }
    steps
}

pub(super) fn reply_as_product_manager(text: &str) -> Vec<FlowStep> {
    let role = Some(PRODUCT_MANAGER_ROLE.into());
    vec![FlowStep::Reply { text: NewOrStoredReplyText::New(text.to_owned()), role, call: None }]
}

/// Ends the turn after a failed call.
pub(super) fn fail_turn(why: &str) -> Vec<FlowStep> {
    vec![propose_product_manager(AWAIT_USER, why), FlowStep::EndTurn(TurnOutcome::Failed { reason: why.to_owned() })]
}
