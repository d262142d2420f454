//! What is waited for, in a line: where things stand, who is asked on which model, who of them has answered, what is run, and for
//! how long already.

use segue_core::event::{CallOpened, Event, RetryDecision};
use segue_core::ids::{CallId, ModelName, UnixMillis};
use segue_core::session::{CallStatus, OpenCall, Session};

use crate::print::number_format::format_duration;

const SPINNER_FRAMES: &[&str] = &["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// Who speaks in a call: the individual if there is one, else the role.
#[must_use]
pub fn speaker_name(opened: &CallOpened) -> &str {
    opened.agent.as_ref().map_or(opened.role.as_str(), |agent| agent.as_str())
}

/// A call as people are told of it.
#[must_use]
pub fn call_label(opened: &CallOpened) -> String {
    format!("{} on {}", speaker_name(opened), opened.model)
}

/// Who is asked side by side, and who of them is through.
#[derive(Debug, Default)]
pub struct CallGroups {
    groups: Vec<CallGroup>,
}

#[derive(Debug)]
struct CallGroup {
    speaker: String,
    calls: Vec<GroupedCall>,
}

#[derive(Debug)]
struct GroupedCall {
    call: CallId,
    model: ModelName,
    end: Option<GroupedCallEnd>,
}

#[derive(Debug)]
enum GroupedCallEnd {
    Answered { ms: u64 },
    Failed,
}

impl CallGroups {
    /// Notes what an event says about calls.
    pub fn apply_event(&mut self, event: &Event) {
        match event {
            Event::TurnStarted { .. } => self.groups.clear(),
            Event::CallOpened(opened) if opened.compacts_thread.is_none() && opened.recomputation.is_none() => {
                self.open_call(opened)
            }
            Event::CallAnswered(answered) => {
                self.end_call(answered.call, GroupedCallEnd::Answered { ms: answered.duration_ms })
            }
            Event::CallFailed { call, next: RetryDecision::GiveUp, .. }
            | Event::CallOutcomeUnknown { call, next: RetryDecision::GiveUp, .. }
            | Event::CallCancelled { call, .. } => self.end_call(*call, GroupedCallEnd::Failed),
            _ => {}
        }
    }

    fn open_call(&mut self, opened: &CallOpened) {
        let who = speaker_name(opened);
        let seat = GroupedCall { call: opened.call, model: opened.model.clone(), end: None };
        // Whoever is asked while another of the same name is, is asked with it.
        match self.groups.iter_mut().find(|round| round.speaker == who && round.has_open_calls()) {
            Some(round) => round.calls.push(seat),
            None => self.groups.push(CallGroup { speaker: who.to_owned(), calls: vec![seat] }),
        }
    }

    fn end_call(&mut self, call: CallId, end: GroupedCallEnd) {
        let mut seats = self.groups.iter_mut().flat_map(|round| &mut round.calls);
        if let Some(seat) = seats.find(|seat| seat.call == call) {
            seat.end = Some(end);
        }
    }

    /// The round a call belongs to, if others are asked with it.
    fn parallel_group(&self, call: CallId) -> Option<&CallGroup> {
        self.groups.iter().find(|round| round.calls.len() > 1 && round.calls.iter().any(|seat| seat.call == call))
    }
}

impl CallGroup {
    fn has_open_calls(&self) -> bool {
        self.calls.iter().any(|seat| seat.end.is_none())
    }

    fn describe(&self, session: &Session, now: UnixMillis) -> String {
        let through = self.calls.iter().filter(|seat| seat.end.is_some()).count();
        let seats = self.calls.iter().enumerate().map(|(place, seat)| {
            let alike = |seats: &[GroupedCall]| seats.iter().filter(|other| other.model == seat.model).count();
            let number =
                if alike(&self.calls) > 1 { format!(" #{}", alike(&self.calls[..=place])) } else { String::new() };
            let end = match &seat.end {
                Some(GroupedCallEnd::Answered { ms }) => format!(" ✓ {}", format_duration(*ms)),
                Some(GroupedCallEnd::Failed) => " ✗".to_owned(),
                None => session.open_calls.get(&seat.call).map(|open| describe_attempt(open, now)).unwrap_or_default(),
            };
            format!("{}{number}{end}", seat.model)
        });
        format!("{} ({through} of {}): {}", self.speaker, self.calls.len(), seats.collect::<Vec<_>>().join(", "))
    }
}

/// The line, at the `frame`th time it is drawn to somebody who looks on since `from`; empty if nothing is waited for.
#[must_use]
pub fn render_progress(
    session: &Session,
    groups: &CallGroups,
    from: UnixMillis,
    now: UnixMillis,
    frame: usize,
) -> String {
    let mut asked: Vec<String> = Vec::new();
    for (call, open) in session.open_calls.iter().filter(|(_, open)| open.status != CallStatus::AwaitingOperator) {
        let told = groups
            .parallel_group(*call)
            .map_or_else(|| describe_single_call(open, now), |round| round.describe(session, now));
        if !asked.contains(&told) {
            asked.push(told);
        }
    }
    let run: Vec<String> = session.open_tool_runs.values().map(|tool| tool.tool.to_string()).collect();
    let kinds = [("asking", asked), ("running", run)].into_iter().filter(|(_, names)| !names.is_empty());
    let parts: Vec<String> = kinds.map(|(doing, names)| format!("{doing} {}", names.join("; "))).collect();
    let waits = match (&session.current_turn, parts.is_empty()) {
        (None, true) => return String::new(),
        (Some(_), true) if session.calls_awaiting_operator().next().is_some() => return String::new(),
        (Some(_), true) => "waiting".to_owned(),
        (_, false) => parts.join("; "),
    };
    let since = session.current_turn.as_ref().map(|turn| turn.started_at);
    let since = since.or_else(|| session.open_calls.values().map(|open| open.opened_at).min());
    // A turn that is picked up after a night was not waited for all night.
    let seconds = since.map_or(0, |since| now.ms_since(since.max(from)) / 1_000);
    let queued = match session.queued_messages.len() {
        0 => String::new(),
        waiting => format!(" · {waiting} more to come"),
    };
    let phase = match session.phases_label().as_str() {
        "" => String::new(),
        phase => format!("{phase} · "),
    };
    format!("{} {phase}{waits} · {seconds} s{queued}", SPINNER_FRAMES[frame % SPINNER_FRAMES.len()])
}

/// A line for something that is waited for beside the conversation.
#[must_use]
pub fn render_wait_progress(what: &str, from: UnixMillis, now: UnixMillis, frame: usize) -> String {
    format!("{} {what} · {} s", SPINNER_FRAMES[frame % SPINNER_FRAMES.len()], now.ms_since(from) / 1_000)
}

fn describe_single_call(open: &OpenCall, now: UnixMillis) -> String {
    let purpose = if open.opened.compacts_thread.is_some() { "to shorten the memory: " } else { "" };
    format!("{purpose}{}{}", call_label(&open.opened), describe_attempt(open, now))
}

/// Which try it is, where it is not the first.
fn describe_attempt(open: &OpenCall, now: UnixMillis) -> String {
    match open.status {
        CallStatus::Due if open.attempt > 1 => format!(" (try {})", open.attempt),
        CallStatus::WaitingUntil(until) => {
            format!(" (try {} in {})", open.attempt, format_duration(until.ms_since(now)))
        }
        CallStatus::Due | CallStatus::AwaitingOperator | CallStatus::Inherited(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_waited_for_in_a_session_at_rest() {
        assert_eq!(render_progress(&Session::default(), &CallGroups::default(), UnixMillis(0), UnixMillis(0), 0), "");
    }

    #[test]
    fn who_is_asked_side_by_side_is_told_one_by_one() {
        let seat = |call: u32, model: &str, end: Option<GroupedCallEnd>| GroupedCall {
            call: CallId(call),
            model: model.into(),
            end,
        };
        let seats = vec![
            seat(1, "ant", Some(GroupedCallEnd::Answered { ms: 1_200 })),
            seat(2, "bee", None),
            seat(3, "ant", Some(GroupedCallEnd::Failed)),
            seat(4, "cat", None),
        ];
        let round = CallGroup { speaker: "expert".into(), calls: seats };
        let told = round.describe(&Session::default(), UnixMillis(0));
        assert_eq!(told, "expert (2 of 4): ant #1 ✓ 1.2 s, bee, ant #2 ✗, cat");
    }
}
