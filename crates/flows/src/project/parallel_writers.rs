//! Agents that change files at the same time. Each works on a copy of the workspace, which is created when the routing turn
//! opens and merged when it is closed. What cannot be merged is told to everyone with its paths, and kept in a checkpoint.
//!
//! The copy of an agent has the agent's name, by which the host of the tools finds it.

use std::collections::BTreeMap;

use segue_core::event::{ToolRunOpened, ToolRunOutcome};
use segue_core::flow::FlowStep;
use segue_core::ids::{AgentName, ToolRunId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::definition::{FlowDefinition, PhaseDefinition};
use super::facts::NextPhaseAndAgents;
use super::project_context::ProjectFlowContext;
use super::text::truncate_chars;
use super::tools::agent_tools;
use super::workspace_claim;
use crate::limits::{LOG_ENTRY_CHARS_MAX, MERGE_SUMMARY_CHARS_MAX};
use crate::workspace_tools::{
    CreateWorkspaceCopyArguments, CreateWorkspaceCopyResult, MergeWorkspaceCopyArguments, MergeWorkspaceCopyResult,
    RemoveWorkspaceCopyArguments, WorkspaceTool, WorkspaceToolRequest,
};

/// The copies of agents that work at the same time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct AgentWorkspaceCopies {
    by_agent: BTreeMap<AgentName, AgentWorkspaceCopy>,
    /// The runs that work on copies, with the agent of the copy.
    runs: BTreeMap<ToolRunId, AgentName>,
}

/// The copy in which an agent works.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct AgentWorkspaceCopy {
    /// The full name; empty while the copy is being created.
    name: String,
    status: AgentWorkspaceCopyStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum AgentWorkspaceCopyStatus {
    Requested,
    /// There is no copy, so the agent works in the workspace itself.
    NotCreated,
    Open,
    Merged,
    /// The merge failed. It is tried again after the next routing turn, or in the next turn.
    NotMerged,
}

/// What became of a merge, if something was not merged.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct UnmergedAgentChanges {
    pub(super) agent: AgentName,
    /// Each file with the reason.
    pub(super) summary: String,
    /// The summary, and both versions of each file where they are known.
    pub(super) details: String,
}

/// Returns whether an agent can write files in a phase. An agent that can only run commands looks at what others wrote.
fn writes_files(definition: &FlowDefinition, agent: &AgentName, phase: &PhaseDefinition) -> bool {
    let tools = agent_tools(definition, agent.as_str(), phase).into_iter();
    tools.filter_map(WorkspaceTool::from_name).any(|tool| tool.may_change_files() && tool != WorkspaceTool::RunCommand)
}

/// Creates the copies for the agents of a decision, if more than one of them can write files.
pub(super) fn create_copies(context: &ProjectFlowContext<'_>, decision: &NextPhaseAndAgents) -> Option<Vec<FlowStep>> {
    let writes = |agent: &&AgentName| writes_files(context.definition, agent, context.phase());
    let writers: Vec<&AgentName> = decision.agents.iter().filter(writes).collect();
    if !context.has_workspace() || writers.len() < 2 {
        return None;
    }
    let known = &context.state().writer_copies.by_agent;
    let missing = writers.into_iter().filter(|agent| !known.contains_key(*agent));
    let steps: Vec<FlowStep> = missing
        .map(|agent| {
            let arguments = CreateWorkspaceCopyArguments { name: agent.as_str().to_owned() };
            WorkspaceToolRequest::CreateCopy(arguments).into_step(Some(agent.clone()))
        })
        .collect();
    (!steps.is_empty()).then_some(steps)
}

/// Merges the next copy, or removes one that was merged, if no routing turn is open.
pub(super) fn merge_next_copy(context: &ProjectFlowContext<'_>) -> Option<Vec<FlowStep>> {
    let copies = &context.state().writer_copies;
    // While a decision is carried out, the copies for its agents are being made.
    let is_working = context.state().open_turn().is_some() || context.state().decision.is_some();
    if is_working || context.view.session.current_turn.is_none() || !copies.runs.is_empty() {
        return None;
    }
    let (agent, copy, status) = copies.by_agent.iter().find_map(|(agent, copy)| match copy.status {
        AgentWorkspaceCopyStatus::Open | AgentWorkspaceCopyStatus::Merged => {
            Some((agent, copy.name.clone(), copy.status))
        }
        AgentWorkspaceCopyStatus::Requested
        | AgentWorkspaceCopyStatus::NotCreated
        | AgentWorkspaceCopyStatus::NotMerged => None,
    })?;
    let request = match status {
        AgentWorkspaceCopyStatus::Merged => WorkspaceToolRequest::RemoveCopy(RemoveWorkspaceCopyArguments { copy }),
        _ => WorkspaceToolRequest::MergeCopy(MergeWorkspaceCopyArguments { copy }),
    };
    // A merge changes the workspace.
    Some(workspace_claim::request_claim(context).unwrap_or_else(|| vec![request.into_step(Some(agent.clone()))]))
}

