//! The facts that the team flow records. Whatever is read from a text or decided becomes a fact, so that the state can be
//! rebuilt without reading a text again.

use segue_core::body::TextRef;
use segue_core::event::Event;
use segue_core::flow::FlowStep;
use segue_core::ids::{AgentName, CallId, MessageId};
use serde::{Deserialize, Serialize};

use super::knowledge::{ExistingKnowledgeNodePolicy, KnowledgeForStory, KnowledgeGraph, KnowledgeNode};
use super::product_spec::{ProductSpec, RequiredSpecField};
use super::review::{ParsedReview, ReviewVerdict};
use super::story::Story;
use crate::fact;

/// A fact that the team flow records in the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "value", rename_all = "snake_case")]
pub enum TeamFact {
    /// The product manager has a new version of the spec.
    SpecDrafted {
        spec: ProductSpec,
        missing: Vec<RequiredSpecField>,
    },
    /// The user accepted the spec, and the team starts.
    SpecAccepted {
        number: u32,
        spec: ProductSpec,
    },
    /// The repository was looked at.
    RepositoryInspected(Box<InspectedRepository>),
    /// The knowledge file was read into the graph.
    KnowledgeImported {
        graph: KnowledgeGraph,
    },
    /// The architect cut the spec into stories.
    StoriesPlanned {
        stories: Vec<Story>,
        origin: StoryListOrigin,
        problems: Vec<String>,
    },
    /// The architect's stories are invalid, and it is asked again.
    StoriesRefused {
        problems: Vec<String>,
    },
    /// A story was added or changed by the user.
    StoryChanged {
        story: Story,
    },
    /// A story got another status.
    StoryMoved {
        story: String,
        status: StoryStatus,
        reason: String,
    },
    /// A story waits for a coder again.
    StoryRequeued {
        story: String,
        reason: String,
        failure: TeamFailureKind,
    },
    /// Work is being given out. Until it ends, nothing else is.
    DispatchBegun,
    DispatchEnded,
    /// A coder was given a story.
    Assigned(Box<StoryAssignment>),
    /// A coder has no story any more.
    Unassigned {
        agent: AgentName,
    },
    /// A coder's worktree is ready.
    WorktreeReady {
        agent: AgentName,
        base: String,
    },
    /// What a coder is to do next.
    TaskGiven {
        agent: AgentName,
        task: CoderTask,
    },
    /// A coder wrote a plan.
    PlanSubmitted {
        agent: AgentName,
        plan: TextRef,
    },
    /// A coder says that it is done, and what it did.
    WorkReported {
        agent: AgentName,
        account: TextRef,
    },
    /// The coder's changes were committed.
    WorkCommitted {
        agent: AgentName,
        commit: String,
        diff: TextRef,
        diff_digest: String,
        files: Vec<String>,
    },
    /// Code refused the changes before any review.
    WorkRefused {
        agent: AgentName,
        problems: Vec<String>,
    },
    /// The project's tests ran on a commit.
    TestsRan {
        agent: AgentName,
        commit: String,
        passed: bool,
        output: TextRef,
        failure_digest: String,
    },
    /// A coder needs the architect.
    RequestPrepared {
        agent: AgentName,
        work: String,
        request: CoderRequestKind,
        text: Option<TextRef>,
    },
    /// The architect reviewed one part of a long diff.
    ReviewPartRead {
        request: MessageId,
        review: ParsedReview,
    },
    /// The architect's answer has no valid verdict.
    ReviewRefused {
        request: MessageId,
        call: CallId,
        why: String,
    },
    /// The architect decided about a request.
    ReviewGiven(Box<ArchitectDecisionOnRequest>),
    /// An answer was recorded, but the assignment has changed since the question.
    ReviewDiscarded {
        request: MessageId,
        agent: AgentName,
        work: String,
    },
    /// An agent added an entry to the knowledge graph.
    KnowledgeAdded {
        agent: AgentName,
        story: Option<String>,
        node: KnowledgeNode,
    },
    /// An entry was refused.
    KnowledgeRefused {
        agent: AgentName,
        problems: Vec<String>,
    },
    /// Express work was queued.
    ExpressQueued {
        story: Story,
        update: Option<KnowledgeFileUpdate>,
        by: String,
    },
    /// The knowledge file was written to a coder's worktree.
    KnowledgeFileWritten {
        agent: AgentName,
        nodes: usize,
    },
    /// A coder's attempt failed.
    WorkFailed {
        agent: AgentName,
        reason: String,
        failure: TeamFailureKind,
    },
    /// A rebase onto the integration branch ended.
    Rebased {
        agent: AgentName,
        base: String,
        commit: String,
        diff: TextRef,
        diff_digest: String,
    },
    /// A rebase onto the integration branch failed.
    MergeConflicted {
        agent: AgentName,
        story: String,
        files: Vec<String>,
    },
    /// A story is in the integration branch.
    Merged {
        agent: AgentName,
        story: String,
        commit: String,
    },
    /// A person is needed.
    Escalated {
        subject: String,
        reason: String,
        failure: TeamFailureKind,
    },
    /// A person is no longer needed.
    EscalationEnded {
        subject: String,
    },
    Paused,
    Resumed,
    /// A person works in the worktree of a story.
    TakenOver {
        story: String,
        agent: AgentName,
    },
    /// The person gave the story back.
    GivenBack {
        story: String,
        agent: AgentName,
    },
    /// The integration branch was merged into a branch of the user.
    Landed {
        branch: String,
        commit: String,
        before: Option<String>,
    },
    LandingUndone {
        branch: String,
    },
    /// The team could not start on a spec.
    SpecAborted {
        reason: String,
    },
    /// The user was told what a spec delivered.
    AccountGiven,
    /// All stories of a spec have ended.
    SpecEnded {
        number: u32,
        merged: Vec<String>,
        missing: Vec<UndeliveredStory>,
    },
}

