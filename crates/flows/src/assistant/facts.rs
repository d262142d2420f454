//! The flow's own events. Whatever the flow reads from a text or decides is one of these, so that its state can be folded
//! without reading a text again. Fields that came later have defaults: what was written once can be read for ever.

use segue_core::body::TextRef;
use segue_core::event::Event;
use segue_core::flow::FlowStep;
use segue_core::ids::{CallId, MessageId, ToolRunId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::reasoning::TurnSummary;
use super::registry::{EntityAction, RecordDraft, ReferencedRecord};
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
    /// What the user is taken to mean, and what that does to the references.
    MessageUnderstood(MessageUnderstanding),
    /// What is to be done in this turn.
    Planned(TurnPlan),
    /// No plan could be made.
    PlanFailed {
        /// Why.
        why: String,
    },
    /// An answer that could not be used as it was.
    AnswerRejected {
        /// Whose.
        node: String,
        /// Which.
        call: CallId,
        /// In which step.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<u32>,
        /// What is wrong with it.
        complaints: Vec<String>,
    },
    /// What a tool brought, in references.
    RecordsReceived(Box<ToolRunRecords>),
    /// A tool did not do what was asked.
    ToolFailed {
        /// Which run.
        run: ToolRunId,
        /// In which step.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<u32>,
        /// Why.
        why: String,
    },
    /// A step asked for records that are at hand; nothing was read.
    AlreadyLoaded {
        /// Which.
        step: u32,
        /// The references.
        refs: Vec<String>,
    },
    /// The result of an earlier step is fetched for a step.
    StepResultRetrieved {
        /// For which.
        step: u32,
        /// Of which turn.
        source_turn: u32,
        /// Of which step in it.
        source_step: u32,
    },
    /// A step is over.
    StepEnded(Box<StepEnd>),
    /// A turn is over, in the words of Summarize: what was said, and what was done.
    TurnSummarized(Box<TurnSummarized>),
    /// Older summaries were folded into one text.
    ReasoningCompacted {
        /// Up to this turn.
        through_turn: u32,
        /// The text.
        text: TextRef,
    },
    /// Older exchanges were folded into one text.
    ConversationCompacted {
        /// Up to this turn.
        through_turn: u32,
        /// The text.
        text: TextRef,
    },
    /// Folding did not succeed; what stood stands on.
    CompactionFailed {
        /// What was to be folded.
        layer: MemoryLayer,
        /// Why it was not.
        why: String,
    },
    /// What the tools of the domain's server take.
    ServerToolsListed {
        /// The tools.
        tools: Vec<McpToolInfo>,
    },
    /// A write was taken back.
    WriteUndone {
        /// The run that wrote.
        run: ToolRunId,
    },
    /// A write could not be taken back.
    UndoFailed {
        /// The run that wrote.
        run: ToolRunId,
        /// Why.
        why: String,
    },
}

/// A tool of a server, as it describes itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct McpToolInfo {
    /// Its name.
    pub name: String,
    /// What it does, in the server's words.
    #[serde(default)]
    pub description: String,
    /// What it takes, as a JSON schema.
    #[serde(default)]
    pub input_schema: String,
    /// Whether the server says that it changes something, or that it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<bool>,
}

/// The layers that are folded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemoryLayer {
    /// What was said.
    Conversation,
    /// What was decided.
    Reasoning,
}

/// How an answer came about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerQuality {
    /// As it was given.
    #[default]
    FirstAttempt,
    /// When it was asked for again.
    Repaired,
    /// What of it could be used, after it was asked for again.
    Salvaged,
}

/// What the user is taken to mean.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MessageUnderstanding {
    /// In which turn.
    pub turn: u32,
    /// What they expressed, in a few words.
    pub intent: String,
    /// What they refer to.
    pub references: Vec<String>,
    /// What is to be kept near, and why.
    pub retained: Vec<ReferenceWithReason>,
    /// What is set aside, and why.
    pub demoted: Vec<ReferenceWithReason>,
    /// What leaves the conversation.
    pub dropped: Vec<String>,
    /// Whether everything that is saved leaves it.
    pub drops_all_saved: bool,
    /// How they answer what was pending.
    pub response_to_pending: Option<UserResponseKind>,
    /// How this came about.
    pub quality: AnswerQuality,
    /// What of the answer was not used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub complaints: Vec<String>,
}

/// A reference and a reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReferenceWithReason {
    /// Which.
    #[serde(rename = "ref")]
    pub reference: String,
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// How something pending is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UserResponseKind {
    /// They agree.
    Accepted,
    /// They do not.
    Declined,
    /// They say what was asked.
    Answered,
    /// They speak of something else.
    Ignored,
}