impl AgentWorkspaceCopies {
    pub(super) fn apply_run_opened(&mut self, opened: &ToolRunOpened) {
        let Some(agent) = opened.agent.as_ref().filter(|_| opened.requested_by.is_none()) else { return };
        let tool = WorkspaceTool::from_name(opened.tool.as_str());
        if tool == Some(WorkspaceTool::CreateCopy) {
            let copy = AgentWorkspaceCopy { name: String::new(), status: AgentWorkspaceCopyStatus::Requested };
            self.by_agent.insert(agent.clone(), copy);
        }
        if matches!(tool, Some(WorkspaceTool::CreateCopy | WorkspaceTool::MergeCopy | WorkspaceTool::RemoveCopy)) {
            self.runs.insert(opened.run, agent.clone());
        }
    }

    /// Applies the end of a run. Returns what a merge left out.
    pub(super) fn apply_run_ended(
        &mut self,
        run: ToolRunId,
        (tool, outcome): (WorkspaceTool, ToolRunOutcome),
        value: Option<&Value>,
    ) -> Option<UnmergedAgentChanges> {
        let agent = self.runs.remove(&run)?;
        let copy = self.by_agent.get_mut(&agent)?;
        let value = value.filter(|_| outcome == ToolRunOutcome::Done).cloned();
        match tool {
            WorkspaceTool::CreateCopy => {
                let created = value.and_then(|value| serde_json::from_value::<CreateWorkspaceCopyResult>(value).ok());
                *copy = match created {
                    Some(created) => AgentWorkspaceCopy { name: created.copy, status: AgentWorkspaceCopyStatus::Open },
                    None => AgentWorkspaceCopy { name: String::new(), status: AgentWorkspaceCopyStatus::NotCreated },
                };
                None
            }
            WorkspaceTool::MergeCopy => {
                let merged = value.and_then(|value| serde_json::from_value::<MergeWorkspaceCopyResult>(value).ok());
                let Some(merged) = merged else {
                    copy.status = AgentWorkspaceCopyStatus::NotMerged;
                    let summary = format!("its copy `{}` could not be merged, and is kept", copy.name);
                    return Some(UnmergedAgentChanges { agent, details: summary.clone(), summary });
                };
                copy.status = AgentWorkspaceCopyStatus::Merged;
                (!merged.conflicts.is_empty()).then(|| UnmergedAgentChanges::from_conflicts(agent, &merged))
            }
            _ => {
                // A copy that could not be removed was merged, so nothing is lost if its folder stays.
                self.by_agent.remove(&agent);
                None
            }
        }
    }

    /// Applies that a routing turn was opened, or that the next turn has begun: merges that failed are tried again.
    pub(super) fn retry_failed_merges(&mut self) {
        for copy in self.by_agent.values_mut().filter(|copy| copy.status == AgentWorkspaceCopyStatus::NotMerged) {
            copy.status = AgentWorkspaceCopyStatus::Open;
        }
    }

    /// Applies that a routing turn was closed. Agents without a copy may get one next time.
    pub(super) fn forget_missing_copies(&mut self) {
        self.by_agent.retain(|_, copy| copy.status != AgentWorkspaceCopyStatus::NotCreated);
    }
}

impl UnmergedAgentChanges {
    fn from_conflicts(agent: AgentName, merged: &MergeWorkspaceCopyResult) -> Self {
        let files = merged.conflicts.iter().map(|conflict| format!("{}: {}", conflict.path, conflict.reason));
        let files = files.collect::<Vec<_>>().join("\n");
        let kept = match &merged.copy_checkpoint {
            Some(checkpoint) => format!("; this agent's version is in checkpoint {checkpoint}"),
            None => String::new(),
        };
        let summary = format!("these files were not merged, and have the other version{kept}:\n{files}");
        let marked = merged.conflicts.iter().filter_map(|conflict| conflict.marked_text.as_ref());
        let details = std::iter::once(summary.as_str()).chain(marked.map(String::as_str)).collect::<Vec<_>>();
        Self {
            agent,
            details: truncate_chars(&details.join("\n"), LOG_ENTRY_CHARS_MAX),
            summary: truncate_chars(&summary, MERGE_SUMMARY_CHARS_MAX),
        }
    }
}
