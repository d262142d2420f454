//! The facts that the flow records. Everything that the flow parses from a text or decides becomes a fact, so that its state can
//! be rebuilt without parsing a text again. Fields that were added later have defaults, so that old journals stay readable.

use segue_core::body::TextRef;
use segue_core::event::Event;
use segue_core::flow::FlowStep;
use segue_core::ids::{CallId, MessageId, ToolRunId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::domain::{RecordFieldCondition, RecordSort};
use super::reasoning::TurnDecisionSummary;
use super::registry::{LastEntityAction, RecordDraft, RecordWithReferenceName};
use crate::fact;

/// A fact that the assistant flow records in the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "value", rename_all = "snake_case")]
pub enum AssistantFact {
    /// Some of the session's settings are invalid.
    InvalidSettings { complaints: Vec<String> },
    /// Understand interpreted the user's message.
    MessageUnderstood(MessageUnderstanding),
    /// Think decided what to do in this turn.
    Planned(AssistantTurnPlan),
    /// Think gave no usable plan.
    PlanFailed { why: String },
    /// A node's answer was invalid and is requested again.
    AnswerRejected {
        node: String,
        call: CallId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<u32>,
        complaints: Vec<String>,
    },
    /// The records that a tool run returned or changed, with a reference for each.
    RecordsReceived(Box<DomainToolRunOutcome>),
    /// A tool run failed or was refused.
    ToolFailed {
        run: ToolRunId,
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step: Option<u32>,
        why: String,
    },
    /// A step asked for records that are already loaded, so nothing was read.
    AlreadyLoaded { step: u32, refs: Vec<String> },
    /// A read step found more records than are read at once, so Act has to search.
    SearchNeeded { step: u32, total: u64 },
    /// The search of a read step found nothing, so all records of the type are read.
    SearchWidened { step: u32, search: String },
    /// The snapshot of the records at the start of a turn.
    SnapshotTaken {
        turn: u32,
        /// The complete tool result.
        text: TextRef,
        /// Types whose records were changed by somebody else since they were loaded.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        changed_types: Vec<String>,
    },
    /// A step asked for the result of an earlier step.
    StepResultRetrieved {
        /// The step that asked.
        step: u32,
        source_turn: u32,
        source_step: u32,
    },
    /// A step ended.
    StepEnded(Box<AssistantStepEnd>),
    /// A turn ended; this is its entry in the memory.
    TurnSummarized(Box<FinishedTurnForMemory>),
    /// Older turn summaries were replaced by one text.
    ReasoningCompacted {
        /// The last turn that the text covers.
        through_turn: u32,
        text: TextRef,
    },
    /// Older exchanges were replaced by one text.
    ConversationCompacted {
        /// The last turn that the text covers.
        through_turn: u32,
        text: TextRef,
    },
    /// A compaction failed; the memory stays as it was.
    CompactionFailed { layer: CompactedMemoryKind, why: String },
    /// The domain's server listed its tools.
    ServerToolsListed { tools: Vec<RecordedMcpToolDescription> },
    /// A write was undone.
    WriteUndone {
        /// The tool run whose write this is about.
        run: ToolRunId,
    },
    /// A write could not be undone.
    UndoFailed {
        /// The tool run whose write this is about.
        run: ToolRunId,
        why: String,
    },
}

/// A tool as its MCP server describes it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RecordedMcpToolDescription {
    pub name: String,
    #[serde(default)]
    pub description: String,
    /// The JSON schema of its arguments, as text.
    #[serde(default)]
    pub input_schema: String,
    /// Whether the tool changes data, if the server says so (`readOnlyHint`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub writes: Option<bool>,
}

/// The memory layers that are compacted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CompactedMemoryKind {
    Conversation,
    Reasoning,
}

/// How much repair a node's answer needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerRepairLevel {
    /// It was valid at once.
    #[default]
    FirstAttempt,
    /// It was valid after one complaint.
    Repaired,
    /// It was still invalid after one complaint; the valid parts are used.
    Salvaged,
}

/// How Understand interpreted a message.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct MessageUnderstanding {
    pub turn: u32,
    /// What the user wants, in a few words.
    pub intent: String,
    /// The records that the message refers to.
    pub references: Vec<String>,
    /// Older records that stay relevant.
    pub retained: Vec<ReferenceWithRelevanceReason>,
    /// Records that the user ruled out for now.
    pub demoted: Vec<ReferenceWithRelevanceReason>,
    /// Records that no longer matter in this conversation.
    pub dropped: Vec<String>,
    /// Whether all saved records are dropped because the user starts over.
    pub drops_all_saved: bool,
    /// How the message answers the pending question or proposal.
    pub response_to_pending: Option<PendingQuestionResponseKind>,
    pub quality: AnswerRepairLevel,
    /// The parts of the answer that were invalid and not used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub complaints: Vec<String>,
}

/// A reference, and why it is retained or demoted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReferenceWithRelevanceReason {
    #[serde(rename = "ref")]
    pub reference: String,
    #[serde(default)]
    pub reason: String,
}

/// How a message answers a pending question or proposal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PendingQuestionResponseKind {
    Accepted,
    Declined,
    Answered,
    /// The message is about something else.
    Ignored,
}

/// The three decisions that Think can make.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ThinkDecision {
    /// Carry out a plan now.
    PlanDirect,
    /// Propose something and wait for the user.
    Propose,
    /// Ask the user a question.
    Clarify,
}

