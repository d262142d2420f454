//! Interprets the concierge's replies: sends the visible text to the user and acts on the signals. A signal that is not
//! allowed in the current phase is refused, recorded, and reported to the concierge; its block is hidden from the user.

mod batch_block;
mod executor;
mod structured;

use segue_core::body::TextRef;
use segue_core::event::{CallAnswered, CallOpened, CallRequest, TurnOutcome};
use segue_core::flow::{FlowStep, NewOrStoredReplyText};
use segue_core::handover::{HandoverAcceptanceDecision, HandoverDocument, HandoverProvenance, decide_handover};
use segue_core::ids::CallId;
use segue_core::signal::{self, BlockComplaint, ParsedReply, SignalBlock, SignalForm};
use serde_json::json;

use batch_block::{ExpertBatchBlock, ExpertBatchConfirmationPolicy};

use super::facts::{ConciergeFact, ExpertBatchPurpose, ExpertTask};
use super::instruction_echo::InstructionSentences;
use super::messages::{current_turn_user_text, record_refusal, render_confirmation_question, render_notice};
use super::settings::ConciergeSettings;
use super::spec::{
    ASK_PRESENT, ASK_REPAIR_BATCH, ASK_REPAIR_INTENT, ASK_REPAIR_STEPS, ASK_REPLY, BATCH_BLOCK, CONCIERGE_ROLE,
    EXECUTION_HANDOVER, EXECUTOR_PHASE, EXPLORER_PHASE, HANDOVER_BLOCK, INTENT_FIELDS, INTENT_HANDOVER, STARTER_PHASE,
    STEP_DONE_BLOCK, STEP_START_BLOCK, STEPS_BLOCK,
};
use super::state::ConciergeFlowContext;
use super::turn::{propose_phase, turns_in_phase};
use super::{ConciergeFlow, batch, handovers, leaks, plan_request, questions, sample_echo};
use crate::limits::{ECHOED_MESSAGE_WORDS_MIN, HANDOVER_TURN_MIN, REPEATED_REPLY_WORDS_MIN};
use crate::template::fill_template;

/// The notice about a reply that repeats the instruction.
const INSTRUCTION_NOTICE: &str = "instructed";

/// A reply of the concierge with its context.
struct ConciergeReplyHandler<'a> {
    flow: &'a ConciergeFlow,
    view: &'a ConciergeFlowContext<'a>,
    settings: &'a ConciergeSettings,
    call: &'a CallOpened,
    text: TextRef,
    parsed: ParsedReply,
}

/// Handles a reply of the concierge.
pub(super) fn handle_concierge_reply(
    flow: &ConciergeFlow,
    view: &ConciergeFlowContext<'_>,
    settings: &ConciergeSettings,
    call: &CallOpened,
    answered: &CallAnswered,
) -> Vec<FlowStep> {
    if questions::is_private_question(call.ask.as_str()) {
        let parsed = ParsedReply::default();
        return ConciergeReplyHandler { flow, view, settings, call, text: answered.text, parsed }
            .handle_question_answer();
    }
    let parsed = parse_reply_blocks(flow, view, call, answered.text);
    let mut reply = ConciergeReplyHandler { flow, view, settings, call, text: answered.text, parsed };
    let mut steps = reply.record_block_complaints();
    let is_inline = settings.signal_form(call.signal_form) == SignalForm::Inline;
    match call.ask.as_str() {
        ASK_REPAIR_INTENT => steps.extend(reply.hand_over_to_explorer(reply.parse_intent_document())),
        ASK_REPAIR_BATCH => steps.extend(reply.handle_repaired_expert_batch_block()),
        ASK_REPAIR_STEPS => steps.extend(reply.handle_repaired_steps()),
        _ => match reply.find_repeated_text() {
            Some(repeated) if view.state.empty_replies == 0 => steps.extend(reply.ask_again_in_new_thread(repeated)),
            repeated => {
                if repeated == Some(INSTRUCTION_NOTICE) {
                    reply.remove_instructions();
                }
                steps.extend(reply.send_reply());
                steps.extend(match reply.phase_name() {
                    _ if !is_inline => reply.ask_question_after_reply(),
                    STARTER_PHASE => reply.handle_starter_reply(),
                    EXPLORER_PHASE => reply.handle_explorer_reply(),
                    _ => reply.handle_executor_reply(),
                });
            }
        },
    }
    steps
}

