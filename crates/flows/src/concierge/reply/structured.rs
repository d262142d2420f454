//! Structured signals: after a visible reply the flow asks the concierge a private question, if its answer can matter, and
//! acts on the answer. An unusable answer is asked for once more.

use segue_core::flow::FlowStep;
use segue_core::handover::{HandoverDocument, HandoverProvenance};
use segue_core::ids::CallId;
use serde_json::{Value, json};

use super::ConciergeReplyHandler;
use super::batch_block::ExpertBatchBlock;
use crate::concierge::consent::ExpertBatchConsentAnswer;
use crate::concierge::facts::{ConciergeFact, ExpertBatchPurpose};
use crate::concierge::questions::{self, PlanProgressAnswer, UserNeedForHelpOrNewPlan};
use crate::concierge::spec::{
    ASK_CONSENT_QUESTION, ASK_EXECUTION_QUESTION, ASK_INTENT_QUESTION, ASK_PLAN_QUESTION, ASK_PROGRESS_QUESTION,
    ASK_STANCE_QUESTION, ASK_STEPS_QUESTION, EXPLORER_PHASE, STARTER_PHASE,
};
use crate::concierge::turn::{self, turns_in_phase};
use crate::limits::HANDOVER_TURN_MIN;

impl ConciergeReplyHandler<'_> {
    /// Asks the question that can matter after a visible reply, or ends the turn.
    pub(super) fn ask_question_after_reply(&self) -> Vec<FlowStep> {
        let mut steps = self.record_unrequested_blocks();
        if self.parsed.visible_text.trim().is_empty() {
            steps.push(self.end_turn_or_ask_again());
            return steps;
        }
        let ask = match self.phase_name() {
            STARTER_PHASE if turns_in_phase(self.view) < HANDOVER_TURN_MIN && !self.is_handover_due() => None,
            STARTER_PHASE => Some(ASK_INTENT_QUESTION),
            EXPLORER_PHASE => Some(ASK_PLAN_QUESTION),
            _ if self.view.state.active_plan.is_none() => Some(ASK_STEPS_QUESTION),
            _ => Some(ASK_PROGRESS_QUESTION),
        };
        steps.push(match ask {
            Some(ask) => self.ask_private_question(ask, json!({})),
            None => self.end_turn_or_ask_again(),
        });
        steps
    }

    /// Acts on the answer to a private question.
    pub(super) fn handle_question_answer(&self) -> Vec<FlowStep> {
        let answer = self.view.read_text(self.text);
        match self.call.ask.as_str() {
            ASK_STANCE_QUESTION => {
                turn::reply_with_stance(self.view, self.settings, questions::parse_stance_answer(&answer))
            }
            ASK_INTENT_QUESTION => self.handle_intent_answer(&answer),
            ASK_PLAN_QUESTION => match questions::parse_plan_answer(&answer) {
                Some(wants_plan) => self.handle_plan_question_answer(wants_plan),
                None => {
                    self.ask_again_or(&["kind"], || self.handle_plan_question_answer(ExpertBatchConsentAnswer::Unclear))
                }
            },
            ASK_EXECUTION_QUESTION => match questions::parse_execution_answer(&answer) {
                Some((document, prompt)) => self.handle_plan_block(&plan_batch_block(document, prompt)),
                None => self.handle_plan_block(&plan_batch_block(HandoverDocument::new(), None)),
            },
            ASK_STEPS_QUESTION => match questions::parse_steps_answer(&answer) {
                Some(steps) => {
                    let provenance = if self.is_second_answer() {
                        HandoverProvenance::Repaired
                    } else {
                        HandoverProvenance::Emitted
                    };
                    self.start_plan(steps, provenance)
                }
                None => self.ask_again_or(&["steps"], || self.start_plan_from_prose()),
            },
            ASK_CONSENT_QUESTION => match questions::parse_yes_no_answer(&answer) {
                Some(consent) => turn::settle_confirmation(self.view, self.settings, Some(consent)),
                None => self.ask_again_or(&["answer"], || turn::settle_confirmation(self.view, self.settings, None)),
            },
            _ => {
                let plan = self.view.state.active_plan.as_ref();
                match plan.and_then(|plan| questions::parse_progress_answer(&answer, plan)) {
                    Some(progress) => self.handle_progress_answer(&progress),
                    None => self.ask_again_or(&["done", "current", "needs"], || vec![self.end_turn_or_ask_again()]),
                }
            }
        }
    }

    /// Continues without the answer to a private question, because its call failed.
    pub(super) fn handle_question_failure(&self) -> Vec<FlowStep> {
        match self.call.ask.as_str() {
            ASK_STANCE_QUESTION => turn::reply_with_stance(self.view, self.settings, None),
            ASK_INTENT_QUESTION if self.is_handover_due() => {
                self.build_intent_handover_and_explore(HandoverDocument::new())
            }
            ASK_PLAN_QUESTION => self.handle_plan_question_answer(ExpertBatchConsentAnswer::Unclear),
            ASK_EXECUTION_QUESTION => self.request_plan_from_state(HandoverDocument::new(), None),
            ASK_STEPS_QUESTION => self.start_plan_from_prose(),
            ASK_CONSENT_QUESTION => turn::settle_confirmation(self.view, self.settings, None),
            _ => vec![self.end_turn_or_ask_again()],
        }
    }

    /// Asks a private question about the reply that the user has seen.
    pub(super) fn ask_private_question(&self, ask: &str, mut metadata: Value) -> FlowStep {
        let reply_call: CallId = self.source_calls().first().copied().unwrap_or(self.call.call);
        metadata["of"] = json!(reply_call);
        metadata["text"] = json!(super::original_reply_text(self.call).unwrap_or(self.text));
        FlowStep::Call(questions::question_request(self.view, self.settings, ask, metadata))
    }

    /// Asks the same question once more and names what the answer lacks.
    pub(super) fn ask_question_again(&self, missing: &[&str]) -> FlowStep {
        self.ask_private_question(self.call.ask.as_str(), json!({"missing": missing, "answer": self.text}))
    }

    fn ask_again_or(&self, missing: &[&str], otherwise: impl FnOnce() -> Vec<FlowStep>) -> Vec<FlowStep> {
        if self.is_second_answer() { otherwise() } else { vec![self.ask_question_again(missing)] }
    }

    fn is_second_answer(&self) -> bool {
        self.call.metadata.get("missing").is_some()
    }

    /// Records blocks that the model wrote although nobody asked for them. They are hidden and have no effect.
    fn record_unrequested_blocks(&self) -> Vec<FlowStep> {
        if self.parsed.blocks.is_empty() {
            return Vec::new();
        }
        let ignored = self.parsed.blocks.iter().map(|block| format!("block {} was not asked for", block.name));
        vec![ConciergeFact::ReplyComplaints { call: self.call.call, complaints: ignored.collect() }.into_step()]
    }

    fn handle_intent_answer(&self, answer: &str) -> Vec<FlowStep> {
        let answer = questions::parse_intent_answer(answer);
        let has_goal = answer.as_ref().is_some_and(|answer| answer.is_ready && answer.document.contains_key("goal"));
        if !has_goal && !self.is_handover_due() {
            return vec![self.end_turn_or_ask_again()];
        }
        self.hand_over_to_explorer(answer.map(|answer| answer.document))
    }

    /// Acts on whether the user wants a plan. If the explorer sees no request but the message is one by its wording, the
    /// user is asked.
    fn handle_plan_question_answer(&self, wants_plan: ExpertBatchConsentAnswer) -> Vec<FlowStep> {
        if wants_plan == ExpertBatchConsentAnswer::Yes {
            return vec![self.ask_private_question(ASK_EXECUTION_QUESTION, json!({}))];
        }
        let Some((fact, _)) = self.detect_plan_request() else { return vec![self.end_turn_or_ask_again()] };
        let mut steps = vec![fact.into_step()];
        steps.extend(self.offer_plan());
        steps
    }

    fn handle_progress_answer(&self, progress: &PlanProgressAnswer) -> Vec<FlowStep> {
        let Some(plan) = &self.view.state.active_plan else { return vec![self.end_turn_or_ask_again()] };
        let (mut plan, mut steps) = (plan.clone(), Vec::new());
        let call = Some(self.call.call);
        for step in progress.done.iter().copied() {
            let title = plan.steps[step].title.clone();
            steps.push(ConciergeFact::StepCompleted { step, title, call }.into_step());
            plan.complete_step(step);
        }
        if let Some(step) = progress.current.filter(|step| *step != plan.current) {
            let title = plan.steps[step].title.clone();
            steps.push(ConciergeFact::StepStarted { step, title, call }.into_step());
            plan.start_step(step);
        }
        if plan.is_complete() {
            steps.extend(self.complete_plan(&plan));
            return steps;
        }
        match progress.needs {
            UserNeedForHelpOrNewPlan::NewPlan => {
                steps.push(self.ask_private_question(ASK_EXECUTION_QUESTION, json!({})))
            }
            UserNeedForHelpOrNewPlan::Help if progress.blocker.is_some() => {
                let step = plan.current_step().map(|step| step.title.clone());
                steps.extend(self.handle_help_block(&ExpertBatchBlock {
                    kind: String::new(),
                    purpose: Some(ExpertBatchPurpose::StepHelp),
                    handover: HandoverDocument::new(),
                    step,
                    blocker: progress.blocker.clone(),
                    context: None,
                    prompt: None,
                }));
            }
            UserNeedForHelpOrNewPlan::Help | UserNeedForHelpOrNewPlan::Nothing => {
                steps.push(self.end_turn_or_ask_again())
            }
        }
        steps
    }
}

fn plan_batch_block(handover: HandoverDocument, prompt: Option<String>) -> ExpertBatchBlock {
    ExpertBatchBlock {
        kind: String::new(),
        purpose: Some(ExpertBatchPurpose::Plan),
        handover,
        step: None,
        blocker: None,
        context: None,
        prompt,
    }
}
