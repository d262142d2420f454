//! The state of the flow, as a fold of the journal: routing turns, agents, the plan, the evidence, and what happened.

mod apply;
mod log;
mod tool_results;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use segue_core::body::{BodyId, TextRef};
use segue_core::ids::{AgentName, AskId, CallId, PhaseName, ToolName, ToolRunId, TurnId, UnixMillis};
use serde::{Deserialize, Serialize};

use super::facts::{
    AgentCompletionReport, AgentLesson, AgentTurnEndKind, AskUserReason, NextPhaseAndAgents, PlanApprover, ProjectPlan,
    WorkspaceCheckVerdict,
};
use super::mcp_servers::KnownMcpServerTools;
use super::parallel_writers::AgentWorkspaceCopies;
use super::workspace_claim::WorkspaceClaimWait;
use crate::limits::REFLECTION_TRIES_MAX;
use crate::workspace_tools::{ChecksResult, FileChange, WorkspaceCommandRun};

pub(super) use log::{ProjectLog, ProjectLogEntry, ProjectLogSpeaker, ProjectLogText};

/// The state of a session of the project flow.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ProjectState {
    /// The newest routing turns, oldest first.
    pub(super) turns: VecDeque<RoutingTurn>,
    /// How often each phase and set of agents was routed in older turns.
    pub(super) older_turns: Vec<PrunedRoutingTurnCount>,
    pub(super) turns_total: u32,
    /// Routing turns since the user's last message.
    pub(super) turns_since_message: u32,
    /// The decision that is being carried out.
    pub(super) decision: Option<NextPhaseAndAgents>,
    /// Unusable answers of the router since the last decision.
    pub(super) rejected_decisions: u32,
    /// Decisions whose phase was refused since the last routing turn.
    pub(super) refused_decisions: u32,
    /// What the router must be told with its next question.
    pub(super) feedback: Vec<String>,
    /// Lessons for the router, which code records.
    pub(super) router_lessons: Vec<String>,
    pub(super) agents: BTreeMap<AgentName, ProjectAgentState>,
    pub(super) log: ProjectLog,
    pub(super) visit: VisitProgress,
    /// Visits of each phase since the user's last message.
    pub(super) visits_since_message: BTreeMap<PhaseName, u32>,
    pub(super) plan: Option<PlanWithApproval>,
    pub(super) content: WorkspaceContentDigest,
    pub(super) verdict: Option<WorkspaceCheckVerdict>,
    /// The content that the user confirmed, because no check was known.
    pub(super) confirmed_digest: Option<String>,
    /// Checks that the user named.
    pub(super) confirmed_checks: Vec<String>,
    /// Checks of the workspace, as its host reported them.
    pub(super) workspace_checks: Vec<String>,
    pub(super) files: Vec<String>,
    pub(super) files_total: u64,
    /// The text of the workspace's `AGENTS.md`.
    pub(super) guide: Option<String>,
    /// Files changed since work began, by path.
    pub(super) changed_files: BTreeMap<String, FileChange>,
    pub(super) checkpoints: VecDeque<ProjectWorkspaceCheckpoint>,
    /// The tool runs that have not ended.
    pub(super) runs: BTreeMap<ToolRunId, OpenAgentToolRun>,
    /// The agents' calls that have not ended.
    pub(super) agent_calls: BTreeMap<CallId, AgentName>,
    /// The result of the last checks.
    pub(super) last_checks: Option<ChecksResult>,
    pub(super) last_transition: Option<LastPhaseTransition>,
    pub(super) lessons: BTreeMap<AgentName, Vec<AgentLesson>>,
    pub(super) stopped: Option<AskUserReason>,
    pub(super) metrics: BTreeMap<PhaseName, PhaseMetrics>,
    /// The number of the first routing turn after the user's last message.
    pub(super) first_turn_since_message: u32,
    /// The turn in which an agent has answered the user.
    pub(super) answered_turn: Option<TurnId>,
    /// The current turn, or the last one.
    pub(super) turn: Option<TurnId>,
    /// Whether the content was saved and described in the current turn.
    pub(super) is_prepared: bool,
    /// The topics of the questions to the workspace in the current turn.
    pub(super) workspace_asks: BTreeMap<AskId, String>,
    /// Whether the lessons of the workspace are known.
    pub(super) lessons_loaded: bool,
    /// The turn in which they were last requested.
    pub(super) lessons_asked_in: Option<TurnId>,
    /// The session that works in the workspace, while this one waits for its turn.
    pub(super) claim_wait: Option<WorkspaceClaimWait>,
    /// The tools of MCP servers, as the servers described them.
    pub(super) mcp: KnownMcpServerTools,
    /// The copies of agents that work at the same time.
    pub(super) writer_copies: AgentWorkspaceCopies,
}