/// Handles a concierge call that failed for good. After a failed repair the flow builds what is missing; any other failure
/// fails the turn.
pub(super) fn handle_concierge_failure(
    flow: &ConciergeFlow,
    view: &ConciergeFlowContext<'_>,
    settings: &ConciergeSettings,
    call: &CallOpened,
    why: String,
) -> Vec<FlowStep> {
    let text =
        original_reply_text(call).unwrap_or(TextRef { body: segue_core::body::BodyId::hash_text(""), tokens: 0 });
    let reply = ConciergeReplyHandler { flow, view, settings, call, text, parsed: ParsedReply::default() };
    match call.ask.as_str() {
        ask if questions::is_private_question(ask) => reply.handle_question_failure(),
        ASK_REPAIR_INTENT => reply.hand_over_to_explorer(None),
        ASK_REPAIR_BATCH => reply.handle_repaired_expert_batch_block(),
        ASK_REPAIR_STEPS => reply.handle_repaired_steps(),
        _ => vec![FlowStep::EndTurn(TurnOutcome::Failed { reason: format!("{why}; say \"retry\" to try again") })],
    }
}

/// Parses a reply. Blocks that it repeats from texts of others in its prompt count as text.
fn parse_reply_blocks(
    flow: &ConciergeFlow,
    view: &ConciergeFlowContext<'_>,
    call: &CallOpened,
    text: TextRef,
) -> ParsedReply {
    let foreign_texts: Vec<_> = view.session.foreign_texts(call).into_iter().map(|text| view.read_text(text)).collect();
    signal::parse_reply(&view.read_text(text), &flow.blocks, &foreign_texts)
}

/// Returns the reply that a repair call is about.
fn original_reply_text(call: &CallOpened) -> Option<TextRef> {
    serde_json::from_value(call.metadata.get("text")?.clone()).ok()
}

