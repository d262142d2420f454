//! The flow's own events. Everything the flow decides from a text is one of these, so that its state can be folded
//! without reading a text again.

use segue_core::body::TextRef;
use segue_core::event::Event;
use segue_core::flow::FlowStep;
use segue_core::handover::HandoverProvenance;
use segue_core::ids::{CallId, MessageId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::claim_map::ClaimMap;
use super::plan::PlanStep;
use super::stance::ReplyStance;
use crate::fact;

/// A fact of this flow.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "value", rename_all = "snake_case")]
pub enum Fact {
    /// What in the session's settings was not understood.
    InvalidSettings {
        /// One by one.
        complaints: Vec<String>,
    },
    /// Everyone is to be asked.
    BatchStarted(BatchRequest),
    /// All calls of a batch that can be made are under way.
    BatchDispatched {
        /// Which.
        batch: u32,
    },
    /// Those who did not answer are asked again; the others are not.
    BatchResumed {
        /// Which.
        batch: u32,
    },
    /// An answer is no longer waited for. It is kept if it still comes.
    AnswerTimedOut {
        /// Of which batch.
        batch: u32,
        /// Whose.
        slot: usize,
        /// Which call.
        call: CallId,
    },
    /// The answers are in, or enough of them; later ones count for nothing.
    BatchClosed {
        /// Which.
        batch: u32,
        /// How many answered.
        answers: usize,
        /// Who did not, and why.
        missing: Vec<String>,
    },
    /// An answer came when the batch was closed.
    LateAnswer {
        /// Which batch.
        batch: u32,
        /// Which call.
        call: CallId,
    },
    /// Nobody answered.
    BatchFailed {
        /// Which.
        batch: u32,
        /// Who did not answer, and why.
        missing: Vec<String>,
    },
    /// A batch is not gone on with.
    BatchAbandoned {
        /// Which.
        batch: u32,
        /// Why.
        why: String,
    },
    /// What the mapper found.
    MapParsed(ClaimMapRecord),
    /// What the map amounts to.
    MapAnalysed(Value),
    /// There is no map, and why.
    MapUnavailable {
        /// Of which batch.
        batch: u32,
        /// Why.
        why: String,
    },
    /// What a batch brought.
    BatchCompleted {
        /// Which batch.
        batch: u32,
        /// What it was for.
        purpose: BatchPurpose,
        /// What is known now.
        result: BatchResult,
    },
    /// How the concierge speaks.
    StanceChosen {
        /// The stance.
        stance: ReplyStance,
        /// What led to it.
        reason: String,
    },
    /// A plan is under way.
    PlanStarted {
        /// What it is for.
        goal: String,
        /// Its steps.
        steps: Vec<PlanStep>,
        /// How they came about: written with the plan, written when asked again, or read from the plan itself.
        provenance: HandoverProvenance,
        /// The call that presented the plan.
        call: CallId,
    },
    /// The current step is done.
    StepCompleted {
        /// Its place, the first is 0.
        step: usize,
        /// Its title.
        title: String,
        /// The call that said so.
        call: CallId,
    },
    /// Another step than the next is the current one now.
    StepStarted {
        /// Its place, the first is 0.
        step: usize,
        /// Its title.
        title: String,
        /// The call that said so.
        call: CallId,
    },
    /// The last step is done.
    PlanCompleted {
        /// What the plan was for.
        goal: String,
        /// How many steps it had.
        steps: usize,
    },
    /// A wish to ask everyone waits for the user's yes.
    ConfirmationRequested {
        /// What is wished.
        request: BatchRequest,
    },
    /// The user said yes.
    BatchConfirmed,
    /// The user said neither yes nor no; the wish waits for one more message.
    ConfirmationUnclear,
    /// The user said something else.
    BatchDeclined,
    /// The user asked the explorer for a plan in so many words, and its answer held no request for one.
    PlanRequested {
        /// With which message.
        message: MessageId,
        /// In which words.
        phrase: String,
        /// The how manieth time in this visit.
        count: u32,
    },
    /// A block was not acted on. It is told with the next ask.
    BlockRefused {
        /// Which call wrote it.
        call: Option<CallId>,
        /// What was written.
        block: String,
        /// What the writer is told.
        why: String,
    },
    /// An answer that was meant for the user held nothing for them. Its message is to be answered once more.
    EmptyReply {
        /// Which answer, if it was the last.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<CallId>,
        /// What its writer is told; nothing if somebody else answers next.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        notice: Option<String>,
    },
    /// What of an answer was not as it should be.
    ReplyComplaints {
        /// Which answer.
        call: CallId,
        /// One by one.
        complaints: Vec<String>,
    },
    /// The answer speaks of the machinery behind it.
    InternalTermsLeaked {
        /// Which answer.
        call: CallId,
        /// The terms, in order.
        terms: Vec<String>,
    },
}

/// A batch as it begins.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct BatchRequest {
    /// Its number in the session.
    pub number: u32,
    /// What it is for.
    pub purpose: BatchPurpose,
    /// What is asked, where it is not simply what the user said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<ExpertTask>,
    /// What the user said that led to it.
    #[serde(default)]
    pub user_messages: Vec<(MessageId, TextRef)>,
    /// How many are asked.
    #[serde(default)]
    pub slot_count: usize,
}