/// A tool run that has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct OpenAgentToolRun {
    pub(super) tool: ToolName,
    pub(super) agent: Option<AgentName>,
    /// Whether the agent requested it in its text.
    #[serde(default)]
    pub(super) is_from_text: bool,
    /// The digest of the tool and its arguments.
    pub(super) digest: BodyId,
    /// The label of a checkpoint.
    pub(super) label: Option<String>,
}

/// What is known about the current content of the workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WorkspaceContentDigest {
    /// It changed, and its digest is not known yet.
    #[default]
    Unknown,
    /// It has this digest.
    At(String),
}

impl WorkspaceContentDigest {
    pub(super) fn digest(&self) -> Option<&str> {
        match self {
            Self::Unknown => None,
            Self::At(digest) => Some(digest),
        }
    }
}

/// One routing decision that was carried out, with the agents' completions.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct RoutingTurn {
    pub(super) id: u32,
    pub(super) opened_at: UnixMillis,
    pub(super) decision: NextPhaseAndAgents,
    pub(super) completions: BTreeMap<AgentName, AgentTurnEnd>,
    pub(super) is_closed: bool,
    /// A digest of the content, the verdict and the plan when the turn was closed. Equal digests mean that nothing was
    /// achieved.
    pub(super) progress: BodyId,
    /// The digest of the content, if the turn has changed neither the content nor the plan.
    pub(super) idle_content: Option<String>,
}

impl RoutingTurn {
    pub(super) fn agent_set(&self) -> BTreeSet<&AgentName> {
        self.decision.agents.iter().collect()
    }

    /// Returns whether this turn had the same phase and agents as another.
    pub(super) fn is_same_routing(&self, other: &Self) -> bool {
        self.decision.phase == other.decision.phase && self.agent_set() == other.agent_set()
    }

    pub(super) fn is_waiting_for(&self, agent: &AgentName) -> bool {
        !self.is_closed && self.decision.agents.contains(agent) && !self.completions.contains_key(agent)
    }
}

/// How an agent's part in a routing turn ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct AgentTurnEnd {
    pub(super) at: UnixMillis,
    pub(super) how: AgentTurnEndKind,
    pub(super) completion: AgentCompletionReport,
}

/// How often a routing occurred in turns that are no longer kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PrunedRoutingTurnCount {
    pub(super) phase: PhaseName,
    pub(super) agents: Vec<AgentName>,
    pub(super) times: u32,
}

/// What an agent has done and seen.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct ProjectAgentState {
    /// The number of log entries that the agent has seen.
    pub(super) seen_entries: u64,
    /// The value of `seen_entries` before the agent's last call, to restore it if the call fails.
    pub(super) seen_before_call: u64,
    /// Whether the agent has worked since the last reflection.
    pub(super) participated: bool,
    pub(super) reflected: bool,
    /// How often the agent has failed to reflect.
    pub(super) failed_reflections: u32,
    /// The digest of each file that the agent has read, by path.
    pub(super) read_files: BTreeMap<String, String>,
    /// The progress in the current routing turn.
    pub(super) current: AgentProgressInRoutingTurn,
}

