//! Interprets the executor's replies: starts the plan that it presents, and follows the progress of its steps.

use segue_core::flow::FlowStep;
use segue_core::handover::HandoverProvenance;
use serde_json::json;

use super::ConciergeReplyHandler;
use crate::concierge::facts::ConciergeFact;
use crate::concierge::handovers;
use crate::concierge::messages::visit_handover;
use crate::concierge::plan::{
    ConciergePlan, ConciergePlanStep, ConciergePlanStepLookupError, parse_steps_block, parse_steps_from_prose,
};
use crate::concierge::spec::{
    ASK_REPAIR_STEPS, BATCH_BLOCK, EXPLORER_PHASE, HANDOVER_BLOCK, OUTCOME_HANDOVER, STEP_DONE_BLOCK, STEP_START_BLOCK,
    STEPS_BLOCK,
};
use crate::concierge::turn::propose_phase;

/// A change of a step that a block requests.
enum ConciergePlanStepChange {
    Start,
    Complete,
}

impl ConciergeReplyHandler<'_> {
    pub(super) fn handle_executor_reply(&self) -> Vec<FlowStep> {
        let mut steps = self.refuse_misplaced_blocks(&[HANDOVER_BLOCK]);
        let Some(plan) = &self.view.state.active_plan else {
            steps.extend(self.handle_presented_plan());
            return steps;
        };
        steps.extend(self.blocks_named(STEPS_BLOCK).map(|_| self.refuse_block(STEPS_BLOCK, "steps_again", &[])));
        let mut plan = plan.clone();
        steps.extend(self.apply_step_blocks(&mut plan));
        if plan.is_complete() {
            steps.extend(self.complete_plan(&plan));
            return steps;
        }
        match self.last_batch_block() {
            Some(request) => steps.extend(self.handle_batch_block(&request)),
            None => steps.extend(self.handle_missing_batch_block()),
        }
        steps
    }

    /// Applies the STEP_START and STEP_DONE blocks in the order of the reply.
    fn apply_step_blocks(&self, plan: &mut ConciergePlan) -> Vec<FlowStep> {
        let mut steps = Vec::new();
        for block in &self.parsed.blocks {
            let step_name = block.fields.text("step").unwrap_or_else(|| block.raw.trim());
            let current = plan.current_step().map(|step| step.title.clone()).unwrap_or_default();
            let change = match block.name.as_str() {
                STEP_START_BLOCK => plan.find_open_step(step_name).map(|step| (step, ConciergePlanStepChange::Start)),
                STEP_DONE_BLOCK => {
                    plan.confirm_current_step(step_name).map(|step| (step, ConciergePlanStepChange::Complete))
                }
                _ => continue,
            };
            match change {
                Ok((step, ConciergePlanStepChange::Start)) if step == plan.current => {}
                Ok((step, ConciergePlanStepChange::Start)) => {
                    let title = plan.steps[step].title.clone();
                    steps.push(ConciergeFact::StepStarted { step, title, call: Some(self.call.call) }.into_step());
                    plan.start_step(step);
                }
                Ok((step, ConciergePlanStepChange::Complete)) => {
                    steps.push(
                        ConciergeFact::StepCompleted { step, title: current, call: Some(self.call.call) }.into_step(),
                    );
                    plan.complete_step(step);
                }
                Err(why) => {
                    let kind = if block.name == STEP_START_BLOCK { "not_begun" } else { "not_current" };
                    let known = match why {
                        ConciergePlanStepLookupError::UnknownStep => "",
                        ConciergePlanStepLookupError::NotCurrent => "later",
                        ConciergePlanStepLookupError::AlreadyComplete => "complete",
                    };
                    let arguments = [("given", step_name), ("current", current.as_str()), ("known", known)];
                    steps.push(self.refuse_block(&block.name, kind, &arguments));
                }
            }
        }
        steps
    }

    /// Ends a completed plan: makes the outcome handover and returns to the explorer.
    pub(super) fn complete_plan(&self, plan: &ConciergePlan) -> Vec<FlowStep> {
        let mut steps: Vec<FlowStep> =
            self.blocks_named(BATCH_BLOCK).map(|_| self.refuse_block(BATCH_BLOCK, "plan_closed", &[])).collect();
        let reply_text = self.parse_original_reply().unwrap_or_else(|| self.parsed.clone()).visible_text;
        let document = handovers::build_outcome_handover(visit_handover(self.view), plan, reply_text.trim());
        let calls = self.source_calls();
        steps.push(ConciergeFact::PlanCompleted { goal: plan.goal.clone(), steps: plan.steps.len() }.into_step());
        steps.push(FlowStep::MakeHandover {
            kind: OUTCOME_HANDOVER.into(),
            document,
            calls,
            provenance: HandoverProvenance::Built,
        });
        steps.push(propose_phase(EXPLORER_PHASE));
        steps.push(self.end_turn_after_handover());
        steps
    }

    /// Starts a presented plan, or requests its STEPS block.
    fn handle_presented_plan(&self) -> Vec<FlowStep> {
        let mut steps: Vec<FlowStep> = Vec::new();
        for name in [BATCH_BLOCK, STEP_START_BLOCK, STEP_DONE_BLOCK] {
            steps.extend(self.blocks_named(name).map(|_| self.refuse_block(name, "plan_first", &[])));
        }
        match self.parse_presented_steps() {
            Ok(plan_steps) => steps.extend(self.start_plan(plan_steps, HandoverProvenance::Emitted)),
            Err(why) => steps.push(self.request_repair(ASK_REPAIR_STEPS, json!({"why": why}))),
        }
        steps
    }

    fn parse_presented_steps(&self) -> Result<Vec<ConciergePlanStep>, Option<String>> {
        let mut why = None;
        for block in self.blocks_named(STEPS_BLOCK).rev() {
            match parse_steps_block(&block.raw) {
                Ok(steps) => return Ok(steps),
                Err(error) => why = Some(error.to_string()),
            }
        }
        Err(why)
    }

    /// Handles the reply to a request for a missing or unreadable STEPS block. If it is unreadable again, the steps are
    /// parsed from the plan's text.
    pub(super) fn handle_repaired_steps(&self) -> Vec<FlowStep> {
        if let Ok(steps) = self.parse_presented_steps() {
            return self.start_plan(steps, HandoverProvenance::Repaired);
        }
        self.start_plan_from_prose()
    }

    /// Starts the plan with steps that are parsed from its text. A plan without any is one step: its goal.
    pub(super) fn start_plan_from_prose(&self) -> Vec<FlowStep> {
        let plan_text = self.parse_original_reply().map(|parsed| parsed.visible_text);
        let mut steps = parse_steps_from_prose(&plan_text.unwrap_or_default());
        if steps.is_empty() {
            steps.push(ConciergePlanStep { title: self.handover_goal(), ..ConciergePlanStep::default() });
        }
        self.start_plan(steps, HandoverProvenance::Built)
    }

    fn handover_goal(&self) -> String {
        visit_handover(self.view).and_then(|handover| handover.text_field("goal")).unwrap_or_default().to_owned()
    }

    pub(super) fn start_plan(&self, steps: Vec<ConciergePlanStep>, provenance: HandoverProvenance) -> Vec<FlowStep> {
        let call = self.source_calls().first().copied().unwrap_or(self.call.call);
        vec![
            ConciergeFact::PlanStarted { goal: self.handover_goal(), steps, provenance, call }.into_step(),
            self.end_turn_or_ask_again(),
        ]
    }
}
