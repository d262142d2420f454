//! What the results of tools mean for the state: which files were read and changed, the content's digest, and checkpoints.

use segue_core::body::{BodyId, TextRef};
use segue_core::event::{ToolRunOpened, ToolRunOutcome};
use segue_core::ids::{ToolRunId, UnixMillis};
use segue_core::prompt::TEXT_TOOL_CALL_ID;
use segue_core::signal::canonical_json;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::log::{ProjectLogSpeaker, ProjectLogText};
use super::{
    OpenAgentToolRun, ProjectState, ProjectWorkspaceCheckpoint, RepeatedToolCall, TextToolCallResult,
    WorkspaceCheckProgress, WorkspaceContentDigest,
};
use crate::limits::{CHECKPOINTS_LISTED_MAX, PROJECT_FILES_LISTED_MAX, READ_FILES_MAX};
use crate::mcp_tools::LIST_MCP_TOOLS;
use crate::project::parallel_writers::UnmergedAgentChanges;
use crate::workspace_tools::{
    ChecksResult, CreateCheckpointResult, FileChange, FileChangesResult, MergeWorkspaceCopyResult, ReadFileResult,
    RestoreCheckpointResult, RunCommandResult, WorkspaceStatusResult, WorkspaceTool,
};

fn parse_optional_value<T: DeserializeOwned>(value: Option<&Value>) -> Option<T> {
    value.and_then(|value| serde_json::from_value(value.clone()).ok())
}

impl ProjectState {
    pub(super) fn apply_run_opened(&mut self, opened: &ToolRunOpened) {
        let entry = OpenAgentToolRun {
            tool: opened.tool.clone(),
            agent: opened.agent.clone().filter(|_| opened.requested_by.is_some()),
            is_from_text: opened.requested_by.as_ref().is_some_and(|(_, id)| id == TEXT_TOOL_CALL_ID),
            digest: BodyId::hash_text(&format!("{} {}", opened.tool, canonical_json(&opened.arguments))),
            label: opened.arguments.get("label").and_then(Value::as_str).map(str::to_owned),
        };
        if let Some(agent) = &entry.agent {
            let work = self.current_work_mut(agent);
            work.tool_runs += 1;
            work.refused_actions = 0;
            work.pending_write.take_if(|_| opened.tool.as_str() == WorkspaceTool::WriteFile.name());
        }
        self.mcp.apply_run_opened(opened);
        self.writer_copies.apply_run_opened(opened);
        self.runs.insert(opened.run, entry);
        let runs_checks = opened.tool.as_str() == WorkspaceTool::RunChecks.name();
        if runs_checks {
            let is_unstable =
                |checks: &ChecksResult| checks.passed && checks.content_digest != checks.content_digest_after;
            let has_run = [self.visit.entry_checks, self.visit.exit_checks].contains(&WorkspaceCheckProgress::Done);
            self.visit.checks_rerun |= has_run && self.last_checks.as_ref().is_some_and(is_unstable);
            let progress = self.running_checks_mut();
            *progress = WorkspaceCheckProgress::Running;
        }
    }

    /// Returns the checks that a run of the checks belongs to: those before the agents work, or those after it.
    fn running_checks_mut(&mut self) -> &mut WorkspaceCheckProgress {
        let visit = &mut self.visit;
        if visit.turns_closed == 0 { &mut visit.entry_checks } else { &mut visit.exit_checks }
    }

