//! The flow's own facts. Every decision that the flow derives from a text is recorded as a fact, so that its state can be
//! computed without reading the text again.

use segue_core::body::TextRef;
use segue_core::event::Event;
use segue_core::flow::FlowStep;
use segue_core::handover::HandoverProvenance;
use segue_core::ids::{CallId, MessageId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::claim_map::ClaimMap;
use super::plan::ConciergePlanStep;
use super::stance::ReplyStance;
use crate::fact;

/// A fact that this flow records in the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "value", rename_all = "snake_case")]
pub enum ConciergeFact {
    /// The session's settings have problems.
    InvalidSettings { complaints: Vec<String> },
    /// A batch of expert calls was started.
    BatchStarted(ExpertBatchRequest),
    /// All calls of the batch have been requested.
    BatchDispatched { batch: u32 },
    /// The missing answers of a batch are requested again.
    BatchResumed { batch: u32 },
    /// An answer is no longer awaited. If it still arrives, it is recorded.
    AnswerTimedOut {
        batch: u32,
        /// The index of the expert slot.
        slot: usize,
        call: CallId,
    },
    /// Enough answers have arrived. Later ones are ignored.
    BatchClosed {
        batch: u32,
        /// The number of answers.
        answers: usize,
        /// The missing answers, each with the reason.
        missing: Vec<String>,
    },
    /// An answer arrived after its batch was closed.
    LateAnswer { batch: u32, call: CallId },
    /// No expert answered.
    BatchFailed {
        batch: u32,
        /// The missing answers, each with the reason.
        missing: Vec<String>,
    },
    /// The flow wrote fields of a handover itself, because the model did not.
    HandoverFieldsBuilt {
        /// The kind of the handover that follows.
        kind: String,
        fields: Vec<String>,
    },
    /// A batch was given up.
    BatchAbandoned { batch: u32, why: String },
    /// The mapper's reply was parsed.
    MapParsed(RecordedClaimMap),
    /// The summary of a map's analysis.
    MapAnalysed(Value),
    /// The batch has no map.
    MapUnavailable { batch: u32, why: String },
    /// A batch is complete.
    BatchCompleted { batch: u32, purpose: ExpertBatchPurpose, result: ExpertBatchResult },
    /// The stance of the concierge was chosen.
    StanceChosen { stance: ReplyStance, reason: String },
    /// A plan was presented and its steps are known.
    PlanStarted {
        goal: String,
        steps: Vec<ConciergePlanStep>,
        /// Whether the steps came with the plan, came after a complaint, or were parsed from the plan's text.
        provenance: HandoverProvenance,
        /// The call that presented the plan.
        call: CallId,
    },
    /// The current step was completed.
    StepCompleted {
        /// The index of the step.
        step: usize,
        title: String,
        /// The call that said so; `None` for a command.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallId>,
    },
    /// The user chose another step as the current one.
    StepStarted {
        /// The index of the step.
        step: usize,
        title: String,
        /// The call that said so; `None` for a command.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallId>,
    },
    /// The user dropped the plan before its last step was completed.
    PlanDropped {
        goal: String,
        /// The number of steps that were completed.
        done: usize,
    },
    /// The last step was completed.
    PlanCompleted {
        goal: String,
        /// The number of steps.
        steps: usize,
    },
    /// The user was asked to confirm a batch.
    ConfirmationRequested { request: ExpertBatchRequest },
    /// The user confirmed the batch.
    BatchConfirmed,
    /// The wording of the user's answer and its interpretation by the concierge disagree, so the user is asked again.
    ConfirmationRepeated,
    /// The user answered with neither yes nor no. The confirmation stays pending for one more message.
    ConfirmationUnclear,
    /// The user did not confirm the batch.
    BatchDeclined,
    /// The user explicitly asked for a plan, but the explorer's reply had no request for one.
    PlanRequested {
        message: MessageId,
        /// The words that ask for the plan.
        phrase: String,
        /// The number of such requests in this visit.
        count: u32,
    },
    /// A block was ignored. The concierge gets the reason with its next call.
    BlockRefused {
        /// The call that wrote the block.
        call: Option<CallId>,
        /// The name of the block.
        block: String,
        /// The notice for the concierge.
        why: String,
    },
    /// A reply had no visible text, or repeated the one before, the message or the instruction, so its messages are
    /// answered once more.
    EmptyReply {
        /// The call that wrote the reply.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallId>,
        /// The notice for the concierge; `None` if another phase answers next.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        notice: Option<String>,
    },
    /// A reply had malformed blocks.
    ReplyComplaints { call: CallId, complaints: Vec<String> },
    /// A reply used internal terms.
    InternalTermsLeaked {
        call: CallId,
        /// The terms in order of appearance.
        terms: Vec<String>,
    },
}

/// A request to ask all experts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExpertBatchRequest {
    /// The number of the batch in the session.
    pub number: u32,
    pub purpose: ExpertBatchPurpose,
    /// The task for the experts; `None` if they get the user's messages.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<ExpertTask>,
    /// The user's messages that led to the batch.
    #[serde(default)]
    pub user_messages: Vec<(MessageId, TextRef)>,
    /// The number of expert slots.
    #[serde(default)]
    pub slot_count: usize,
}