impl TeamFact {
    /// Returns the step that records the fact.
    #[must_use]
    pub fn into_step(self) -> FlowStep {
        fact::record_fact_step(&self)
    }

    /// Returns the fact in an event, if it is one.
    #[must_use]
    pub fn from_event(event: &Event) -> Option<Self> {
        fact::parse_fact_event(event)
    }
}

/// What was found in a repository.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct InspectedRepository {
    /// The commit on which all work is based.
    pub base: String,
    /// The branch of the user, if the repository is on one.
    #[serde(default)]
    pub branch: Option<String>,
    /// The integration branch.
    pub integration: String,
    #[serde(default)]
    pub warnings: Vec<String>,
    /// The text of `AGENTS.md`.
    #[serde(default)]
    pub instructions: Option<String>,
    /// What is wrong with the knowledge file. It is then left as it is.
    #[serde(default)]
    pub knowledge_problem: Option<String>,
    /// Whether the tests pass before anything is changed.
    #[serde(default)]
    pub base_is_green: Option<bool>,
}

impl InspectedRepository {
    /// Returns the start of the base's name, as git shows it.
    #[must_use]
    pub fn short_base(&self) -> &str {
        self.base.get(..10).unwrap_or(&self.base)
    }
}

/// Where the stories came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoryListOrigin {
    Emitted,
    Repaired,
    /// The architect's stories were invalid twice, so the spec is one story.
    SingleStory,
}

/// The status of a story.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoryStatus {
    Waiting,
    InProgress,
    /// A person works on it.
    TakenOver,
    Merged,
    /// A person has to decide.
    Escalated,
    /// A story that it needs failed.
    Blocked,
    /// The user does not want it any more.
    Skipped,
}

impl StoryStatus {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::InProgress => "in progress",
            Self::TakenOver => "taken over",
            Self::Merged => "merged",
            Self::Escalated => "needs you",
            Self::Blocked => "blocked",
            Self::Skipped => "skipped",
        }
    }

    /// Returns true if no agent will work on the story unless a person decides so.
    #[must_use]
    pub fn is_ended(self) -> bool {
        matches!(self, Self::Merged | Self::Escalated | Self::Blocked | Self::Skipped)
    }
}

/// Why something failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TeamFailureKind {
    /// It may work later without a change.
    Transient,
    /// The story cannot be done as it is.
    StoryInvalid,
    /// The machine, the repository or the configuration prevents it.
    Environment,
    /// The user changed what is wanted.
    Superseded,
}

impl TeamFailureKind {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::StoryInvalid => "story invalid",
            Self::Environment => "environment",
            Self::Superseded => "superseded",
        }
    }
}

/// Says what an agent works on. Only the dispatcher makes assignments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoryAssignment {
    pub agent: AgentName,
    pub story: String,
    /// The number of the attempt, from 1.
    pub attempt: u32,
    pub revision: u32,
    /// What is known about the story. It stays the same for the whole assignment.
    #[serde(default)]
    pub pack: KnowledgeForStory,
}

impl StoryAssignment {
    /// Returns the name of the work item, from which core computes the scope of threads.
    #[must_use]
    pub fn work_item(&self) -> String {
        format!("{}#{}.{}", self.story, self.attempt, self.revision)
    }
}

/// What a coder is to do next.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "task", rename_all = "snake_case")]
pub enum CoderTask {
    Plan,
    RevisePlan {
        review: Box<ArchitectDecisionOnRequest>,
    },
    Code,
    /// Code refused the changes.
    FixProblems {
        problems: Vec<String>,
    },
    FixTests {
        output: TextRef,
    },
    FixReview {
        review: Box<ArchitectDecisionOnRequest>,
    },
    /// The work is done again on a newer base.
    RedoOnNewBase {
        files: Vec<String>,
    },
    /// The rounds were used up, and the architect granted more.
    Continue {
        review: Box<ArchitectDecisionOnRequest>,
    },
    UseAnswer {
        answer: String,
    },
    /// A tool call that the coder wrote in its text was run.
    UseResult {
        tool: String,
        failed: bool,
        result: TextRef,
    },
    /// A tool call that the coder wrote in its text was not run.
    RepeatCall {
        problem: String,
    },
    /// The changes are complete: a person made them, or a rebase changed them.
    Recheck,
    WriteKnowledge,
}

/// What a coder needs the architect for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CoderRequestKind {
    Question,
    PlanReview,
    CodeReview,
    /// The coder changed nothing and says that nothing is needed.
    CompletionReview,
    BudgetReview,
}

impl CoderRequestKind {
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Question => "question",
            Self::PlanReview => "plan review",
            Self::CodeReview => "code review",
            Self::CompletionReview => "completion review",
            Self::BudgetReview => "budget review",
        }
    }
}

/// The architect's decision about a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchitectDecisionOnRequest {
    pub request: MessageId,
    pub agent: AgentName,
    pub story: String,
    pub attempt: u32,
    pub kind: CoderRequestKind,
    pub verdict: ReviewVerdict,
    pub review: ParsedReview,
    /// The answer on which it is based; `None` if code decided.
    pub call: Option<CallId>,
    /// The commit that was reviewed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// How many reviews of this kind in a row asked for changes, with this one.
    pub streak: u32,
}

/// An update of the knowledge file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnowledgeFileUpdate {
    pub entries: Vec<KnowledgeNode>,
    pub file_path: String,
    #[serde(default)]
    pub action: ExistingKnowledgeNodePolicy,
}

/// A story that is not part of the delivery.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UndeliveredStory {
    pub story: String,
    pub title: String,
    pub status: StoryStatus,
    pub reason: String,
}
