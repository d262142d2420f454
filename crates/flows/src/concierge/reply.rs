//! What the concierge said: what of it the user hears, which signals it holds, and what follows from them. A signal that
//! does not belong to the phase is refused, recorded and told; its block is hidden all the same.

use segue_core::body::TextRef;
use segue_core::event::{CallAnswered, CallOpened, CallRequest, TurnResult};
use segue_core::flow::{FlowContext, FlowStep, ReplyText};
use segue_core::handover::{HandoverDecision, HandoverDocument, HandoverProvenance, decide_handover};
use segue_core::ids::CallId;
use segue_core::signal::{self, BlockComplaint, ParsedReply, SignalBlock};
use serde_json::json;

use super::ConciergeFlow;
use super::facts::{BatchPurpose, ExpertTask, Fact};
use super::leaks;
use super::messages::{record_refusal, render_confirmation_question, render_notice, visit_handover};
use super::plan::{ConciergePlan, PlanStep, StepLookupError, parse_steps_block, parse_steps_from_prose};
use super::settings::Settings;
use super::spec::{
    ASK_REPAIR_BATCH, ASK_REPAIR_INTENT, ASK_REPAIR_STEPS, BATCH_BLOCK, CONCIERGE_ROLE, EXECUTION_FIELDS,
    EXECUTION_HANDOVER, EXECUTOR_PHASE, EXPLORER_PHASE, HANDOVER_BLOCK, INTENT_FIELDS, INTENT_HANDOVER,
    OUTCOME_HANDOVER, STARTER_PHASE, STEP_DONE_BLOCK, STEP_START_BLOCK, STEPS_BLOCK, concierge_phase_key,
};
use super::state::ConciergeState;
use super::turn::propose_phase;
use super::{batch, handovers, plan_request};
use crate::template::fill_template;

type ConciergeView<'a> = FlowContext<'a, ConciergeState>;

/// The starter's turn from which on it can hand over: the first in which there is a reply to read.
const HANDOVER_TURN_MIN: u32 = 2;

/// What a block says of a step.
enum StepChange {
    Start,
    Complete,
}

/// An answer of the concierge's and what is at hand to judge it.
struct ConciergeReply<'a> {
    flow: &'a ConciergeFlow,
    view: &'a ConciergeView<'a>,
    settings: &'a Settings,
    call: &'a CallOpened,
    text: TextRef,
    reading: ParsedReply,
}

/// The concierge answered.
pub(super) fn handle_concierge_reply(
    flow: &ConciergeFlow,
    view: &ConciergeView<'_>,
    settings: &Settings,
    call: &CallOpened,
    answered: &CallAnswered,
) -> Vec<FlowStep> {
    let reading = parse_reply_blocks(flow, view, call, answered.text);
    let answer = ConciergeReply { flow, view, settings, call, text: answered.text, reading };
    let mut steps = answer.record_complaints();
    match call.ask.as_str() {
        ASK_REPAIR_INTENT => steps.extend(answer.hand_over_to_explorer()),
        ASK_REPAIR_BATCH => steps.extend(answer.handle_repaired_batch_block()),
        ASK_REPAIR_STEPS => steps.extend(answer.handle_repaired_steps()),
        _ => {
            steps.extend(answer.send_reply());
            steps.extend(match answer.phase_name() {
                STARTER_PHASE => answer.handle_starter_reply(),
                EXPLORER_PHASE => answer.handle_explorer_reply(),
                _ => answer.handle_executor_reply(),
            });
        }
    }
    steps
}

/// The concierge did not answer. What was asked of it privately is then done without; anything else fails the turn.
pub(super) fn handle_concierge_failure(
    flow: &ConciergeFlow,
    view: &ConciergeView<'_>,
    settings: &Settings,
    call: &CallOpened,
    why: String,
) -> Vec<FlowStep> {
    let text =
        original_reply_text(call).unwrap_or(TextRef { body: segue_core::body::BodyId::hash_text(""), tokens: 0 });
    let answer = ConciergeReply { flow, view, settings, call, text, reading: ParsedReply::default() };
    match call.ask.as_str() {
        ASK_REPAIR_INTENT => answer.hand_over_to_explorer(),
        ASK_REPAIR_BATCH => answer.handle_repaired_batch_block(),
        ASK_REPAIR_STEPS => answer.handle_repaired_steps(),
        _ => vec![FlowStep::EndTurn(TurnResult::Failed { reason: format!("{why}; say \"retry\" to try again") })],
    }
}

