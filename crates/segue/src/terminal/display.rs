//! A turn as it is seen. Words are shown as they come, but what is recorded as said is the truth: in the end exactly that
//! stands on the screen. One call has the floor at a time; whatever happens meanwhile is told when it has ended.

use std::collections::BTreeMap;
use std::io;

use segue_core::event::{CallOpened, Event, Next, Outcome, Owner, PhaseEntered, Recorded, ToolOutcome};
use segue_core::ids::{CallId, Millis};
use segue_core::phase::state::How;
use segue_core::session::Session;

use super::screen::{Screen, Seen};
use crate::follow::shortfall;
use crate::print::amount::duration;
use crate::progress::{call_label, speaker};

/// What is seen of a session.
#[derive(Debug)]
pub struct Display {
    names: Names,
    /// Who speaks in the calls of this turn.
    speakers: BTreeMap<CallId, String>,
    /// The words so far of calls that are being answered.
    words: BTreeMap<CallId, Heard>,
    floor: Option<Floor>,
    later: Vec<Later>,
}

/// Whether it must be said who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// Several can.
    Shown,
    /// There is only one.
    Understood,
}

#[derive(Debug)]
struct Heard {
    attempt: u32,
    text: String,
}

/// Whose words stand last on the screen.
#[derive(Debug)]
struct Floor {
    call: CallId,
    /// The line that says who speaks; empty where that is understood.
    heading: String,
    shown: String,
    status: Status,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Status {
    Speaking,
    /// It has ended, and nobody has said these words to the user yet.
    Answered,
}

/// What waits until the floor is free.
#[derive(Debug)]
enum Later {
    Note(String),
    Words(String),
}

/// How the end of a turn looks from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// It was answered, or stopped on purpose.
    Fine,
    /// It failed.
    Failed,
}

impl Display {
    #[must_use]
    pub fn new(names: Names) -> Self {
        Self { names, speakers: BTreeMap::new(), words: BTreeMap::new(), floor: None, later: Vec::new() }
    }

    /// A call is owed.
    pub fn opened(&mut self, opened: &CallOpened) {
        self.speakers.insert(opened.call, speaker(opened).to_owned());
    }

    /// More words of a call that is being answered.
    pub fn words(&mut self, screen: &mut Screen, call: CallId, attempt: u32, text: &str) -> io::Result<()> {
        if screen.seen() == Seen::Piped {
            return Ok(());
        }
        let heard = self.words.entry(call).or_insert_with(|| Heard { attempt, text: String::new() });
        if heard.attempt != attempt {
            (heard.attempt, heard.text) = (attempt, String::new());
        }
        heard.text.push_str(text);
        match &mut self.floor {
            Some(floor) if floor.call == call => {
                floor.shown.push_str(text);
                screen.words(text)
            }
            Some(floor) if floor.status == Status::Speaking => Ok(()),
            Some(_) => self.withdraw(screen),
            None => self.give_floor(screen),
        }
    }

    /// Time has passed without anything being said: what was answered and not said by now will not be.
    pub fn settle(&mut self, screen: &mut Screen) -> io::Result<()> {
        match &self.floor {
            Some(floor) if floor.status == Status::Answered => self.withdraw(screen),
            Some(_) | None => Ok(()),
        }
    }

    /// Whether words are coming in.
    #[must_use]
    pub fn is_speaking(&self) -> bool {
        self.floor.is_some()
    }

    /// Something was said to the user.
    pub fn said(&mut self, screen: &mut Screen, call: Option<CallId>, by: Option<&str>, text: &str) -> io::Result<()> {
        if let Some(call) = call {
            self.words.remove(&call);
        }
        match self.floor.take() {
            Some(floor) if Some(floor.call) == call => {
                self.complete(screen, &floor, text)?;
                self.free(screen)
            }
            Some(floor) if floor.status == Status::Speaking => {
                self.floor = Some(floor);
                let heading = self.heading(call, by);
                self.later.push(Later::Words(heading + text));
                Ok(())
            }
            floor @ Some(_) => {
                self.floor = floor;
                let heading = self.heading(call, by);
                self.later.push(Later::Words(heading + text));
                self.withdraw(screen)
            }
            None if screen.seen() == Seen::Piped => screen.print(text),
            None => {
                let heading = self.heading(call, by);
                screen.print(&(heading + text))
            }
        }
    }

