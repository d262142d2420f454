//! The facts that the flow records. Everything that it decides or reads from a text becomes a fact, so that its state can be
//! rebuilt from the journal alone.

use segue_core::event::Event;
use segue_core::flow::FlowStep;
use segue_core::ids::{AgentName, CallId, PhaseName};
use serde::{Deserialize, Serialize};

pub use super::workspace_claim::WorkspaceClaimWait;
use crate::fact;
use crate::workspace_tools::WorkspaceCommandRun;

/// A fact that the project flow records in the journal.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "value", rename_all = "snake_case")]
pub enum ProjectFact {
    /// It was decided which phase and agents come next. The phase still has to be entered.
    Decided(NextPhaseAndAgents),
    /// The router's answer could not be used.
    DecisionRejected {
        call: CallId,
        complaints: Vec<String>,
    },
    /// A routing turn was opened for these agents.
    TurnOpened {
        turn: u32,
        decision: NextPhaseAndAgents,
    },
    /// An agent asked to complete its work, and the request was accepted.
    CompletionAccepted {
        turn: u32,
        agent: AgentName,
        completion: AgentCompletionReport,
    },
    /// An agent asked to complete its work, and the request was refused.
    CompletionRefused {
        turn: u32,
        agent: AgentName,
        why: String,
    },
    /// An agent is done with a routing turn. The turn is closed when all of its agents are.
    AgentTurnEnd {
        turn: u32,
        agent: AgentName,
        how: AgentTurnEndKind,
        completion: AgentCompletionReport,
    },
    /// A completion arrived after its routing turn was closed. It changes nothing.
    LateCompletion {
        agent: AgentName,
        summary: String,
    },
    /// A routing turn was given up before all of its agents were done.
    TurnAbandoned {
        turn: u32,
        why: String,
    },
    /// An agent did not complete its work and was reminded to.
    AgentReminded {
        turn: u32,
        agent: AgentName,
    },
    /// An agent is going to write a file, whose content follows.
    WriteAnnounced {
        turn: u32,
        agent: AgentName,
        path: String,
    },
    /// An agent chose an action that is not possible.
    ActionRefused {
        turn: u32,
        agent: AgentName,
        why: String,
    },
    /// An agent was told something in the middle of its work.
    AgentSteered {
        turn: u32,
        agent: AgentName,
        why: MidWorkNoticeToAgentReason,
    },
    /// The router named agents that do not exist or may not work in the phase.
    UnknownAgents {
        names: Vec<String>,
        phase: PhaseName,
    },
    /// The same phase and agents were routed repeatedly.
    LoopNoticed {
        phase: PhaseName,
        agents: Vec<AgentName>,
        times: u32,
    },
    /// An agent submitted a plan.
    PlanSubmitted(ProjectPlan),
    /// The user changed the plan.
    PlanEdited(ProjectPlan),
    PlanApproved {
        by: PlanApprover,
    },
    /// The user named a command that tests the content.
    CheckConfirmed {
        command: String,
    },
    /// The user confirmed the current content, because no check is known.
    ContentConfirmed {
        digest: String,
    },
    /// The user confirmed the current visit.
    VisitConfirmed,
    /// The verdict on the content of the workspace.
    VerdictReached(Box<WorkspaceCheckVerdict>),
    /// The content was restored, because a check failed after the phase.
    ContentRestored {
        checkpoint: String,
        why: String,
    },
    LessonLearned {
        agent: AgentName,
        lesson: AgentLesson,
    },
    /// The workspace did not store a lesson.
    LessonNotKept {
        why: String,
    },
    /// Another session works in the workspace, so this one waits for its turn.
    ClaimAwaited(WorkspaceClaimWait),
    /// The flow stopped to ask the user.
    UserAsked {
        why: AskUserReason,
        text: String,
    },
    /// The user ended the session although obligations were open.
    EndedEarly {
        open_gates: Vec<String>,
    },
}

/// Which phase and agents come next, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NextPhaseAndAgents {
    pub phase: PhaseName,
    /// Empty if the phase ends the flow.
    pub agents: Vec<AgentName>,
    pub reason: String,
    pub by: RoutingDecisionMaker,
    /// The words with which the user asked for it, as the router quotes them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_words: Option<String>,
}

/// Who made a routing decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoutingDecisionMaker {
    Router,
    /// Only one answer was possible.
    Code,
    /// The router gave no usable answer, so the default agent of the phase works.
    Default,
    User,
}

/// What an agent says about its work when it completes it.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct AgentCompletionReport {
    pub summary: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub issues: Vec<ReportedIssue>,
    /// True if the phase requires changes and there were none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub empty: bool,
}

/// A problem that an agent reports.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedIssue {
    pub title: String,
    pub steps_to_reproduce: String,
}

/// How an agent's part in a routing turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentTurnEndKind {
    /// It called `complete`.
    Completed,
    /// It answered the user.
    Answered,
    /// It did not complete its work even after a reminder, so the flow did it.
    AutoCompleted,
    /// Its model failed.
    Failed,
    /// It repeated the same tool call with the same result.
    Stopped,
}

impl AgentTurnEndKind {
    /// Returns whether this can satisfy an exit condition.
    #[must_use]
    pub fn can_satisfy_exit_condition(self) -> bool {
        matches!(self, Self::Completed | Self::Answered)
    }
}

/// Why an agent was told something in the middle of its work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MidWorkNoticeToAgentReason {
    /// The user sent a message.
    UserMessage,
    /// It made the same tool call twice, with the same result.
    RepeatedCall,
}

/// A plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectPlan {
    pub goal: String,
    pub steps: Vec<ProjectPlanStep>,
}

/// A step of a plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProjectPlanStep {
    pub title: String,
    #[serde(default)]
    pub detail: String,
    /// How to tell that the step is done.
    pub done_when: String,
}

/// Who approved a plan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlanApprover {
    User,
    /// The setting `plan_approval = "auto"`.
    Auto,
}

/// A verdict on the content of the workspace, derived from commands that the engine ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceCheckVerdict {
    /// The digest of the content on which the commands ran.
    pub digest: String,
    /// Whether a command ran, all passed, and no agent reported an issue.
    pub passed: bool,
    pub commands: Vec<WorkspaceCommandRun>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub issues: Vec<ReportedIssue>,
    /// Why the verdict is not reliable, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// What an agent has learned.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentLesson {
    pub title: String,
    pub text: String,
}

/// Why the flow stopped to ask the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskUserReason {
    PlanApproval,
    /// No check is known, so the user has to confirm the content.
    Confirmation,
    /// The same routing was repeated without progress.
    Loop,
    /// A phase was entered as often as allowed.
    Visits,
    /// There were as many routing turns as allowed.
    RoutingTurns,
    /// A phase reached its limit.
    PhaseLimit,
    /// Another session works in the workspace, or the workspace could not be asked.
    WorkspaceClaim,
}

impl ProjectFact {
    /// Returns the step that records the fact.
    #[must_use]
    pub fn into_step(self) -> FlowStep {
        fact::record_fact_step(&self)
    }

    /// Returns the fact in `event`, or `None` if it is not one of this flow.
    #[must_use]
    pub fn from_event(event: &Event) -> Option<Self> {
        fact::parse_fact_event(event)
    }
}