/// What a batch is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchPurpose {
    /// The first question.
    OpeningQuestion,
    /// Any question, where everyone is asked every time.
    EveryTurn,
    /// A plan.
    Plan,
    /// Help with a step.
    StepHelp,
}

/// What experts are asked on a model's behalf.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ExpertTask {
    /// The step that help is wanted with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// What is in the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocker: Option<String>,
    /// What to keep in mind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// What a plan is wanted for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goal: Option<String>,
    /// The prompt for the experts.
    pub prompt: String,
    /// The call that wished it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
}

/// A map that was read.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClaimMapRecord {
    /// Of which batch.
    pub batch: u32,
    /// The call that wrote it.
    pub call: CallId,
    /// From how many answers.
    pub answers: u32,
    /// What was repaired in it.
    pub complaints: Vec<String>,
    /// The map, unless it is too large to stand here; it can be read from the answer again.
    pub map: Option<ClaimMap>,
}

/// What a batch brought, by reference.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BatchResult {
    /// A map, in this answer of the mapper's.
    Mapped {
        /// The call that wrote it.
        call: CallId,
        /// What it wrote.
        text: TextRef,
        /// From how many answers.
        answers: u32,
    },
    /// One answer, and nothing to compare it with.
    Single {
        /// Whose.
        call: CallId,
        /// What it says.
        text: TextRef,
    },
    /// Several answers that could not be mapped.
    Unmapped {
        /// What they say, in the order of seats.
        texts: Vec<TextRef>,
    },
}

impl Fact {
    /// The step that records it.
    #[must_use]
    pub fn into_step(self) -> FlowStep {
        fact::fact_step(&self)
    }

    /// The fact an event is, if it is one of this flow's.
    #[must_use]
    pub fn from_event(event: &Event) -> Option<Self> {
        fact::parse_fact_event(event)
    }

    /// The fact of a kind with a value, if it is one of this flow's.
    #[must_use]
    pub fn parse(kind: &str, value: &Value) -> Option<Self> {
        fact::parse_fact(kind, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fact_is_read_as_it_was_noted() {
        let facts = [
            Fact::BatchConfirmed,
            Fact::LateAnswer { batch: 2, call: CallId(7) },
            Fact::BlockRefused { call: None, block: "BATCH".into(), why: "no".into() },
        ];
        for fact in facts {
            let FlowStep::RecordFact { kind, value } = fact.clone().into_step() else { panic!("a fact is a note") };
            assert_eq!(Fact::from_event(&Event::FlowFactRecorded { kind, value }), Some(fact));
        }
        assert_eq!(Fact::from_event(&Event::FlowFactRecorded { kind: "other".into(), value: Value::Null }), None);
    }
}