impl ProjectAgentState {
    /// Records how a reflection has ended. An agent that cannot complete it has no lesson, so that it does not keep the others
    /// from the end. A failure of its model does not count: it can be repaired.
    fn apply_reflection_end(&mut self, how: AgentTurnEndKind) {
        match how {
            AgentTurnEndKind::Completed | AgentTurnEndKind::Answered => self.reflected = true,
            AgentTurnEndKind::AutoCompleted | AgentTurnEndKind::Stopped => {
                self.failed_reflections += 1;
                self.reflected |= self.failed_reflections >= REFLECTION_TRIES_MAX;
            }
            AgentTurnEndKind::Failed => {}
        }
    }
}

/// An agent's progress in the current routing turn.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct AgentProgressInRoutingTurn {
    pub(super) turn: u32,
    pub(super) reminded: bool,
    pub(super) refused_completions: u32,
    /// The accepted completion, until the tools that were requested with it have ended.
    pub(super) accepted: Option<AgentCompletionReport>,
    /// The last tool call and its result, and how often it was repeated.
    pub(super) last_tool_call: Option<RepeatedToolCall>,
    /// Whether a repetition was already pointed out.
    pub(super) warned_of_repetition: bool,
    /// Whether the agent is about to be called again with something that it must know.
    pub(super) is_steered: bool,
    /// Whether something changed in the workspace.
    pub(super) changed: bool,
    /// Tool runs that the agent requested.
    pub(super) tool_runs: u32,
    /// Unusable actions since the last run.
    pub(super) refused_actions: u32,
    /// The file that the agent is going to write.
    pub(super) pending_write: Option<AnnouncedFileWrite>,
    /// The result of a run that the agent requested in its text, until the agent has seen it.
    pub(super) last_result: Option<TextToolCallResult>,
    /// The last command, if it failed.
    pub(super) failed_command: Option<WorkspaceCommandRun>,
}

/// A file that an agent is going to write as a whole.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AnnouncedFileWrite {
    pub(super) path: String,
    /// Whether the agent could not be shown the whole present content.
    pub(super) is_cut: bool,
}

/// The result of a run that an agent requested in its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct TextToolCallResult {
    pub(super) tool: String,
    pub(super) text: TextRef,
    pub(super) failed: bool,
}

/// A tool call that an agent made repeatedly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RepeatedToolCall {
    /// The digest of the tool, its arguments and its result.
    pub(super) digest: BodyId,
    pub(super) tool: String,
    pub(super) times: u32,
}

/// The progress of the current phase visit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct VisitProgress {
    pub(super) number: u32,
    pub(super) since: UnixMillis,
    /// The checkpoint of the content when the phase was entered.
    pub(super) checkpoint: Option<String>,
    pub(super) checkpoint_failed: bool,
    pub(super) entry_checks: WorkspaceCheckProgress,
    pub(super) exit_checks: WorkspaceCheckProgress,
    pub(super) turns_closed: u32,
    /// Whether an agent completed its work itself, and none of the last turn did otherwise.
    pub(super) completed: bool,
    pub(super) changed: bool,
    pub(super) confirmed: bool,
    pub(super) plan_submitted: bool,
    pub(super) issues: Vec<super::facts::ReportedIssue>,
    /// Whether checks had to run again because they changed files.
    pub(super) checks_rerun: bool,
    /// The verdict when the phase was entered.
    pub(super) entry_verdict: Option<WorkspaceCheckVerdict>,
}

/// How far the checks of a visit are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum WorkspaceCheckProgress {
    #[default]
    Pending,
    Running,
    Done,
}

/// A plan and its approval.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct PlanWithApproval {
    pub(super) plan: ProjectPlan,
    pub(super) approved_by: Option<PlanApprover>,
}

/// A checkpoint of the workspace's content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProjectWorkspaceCheckpoint {
    pub(super) checkpoint: String,
    pub(super) label: String,
    pub(super) visit: u32,
    pub(super) at: UnixMillis,
}

/// The newest transition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LastPhaseTransition {
    pub(super) from: PhaseName,
    pub(super) to: PhaseName,
    pub(super) at: UnixMillis,
    pub(super) summary: Option<String>,
    pub(super) by: String,
}