impl ThinkDecision {
    /// Returns the name used in prompts and in the journal.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::PlanDirect => "plan_direct",
            Self::Propose => "propose",
            Self::Clarify => "clarify",
        }
    }
}

/// What Think decided to do in a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AssistantTurnPlan {
    pub turn: u32,
    pub decision: ThinkDecision,
    #[serde(default)]
    pub goal: String,
    /// The steps, sorted by group.
    #[serde(default)]
    pub steps: Vec<AssistantPlanStep>,
    /// The proposal or question for the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_to_user: Option<String>,
    /// Descriptions of planned reads that were left out because their records are loaded.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped_steps: Vec<String>,
    /// Descriptions of planned writes that were left out because the message asks only for information.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub withheld_writes: Vec<String>,
    #[serde(default)]
    pub quality: AnswerRepairLevel,
}

/// One step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AssistantPlanStep {
    /// The number of the step in the plan, from 1.
    pub step: u32,
    pub description: String,
    #[serde(rename = "type")]
    pub kind: AssistantPlanStepKind,
    /// The only operation that a write step may execute: one of the operations on tables, or a tool of the domain's server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation: Option<String>,
    /// The type of record that the step is about.
    #[serde(default)]
    pub subdomain: String,
    /// Steps with the same number run at the same time.
    #[serde(default)]
    pub group: u32,
    /// The records that the step works with.
    #[serde(default)]
    pub refs: Vec<String>,
    /// Whether a read step reads again what is already loaded.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub refresh: bool,
    /// Which records a read step without references looks for: those that match all filters.
    #[serde(default, rename = "where", skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<RecordFieldCondition>,
    /// The order in which a read step returns the records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sort: Option<RecordSort>,
}

/// What a step of a plan does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AssistantPlanStepKind {
    /// Finds records.
    Read,
    /// Compares, filters or chooses among loaded records.
    Analyze,
    /// Writes drafts, which are not saved.
    Generate,
    /// Changes records. No other kind of step may do that.
    Write,
}

impl AssistantPlanStepKind {
    /// Every kind of step.
    pub const ALL: [Self; 4] = [Self::Read, Self::Analyze, Self::Generate, Self::Write];

    /// Returns the name used in prompts and in the journal.
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

/// The outcome of a tool run, with references in place of ids.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DomainToolRunOutcome {
    pub run: ToolRunId,
    #[serde(default)]
    pub turn: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<u32>,
    pub action: LastEntityAction,
    /// The tool's name as models know it.
    #[serde(default)]
    pub tool: String,
    #[serde(default)]
    pub rows: Vec<RecordWithReferenceName>,
    /// References of records that no longer exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
    /// How many records match in all, if the tool says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// The type of which all records are loaded now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fully_loaded_type: Option<String>,
    /// The digest of that type's records.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub type_version: Option<String>,
    /// Types of which a write changed records.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub changed_types: Vec<String>,
    /// A digest of the query, if a read found nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub empty_read_digest: Option<String>,
    /// One line for each change.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub write_summaries: Vec<String>,
    /// The complete tool result.
    pub text: TextRef,
}

/// How a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AssistantStepEndStatus {
    Done,
    /// The user must answer a question first.
    AwaitingUser,
    /// It is impossible under the current conditions.
    Blocked,
    Failed,
}

impl AssistantStepEndStatus {
    /// Returns a short description for users and models. `None` is a step that has not started.
    #[must_use]
    pub fn describe(status: Option<Self>) -> &'static str {
        match status {
            Some(Self::Done) => "done",
            Some(Self::AwaitingUser) => "waits for the user's answer",
            Some(Self::Blocked) => "could not be done",
            Some(Self::Failed) => "failed",
            None => "not started",
        }
    }
}

/// How a step ended, and with what result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AssistantStepEnd {
    pub turn: u32,
    pub step: u32,
    pub status: AssistantStepEndStatus,
    /// The outcome in one sentence.
    #[serde(default)]
    pub outcome: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refs: Vec<String>,
    /// A note for the next step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub drafts: Vec<RecordDraft>,
    /// The question for the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub question: Option<String>,
    /// What the step had found out before it asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial_result: Option<Value>,
    /// What the step suggests if it is blocked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suggested_next: Option<String>,
    /// The answer of Act that contains the result.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<TextRef>,
}

/// A finished turn, as the memory keeps it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FinishedTurnForMemory {
    pub turn: u32,
    #[serde(default)]
    pub messages: Vec<(MessageId, TextRef)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reply: Option<TextRef>,
    /// The question or proposal that now waits for the user.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<PendingQuestion>,
    /// What was done and why; absent if `turn_narratives` is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<TurnDecisionSummary>,
}

/// A question or proposal that waits for the user's answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingQuestion {
    pub turn: u32,
    pub kind: ProposalOrQuestion,
    pub text: String,
    /// What had been found out before it was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial_result: Option<Value>,
}

/// Whether the user was asked or offered something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProposalOrQuestion {
    Proposal,
    Question,
}

impl AssistantFact {
    /// Returns the flow step that records this fact.
    #[must_use]
    pub fn into_step(self) -> FlowStep {
        fact::record_fact_step(&self)
    }

    /// Parses an event, if it is a fact of this flow.
    #[must_use]
    pub fn from_event(event: &Event) -> Option<Self> {
        fact::parse_fact_event(event)
    }

    /// Parses a fact from its kind and value, if it is one of this flow.
    #[must_use]
    pub fn parse(kind: &str, value: &Value) -> Option<Self> {
        fact::parse_fact(kind, value)
    }
}
