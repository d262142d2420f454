//! Renders the progress of a turn on one line: the phase, the open calls and their models, the running tools, and the
//! time since the turn started.

use std::collections::BTreeMap;

use segue_core::event::{CallOpened, Event, RetryDecision, ToolRunOpened};
use segue_core::ids::{CallId, ModelName, ToolRunId, UnixMillis};
use segue_core::session::{OpenCall, OpenCallStatus, Session};

use crate::limits::TOOL_PROGRESS_CHARS_MAX;
use crate::print::number_format::format_duration;
use crate::tool_run_lines::describe_arguments;

const SPINNER_FRAMES: &[&str] = &["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// Returns the name of the agent of a call, or else of its role.
#[must_use]
pub(crate) fn speaker_name(opened: &CallOpened) -> &str {
    opened.agent.as_ref().map_or(opened.role.as_str(), |agent| agent.as_str())
}

/// Describes a call by its speaker and model.
#[must_use]
pub(crate) fn call_label(opened: &CallOpened) -> String {
    format!("{} on {}", speaker_name(opened), opened.model)
}

/// The calls of a turn, grouped by speaker: calls of one speaker that run at the same time form a group.
#[derive(Debug, Default)]
pub(crate) struct ProgressCallGroups {
    groups: Vec<ProgressCallGroup>,
    /// The newest progress that each running tool reported.
    tool_progress: BTreeMap<ToolRunId, String>,
}

#[derive(Debug)]
struct ProgressCallGroup {
    speaker: String,
    calls: Vec<ProgressCall>,
}

#[derive(Debug)]
struct ProgressCall {
    call: CallId,
    model: ModelName,
    end: Option<ProgressCallOutcome>,
}

#[derive(Debug)]
enum ProgressCallOutcome {
    Answered { ms: u64 },
    Failed,
}

impl ProgressCallGroups {
    /// Updates the groups with an event.
    pub(crate) fn apply_event(&mut self, event: &Event) {
        match event {
            Event::TurnStarted { .. } => self.groups.clear(),
            Event::CallOpened(opened) if opened.compacts_thread.is_none() && opened.recomputation.is_none() => {
                self.open_call(opened)
            }
            Event::CallAnswered(answered) => {
                self.end_call(answered.call, ProgressCallOutcome::Answered { ms: answered.duration_ms })
            }
            Event::CallFailed { call, next: RetryDecision::GiveUp, .. }
            | Event::CallOutcomeUnknown { call, next: RetryDecision::GiveUp, .. }
            | Event::CallCancelled { call, .. } => self.end_call(*call, ProgressCallOutcome::Failed),
            Event::ToolRunEnded { run, .. } => {
                self.tool_progress.remove(run);
            }
            _ => {}
        }
    }

    /// Records the progress that a tool reported.
    pub(crate) fn apply_tool_progress(&mut self, run: ToolRunId, text: &str) {
        self.tool_progress.insert(run, shorten_progress(text));
    }

    fn describe_tool(&self, tool: &ToolRunOpened) -> String {
        let arguments = describe_arguments(&tool.arguments);
        // The arguments of the flow's own runs are for machines.
        let separator = if arguments.is_empty() || tool.requested_by.is_none() { "" } else { " " };
        let arguments = if separator.is_empty() { "" } else { arguments.as_str() };
        let tool_with_arguments = format!("{}{separator}{arguments}", tool.tool);
        match self.tool_progress.get(&tool.run).filter(|progress| !progress.is_empty()) {
            Some(progress) => format!("{tool_with_arguments}: {progress}"),
            None => tool_with_arguments,
        }
    }

    fn open_call(&mut self, opened: &CallOpened) {
        let speaker = speaker_name(opened);
        let call = ProgressCall { call: opened.call, model: opened.model.clone(), end: None };
        match self.groups.iter_mut().find(|group| group.speaker == speaker && group.has_open_calls()) {
            Some(group) => group.calls.push(call),
            None => self.groups.push(ProgressCallGroup { speaker: speaker.to_owned(), calls: vec![call] }),
        }
    }

    fn end_call(&mut self, call: CallId, end: ProgressCallOutcome) {
        let mut calls = self.groups.iter_mut().flat_map(|group| &mut group.calls);
        if let Some(grouped) = calls.find(|grouped| grouped.call == call) {
            grouped.end = Some(end);
        }
    }

    /// Returns the group of a call, if it has other calls too.
    fn parallel_group(&self, call: CallId) -> Option<&ProgressCallGroup> {
        let contains = |group: &&ProgressCallGroup| group.calls.iter().any(|grouped| grouped.call == call);
        self.groups.iter().filter(|group| group.calls.len() > 1).find(contains)
    }
}

impl ProgressCallGroup {
    fn has_open_calls(&self) -> bool {
        self.calls.iter().any(|call| call.end.is_none())
    }

    fn describe_calls(&self, session: &Session, now: UnixMillis) -> String {
        let ended = self.calls.iter().filter(|call| call.end.is_some()).count();
        let calls = self.calls.iter().enumerate().map(|(index, call)| {
            let same_model = |calls: &[ProgressCall]| calls.iter().filter(|other| other.model == call.model).count();
            let number = match same_model(&self.calls) {
                1 => String::new(),
                _ => format!(" #{}", same_model(&self.calls[..=index])),
            };
            let end = match &call.end {
                Some(ProgressCallOutcome::Answered { ms }) => format!(" ✓ {}", format_duration(*ms)),
                Some(ProgressCallOutcome::Failed) => " ✗".to_owned(),
                None => session.open_calls.get(&call.call).map(|open| describe_attempt(open, now)).unwrap_or_default(),
            };
            format!("{}{number}{end}", call.model)
        });
        format!("{} ({ended} of {}): {}", self.speaker, self.calls.len(), calls.collect::<Vec<_>>().join(", "))
    }
}

/// Renders the progress line for a user who waits since `from`; empty if no work is pending. `frame` selects the image
/// of the spinner.
#[must_use]
pub(crate) fn render_progress(
    session: &Session,
    groups: &ProgressCallGroups,
    from: UnixMillis,
    now: UnixMillis,
    frame: usize,
) -> String {
    let mut calls: Vec<String> = Vec::new();
    for (call, open) in session.open_calls.iter().filter(|(_, open)| open.status != OpenCallStatus::AwaitingOperator) {
        let description = groups
            .parallel_group(*call)
            .map_or_else(|| describe_single_call(open, now), |group| group.describe_calls(session, now));
        if !calls.contains(&description) {
            calls.push(description);
        }
    }
    let tools: Vec<String> = session.open_tool_runs.values().map(|tool| groups.describe_tool(tool)).collect();
    let kinds = [("asking", calls), ("running", tools)].into_iter().filter(|(_, names)| !names.is_empty());
    let parts: Vec<String> = kinds.map(|(verb, names)| format!("{verb} {}", names.join("; "))).collect();
    let activity = match (&session.current_turn, parts.is_empty()) {
        (None, true) => return String::new(),
        (Some(_), true) if session.calls_awaiting_operator().next().is_some() => return String::new(),
        (Some(_), true) => "waiting".to_owned(),
        (_, false) => parts.join("; "),
    };
    let since = session.current_turn.as_ref().map(|turn| turn.started_at);
    let since = since.or_else(|| session.open_calls.values().map(|open| open.opened_at).min());
    // For a turn that was resumed, only the time since the user began to wait counts.
    let seconds = since.map_or(0, |since| now.ms_since(since.max(from)) / 1_000);
    let queued = match session.queued_messages.len() {
        0 => String::new(),
        queued => format!(" · {queued} queued"),
    };
    let phase = match session.phases_label().as_str() {
        "" => String::new(),
        phase => format!("{phase} · "),
    };
    format!("{} {phase}{activity} · {seconds} s{queued}", SPINNER_FRAMES[frame % SPINNER_FRAMES.len()])
}

/// Returns the last line of a tool's progress, shortened and without control characters.
fn shorten_progress(text: &str) -> String {
    let line = text.trim_end().lines().next_back().unwrap_or_default();
    let mut printable = line.chars().filter(|c| !c.is_control());
    let mut shortened: String = printable.by_ref().take(TOOL_PROGRESS_CHARS_MAX).collect();
    if printable.next().is_some() {
        shortened.push('…');
    }
    shortened
}

/// Renders the progress line of work outside the conversation.
#[must_use]
pub(crate) fn render_wait_progress(what: &str, from: UnixMillis, now: UnixMillis, frame: usize) -> String {
    format!("{} {what} · {} s", SPINNER_FRAMES[frame % SPINNER_FRAMES.len()], now.ms_since(from) / 1_000)
}

fn describe_single_call(open: &OpenCall, now: UnixMillis) -> String {
    let purpose = if open.opened.compacts_thread.is_some() { "for compaction: " } else { "" };
    format!("{purpose}{}{}", call_label(&open.opened), describe_attempt(open, now))
}

/// Returns the number of the current attempt, unless it is the first.
fn describe_attempt(open: &OpenCall, now: UnixMillis) -> String {
    match open.status {
        OpenCallStatus::Due if open.attempt > 1 => format!(" (attempt {})", open.attempt),
        OpenCallStatus::WaitingUntil(until) => {
            format!(" (attempt {} in {})", open.attempt, format_duration(until.ms_since(now)))
        }
        OpenCallStatus::Due | OpenCallStatus::AwaitingOperator | OpenCallStatus::Inherited(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_session_has_no_progress_line() {
        assert_eq!(
            render_progress(&Session::default(), &ProgressCallGroups::default(), UnixMillis(0), UnixMillis(0), 0),
            ""
        );
    }

    #[test]
    fn a_running_tool_shows_the_last_line_of_its_progress() {
        let opened = ToolRunOpened {
            run: ToolRunId(1),
            turn: None,
            tool: "build".into(),
            arguments: serde_json::Value::Null,
            requested_by: None,
            agent: None,
            phase: None,
        };
        let mut session = Session::default();
        session.open_tool_runs.insert(opened.run, opened);
        let mut groups = ProgressCallGroups::default();
        let line = |groups: &ProgressCallGroups| render_progress(&session, groups, UnixMillis(0), UnixMillis(0), 0);
        assert!(line(&groups).contains("running build ·"), "{}", line(&groups));
        groups.apply_tool_progress(ToolRunId(1), "first\nsecond \u{1b}[2J\n");
        assert!(line(&groups).contains("running build: second [2J ·"), "{}", line(&groups));
        groups.apply_tool_progress(ToolRunId(1), &"x".repeat(1_000));
        assert!(line(&groups).chars().count() < 150, "{}", line(&groups));
    }

    #[test]
    fn a_group_lists_the_status_of_each_call() {
        let call = |call: u32, model: &str, end: Option<ProgressCallOutcome>| ProgressCall {
            call: CallId(call),
            model: model.into(),
            end,
        };
        let calls = vec![
            call(1, "ant", Some(ProgressCallOutcome::Answered { ms: 1_200 })),
            call(2, "bee", None),
            call(3, "ant", Some(ProgressCallOutcome::Failed)),
            call(4, "cat", None),
        ];
        let group = ProgressCallGroup { speaker: "expert".into(), calls };
        let line = group.describe_calls(&Session::default(), UnixMillis(0));
        assert_eq!(line, "expert (2 of 4): ant #1 ✓ 1.2 s, bee, ant #2 ✗, cat");
    }
}
