//! Describes the tool runs of agents in one line each: who ran what, how it ended, and how long it took.

use std::collections::BTreeMap;

use segue_core::event::{Event, RecordedEvent, ToolRunOpened, ToolRunOutcome};
use segue_core::ids::{ToolRunId, UnixMillis};
use segue_flows::workspace_tools::{
    ChecksResult, FileChangeKind, FileChangesResult, MergeWorkspaceCopyResult, RunCommandResult, WorkspaceCommandEnd,
    WorkspaceCommandRun,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::limits::{TOOL_ARGUMENTS_CHARS_MAX, TOOL_CHANGES_SHOWN_MAX};
use crate::print::number_format::format_duration;
use crate::print::text::{to_single_line, truncate_to_width};

/// Arguments that say most about a run. The first one that a run has is shown alone.
const SHOWN_ARGUMENTS: [&str; 8] = ["command", "path", "from", "pattern", "glob", "folder", "title", "summary"];

/// The runs that have not ended.
#[derive(Debug, Default)]
pub(crate) struct ToolRunLineBuilder {
    open: BTreeMap<ToolRunId, (ToolRunOpened, UnixMillis)>,
}

impl ToolRunLineBuilder {
    /// Applies an event. Returns the line for a run that an agent requested, or for checks, when it has ended.
    pub(crate) fn apply_event(&mut self, recorded: &RecordedEvent) -> Option<String> {
        match &recorded.event {
            Event::ToolRunOpened(opened) => {
                self.open.insert(opened.run, (opened.clone(), recorded.at));
                None
            }
            // The time in which a person decided is not a part of the run.
            Event::ToolRunApproved { run, .. } => {
                if let Some((_, started_at)) = self.open.get_mut(run) {
                    *started_at = recorded.at;
                }
                None
            }
            Event::ToolRunEnded { run, outcome, value, .. } => {
                let (opened, started_at) = self.open.remove(run)?;
                let checks = parse::<ChecksResult>(value.as_ref());
                let merged = parse::<MergeWorkspaceCopyResult>(value.as_ref());
                if opened.requested_by.is_none() && checks.is_none() && merged.is_none() {
                    return None;
                }
                let took = format_duration(recorded.at.ms_since(started_at));
                let result = describe_result(*outcome, value.as_ref(), checks.as_ref());
                Some(format!("{} · {result} · {took}", describe_run(&opened)))
            }
            _ => None,
        }
    }
}

/// Describes who runs what, with short arguments.
fn describe_run(opened: &ToolRunOpened) -> String {
    let agent = opened.agent.as_ref().map(|agent| format!("{agent}: ")).unwrap_or_default();
    // The arguments of the flow's own runs are for machines.
    let arguments = opened.requested_by.as_ref().map(|_| describe_arguments(&opened.arguments)).unwrap_or_default();
    let separator = if arguments.is_empty() { "" } else { " " };
    // A model may have made up the name.
    let tool = truncate_to_width(&to_single_line(opened.tool.as_str()), TOOL_ARGUMENTS_CHARS_MAX);
    format!("{agent}{tool}{separator}{arguments}")
}

/// Describes the arguments of a run in a few words.
#[must_use]
pub(crate) fn describe_arguments(arguments: &Value) -> String {
    let shown = SHOWN_ARGUMENTS.iter().find_map(|name| arguments.get(name)?.as_str());
    let text = match (shown, arguments) {
        (Some(shown), _) => shown.to_owned(),
        (None, Value::Object(named)) if named.is_empty() => String::new(),
        (None, Value::Null) => String::new(),
        (None, arguments) => arguments.to_string(),
    };
    truncate_to_width(&to_single_line(&text), TOOL_ARGUMENTS_CHARS_MAX)
}

fn parse<T: DeserializeOwned>(value: Option<&Value>) -> Option<T> {
    value.and_then(|value| serde_json::from_value(value.clone()).ok())
}

fn describe_result(outcome: ToolRunOutcome, value: Option<&Value>, checks: Option<&ChecksResult>) -> String {
    let word = match outcome {
        ToolRunOutcome::Done => "✓",
        ToolRunOutcome::Failed => "✗ failed",
        ToolRunOutcome::Refused => "✗ refused",
        ToolRunOutcome::Unknown => "? outcome unknown",
        ToolRunOutcome::Cancelled => "cancelled",
    };
    if let Some(checks) = checks {
        let passed = checks.commands.iter().filter(|command| command.has_passed()).count();
        let mark = if checks.passed { "✓" } else { "✗" };
        return format!("{mark} {passed} of {} passed", checks.commands.len());
    }
    if let Some(merged) = parse::<MergeWorkspaceCopyResult>(value).filter(|merged| !merged.conflicts.is_empty()) {
        let paths: Vec<String> = merged.conflicts.iter().map(|conflict| to_single_line(&conflict.path)).collect();
        return format!("✗ not merged: {}", paths.join(", "));
    }
    if let Some(command) = parse::<RunCommandResult>(value) {
        return describe_command(&command.run);
    }
    match parse::<FileChangesResult>(value).filter(|changed| !changed.changes.is_empty()) {
        Some(changed) => format!("{word} {}", describe_changes(&changed)),
        None => word.to_owned(),
    }
}

fn describe_command(run: &WorkspaceCommandRun) -> String {
    match &run.end {
        WorkspaceCommandEnd::Exited { code: 0 } => "✓".to_owned(),
        WorkspaceCommandEnd::Exited { code } => format!("✗ exit code {code}"),
        WorkspaceCommandEnd::Signalled { signal } => format!("✗ ended by signal {signal}"),
        WorkspaceCommandEnd::TimedOut => "✗ out of time".to_owned(),
        WorkspaceCommandEnd::OutputLimit => "✗ too much output".to_owned(),
        WorkspaceCommandEnd::NotStarted { reason } => format!("✗ not started: {}", to_single_line(reason)),
    }
}

/// Describes changed files: how many lines were added and removed, and what else happened to the files.
fn describe_changes(changed: &FileChangesResult) -> String {
    let one = |change: &segue_flows::workspace_tools::FileChange| {
        let path = to_single_line(&change.path);
        match change.kind {
            FileChangeKind::Deleted => format!("deleted {path}"),
            _ => format!("{path} +{} −{}", change.lines_added, change.lines_removed),
        }
    };
    let shown: Vec<String> = changed.changes.iter().take(TOOL_CHANGES_SHOWN_MAX).map(one).collect();
    match changed.changes.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use segue_core::body::{BodyId, TextRef};
    use segue_core::ids::{CallId, Seq};
    use serde_json::json;

    use super::*;

    /// The line of a run with these arguments and this value.
    fn line(tool: &str, arguments: Value, outcome: ToolRunOutcome, value: Option<Value>) -> Option<String> {
        let opened = ToolRunOpened {
            run: ToolRunId(1),
            turn: None,
            tool: tool.into(),
            arguments,
            requested_by: (tool != "run_checks").then(|| (CallId(1), "id".to_owned())),
            agent: Some("executor".into()).filter(|_| tool != "run_checks"),
            phase: None,
        };
        let text = TextRef { body: BodyId::hash_text(""), tokens: 0 };
        let (run, failed, artifacts) = (ToolRunId(1), false, Vec::new());
        let ended = Event::ToolRunEnded { run, outcome, text, failed, value, artifacts };
        let mut lines = ToolRunLineBuilder::default();
        let recorded = |at, event| RecordedEvent { seq: Seq(1), at: UnixMillis(at), event };
        assert_eq!(lines.apply_event(&recorded(1_000, Event::ToolRunOpened(opened))), None);
        lines.apply_event(&recorded(3_500, ended))
    }

    #[test]
    fn line_names_agent_tool_arguments_outcome_and_time() {
        let done = ToolRunOutcome::Done;
        let command = |code: i32| {
            json!({"run": {"command": "make", "end": {"kind": "exited", "code": code}, "duration_ms": 1, "output_bytes": 0,
                "output_tail": ""}, "changes": []})
        };
        let change = json!({"changes": [{"path": "a.rs", "kind": "modified", "lines_added": 3, "lines_removed": 1}]});
        for (tool, arguments, outcome, value, expected) in [
            (
                "run_command",
                json!({"command": "make\u{1b}[31m"}),
                done,
                Some(command(0)),
                "run_command make\u{fffd}[31m · ✓ · 2.5 s",
            ),
            (
                "run_command",
                json!({"command": "make"}),
                ToolRunOutcome::Failed,
                Some(command(2)),
                "make · ✗ exit code 2 ·",
            ),
            (
                "write_file",
                json!({"content": "x", "path": "a.rs"}),
                done,
                Some(change),
                "write_file a.rs · ✓ a.rs +3 −1 ·",
            ),
            ("mcp__notes__list", json!({"id": 1}), ToolRunOutcome::Unknown, None, "{\"id\":1} · ? outcome unknown ·"),
            ("list_files", json!({}), ToolRunOutcome::Refused, None, "executor: list_files · ✗ refused ·"),
        ] {
            let line = line(tool, arguments, outcome, value).expect("it is shown");
            assert!(line.contains(expected) && line.starts_with("executor: ") && !line.contains('\u{1b}'), "{line}");
        }
        let long = line("run_command", json!({"command": "x".repeat(1_000)}), done, None).expect("it is shown");
        assert!(long.chars().count() < 130, "{long}");
    }

    #[test]
    fn of_the_flows_own_runs_only_checks_are_shown() {
        let checks = json!({"content_digest": "a", "content_digest_after": "a", "passed": false, "changes": [], "commands": [
            {"command": "make", "end": {"kind": "exited", "code": 1}, "duration_ms": 1, "output_bytes": 0, "output_tail": ""}]});
        let checked = line("run_checks", json!({"confirmed": []}), ToolRunOutcome::Done, Some(checks));
        assert_eq!(checked.as_deref(), Some("run_checks · ✗ 0 of 1 passed · 2.5 s"));
        assert_eq!(line("run_checks", json!({}), ToolRunOutcome::Done, Some(json!({"checkpoint": "a"}))), None);
    }
}