/// What an answer holds. What it quotes from the user's words is the user's.
fn parse_reply_blocks(flow: &ConciergeFlow, view: &ConciergeView<'_>, call: &CallOpened, text: TextRef) -> ParsedReply {
    let words: Vec<_> = call.receipt.user_words().map(|words| view.read_text(words)).collect();
    signal::parse_reply_ignoring_quotes(&view.read_text(text), &flow.blocks, &words)
}

/// The answer that a private ask is about.
fn original_reply_text(call: &CallOpened) -> Option<TextRef> {
    serde_json::from_value(call.metadata.get("text")?.clone()).ok()
}

impl ConciergeReply<'_> {
    /// The turn ends, unless the user was told nothing in it: then the concierge is asked once more.
    fn end_turn_or_ask_again(&self) -> FlowStep {
        self.end_turn_or_record_empty(Some(render_notice("", "silent", &[])))
    }

    /// The same, where the next to be asked is not the one who said nothing.
    fn end_turn_after_handover(&self) -> FlowStep {
        self.end_turn_or_record_empty(None)
    }

    fn end_turn_or_record_empty(&self, notice: Option<String>) -> FlowStep {
        let is_private = matches!(self.call.ask.as_str(), ASK_REPAIR_INTENT | ASK_REPAIR_BATCH | ASK_REPAIR_STEPS);
        let is_heard =
            (!is_private && !self.reading.visible_text.trim().is_empty()) || self.view.state.replied_in_phase;
        if is_heard {
            FlowStep::EndTurn(TurnResult::Done)
        } else {
            Fact::EmptyReply { call: Some(self.call.call), notice }.into_step()
        }
    }

    fn phase_name(&self) -> &str {
        self.call.phase.as_ref().map_or(STARTER_PHASE, |phase| phase.as_str())
    }

    fn is_block_named(&self, block: &SignalBlock, name: &str) -> bool {
        block.name == name
    }

    fn blocks_named<'s>(&'s self, name: &'s str) -> impl DoubleEndedIterator<Item = &'s SignalBlock> {
        self.reading.blocks.iter().filter(move |block| self.is_block_named(block, name))
    }

    fn refuse_block(&self, block: &str, reason: &str, arguments: &[(&str, &str)]) -> FlowStep {
        record_refusal(Some(self.call.call), block, reason, arguments)
    }

    /// What was not as it should be.
    fn record_complaints(&self) -> Vec<FlowStep> {
        let mut complaints: Vec<String> = self.reading.complaints.iter().map(ToString::to_string).collect();
        for name in [HANDOVER_BLOCK, BATCH_BLOCK, STEPS_BLOCK] {
            if self.blocks_named(name).count() > 1 {
                complaints.push(format!("block {name} came more than once; the last good one stands"));
            }
        }
        if complaints.is_empty() {
            return Vec::new();
        }
        vec![Fact::ReplyComplaints { call: self.call.call, complaints }.into_step()]
    }

    /// What the user hears.
    fn send_reply(&self) -> Vec<FlowStep> {
        let visible = self.reading.visible_text.trim_end();
        if visible.trim().is_empty() {
            return Vec::new();
        }
        let is_whole = *visible == *self.view.read_text(self.text);
        let text = if is_whole { ReplyText::Stored(self.text) } else { ReplyText::New(visible.to_owned()) };
        let mut steps = vec![FlowStep::Reply { text, role: Some(CONCIERGE_ROLE.into()), call: Some(self.call.call) }];
        let terms: Vec<String> =
            leaks::find_leaked_terms(visible).into_iter().map(|leak| leak.term.to_owned()).collect();
        if !terms.is_empty() {
            steps.push(Fact::InternalTermsLeaked { call: self.call.call, terms }.into_step());
        }
        steps
    }

    /// Refuses the blocks that do not belong here.
    fn refuse_misplaced_blocks(&self, names: &[&str]) -> Vec<FlowStep> {
        let misplaced = self.reading.blocks.iter().filter(|block| names.contains(&block.name.as_str()));
        misplaced.map(|block| self.refuse_block(&block.name, "wrong_phase", &[])).collect()
    }

    fn handle_starter_reply(&self) -> Vec<FlowStep> {
        let mut steps = self.refuse_misplaced_blocks(&[BATCH_BLOCK, STEPS_BLOCK, STEP_START_BLOCK, STEP_DONE_BLOCK]);
        let turns =
            self.view.session.phase_graphs.get(&concierge_phase_key()).map_or(0, |stand| stand.state.turns_started);
        let is_due = turns >= self.settings.handover_by_turn;
        if turns < HANDOVER_TURN_MIN && !is_due {
            // There is no reply to read yet.
            steps
                .extend(self.blocks_named(HANDOVER_BLOCK).map(|_| self.refuse_block(HANDOVER_BLOCK, "too_early", &[])));
            steps.push(self.end_turn_or_ask_again());
            return steps;
        }
        let is_good = self.parse_intent_document().is_some_and(|document| document.contains_key("goal"));
        if is_good || is_due {
            steps.extend(self.hand_over_to_explorer());
        } else {
            steps.push(self.end_turn_or_ask_again());
        }
        steps
    }

    /// The last handover that says what they are after, or the last one at all.
    fn parse_intent_document(&self) -> Option<HandoverDocument> {
        let documents: Vec<HandoverDocument> = self
            .blocks_named(HANDOVER_BLOCK)
            .map(|block| handovers::parse_document(&block.fields, &INTENT_FIELDS))
            .collect();
        let good = documents.iter().rev().find(|document| document.contains_key("goal"));
        good.or_else(|| documents.last()).cloned()
    }

    fn hand_over_to_explorer(&self) -> Vec<FlowStep> {
        let (document, how) = match decide_handover(
            &self.flow.spec.handovers[INTENT_HANDOVER],
            self.parse_intent_document(),
            self.handover_request_count(INTENT_HANDOVER),
        ) {
            HandoverDecision::Accept(checked, how) => {
                (handovers::fill_exchange_fields(self.view, checked.document), how)
            }
            HandoverDecision::Synthesize(checked) => {
                (handovers::build_intent_handover(self.view, checked.document), HandoverProvenance::Built)
            }
            HandoverDecision::RequestRepair { missing_fields: missing } => {
                let wish = self.request_repair(ASK_REPAIR_INTENT, json!({"missing": missing}));
                return vec![FlowStep::RequestHandover(INTENT_HANDOVER.into()), wish];
            }
        };
        let calls = self.source_calls();
        vec![
            FlowStep::MakeHandover { kind: INTENT_HANDOVER.into(), document, calls, provenance: how },
            propose_phase(EXPLORER_PHASE),
            self.end_turn_after_handover(),
        ]
    }

    /// The calls a document comes from: this one, and the one it was asked again for.
    fn source_calls(&self) -> Vec<CallId> {
        let first = self.call.metadata.get("of").and_then(|call| serde_json::from_value(call.clone()).ok());
        first.into_iter().chain([self.call.call]).collect()
    }

    fn request_repair(&self, ask: &str, mut note: serde_json::Value) -> FlowStep {
        note["of"] = json!(self.call.call);
        note["text"] = json!(self.text);
        FlowStep::Call(CallRequest {
            model: self.settings.concierge.clone(),
            ..CallRequest::new(CONCIERGE_ROLE, ask).with_metadata(note)
        })
    }

    fn handle_explorer_reply(&self) -> Vec<FlowStep> {
        let mut steps = self.refuse_misplaced_blocks(&[HANDOVER_BLOCK, STEPS_BLOCK, STEP_START_BLOCK, STEP_DONE_BLOCK]);
        let request = self.last_batch_block();
        if let Some((wish, times)) =
            self.detect_plan_request().filter(|_| !request.as_ref().is_some_and(BatchBlock::is_plan_request))
        {
            if times > self.view.state.unmet_plan_requests.count {
                steps.push(wish.into_step());
            }
            if times >= self.settings.plan_by_request {
                steps.extend(self.demand_plan_request());
                return steps;
            }
        }
        match request {
            Some(request) => steps.extend(self.handle_batch_block(&request)),
            None => steps.extend(self.handle_missing_batch_block()),
        }
        steps
    }

    /// The user's plain request for a plan that this answers, and how many there were by then. A message that is answered twice
    /// asks once.
    fn detect_plan_request(&self) -> Option<(Fact, u32)> {
        let state = self.view.state;
        let said = state.last_answered_messages.iter().rev().filter(|_| self.phase_name() == EXPLORER_PHASE);
        let mut wishes = said.filter_map(|(message, text)| {
            Some((*message, plan_request::find_plan_request(&self.view.read_text(*text))?))
        });
        let (message, wish) = wishes.next()?;
        let is_new = state.unmet_plan_requests.last_message != Some(message);
        let times = state.unmet_plan_requests.count + u32::from(is_new);
        Some((Fact::PlanRequested { message, phrase: wish.phrase, count: times }, times))
    }

    /// The user has asked for a plan often enough: the explorer is asked for its request, once, and done without if that fails.
    fn demand_plan_request(&self) -> Vec<FlowStep> {
        match decide_handover(
            &self.flow.spec.handovers[EXECUTION_HANDOVER],
            None,
            self.handover_request_count(EXECUTION_HANDOVER),
        ) {
            HandoverDecision::RequestRepair { .. } => {
                let note = json!({"missing": [], "wanted": !self.is_batch_block_truncated()});
                vec![FlowStep::RequestHandover(EXECUTION_HANDOVER.into()), self.request_repair(ASK_REPAIR_BATCH, note)]
            }
            HandoverDecision::Accept(..) | HandoverDecision::Synthesize(_) => {
                self.request_plan_from_state(HandoverDocument::new(), None)
            }
        }
    }

    fn handover_request_count(&self, kind: &str) -> u32 {
        self.view.session.handover_repairs.get(kind).copied().unwrap_or_default()
    }

    fn is_batch_block_truncated(&self) -> bool {
        let is_cut = |complaint: &BlockComplaint| matches!(complaint, BlockComplaint::UnclosedBlock { block } if block == BATCH_BLOCK);
        self.reading.complaints.iter().any(is_cut)
    }

    /// No request was made, or one that was cut off: then it is asked for again.
    fn handle_missing_batch_block(&self) -> Vec<FlowStep> {
        if self.is_batch_block_truncated() {
            return vec![self.request_repair(ASK_REPAIR_BATCH, json!({"missing": []}))];
        }
        vec![self.end_turn_or_ask_again()]
    }

    /// The last request of a known type, or the last one at all.
    fn last_batch_block(&self) -> Option<BatchBlock> {
        let requests: Vec<BatchBlock> = self.blocks_named(BATCH_BLOCK).map(BatchBlock::from_block).collect();
        let known = requests.iter().rposition(|request| request.purpose.is_some());
        let place = known.or_else(|| requests.len().checked_sub(1))?;
        requests.into_iter().nth(place)
    }

    fn handle_batch_block(&self, block: &BatchBlock) -> Vec<FlowStep> {
        match block.purpose {
            Some(BatchPurpose::Plan) => self.handle_plan_block(block),
            Some(_) if self.phase_name() == EXECUTOR_PHASE => self.handle_help_block(block),
            Some(_) => vec![self.refuse_block(BATCH_BLOCK, "help_without_plan", &[]), self.end_turn_or_ask_again()],
            None => vec![
                self.refuse_block(BATCH_BLOCK, "unknown_type", &[("given", &block.kind)]),
                self.end_turn_or_ask_again(),
            ],
        }
    }

    fn handle_plan_block(&self, block: &BatchBlock) -> Vec<FlowStep> {
        let found = Some(block.handover.clone());
        match decide_handover(
            &self.flow.spec.handovers[EXECUTION_HANDOVER],
            found,
            self.handover_request_count(EXECUTION_HANDOVER),
        ) {
            HandoverDecision::Accept(checked, how) => {
                self.start_plan_batch(checked.document, how, block.prompt.clone())
            }
            HandoverDecision::Synthesize(checked) => {
                self.request_plan_from_state(checked.document, block.prompt.clone())
            }
            HandoverDecision::RequestRepair { missing_fields: missing } => {
                let wish = self.request_repair(ASK_REPAIR_BATCH, json!({"missing": missing}));
                vec![FlowStep::RequestHandover(EXECUTION_HANDOVER.into()), wish]
            }
        }
    }

    /// The request for a plan from what the rules know; what was understood of the model's own stays.
    fn request_plan_from_state(&self, parsed: HandoverDocument, prompt: Option<String>) -> Vec<FlowStep> {
        let document = handovers::build_execution_handover(self.view, parsed, &self.view.state.visit.answered_messages);
        self.start_plan_batch(document, HandoverProvenance::Built, prompt)
    }

    fn start_plan_batch(
        &self,
        document: HandoverDocument,
        provenance: HandoverProvenance,
        prompt: Option<String>,
    ) -> Vec<FlowStep> {
        let goal = match document.get("goal") {
            Some(segue_core::handover::HandoverFieldValue::Text(goal)) => goal.clone(),
            _ => String::new(),
        };
        let prompt = prompt.unwrap_or_else(|| {
            let arguments =
                json!({"help": false, "goal": goal, "context": handovers::render_document_context(&document)});
            fill_template(include_str!("../../prompts/concierge/task_built.md"), &arguments)
        });
        let task = ExpertTask { goal: Some(goal), prompt, call: Some(self.call.call), ..ExpertTask::default() };
        let mut steps = vec![FlowStep::MakeHandover {
            kind: EXECUTION_HANDOVER.into(),
            document,
            calls: self.source_calls(),
            provenance,
        }];
        steps.extend(self.start_or_confirm_batch(BatchPurpose::Plan, task));
        steps
    }

    fn handle_help_block(&self, block: &BatchBlock) -> Vec<FlowStep> {
        let BatchBlock { step, blocker, context, prompt, .. } = block.clone();
        if prompt.is_none() && blocker.is_none() && step.is_none() {
            return vec![self.refuse_block(BATCH_BLOCK, "empty_help", &[]), self.end_turn_or_ask_again()];
        }
        let prompt = prompt.unwrap_or_else(|| {
            let arguments = json!({"help": true, "goal": null, "context": null});
            fill_template(include_str!("../../prompts/concierge/task_built.md"), &arguments)
        });
        let task = ExpertTask { step, blocker, context, goal: None, prompt, call: Some(self.call.call) };
        self.start_or_confirm_batch(BatchPurpose::StepHelp, task)
    }

    fn start_or_confirm_batch(&self, purpose: BatchPurpose, task: ExpertTask) -> Vec<FlowStep> {
        let messages = self.view.session.current_turn.iter().flat_map(|turn| &turn.messages);
        let asked = messages.map(|waiting| (waiting.message, waiting.text)).collect();
        let begun = batch::new_batch_request(self.view, self.settings, purpose, Some(task), asked);
        if self.settings.confirm_batches {
            let question =
                FlowStep::Reply { text: ReplyText::New(render_confirmation_question(&begun)), role: None, call: None };
            return vec![
                Fact::ConfirmationRequested { request: begun }.into_step(),
                question,
                FlowStep::EndTurn(TurnResult::Done),
            ];
        }
        batch::start_batch(self.view, self.settings, begun)
    }

    /// The answer that this private one is about, read again.
    fn parse_original_reply(&self) -> Option<ParsedReply> {
        let messages = self.view.session.current_turn.iter().flat_map(|turn| &turn.messages);
        let words: Vec<_> = messages.map(|waiting| self.view.read_text(waiting.text)).collect();
        let text = original_reply_text(self.call)?;
        Some(signal::parse_reply_ignoring_quotes(&self.view.read_text(text), &self.flow.blocks, &words))
    }

    /// The request was asked for again.
    fn handle_repaired_batch_block(&self) -> Vec<FlowStep> {
        let first = self.parse_original_reply().and_then(|reading| {
            reading.blocks.iter().rev().find(|block| block.name == BATCH_BLOCK).map(BatchBlock::from_block)
        });
        let is_wished = self.detect_plan_request().is_some();
        match (self.last_batch_block(), first) {
            (Some(request), _) if request.is_plan_request() || (request.purpose.is_some() && !is_wished) => {
                self.handle_batch_block(&request)
            }
            // What was understood the first time has to do.
            (_, Some(first)) if first.is_plan_request() => self.handle_plan_block(&first),
            // Both want a plan, and only the words for it do not come.
            _ if is_wished => self.request_plan_from_state(HandoverDocument::new(), None),
            _ => vec![self.refuse_block(BATCH_BLOCK, "unclosed", &[]), self.end_turn_or_ask_again()],
        }
    }

    fn handle_executor_reply(&self) -> Vec<FlowStep> {
        let mut steps = self.refuse_misplaced_blocks(&[HANDOVER_BLOCK]);
        let Some(workflow) = &self.view.state.active_plan else {
            steps.extend(self.handle_presented_plan());
            return steps;
        };
        steps.extend(self.blocks_named(STEPS_BLOCK).map(|_| self.refuse_block(STEPS_BLOCK, "steps_again", &[])));
        let mut workflow = workflow.clone();
        steps.extend(self.apply_step_blocks(&mut workflow));
        if workflow.is_complete() {
            steps.extend(self.complete_plan(&workflow));
            return steps;
        }
        match self.last_batch_block() {
            Some(request) => steps.extend(self.handle_batch_block(&request)),
            None => steps.extend(self.handle_missing_batch_block()),
        }
        steps
    }

    /// What the blocks say of the plan's steps, in the order they came.
    fn apply_step_blocks(&self, plan: &mut ConciergePlan) -> Vec<FlowStep> {
        let mut steps = Vec::new();
        for block in &self.reading.blocks {
            let named = block.fields.text("step").unwrap_or_else(|| block.raw.trim());
            let current = plan.current_step().map(|step| step.title.clone()).unwrap_or_default();
            let moved = match block.name.as_str() {
                STEP_START_BLOCK => plan.find_open_step(named).map(|step| (step, StepChange::Start)),
                STEP_DONE_BLOCK => plan.confirm_current_step(named).map(|step| (step, StepChange::Complete)),
                _ => continue,
            };
            match moved {
                Ok((step, StepChange::Start)) if step == plan.current => {}
                Ok((step, StepChange::Start)) => {
                    let title = plan.steps[step].title.clone();
                    steps.push(Fact::StepStarted { step, title, call: self.call.call }.into_step());
                    plan.start_step(step);
                }
                Ok((step, StepChange::Complete)) => {
                    steps.push(Fact::StepCompleted { step, title: current, call: self.call.call }.into_step());
                    plan.complete_step(step);
                }
                Err(why) => {
                    let kind = if block.name == STEP_START_BLOCK { "not_begun" } else { "not_current" };
                    let known = match why {
                        StepLookupError::UnknownStep => "",
                        StepLookupError::NotCurrent => "later",
                        StepLookupError::AlreadyComplete => "complete",
                    };
                    let more = [("given", named), ("current", current.as_str()), ("known", known)];
                    steps.push(self.refuse_block(&block.name, kind, &more));
                }
            }
        }
        steps
    }

    /// The last step is done: what came of it crosses to the next explorer, and nothing else.
    fn complete_plan(&self, plan: &ConciergePlan) -> Vec<FlowStep> {
        let mut steps: Vec<FlowStep> =
            self.blocks_named(BATCH_BLOCK).map(|_| self.refuse_block(BATCH_BLOCK, "plan_closed", &[])).collect();
        let document =
            handovers::build_outcome_handover(visit_handover(self.view), plan, self.reading.visible_text.trim());
        let calls = vec![self.call.call];
        steps.push(Fact::PlanCompleted { goal: plan.goal.clone(), steps: plan.steps.len() }.into_step());
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

    /// A plan was presented.
    fn handle_presented_plan(&self) -> Vec<FlowStep> {
        let mut steps: Vec<FlowStep> = Vec::new();
        for name in [BATCH_BLOCK, STEP_START_BLOCK, STEP_DONE_BLOCK] {
            steps.extend(self.blocks_named(name).map(|_| self.refuse_block(name, "plan_first", &[])));
        }
        match self.parse_presented_steps() {
            Ok(plan) => steps.extend(self.start_plan(plan, HandoverProvenance::Emitted)),
            Err(why) => steps.push(self.request_repair(ASK_REPAIR_STEPS, json!({"why": why}))),
        }
        steps
    }

    fn parse_presented_steps(&self) -> Result<Vec<PlanStep>, Option<String>> {
        let mut why = None;
        for block in self.blocks_named(STEPS_BLOCK).rev() {
            match parse_steps_block(&block.raw) {
                Ok(steps) => return Ok(steps),
                Err(unreadable) => why = Some(unreadable.to_string()),
            }
        }
        Err(why)
    }

    /// The steps were asked for again; if they still cannot be read, the plan itself must name them.
    fn handle_repaired_steps(&self) -> Vec<FlowStep> {
        if let Ok(plan) = self.parse_presented_steps() {
            return self.start_plan(plan, HandoverProvenance::Repaired);
        }
        let plan = self.parse_original_reply().map(|reading| reading.visible_text);
        let mut steps = parse_steps_from_prose(&plan.unwrap_or_default());
        if steps.is_empty() {
            steps.push(PlanStep { title: self.handover_goal(), ..PlanStep::default() });
        }
        self.start_plan(steps, HandoverProvenance::Built)
    }

    fn handover_goal(&self) -> String {
        visit_handover(self.view).and_then(|handover| handover.text_field("goal")).unwrap_or_default().to_owned()
    }

    fn start_plan(&self, steps: Vec<PlanStep>, provenance: HandoverProvenance) -> Vec<FlowStep> {
        let call = self.source_calls().first().copied().unwrap_or(self.call.call);
        vec![
            Fact::PlanStarted { goal: self.handover_goal(), steps, provenance, call }.into_step(),
            self.end_turn_or_ask_again(),
        ]
    }
}