/// The purpose of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpertBatchPurpose {
    /// The first question.
    OpeningQuestion,
    /// Every message, with the setting `batch = "every_turn"`.
    EveryTurn,
    /// A plan.
    Plan,
    /// Help with one step of a plan.
    StepHelp,
}

/// A task for the experts, written by the concierge or built by the flow.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExpertTask {
    /// The step that needs help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// What blocks the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocker: Option<String>,
    /// Constraints to keep in mind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// The goal of the requested plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    pub prompt: String,
    /// The call that requested the batch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
}

/// A parsed claim map.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedClaimMap {
    pub batch: u32,
    /// The call that wrote it.
    pub call: CallId,
    /// The number of mapped answers.
    pub answers: u32,
    /// What was repaired while parsing.
    pub complaints: Vec<String>,
    /// The map; `None` if it is too large for a fact. It can be parsed from the mapper's reply again.
    pub map: Option<ClaimMap>,
}

/// The result of a batch. Texts are stored by reference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpertBatchResult {
    /// The answers were mapped.
    Mapped {
        /// The call of the mapper.
        call: CallId,
        /// The mapper's reply.
        text: TextRef,
        /// The number of mapped answers.
        answers: u32,
    },
    /// Only one expert answered.
    Single { call: CallId, text: TextRef },
    /// Several answers that could not be mapped.
    Unmapped {
        /// The answers in slot order.
        texts: Vec<TextRef>,
    },
}

impl ConciergeFact {
    /// Returns the step that records this fact.
    #[must_use]
    pub fn into_step(self) -> FlowStep {
        fact::record_fact_step(&self)
    }

    /// Returns the fact in `event`, or `None` if it is not a fact of this flow.
    #[must_use]
    pub fn from_event(event: &Event) -> Option<Self> {
        fact::parse_fact_event(event)
    }

    /// Returns the fact with this kind and value, or `None` if the flow has no such fact.
    #[must_use]
    pub fn parse(kind: &str, value: &Value) -> Option<Self> {
        fact::parse_fact(kind, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_survive_recording_and_parsing() {
        let facts = [
            ConciergeFact::BatchConfirmed,
            ConciergeFact::LateAnswer { batch: 2, call: CallId(7) },
            ConciergeFact::BlockRefused { call: None, block: "BATCH".into(), why: "no".into() },
        ];
        for fact in facts {
            let FlowStep::RecordFact { kind, value } = fact.clone().into_step() else {
                panic!("a fact becomes a RecordFact step")
            };
            assert_eq!(ConciergeFact::from_event(&Event::FlowFactRecorded { kind, value }), Some(fact));
        }
        assert_eq!(
            ConciergeFact::from_event(&Event::FlowFactRecorded { kind: "other".into(), value: Value::Null }),
            None
        );
    }
}
