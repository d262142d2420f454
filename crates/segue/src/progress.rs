//! What is waited for, in a line: where things stand, who is asked on which model, who of them has answered, what is run, and for
//! how long already.

use segue_core::event::{CallOpened, Event, Next};
use segue_core::ids::{CallId, Millis, ModelName};
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

/// Who is asked side by side, and who of them is through.
#[derive(Debug, Default)]
pub struct Rounds {
    rounds: Vec<Round>,
}

#[derive(Debug)]
struct Round {
    who: String,
    seats: Vec<Seat>,
}

#[derive(Debug)]
struct Seat {
    call: CallId,
    model: ModelName,
    end: Option<End>,
}

#[derive(Debug)]
enum End {
    Answered { ms: u64 },
    Missed,
}

impl Rounds {
    /// Notes what an event says about calls.
    pub fn note(&mut self, event: &Event) {
        match event {
            Event::TurnStarted { .. } => self.rounds.clear(),
            Event::CallOpened(opened) if opened.compacts.is_none() && opened.recomputes.is_none() => self.open(opened),
            Event::CallAnswered(answered) => self.end(answered.call, End::Answered { ms: answered.ms }),
            Event::CallFailed { call, next: Next::GiveUp, .. }
            | Event::CallUnknown { call, next: Next::GiveUp, .. }
            | Event::CallCancelled { call, .. } => self.end(*call, End::Missed),
            _ => {}
        }
    }

    fn open(&mut self, opened: &CallOpened) {
        let who = speaker(opened);
        let seat = Seat { call: opened.call, model: opened.model.clone(), end: None };
        // Whoever is asked while another of the same name is, is asked with it.
        match self.rounds.iter_mut().find(|round| round.who == who && round.is_under_way()) {
            Some(round) => round.seats.push(seat),
            None => self.rounds.push(Round { who: who.to_owned(), seats: vec![seat] }),
        }
    }

    fn end(&mut self, call: CallId, end: End) {
        let mut seats = self.rounds.iter_mut().flat_map(|round| &mut round.seats);
        if let Some(seat) = seats.find(|seat| seat.call == call) {
            seat.end = Some(end);
        }
    }

    /// The round a call belongs to, if others are asked with it.
    fn of(&self, call: CallId) -> Option<&Round> {
        self.rounds.iter().find(|round| round.seats.len() > 1 && round.seats.iter().any(|seat| seat.call == call))
    }
}

impl Round {
    fn is_under_way(&self) -> bool {
        self.seats.iter().any(|seat| seat.end.is_none())
    }

    fn told(&self, session: &Session, now: Millis) -> String {
        let through = self.seats.iter().filter(|seat| seat.end.is_some()).count();
        let seats = self.seats.iter().enumerate().map(|(place, seat)| {
            let alike = |seats: &[Seat]| seats.iter().filter(|other| other.model == seat.model).count();
            let number =
                if alike(&self.seats) > 1 { format!(" #{}", alike(&self.seats[..=place])) } else { String::new() };
            let end = match &seat.end {
                Some(End::Answered { ms }) => format!(" ✓ {}", duration(*ms)),
                Some(End::Missed) => " ✗".to_owned(),
                None => session.calls.get(&seat.call).map(|open| tried(open, now)).unwrap_or_default(),
            };
            format!("{}{number}{end}", seat.model)
        });
        format!("{} ({through} of {}): {}", self.who, self.seats.len(), seats.collect::<Vec<_>>().join(", "))
    }
}

/// The line, at the `frame`th time it is drawn to somebody who looks on since `from`; empty if nothing is waited for.
#[must_use]
pub fn line(session: &Session, rounds: &Rounds, from: Millis, now: Millis, frame: usize) -> String {
    let mut asked: Vec<String> = Vec::new();
    for (call, open) in session.calls.iter().filter(|(_, open)| open.status != CallStatus::Held) {
        let told = rounds.of(*call).map_or_else(|| alone(open, now), |round| round.told(session, now));
        if !asked.contains(&told) {
            asked.push(told);
        }
    }
    let run: Vec<String> = session.tools.values().map(|tool| tool.tool.to_string()).collect();
    let kinds = [("asking", asked), ("running", run)].into_iter().filter(|(_, names)| !names.is_empty());
    let parts: Vec<String> = kinds.map(|(doing, names)| format!("{doing} {}", names.join("; "))).collect();
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
    let phase = match session.phase_label().as_str() {
        "" => String::new(),
        phase => format!("{phase} · "),
    };
    format!("{} {phase}{waits} · {seconds} s{queued}", FRAMES[frame % FRAMES.len()])
}

/// A line for something that is waited for beside the conversation.
#[must_use]
pub fn waiting(what: &str, from: Millis, now: Millis, frame: usize) -> String {
    format!("{} {what} · {} s", FRAMES[frame % FRAMES.len()], now.since(from) / 1_000)
}

fn alone(open: &OpenCall, now: Millis) -> String {
    let purpose = if open.opened.compacts.is_some() { "to shorten the memory: " } else { "" };
    format!("{purpose}{}{}", call_label(&open.opened), tried(open, now))
}

/// Which try it is, where it is not the first.
fn tried(open: &OpenCall, now: Millis) -> String {
    match open.status {
        CallStatus::Due if open.attempt > 1 => format!(" (try {})", open.attempt),
        CallStatus::Waiting(until) => format!(" (try {} in {})", open.attempt, duration(until.since(now))),
        CallStatus::Due | CallStatus::Held | CallStatus::Left(_) => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_waited_for_in_a_session_at_rest() {
        assert_eq!(line(&Session::default(), &Rounds::default(), Millis(0), Millis(0), 0), "");
    }

    #[test]
    fn who_is_asked_side_by_side_is_told_one_by_one() {
        let seat = |call: u32, model: &str, end: Option<End>| Seat { call: CallId(call), model: model.into(), end };
        let seats = vec![
            seat(1, "ant", Some(End::Answered { ms: 1_200 })),
            seat(2, "bee", None),
            seat(3, "ant", Some(End::Missed)),
            seat(4, "cat", None),
        ];
        let round = Round { who: "expert".into(), seats };
        let told = round.told(&Session::default(), Millis(0));
        assert_eq!(told, "expert (2 of 4): ant #1 ✓ 1.2 s, bee, ant #2 ✗, cat");
    }
}