/// A BATCH block as it was meant.
#[derive(Debug, Clone)]
struct BatchBlock {
    kind: String,
    purpose: Option<BatchPurpose>,
    handover: HandoverDocument,
    step: Option<String>,
    blocker: Option<String>,
    context: Option<String>,
    prompt: Option<String>,
}

impl BatchBlock {
    fn from_block(block: &SignalBlock) -> Self {
        let text =
            |name: &str| block.fields.text(name).map(str::trim).filter(|text| !text.is_empty()).map(str::to_owned);
        let kind = text("type").unwrap_or_default();
        let purpose = match kind.to_ascii_uppercase().replace([' ', '-'], "_").as_str() {
            "WORKFLOW" => Some(BatchPurpose::Plan),
            "STEP_HELP" => Some(BatchPurpose::StepHelp),
            _ => None,
        };
        let handover = block.fields.section("handover");
        let handover = handover.map(|fields| handovers::parse_document(fields, &EXECUTION_FIELDS)).unwrap_or_default();
        let (step, blocker, context, prompt) = (text("step"), text("blocker"), text("context"), text("prompt"));
        Self { kind, purpose, handover, step, blocker, context, prompt }
    }

    fn is_plan_request(&self) -> bool {
        self.purpose == Some(BatchPurpose::Plan)
    }
}