/// How a phase was used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct PhaseMetrics {
    pub(super) visits: u32,
    pub(super) duration_ms: u64,
    pub(super) routing_turns: u32,
    pub(super) loops: u32,
    pub(super) reminders: u32,
    pub(super) auto_completions: u32,
    pub(super) refusals: u32,
}

impl ProjectState {
    /// Returns the routing turn that is open.
    pub(super) fn open_turn(&self) -> Option<&RoutingTurn> {
        self.turns.back().filter(|turn| !turn.is_closed)
    }

    /// Returns the newest open routing turn that waits for an agent.
    pub(super) fn turn_waiting_for(&self, agent: &AgentName) -> Option<&RoutingTurn> {
        self.turns.iter().rev().find(|turn| turn.is_waiting_for(agent))
    }

    /// Returns an agent's progress in the current routing turn.
    pub(super) fn current_work(&self, agent: &AgentName) -> AgentProgressInRoutingTurn {
        let turn = self.turns.back().map_or(0, |turn| turn.id);
        let current = self.agents.get(agent).map(|progress| &progress.current);
        current
            .filter(|current| current.turn == turn)
            .cloned()
            .unwrap_or_else(|| AgentProgressInRoutingTurn { turn, ..Default::default() })
    }

    /// Returns the participants that have not reflected yet.
    pub(super) fn agents_to_reflect(&self) -> Vec<AgentName> {
        let waiting = self.agents.iter().filter(|(_, agent)| agent.participated && !agent.reflected);
        waiting.map(|(name, _)| name.clone()).collect()
    }

    /// Returns a digest of the content, the verdict and the plan.
    pub(super) fn progress_digest(&self) -> BodyId {
        let verdict = self.verdict.as_ref().map(|verdict| (&verdict.digest, verdict.passed, verdict.issues.len()));
        let plan = self.plan.as_ref().map(|status| &status.plan);
        let parts = serde_json::to_string(&(&self.content, verdict, plan, &self.changed_files));
        BodyId::hash_text(&parts.unwrap_or_default())
    }

    /// Returns whether the user confirmed the current content.
    pub(super) fn is_current_content_confirmed(&self) -> bool {
        self.confirmed_digest.is_some() && self.confirmed_digest.as_deref() == self.content.digest()
    }

    /// Returns the verdict if it is about the current content.
    pub(super) fn current_verdict(&self) -> Option<&WorkspaceCheckVerdict> {
        self.verdict.as_ref().filter(|verdict| self.content.digest() == Some(verdict.digest.as_str()))
    }

    /// Returns the agents that completed their work in a phase after the user's last message, saw the content with this
    /// digest, and changed nothing.
    pub(super) fn agents_idle_on(&self, content: &str, phase: &PhaseName) -> BTreeSet<&AgentName> {
        let turns = self.turns.iter().filter(|turn| {
            turn.is_closed
                && turn.id >= self.first_turn_since_message
                && turn.decision.phase == *phase
                && turn.idle_content.as_deref() == Some(content)
        });
        let ends = turns.flat_map(|turn| &turn.completions);
        ends.filter(|(_, end)| end.how == AgentTurnEndKind::Completed).map(|(agent, _)| agent).collect()
    }

    /// Returns how often the routing of the newest turn occurred among the last turns since the user's message, and
    /// whether anything was achieved since it last occurred.
    pub(super) fn count_routing_repetitions(&self, window: usize) -> (u32, bool) {
        let Some(newest) = self.turns.back() else { return (0, true) };
        let recent = self.turns.iter().rev().take(window);
        let same: Vec<&RoutingTurn> = recent
            .filter(|turn| turn.is_closed && turn.id >= self.first_turn_since_message && turn.is_same_routing(newest))
            .collect();
        let has_progress = same.get(1).is_none_or(|previous| previous.progress != newest.progress);
        (u32::try_from(same.len()).unwrap_or(u32::MAX), has_progress)
    }
}