    pub(super) fn apply_run_ended(
        &mut self,
        run: ToolRunId,
        outcome: ToolRunOutcome,
        text: TextRef,
        value: Option<&Value>,
        at: UnixMillis,
    ) {
        let Some(entry) = self.runs.remove(&run) else { return };
        self.count_repetition(&entry, text);
        if let Some(agent) = entry.agent.as_ref().filter(|_| entry.is_from_text) {
            let failed = outcome != ToolRunOutcome::Done;
            let result = TextToolCallResult { tool: entry.tool.to_string(), text, failed };
            self.current_work_mut(agent).last_result = Some(result);
        }
        if entry.tool.as_str() == LIST_MCP_TOOLS {
            self.mcp.apply_listing(outcome, value);
        }
        let Some(tool) = WorkspaceTool::from_name(entry.tool.as_str()) else { return };
        if let Some(unmerged) = self.writer_copies.apply_run_ended(run, (tool, outcome), value) {
            self.apply_unmerged_changes(unmerged);
        }
        // The tool may have had its effect.
        if outcome == ToolRunOutcome::Unknown && tool.may_change_files() {
            self.content = WorkspaceContentDigest::Unknown;
            self.mark_content_changed(&entry);
        }
        match tool {
            WorkspaceTool::ReadFile => {
                if let (Some(read), Some(agent)) = (parse_optional_value::<ReadFileResult>(value), &entry.agent) {
                    let is_cut =
                        read.lines == 0 && read.bytes > 0 || read.last_line < read.lines || read.first_line > 1;
                    if let Some(write) = &mut self.current_work_mut(agent).pending_write {
                        write.is_cut = write.path == read.path && is_cut;
                    }
                    let files = &mut self.agents.entry(agent.clone()).or_default().read_files;
                    if files.len() < READ_FILES_MAX || files.contains_key(&read.path) {
                        files.insert(read.path, read.digest);
                    }
                }
            }
            WorkspaceTool::WriteFile
            | WorkspaceTool::EditFile
            | WorkspaceTool::DeleteFile
            | WorkspaceTool::MoveFile => {
                let changes =
                    parse_optional_value::<FileChangesResult>(value).map(|result| result.changes).unwrap_or_default();
                self.apply_changes(&entry, changes);
            }
            WorkspaceTool::RunCommand => {
                if let Some(result) = parse_optional_value::<RunCommandResult>(value) {
                    if let Some(agent) = &entry.agent {
                        let failed = Some(result.run).filter(|run| !run.has_passed());
                        self.current_work_mut(agent).failed_command = failed;
                    }
                    self.apply_changes(&entry, result.changes);
                }
            }
            WorkspaceTool::RunChecks => {
                let result = parse_optional_value::<ChecksResult>(value);
                if let Some(result) = &result {
                    self.content = WorkspaceContentDigest::At(result.content_digest_after.clone());
                }
                self.last_checks = result;
                *self.running_checks_mut() = WorkspaceCheckProgress::Done;
            }
            WorkspaceTool::Status => {
                self.is_prepared = true;
                if let Some(status) = parse_optional_value::<WorkspaceStatusResult>(value) {
                    self.content = WorkspaceContentDigest::At(status.content_digest);
                    self.workspace_checks = status.checks;
                    self.guide = status.agents_md;
                    self.files_total = status.files_total;
                    let files = status.files.into_iter().map(|file| file.path);
                    self.files = files.take(PROJECT_FILES_LISTED_MAX).collect();
                }
            }
            WorkspaceTool::CreateCheckpoint => match parse_optional_value::<CreateCheckpointResult>(value) {
                Some(created) => self.apply_checkpoint(created.checkpoint, entry.label.unwrap_or_default(), at),
                None => self.visit.checkpoint_failed = true,
            },
            WorkspaceTool::RestoreCheckpoint => {
                if let Some(restored) = parse_optional_value::<RestoreCheckpointResult>(value) {
                    self.apply_changes(&entry, restored.changes);
                    self.content = WorkspaceContentDigest::At(restored.checkpoint);
                }
            }
            WorkspaceTool::MergeCopy => {
                if let Some(merged) = parse_optional_value::<MergeWorkspaceCopyResult>(value) {
                    self.apply_changes(&entry, merged.changes);
                    self.content = WorkspaceContentDigest::At(merged.content_digest);
                }
            }
            _ => {}
        }
    }

    /// Everyone is told what was not merged, and the work does not count as completed.
    fn apply_unmerged_changes(&mut self, unmerged: UnmergedAgentChanges) {
        let UnmergedAgentChanges { agent, summary, details } = unmerged;
        self.visit.completed = false;
        self.push_router_feedback(format!("the changes of `{agent}` were not merged completely: {summary}"));
        let text = ProjectLogText::Inline(format!("The changes of `{agent}` were not merged completely: {details}"));
        self.log.push(ProjectLogSpeaker::Workspace, text);
    }

    fn apply_checkpoint(&mut self, checkpoint: String, label: String, at: UnixMillis) {
        self.content = WorkspaceContentDigest::At(checkpoint.clone());
        if self.visit.checkpoint.is_none() {
            self.visit.checkpoint = Some(checkpoint.clone());
        }
        if self.checkpoints.back().is_none_or(|last| last.checkpoint != checkpoint) {
            self.checkpoints.push_back(ProjectWorkspaceCheckpoint { checkpoint, label, visit: self.visit.number, at });
        }
        while self.checkpoints.len() > CHECKPOINTS_LISTED_MAX {
            self.checkpoints.pop_front();
        }
    }

    fn apply_changes(&mut self, entry: &OpenAgentToolRun, changes: Vec<FileChange>) {
        if changes.is_empty() {
            return;
        }
        self.content = WorkspaceContentDigest::Unknown;
        self.mark_content_changed(entry);
        for change in changes {
            if self.changed_files.len() < PROJECT_FILES_LISTED_MAX || self.changed_files.contains_key(&change.path) {
                self.changed_files.insert(change.path.clone(), change);
            }
        }
    }

    fn mark_content_changed(&mut self, entry: &OpenAgentToolRun) {
        self.visit.changed = true;
        if let Some(agent) = &entry.agent {
            self.current_work_mut(agent).changed = true;
        }
    }

    /// Counts how often an agent made the same tool call with the same result in a row.
    fn count_repetition(&mut self, entry: &OpenAgentToolRun, text: TextRef) {
        let Some(agent) = &entry.agent else { return };
        let digest = entry.digest.chain_hash(text.body);
        let tool = entry.tool.to_string();
        let current = self.current_work_mut(agent);
        let repeated =
            current.last_tool_call.as_ref().filter(|last| last.digest == digest).map_or(0, |last| last.times);
        current.last_tool_call = Some(RepeatedToolCall { digest, tool, times: repeated + 1 });
    }
}