    /// Something was recorded; `before` is the session as it stood before that.
    pub fn event(&mut self, screen: &mut Screen, before: &Session, recorded: &Recorded) -> io::Result<()> {
        match &recorded.event {
            Event::CallOpened(opened) => self.opened(opened),
            Event::CallAnswered(answered) => {
                self.words.remove(&answered.call);
                if let Some(floor) = self.floor.as_mut().filter(|floor| floor.call == answered.call) {
                    floor.status = Status::Answered;
                }
            }
            Event::CallFailed { call, .. } | Event::CallUnknown { call, .. } | Event::CallCancelled { call, .. } => {
                self.broken_off(screen, *call)?;
            }
            _ => {}
        }
        match line(before, recorded) {
            Some(line) => self.note(screen, line),
            None => Ok(()),
        }
    }

    /// A turn ended.
    pub fn turn_ended(&mut self, screen: &mut Screen, outcome: &Outcome) -> io::Result<Ending> {
        self.settle(screen)?;
        // Whoever still speaks does so outside of this turn, and begins anew below.
        self.floor = None;
        self.speakers.clear();
        match outcome {
            Outcome::Done => {}
            Outcome::Failed { reason } => {
                screen.error(&format!("the turn failed: {reason}"))?;
                return Ok(Ending::Failed);
            }
            Outcome::Cancelled => screen.note("— cancelled —")?,
            Outcome::Interrupted => screen.note("— interrupted by another message —")?,
        }
        Ok(Ending::Fine)
    }

    /// A quiet line beside the conversation, as soon as nobody has the floor.
    pub fn note(&mut self, screen: &mut Screen, line: String) -> io::Result<()> {
        if self.floor.is_some() {
            self.later.push(Later::Note(line));
            return Ok(());
        }
        screen.note(&line)
    }

    /// No more words of this call will come; those there are stay, as far as they got.
    fn broken_off(&mut self, screen: &mut Screen, call: CallId) -> io::Result<()> {
        self.words.remove(&call);
        if self.floor.as_ref().is_some_and(|floor| floor.call == call) {
            self.floor = None;
            screen.end_line()?;
            return self.free(screen);
        }
        Ok(())
    }

    /// Takes words back that were answered and never said.
    fn withdraw(&mut self, screen: &mut Screen) -> io::Result<()> {
        if let Some(floor) = self.floor.take()
            && !screen.take_back(&(floor.heading + &floor.shown))?
        {
            screen.note("— the words above were taken back —")?;
        }
        self.free(screen)
    }

    /// Makes what is shown what was said.
    fn complete(&mut self, screen: &mut Screen, floor: &Floor, text: &str) -> io::Result<()> {
        let Floor { heading, shown, .. } = floor;
        if let Some(rest) = text.strip_prefix(shown.as_str()) {
            screen.words(rest)?;
        } else if shown.trim_end() != text.trim_end() {
            if !screen.take_back(&format!("{heading}{shown}"))? {
                screen.note("— what was said is this: —")?;
            }
            screen.words(&format!("{heading}{text}"))?;
        }
        screen.end_line()
    }

    /// The floor is free: tells what has waited, then gives it to the next.
    fn free(&mut self, screen: &mut Screen) -> io::Result<()> {
        screen.end_line()?;
        for later in std::mem::take(&mut self.later) {
            match later {
                Later::Note(line) => screen.note(&line)?,
                Later::Words(text) => screen.print(&text)?,
            }
        }
        self.give_floor(screen)
    }

    fn give_floor(&mut self, screen: &mut Screen) -> io::Result<()> {
        let Some((call, heard)) = self.words.iter().find(|(_, heard)| !heard.text.is_empty()) else { return Ok(()) };
        let (call, shown) = (*call, heard.text.clone());
        let heading = self.heading(Some(call), None);
        screen.end_line()?;
        screen.words(&format!("{heading}{shown}"))?;
        self.floor = Some(Floor { call, heading, shown, status: Status::Speaking });
        Ok(())
    }