/// What Think decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkDecision {
    /// To act at once.
    PlanDirect,
    /// To propose something first.
    Propose,
    /// To ask first.
    Clarify,
}

impl ThinkDecision {
    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PlanDirect => "plan_direct",
            Self::Propose => "propose",
            Self::Clarify => "clarify",
        }
    }
}

/// What is to be done in a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnPlan {
    /// In which turn.
    pub turn: u32,
    /// What was decided.
    pub decision: ThinkDecision,
    /// What for.
    #[serde(default)]
    pub goal: String,
    /// The steps, in order.
    #[serde(default)]
    pub steps: Vec<PlannedStep>,
    /// What to propose or ask.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_to_user: Option<String>,
    /// Steps that were planned and are not needed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped_steps: Vec<String>,
    /// How this came about.
    #[serde(default)]
    pub quality: AnswerQuality,
}

/// A step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlannedStep {
    /// Its number, from 1.
    pub step: u32,
    /// What is to be done.
    pub description: String,
    /// What sort of step it is.
    #[serde(rename = "type")]
    pub kind: StepKind,
    /// The type of record it is about.
    #[serde(default)]
    pub subdomain: String,
    /// Steps of one group do not wait for each other.
    #[serde(default)]
    pub group: u32,
    /// The references it works with.
    #[serde(default)]
    pub refs: Vec<String>,
}

/// The sorts of step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepKind {
    /// Records are read.
    Read,
    /// What is at hand is thought about.
    Analyze,
    /// Something new is written, and not saved.
    Generate,
    /// Records are changed. The only sort of step in which that happens.
    Write,
}

impl StepKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Read, Self::Analyze, Self::Generate, Self::Write];

    /// The word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Analyze => "analyze",
            Self::Generate => "generate",
            Self::Write => "write",
        }
    }
}

/// What a tool brought, in references.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolRunRecords {
    /// Which run.
    pub run: ToolRunId,
    /// In which turn.
    #[serde(default)]
    pub turn: u32,
    /// For which step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    /// What was done.
    pub action: EntityAction,
    /// What it was called for, as models name tools.
    #[serde(default)]
    pub tool: String,
    /// The records.
    #[serde(default)]
    pub rows: Vec<ReferencedRecord>,
    /// Records that are gone.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    /// How many there are in all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// What was read, if all of a type is at hand now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fully_loaded_type: Option<String>,
    /// What tells this read from others, if it found nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub empty_read_digest: Option<String>,
    /// What was written, in words.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write_summaries: Vec<String>,
    /// The whole result.
    pub text: TextRef,
}

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepEndStatus {
    /// It is done.
    Done,
    /// The user must say something first.
    AwaitingUser,
    /// It cannot be done as things are.
    Blocked,
    /// It did not succeed.
    Failed,
}

impl StepEndStatus {
    /// How a step stands, in words for people and models.
    #[must_use]
    pub fn describe(end: Option<Self>) -> &'static str {
        match end {
            Some(Self::Done) => "done",
            Some(Self::AwaitingUser) => "waits for an answer",
            Some(Self::Blocked) => "could not be done",
            Some(Self::Failed) => "failed",
            None => "not begun",
        }
    }
}

/// A step that is over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepEnd {
    /// In which turn.
    pub turn: u32,
    /// Which.
    pub step: u32,
    /// How it ended.
    pub status: StepEndStatus,
    /// What came of it, in a sentence.
    #[serde(default)]
    pub outcome: String,
    /// The references it is about.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refs: Vec<String>,
    /// What the next step should know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What was written and is not saved.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drafts: Vec<RecordDraft>,
    /// What the user is to be asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// How far it had come when the question came up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial_result: Option<Value>,
    /// What could be done next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggested_next: Option<String>,
    /// The answer its result stands in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<TextRef>,
}

/// A turn that is over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TurnSummarized {
    /// Which.
    pub turn: u32,
    /// What the user said.
    #[serde(default)]
    pub messages: Vec<(MessageId, TextRef)>,
    /// What was replied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<TextRef>,
    /// What waits for the user's answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingUserInput>,
    /// What was done and why; absent where turns are not narrated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<TurnSummary>,
}

/// What waits for the user's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingUserInput {
    /// Since which turn.
    pub turn: u32,
    /// What sort of thing.
    pub kind: PendingInputKind,
    /// In words.
    pub text: String,
    /// What was found out before it came up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial_result: Option<Value>,
}

/// What can wait for the user's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PendingInputKind {
    /// A proposal.
    Proposal,
    /// A question.
    Question,
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