impl ConciergeReplyHandler<'_> {
    /// Ends the turn. If the user has seen no reply yet, the concierge is called once more with a notice.
    fn end_turn_or_ask_again(&self) -> FlowStep {
        self.end_turn_or_record_empty(Some(render_notice("", "silent", &[])))
    }

    /// Ends the turn after a handover. If the user has seen no reply yet, the next phase replies.
    fn end_turn_after_handover(&self) -> FlowStep {
        self.end_turn_or_record_empty(None)
    }

    fn end_turn_or_record_empty(&self, notice: Option<String>) -> FlowStep {
        let is_visible = matches!(self.call.ask.as_str(), ASK_REPLY | ASK_PRESENT);
        let has_reply = (is_visible && !self.parsed.visible_text.trim().is_empty()) || self.view.state.replied_in_phase;
        if has_reply {
            FlowStep::EndTurn(TurnOutcome::Done)
        } else {
            ConciergeFact::EmptyReply { call: Some(self.call.call), notice }.into_step()
        }
    }

    fn phase_name(&self) -> &str {
        self.call.phase.as_ref().map_or(STARTER_PHASE, |phase| phase.as_str())
    }

    fn blocks_named<'s>(&'s self, name: &'s str) -> impl DoubleEndedIterator<Item = &'s SignalBlock> {
        self.parsed.blocks.iter().filter(move |block| block.name == name)
    }

    fn refuse_block(&self, block: &str, reason: &str, arguments: &[(&str, &str)]) -> FlowStep {
        record_refusal(Some(self.call.call), block, reason, arguments)
    }

    /// Records malformed and repeated blocks.
    fn record_block_complaints(&self) -> Vec<FlowStep> {
        let mut complaints: Vec<String> = self.parsed.complaints.iter().map(ToString::to_string).collect();
        for name in [HANDOVER_BLOCK, BATCH_BLOCK, STEPS_BLOCK] {
            if self.blocks_named(name).count() > 1 {
                complaints.push(format!("block {name} appears more than once; the last valid one is used"));
            }
        }
        for block in &self.parsed.blocks {
            let name = &block.name;
            let echoed = sample_echo::find_echoed_fields(block).into_iter();
            complaints
                .extend(echoed.map(|field| format!("{name}: {field} repeats the prompt's sample and counts as empty")));
        }
        if complaints.is_empty() {
            return Vec::new();
        }
        vec![ConciergeFact::ReplyComplaints { call: self.call.call, complaints }.into_step()]
    }

    /// Sends the visible text to the user and records internal terms in it.
    fn send_reply(&self) -> Vec<FlowStep> {
        let visible = self.parsed.visible_text.trim_end();
        if visible.trim().is_empty() {
            return Vec::new();
        }
        let is_all_visible = *visible == *self.view.read_text(self.text);
        let text = if is_all_visible {
            NewOrStoredReplyText::Stored(self.text)
        } else {
            NewOrStoredReplyText::New(visible.to_owned())
        };
        let mut steps = vec![FlowStep::Reply { text, role: Some(CONCIERGE_ROLE.into()), call: Some(self.call.call) }];
        let terms: Vec<String> =
            leaks::find_leaked_terms(visible).into_iter().map(|leak| leak.term.to_owned()).collect();
        if !terms.is_empty() {
            steps.push(ConciergeFact::InternalTermsLeaked { call: self.call.call, terms }.into_step());
        }
        steps
    }

    /// Asks for a reply once more, without the unusable one: a small model would continue like that.
    fn ask_again_in_new_thread(&self, notice: &'static str) -> Vec<FlowStep> {
        let request =
            CallRequest { model: self.settings.concierge.clone(), ..CallRequest::new(CONCIERGE_ROLE, ASK_REPLY) };
        let notice = Some(render_notice("", notice, &[]));
        vec![
            FlowStep::ResetThread { request, reason: "the last reply is not repeated to the model".to_owned() },
            ConciergeFact::EmptyReply { call: Some(self.call.call), notice }.into_step(),
        ]
    }

    /// Removes sentences of the instruction from the text for the user.
    fn remove_instructions(&mut self) {
        let sentences = InstructionSentences::of_call(self.view, self.call);
        self.parsed.visible_text = sentences.remove_from(&self.parsed.visible_text);
    }

    /// Returns the kind of notice for a reply that says the same as the one before in this phase, as the user's message, or
    /// as the instruction, as small models do.
    fn find_repeated_text(&self) -> Option<&'static str> {
        let visible = &self.parsed.visible_text;
        if !self.parsed.blocks.is_empty() {
            return None;
        }
        let last = self.view.state.visit.exchanges.last();
        if last.is_some_and(|exchange| is_repetition(visible, &self.view.read_text(exchange.reply))) {
            return Some("repeated");
        }
        let words = lowercase_words(visible);
        let is_echo =
            words.len() >= ECHOED_MESSAGE_WORDS_MIN && words == lowercase_words(&current_turn_user_text(self.view));
        if is_echo {
            return Some("echoed");
        }
        InstructionSentences::of_call(self.view, self.call).are_repeated_in(visible).then_some(INSTRUCTION_NOTICE)
    }

    /// Refuses the blocks with these names, which the current phase does not allow.
    fn refuse_misplaced_blocks(&self, names: &[&str]) -> Vec<FlowStep> {
        let misplaced = self.parsed.blocks.iter().filter(|block| names.contains(&block.name.as_str()));
        misplaced.map(|block| self.refuse_block(&block.name, "wrong_phase", &[])).collect()
    }

    fn handle_starter_reply(&self) -> Vec<FlowStep> {
        let mut steps = self.refuse_misplaced_blocks(&[BATCH_BLOCK, STEPS_BLOCK, STEP_START_BLOCK, STEP_DONE_BLOCK]);
        let is_due = self.is_handover_due();
        if turns_in_phase(self.view) < HANDOVER_TURN_MIN && !is_due {
            // The user has not replied yet.
            steps
                .extend(self.blocks_named(HANDOVER_BLOCK).map(|_| self.refuse_block(HANDOVER_BLOCK, "too_early", &[])));
            steps.push(self.end_turn_or_ask_again());
            return steps;
        }
        let document = self.parse_intent_document();
        let has_goal = document.as_ref().is_some_and(|document| document.contains_key("goal"));
        if has_goal || is_due {
            steps.extend(self.hand_over_to_explorer(document));
        } else {
            steps.push(self.end_turn_or_ask_again());
        }
        steps
    }

    /// Returns the last handover with a goal, or the last one if none has a goal.
    fn parse_intent_document(&self) -> Option<HandoverDocument> {
        let documents: Vec<HandoverDocument> = self
            .blocks_named(HANDOVER_BLOCK)
            .map(|block| handovers::parse_document(HANDOVER_BLOCK, &block.fields, &INTENT_FIELDS))
            .collect();
        let with_goal = documents.iter().rev().find(|document| document.contains_key("goal"));
        with_goal.or_else(|| documents.last()).cloned()
    }

    /// Returns whether the starter must hand over in this turn.
    fn is_handover_due(&self) -> bool {
        turns_in_phase(self.view) >= self.settings.handover_by_turn
    }

    /// Makes the intent handover and enters the explorer phase, or asks once more for a goal.
    fn hand_over_to_explorer(&self, document: Option<HandoverDocument>) -> Vec<FlowStep> {
        let is_question = questions::is_private_question(self.call.ask.as_str());
        let (by_model, document, provenance) = match decide_handover(
            &self.flow.spec.handovers[INTENT_HANDOVER],
            document,
            self.handover_request_count(INTENT_HANDOVER),
        ) {
            // The question asks only for what the flow does not know.
            HandoverAcceptanceDecision::Accept(document, provenance) if is_question => {
                (document.clone(), handovers::build_intent_handover(self.view, document), provenance)
            }
            HandoverAcceptanceDecision::Accept(document, provenance) => {
                (document.clone(), handovers::fill_exchange_fields(self.view, document), provenance)
            }
            HandoverAcceptanceDecision::Synthesize(document) => {
                return self.build_intent_handover_and_explore(document);
            }
            HandoverAcceptanceDecision::RequestRepair { missing_fields } => {
                let repair = match is_question {
                    true => self.ask_question_again(&["goal"]),
                    false => self.request_repair(ASK_REPAIR_INTENT, json!({"missing": missing_fields})),
                };
                return vec![FlowStep::RequestHandover(INTENT_HANDOVER.into()), repair];
            }
        };
        self.make_intent_handover_and_explore(&by_model, document, provenance)
    }

    /// Builds the intent handover from the state and enters the explorer phase. Fields that the model wrote are kept.
    fn build_intent_handover_and_explore(&self, parsed: HandoverDocument) -> Vec<FlowStep> {
        let document = handovers::build_intent_handover(self.view, parsed.clone());
        self.make_intent_handover_and_explore(&parsed, document, HandoverProvenance::Built)
    }

    /// Makes the handover and enters the explorer phase. `by_model` has the fields that the model wrote.
    fn make_intent_handover_and_explore(
        &self,
        by_model: &HandoverDocument,
        document: HandoverDocument,
        provenance: HandoverProvenance,
    ) -> Vec<FlowStep> {
        let calls = self.source_calls();
        let document = handovers::set_map_shape(self.view, document);
        let mut steps: Vec<FlowStep> =
            handovers::record_built_fields(INTENT_HANDOVER, by_model, &document).into_iter().collect();
        steps.extend([
            FlowStep::MakeHandover { kind: INTENT_HANDOVER.into(), document, calls, provenance },
            propose_phase(EXPLORER_PHASE),
            self.end_turn_after_handover(),
        ]);
        steps
    }

    /// Returns the calls that a document comes from: this call, and the one that it repairs.
    fn source_calls(&self) -> Vec<CallId> {
        let first = self.call.metadata.get("of").and_then(|call| serde_json::from_value(call.clone()).ok());
        first.into_iter().chain([self.call.call]).collect()
    }

    fn request_repair(&self, ask: &str, mut metadata: serde_json::Value) -> FlowStep {
        metadata["of"] = json!(self.call.call);
        metadata["text"] = json!(self.text);
        FlowStep::Call(CallRequest {
            model: self.settings.concierge.clone(),
            metadata,
            ..CallRequest::new(CONCIERGE_ROLE, ask)
        })
    }

    fn handle_explorer_reply(&self) -> Vec<FlowStep> {
        let mut steps = self.refuse_misplaced_blocks(&[HANDOVER_BLOCK, STEPS_BLOCK, STEP_START_BLOCK, STEP_DONE_BLOCK]);
        let request = self.last_batch_block();
        if let Some((fact, count)) =
            self.detect_plan_request().filter(|_| !request.as_ref().is_some_and(ExpertBatchBlock::is_plan_request))
        {
            if count > self.view.state.unmet_plan_requests.count {
                steps.push(fact.into_step());
            }
            if count >= self.settings.plan_by_request {
                steps.extend(self.force_requested_plan());
                return steps;
            }
        }
        match request {
            Some(request) => steps.extend(self.handle_batch_block(&request)),
            None => steps.extend(self.handle_missing_batch_block()),
        }
        steps
    }

    /// Returns the user's explicit request for a plan that this reply answers, and the number of requests so far. A message
    /// that is answered twice counts once.
    fn detect_plan_request(&self) -> Option<(ConciergeFact, u32)> {
        let state = self.view.state;
        let messages = state.last_answered_messages.iter().rev().filter(|_| self.phase_name() == EXPLORER_PHASE);
        let mut requests = messages.filter_map(|(message, text)| {
            Some((*message, plan_request::find_plan_request(&self.view.read_text(*text))?))
        });
        let (message, request) = requests.next()?;
        let is_new = state.unmet_plan_requests.last_message != Some(message);
        let count = state.unmet_plan_requests.count + u32::from(is_new);
        Some((ConciergeFact::PlanRequested { message, phrase: request.phrase, count }, count))
    }

    /// Makes a plan after the user has asked often enough: first the explorer is asked for its BATCH block, then the flow
    /// writes the request itself.
    fn force_requested_plan(&self) -> Vec<FlowStep> {
        match decide_handover(
            &self.flow.spec.handovers[EXECUTION_HANDOVER],
            None,
            self.handover_request_count(EXECUTION_HANDOVER),
        ) {
            HandoverAcceptanceDecision::RequestRepair { .. } => {
                let metadata = json!({"missing": [], "wanted": !self.is_batch_block_truncated()});
                vec![
                    FlowStep::RequestHandover(EXECUTION_HANDOVER.into()),
                    self.request_repair(ASK_REPAIR_BATCH, metadata),
                ]
            }
            HandoverAcceptanceDecision::Accept(..) | HandoverAcceptanceDecision::Synthesize(_) => self.offer_plan(),
        }
    }

    /// Asks the user whether to make a plan: the message asks for one, but the explorer does not see it that way.
    fn offer_plan(&self) -> Vec<FlowStep> {
        let messages = &self.view.state.visit.answered_messages;
        let document = handovers::build_execution_handover(self.view, HandoverDocument::new(), messages);
        self.start_plan_batch(document, HandoverProvenance::Built, None, ExpertBatchConfirmationPolicy::Always)
    }

    fn handover_request_count(&self, kind: &str) -> u32 {
        self.view.session.handover_repairs.get(kind).copied().unwrap_or_default()
    }

    fn is_batch_block_truncated(&self) -> bool {
        let is_truncated = |complaint: &BlockComplaint| matches!(complaint, BlockComplaint::UnclosedBlock { block } if block == BATCH_BLOCK);
        self.parsed.complaints.iter().any(is_truncated)
    }

    /// Ends the turn without a BATCH block, or requests a truncated one again.
    fn handle_missing_batch_block(&self) -> Vec<FlowStep> {
        if self.is_batch_block_truncated() {
            return vec![self.request_repair(ASK_REPAIR_BATCH, json!({"missing": []}))];
        }
        vec![self.end_turn_or_ask_again()]
    }

    /// Returns the last BATCH block with a known type, or the last one if no type is known.
    fn last_batch_block(&self) -> Option<ExpertBatchBlock> {
        let requests: Vec<ExpertBatchBlock> =
            self.blocks_named(BATCH_BLOCK).map(ExpertBatchBlock::from_block).collect();
        let known = requests.iter().rposition(|request| request.purpose.is_some());
        let index = known.or_else(|| requests.len().checked_sub(1))?;
        requests.into_iter().nth(index)
    }

    fn handle_batch_block(&self, block: &ExpertBatchBlock) -> Vec<FlowStep> {
        match block.purpose {
            Some(ExpertBatchPurpose::Plan) => self.handle_plan_block(block),
            Some(_) if self.phase_name() == EXECUTOR_PHASE => self.handle_help_block(block),
            Some(_) => vec![self.refuse_block(BATCH_BLOCK, "help_without_plan", &[]), self.end_turn_or_ask_again()],
            None => vec![
                self.refuse_block(BATCH_BLOCK, "unknown_type", &[("given", &block.kind)]),
                self.end_turn_or_ask_again(),
            ],
        }
    }

    fn handle_plan_block(&self, block: &ExpertBatchBlock) -> Vec<FlowStep> {
        match decide_handover(
            &self.flow.spec.handovers[EXECUTION_HANDOVER],
            Some(block.handover.clone()),
            self.handover_request_count(EXECUTION_HANDOVER),
        ) {
            HandoverAcceptanceDecision::Accept(document, provenance) => self.start_plan_batch(
                document,
                provenance,
                block.prompt.clone(),
                ExpertBatchConfirmationPolicy::BySetting,
            ),
            HandoverAcceptanceDecision::Synthesize(document) => {
                self.request_plan_from_state(document, block.prompt.clone())
            }
            HandoverAcceptanceDecision::RequestRepair { missing_fields } => {
                let repair = match questions::is_private_question(self.call.ask.as_str()) {
                    true => self.ask_question_again(&["goal"]),
                    false => self.request_repair(ASK_REPAIR_BATCH, json!({"missing": missing_fields})),
                };
                vec![FlowStep::RequestHandover(EXECUTION_HANDOVER.into()), repair]
            }
        }
    }

    /// Requests a plan with a handover that is built from the state. Fields that the model wrote are kept.
    fn request_plan_from_state(&self, parsed: HandoverDocument, prompt: Option<String>) -> Vec<FlowStep> {
        let messages = &self.view.state.visit.answered_messages;
        let document = handovers::build_execution_handover(self.view, parsed.clone(), messages);
        let mut steps: Vec<FlowStep> =
            handovers::record_built_fields(EXECUTION_HANDOVER, &parsed, &document).into_iter().collect();
        steps.extend(self.start_plan_batch(
            document,
            HandoverProvenance::Built,
            prompt,
            ExpertBatchConfirmationPolicy::BySetting,
        ));
        steps
    }

    fn start_plan_batch(
        &self,
        document: HandoverDocument,
        provenance: HandoverProvenance,
        prompt: Option<String>,
        confirmation: ExpertBatchConfirmationPolicy,
    ) -> Vec<FlowStep> {
        let goal = match document.get("goal") {
            Some(segue_core::handover::HandoverFieldValue::Text(goal)) => goal.clone(),
            _ => String::new(),
        };
        let prompt = prompt.unwrap_or_else(|| {
            let arguments = json!({"help": false, "situation": handovers::render_document_context(&document)});
            fill_template(include_str!("../../prompts/concierge/task_built.md"), &arguments)
        });
        let task = ExpertTask { goal: Some(goal), prompt, call: Some(self.call.call), ..ExpertTask::default() };
        let mut steps = vec![FlowStep::MakeHandover {
            kind: EXECUTION_HANDOVER.into(),
            document,
            calls: self.source_calls(),
            provenance,
        }];
        steps.extend(self.start_or_confirm_batch(ExpertBatchPurpose::Plan, task, confirmation));
        steps
    }

    fn handle_help_block(&self, block: &ExpertBatchBlock) -> Vec<FlowStep> {
        let ExpertBatchBlock { step, blocker, context, prompt, .. } = block.clone();
        if prompt.is_none() && blocker.is_none() && step.is_none() {
            return vec![self.refuse_block(BATCH_BLOCK, "empty_help", &[]), self.end_turn_or_ask_again()];
        }
        let prompt = prompt.unwrap_or_else(|| {
            let arguments = json!({"help": true, "situation": null});
            fill_template(include_str!("../../prompts/concierge/task_built.md"), &arguments)
        });
        let task = ExpertTask { step, blocker, context, goal: None, prompt, call: Some(self.call.call) };
        self.start_or_confirm_batch(ExpertBatchPurpose::StepHelp, task, ExpertBatchConfirmationPolicy::BySetting)
    }

    fn start_or_confirm_batch(
        &self,
        purpose: ExpertBatchPurpose,
        task: ExpertTask,
        confirmation: ExpertBatchConfirmationPolicy,
    ) -> Vec<FlowStep> {
        let messages = self.view.session.current_turn.iter().flat_map(|turn| &turn.messages);
        let mut user_messages: Vec<_> = messages.map(|message| (message.message, message.text)).collect();
        let is_commanded = self.view.state.turn_command.is_some();
        if is_commanded {
            user_messages.clone_from(&self.view.state.last_answered_messages);
        }
        let request = batch::new_batch_request(self.view, self.settings, purpose, Some(task), user_messages);
        let needs_consent = self.settings.confirm_batches || confirmation == ExpertBatchConfirmationPolicy::Always;
        if needs_consent && !is_commanded {
            let question = FlowStep::Reply {
                text: NewOrStoredReplyText::New(render_confirmation_question(&request)),
                role: None,
                call: None,
            };
            return vec![
                ConciergeFact::ConfirmationRequested { request }.into_step(),
                question,
                FlowStep::EndTurn(TurnOutcome::Done),
            ];
        }
        batch::start_batch(self.view, self.settings, request)
    }

    /// Parses the reply that this repair is about.
    fn parse_original_reply(&self) -> Option<ParsedReply> {
        Some(parse_reply_blocks(self.flow, self.view, self.call, original_reply_text(self.call)?))
    }

    /// Handles the reply to a request for a missing or unreadable BATCH block.
    fn handle_repaired_expert_batch_block(&self) -> Vec<FlowStep> {
        let first = self.parse_original_reply().and_then(|parsed| {
            parsed.blocks.iter().rev().find(|block| block.name == BATCH_BLOCK).map(ExpertBatchBlock::from_block)
        });
        let user_wants_plan = self.detect_plan_request().is_some();
        match (self.last_batch_block(), first) {
            (Some(request), _) if request.is_plan_request() || (request.purpose.is_some() && !user_wants_plan) => {
                self.handle_batch_block(&request)
            }
            // Use what could be read the first time.
            (_, Some(first)) if first.is_plan_request() => self.handle_plan_block(&first),
            // The explorer declined twice, so only the user can say.
            _ if user_wants_plan && self.call.metadata["wanted"] == json!(true) => self.offer_plan(),
            // The user wants a plan, and the model has written a request that cannot be read.
            _ if user_wants_plan => self.request_plan_from_state(HandoverDocument::new(), None),
            _ => vec![self.refuse_block(BATCH_BLOCK, "unclosed", &[]), self.end_turn_or_ask_again()],
        }
    }
}

/// Returns whether a long text begins like another one, up to more than half of the shorter one.
fn is_repetition(text: &str, earlier: &str) -> bool {
    let (text, earlier) = (lowercase_words(text), lowercase_words(earlier));
    let shorter = text.len().min(earlier.len());
    let same = text.iter().zip(&earlier).take_while(|(word, other)| word == other).count();
    shorter >= REPEATED_REPLY_WORDS_MIN && same * 2 > shorter
}

fn lowercase_words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_lowercase).collect()
}