    fn heading(&self, call: Option<CallId>, by: Option<&str>) -> String {
        let speaker = call.and_then(|call| self.speakers.get(&call)).map(String::as_str).or(by);
        match (self.names, speaker) {
            (Names::Shown, Some(speaker)) => format!("{speaker}:\n"),
            (Names::Shown, None) | (Names::Understood, _) => String::new(),
        }
    }
}

/// What is worth a quiet line beside the conversation.
fn line(before: &Session, recorded: &Recorded) -> Option<String> {
    let label = |call: &CallId| match before.calls.get(call) {
        Some(open) => call_label(&open.opened),
        None => call.to_string(),
    };
    Some(match &recorded.event {
        // One that was given up before is nobody's concern any more.
        Event::CallFailed { call, .. } if before.given_up.iter().any(|given_up| given_up.call == *call) => return None,
        Event::CallFailed { call, attempt, failure, next } => {
            let label = label(call);
            match next {
                Next::Retry { at } => retry_line(&label, *attempt, recorded.at, *at, &failure.kind.to_string()),
                Next::Ask => format!("{label}: {failure}; {}", choices(*call)),
                Next::GiveUp if *attempt > 1 => format!("{label}: given up after {attempt} tries: {failure}"),
                Next::GiveUp => format!("{label}: {failure}"),
            }
        }
        Event::CallAnswered(answered) => {
            let role = before.calls.get(&answered.call).map(|open| &open.opened.role)?;
            format!("— {} —", shortfall(role, answered.stop, answered.usage.output)?)
        }
        Event::CallMoved { call, from, to } => format!("{}: {to} steps in for {from}", label(call)),
        Event::CallUnknown { call, next, .. } => {
            let cut_off = format!("{} was cut off when the program ended, and may have been billed", label(call));
            match next {
                Next::Retry { .. } => format!("{cut_off}; it is asked again"),
                Next::Ask => format!("{cut_off}; {}", choices(*call)),
                Next::GiveUp => format!("{cut_off}; it is not asked again"),
            }
        }
        Event::ThreadCompacted(compacted) => format!(
            "— memory shortened: {} messages folded, {} → {} tokens —",
            compacted.folded, compacted.tokens_before, compacted.tokens_after
        ),
        Event::ThreadReset { slot, .. } => format!("— {} forgets, from its next call on —", slot.role),
        Event::PhaseEntered(entered) => return phase_line(entered),
        Event::PhaseRefused(refused) => format!("— refused: {} —", refused.refusal),
        Event::SkipGranted { grant, .. } => format!("— granted: {} —", grant.warning()),
        Event::HandoverMade(handover) => format!("— handover: {} —", handover.kind),
        Event::ToolAnswered {
            run, outcome: ToolOutcome::Failed | ToolOutcome::Refused | ToolOutcome::Unknown, ..
        } => {
            let tool = before.tools.get(run).map_or_else(|| run.to_string(), |tool| tool.tool.to_string());
            format!("{tool} did not do what was asked")
        }
        Event::StepRefused { step, why } => format!("— refused: {step}: {why} —"),
        Event::SessionForked { from, at, .. } => format!("— forked from {from} at {at} —"),
        Event::SessionClosed { reason } => format!("— the session is closed: {reason} —"),
        _ => return None,
    })
}

fn retry_line(label: &str, attempt: u32, now: Millis, at: Millis, why: &str) -> String {
    format!("{label}: try {} in {}: {why}", attempt.saturating_add(1), duration(at.since(now)))
}

/// How a person decides about a call whose end is not known.
#[must_use]
pub fn choices(call: CallId) -> String {
    format!("/retry {call} asks again, /fail {call} gives it up")
}

fn phase_line(entered: &PhaseEntered) -> Option<String> {
    let transition = &entered.transition;
    if transition.how == How::SamePhase {
        return None;
    }
    let whose = match &entered.phase.owner {
        Owner::Session => String::new(),
        Owner::Role(name) => format!("{name}: "),
        Owner::Agent(name) => format!("{name}: "),
    };
    let back = if matches!(transition.how, How::RolledBack { .. }) { "back: " } else { "" };
    let warning = transition.warning().map(|warning| format!("\n  {warning}")).unwrap_or_default();
    Some(format!("— {whose}{back}{} → {} —{warning}", transition.from, transition.to))
}

#[cfg(test)]
mod tests;
