//! What is waited for, in a line: who is asked on which model, what is run, and for how long already.

use segue_core::event::CallOpened;
use segue_core::ids::Millis;
use segue_core::session::{CallStatus, OpenCall, Session};

use crate::print::amount::duration;

const FRAMES: &[&str] = &["⠋", "⠙", "⠹", "⠸", "⠼", "⠴", "⠦", "⠧", "⠇", "⠏"];

/// Who speaks in a call: the individual if there is one, else the role.
#[must_use]
pub fn speaker(opened: &CallOpened) -> &str {
    opened.agent.as_ref().map_or(opened.role.as_str(), |agent| agent.as_str())
}

/// A call as people are told of it.
#[must_use]
pub fn call_label(opened: &CallOpened) -> String {
    format!("{} on {}", speaker(opened), opened.model)
}

/// The line, at the `frame`th time it is drawn to somebody who looks on since `from`; empty if nothing is waited for.
#[must_use]
pub fn line(session: &Session, from: Millis, now: Millis, frame: usize) -> String {
    let asked: Vec<String> = session.calls.values().filter_map(|open| asked(open, now)).collect();
    let run: Vec<String> = session.tools.values().map(|tool| tool.tool.to_string()).collect();
    let kinds = [("asking", asked), ("running", run)].into_iter().filter(|(_, names)| !names.is_empty());
    let parts: Vec<String> = kinds.map(|(doing, names)| format!("{doing} {}", names.join(", "))).collect();
    let waits = match (&session.turn, parts.is_empty()) {
        (None, true) => return String::new(),
        (Some(_), true) if session.held().next().is_some() => return String::new(),
        (Some(_), true) => "waiting".to_owned(),
        (_, false) => parts.join("; "),
    };
    let since = session.turn.as_ref().map(|turn| turn.started);
    let since = since.or_else(|| session.calls.values().map(|open| open.since).min());
    // A turn that is picked up after a night was not waited for all night.
    let seconds = since.map_or(0, |since| now.since(since.max(from)) / 1_000);
    let queued = match session.queue.len() {
        0 => String::new(),
        waiting => format!(" · {waiting} more to come"),
    };
    format!("{} {waits} · {seconds} s{queued}", FRAMES[frame % FRAMES.len()])
}

fn asked(open: &OpenCall, now: Millis) -> Option<String> {
    let label = call_label(&open.opened);
    let purpose = if open.opened.compacts.is_some() { "to shorten the memory: " } else { "" };
    match open.status {
        CallStatus::Due if open.attempt > 1 => Some(format!("{purpose}{label} (try {})", open.attempt)),
        CallStatus::Due => Some(format!("{purpose}{label}")),
        CallStatus::Waiting(until) => {
            Some(format!("{purpose}{label} (try {} in {})", open.attempt, duration(until.since(now))))
        }
        CallStatus::Held => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_waited_for_in_a_session_at_rest() {
        assert_eq!(line(&Session::default(), Millis(0), Millis(0), 0), "");
    }
}
