//! A turn as it is seen. Words are shown as they come, but what is recorded as said is the truth: in the end exactly that
//! stands on the screen. One call has the floor at a time; whatever happens meanwhile is told when it has ended.

use std::collections::BTreeMap;
use std::io;

use segue_core::event::{
    CallOpened, Event, PhaseEntered, PhaseGraphOwner, RecordedEvent, RetryDecision, ToolOutcome, TurnResult,
};
use segue_core::ids::{CallId, UnixMillis};
use segue_core::phase::state::TransitionCause;
use segue_core::session::Session;

use super::screen::{OutputMode, Screen};
use crate::follow::answer_truncation_warning;
use crate::print::number_format::format_duration;
use crate::progress_text::{call_label, speaker_name};

/// What is seen of a session.
#[derive(Debug)]
pub struct TurnDisplay {
    speaker_names: SpeakerNames,
    /// Who speaks in the calls of this turn.
    speakers: BTreeMap<CallId, String>,
    /// The words so far of calls that are being answered.
    partial_replies: BTreeMap<CallId, PartialReply>,
    active_reply: Option<ActiveReply>,
    deferred: Vec<DeferredOutput>,
}

/// Whether it must be said who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpeakerNames {
    /// Several can.
    Shown,
    /// There is only one.
    Hidden,
}

#[derive(Debug)]
struct PartialReply {
    attempt: u32,
    text: String,
}

/// Whose words stand last on the screen.
#[derive(Debug)]
struct ActiveReply {
    call: CallId,
    /// The line that says who speaks; empty where that is understood.
    heading: String,
    shown_text: String,
    status: ReplyStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReplyStatus {
    Streaming,
    /// It has ended, and nobody has said these words to the user yet.
    Answered,
}

/// What waits until the floor is free.
#[derive(Debug)]
enum DeferredOutput {
    Note(String),
    Reply(String),
}

/// How the end of a turn looks from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TurnEndStatus {
    /// It was answered, or stopped on purpose.
    Completed,
    /// It failed.
    Failed,
}

impl TurnDisplay {
    #[must_use]
    pub fn new(speaker_names: SpeakerNames) -> Self {
        Self {
            speaker_names,
            speakers: BTreeMap::new(),
            partial_replies: BTreeMap::new(),
            active_reply: None,
            deferred: Vec::new(),
        }
    }

    /// A call is owed.
    pub fn call_opened(&mut self, opened: &CallOpened) {
        self.speakers.insert(opened.call, speaker_name(opened).to_owned());
    }

    /// More words of a call that is being answered.
    pub fn show_chunk(&mut self, screen: &mut Screen, call: CallId, attempt: u32, text: &str) -> io::Result<()> {
        if screen.output_mode() == OutputMode::Piped {
            return Ok(());
        }
        let heard = self.partial_replies.entry(call).or_insert_with(|| PartialReply { attempt, text: String::new() });
        if heard.attempt != attempt {
            (heard.attempt, heard.text) = (attempt, String::new());
        }
        heard.text.push_str(text);
        match &mut self.active_reply {
            Some(floor) if floor.call == call => {
                floor.shown_text.push_str(text);
                screen.write_chunk(text)
            }
            Some(floor) if floor.status == ReplyStatus::Streaming => Ok(()),
            Some(_) => self.retract_reply(screen),
            None => self.activate_next_reply(screen),
        }
    }

    /// Time has passed without anything being said: what was answered and not said by now will not be.
    pub fn retract_if_unsent(&mut self, screen: &mut Screen) -> io::Result<()> {
        match &self.active_reply {
            Some(floor) if floor.status == ReplyStatus::Answered => self.retract_reply(screen),
            Some(_) | None => Ok(()),
        }
    }

    /// Whether words are coming in.
    #[must_use]
    pub fn is_streaming(&self) -> bool {
        self.active_reply.is_some()
    }

    /// Something was said to the user.
    pub fn show_reply(
        &mut self,
        screen: &mut Screen,
        call: Option<CallId>,
        by: Option<&str>,
        text: &str,
    ) -> io::Result<()> {
        if let Some(call) = call {
            self.partial_replies.remove(&call);
        }
        match self.active_reply.take() {
            Some(floor) if Some(floor.call) == call => {
                self.reconcile_reply(screen, &floor, text)?;
                self.release_active_reply(screen)
            }
            Some(floor) if floor.status == ReplyStatus::Streaming => {
                self.active_reply = Some(floor);
                let heading = self.speaker_heading(call, by);
                self.deferred.push(DeferredOutput::Reply(heading + text));
                Ok(())
            }
            floor @ Some(_) => {
                self.active_reply = floor;
                let heading = self.speaker_heading(call, by);
                self.deferred.push(DeferredOutput::Reply(heading + text));
                self.retract_reply(screen)
            }
            None if screen.output_mode() == OutputMode::Piped => screen.print_text(text),
            None => {
                let heading = self.speaker_heading(call, by);
                screen.print_text(&(heading + text))
            }
        }
    }

    /// Something was recorded; `before` is the session as it stood before that.
    pub fn show_event(&mut self, screen: &mut Screen, before: &Session, recorded: &RecordedEvent) -> io::Result<()> {
        match &recorded.event {
            Event::CallOpened(opened) => self.call_opened(opened),
            Event::CallAnswered(answered) => {
                self.partial_replies.remove(&answered.call);
                if let Some(floor) = self.active_reply.as_mut().filter(|floor| floor.call == answered.call) {
                    floor.status = ReplyStatus::Answered;
                }
            }
            Event::CallFailed { call, .. }
            | Event::CallOutcomeUnknown { call, .. }
            | Event::CallCancelled { call, .. } => {
                self.stop_streaming(screen, *call)?;
            }
            _ => {}
        }
        match event_note(before, recorded) {
            Some(line) => self.show_note(screen, line),
            None => Ok(()),
        }
    }

    /// A turn ended.
    pub fn end_turn(&mut self, screen: &mut Screen, outcome: &TurnResult) -> io::Result<TurnEndStatus> {
        self.retract_if_unsent(screen)?;
        // Whoever still speaks does so outside of this turn, and begins anew below.
        self.active_reply = None;
        self.speakers.clear();
        match outcome {
            TurnResult::Done => {}
            TurnResult::Failed { reason } => {
                screen.print_error(&format!("the turn failed: {reason}"))?;
                return Ok(TurnEndStatus::Failed);
            }
            TurnResult::Cancelled => screen.print_note("— cancelled —")?,
            TurnResult::Interrupted => screen.print_note("— interrupted by another message —")?,
        }
        Ok(TurnEndStatus::Completed)
    }

    /// A quiet line beside the conversation, as soon as nobody has the floor.
    pub fn show_note(&mut self, screen: &mut Screen, line: String) -> io::Result<()> {
        if self.active_reply.is_some() {
            self.deferred.push(DeferredOutput::Note(line));
            return Ok(());
        }
        screen.print_note(&line)
    }

    /// No more words of this call will come; those there are stay, as far as they got.
    fn stop_streaming(&mut self, screen: &mut Screen, call: CallId) -> io::Result<()> {
        self.partial_replies.remove(&call);
        if self.active_reply.as_ref().is_some_and(|floor| floor.call == call) {
            self.active_reply = None;
            screen.end_line()?;
            return self.release_active_reply(screen);
        }
        Ok(())
    }

    /// Takes words back that were answered and never said.
    fn retract_reply(&mut self, screen: &mut Screen) -> io::Result<()> {
        if let Some(floor) = self.active_reply.take()
            && !screen.erase_text(&(floor.heading + &floor.shown_text))?
        {
            screen.print_note("— the words above were taken back —")?;
        }
        self.release_active_reply(screen)
    }

    /// Makes what is shown what was said.
    fn reconcile_reply(&mut self, screen: &mut Screen, reply: &ActiveReply, text: &str) -> io::Result<()> {
        let ActiveReply { heading, shown_text: shown, .. } = reply;
        if let Some(rest) = text.strip_prefix(shown.as_str()) {
            screen.write_chunk(rest)?;
        } else if shown.trim_end() != text.trim_end() {
            if !screen.erase_text(&format!("{heading}{shown}"))? {
                screen.print_note("— what was said is this: —")?;
            }
            screen.write_chunk(&format!("{heading}{text}"))?;
        }
        screen.end_line()
    }

    /// The floor is free: tells what has waited, then gives it to the next.
    fn release_active_reply(&mut self, screen: &mut Screen) -> io::Result<()> {
        screen.end_line()?;
        for later in std::mem::take(&mut self.deferred) {
            match later {
                DeferredOutput::Note(line) => screen.print_note(&line)?,
                DeferredOutput::Reply(text) => screen.print_text(&text)?,
            }
        }
        self.activate_next_reply(screen)
    }

    fn activate_next_reply(&mut self, screen: &mut Screen) -> io::Result<()> {
        let Some((call, heard)) = self.partial_replies.iter().find(|(_, heard)| !heard.text.is_empty()) else {
            return Ok(());
        };
        let (call, shown) = (*call, heard.text.clone());
        let heading = self.speaker_heading(Some(call), None);
        screen.end_line()?;
        screen.write_chunk(&format!("{heading}{shown}"))?;
        self.active_reply = Some(ActiveReply { call, heading, shown_text: shown, status: ReplyStatus::Streaming });
        Ok(())
    }

    fn speaker_heading(&self, call: Option<CallId>, by: Option<&str>) -> String {
        let speaker = call.and_then(|call| self.speakers.get(&call)).map(String::as_str).or(by);
        match (self.speaker_names, speaker) {
            (SpeakerNames::Shown, Some(speaker)) => format!("{speaker}:\n"),
            (SpeakerNames::Shown, None) | (SpeakerNames::Hidden, _) => String::new(),
        }
    }
}

/// What is worth a quiet line beside the conversation.
fn event_note(before: &Session, recorded: &RecordedEvent) -> Option<String> {
    let label = |call: &CallId| match before.open_calls.get(call) {
        Some(open) => call_label(&open.opened),
        None => call.to_string(),
    };
    Some(match &recorded.event {
        // One that was given up before is nobody's concern any more.
        Event::CallFailed { call, .. } if before.abandoned_calls.iter().any(|given_up| given_up.call == *call) => {
            return None;
        }
        Event::CallFailed { call, attempt, failure, next } => {
            let label = label(call);
            match next {
                RetryDecision::Retry { at } => {
                    retry_note(&label, *attempt, recorded.at, *at, &failure.kind.to_string())
                }
                RetryDecision::AwaitOperator => format!("{label}: {failure}; {}", decision_hint(*call)),
                RetryDecision::GiveUp if *attempt > 1 => format!("{label}: given up after {attempt} tries: {failure}"),
                RetryDecision::GiveUp => format!("{label}: {failure}"),
            }
        }
        Event::CallAnswered(answered) => {
            let role = before.open_calls.get(&answered.call).map(|open| &open.opened.role)?;
            format!("— {} —", answer_truncation_warning(role, answered.stop_reason, answered.usage.output_tokens)?)
        }
        Event::CallFailedOver { call, from, to } => format!("{}: {to} steps in for {from}", label(call)),
        Event::CallOutcomeUnknown { call, next, .. } => {
            let cut_off = format!("{} was cut off when the program ended, and may have been billed", label(call));
            match next {
                RetryDecision::Retry { .. } => format!("{cut_off}; it is asked again"),
                RetryDecision::AwaitOperator => format!("{cut_off}; {}", decision_hint(*call)),
                RetryDecision::GiveUp => format!("{cut_off}; it is not asked again"),
            }
        }
        Event::ThreadCompacted(compacted) => format!(
            "— memory shortened: {} messages folded, {} → {} tokens —",
            compacted.folded_entries, compacted.tokens_before, compacted.tokens_after
        ),
        Event::ThreadReset { slot, .. } => format!("— {} forgets, from its next call on —", slot.role),
        Event::PhaseEntered(entered) => return phase_change_note(entered),
        Event::PhaseTransitionRefused(refused) => format!("— refused: {} —", refused.refusal),
        Event::SkipGranted { grant, .. } => format!("— granted: {} —", grant.warning()),
        Event::HandoverCreated(handover) => format!("— handover: {} —", handover.kind),
        Event::ToolRunEnded {
            run, outcome: ToolOutcome::Failed | ToolOutcome::Refused | ToolOutcome::Unknown, ..
        } => {
            let tool = before.open_tool_runs.get(run).map_or_else(|| run.to_string(), |tool| tool.tool.to_string());
            format!("{tool} did not do what was asked")
        }
        Event::StepRefused { step, reason: why } => format!("— refused: {step}: {why} —"),
        Event::SessionForked { from, at_seq: at, .. } => format!("— forked from {from} at {at} —"),
        Event::SessionClosed { reason } => format!("— the session is closed: {reason} —"),
        _ => return None,
    })
}

fn retry_note(label: &str, attempt: u32, now: UnixMillis, at: UnixMillis, why: &str) -> String {
    format!("{label}: try {} in {}: {why}", attempt.saturating_add(1), format_duration(at.ms_since(now)))
}

/// How a person decides about a call whose end is not known.
#[must_use]
pub fn decision_hint(call: CallId) -> String {
    format!("/retry {call} asks again, /fail {call} gives it up")
}

fn phase_change_note(entered: &PhaseEntered) -> Option<String> {
    let transition = &entered.transition;
    if transition.cause == TransitionCause::SamePhase {
        return None;
    }
    let whose = match &entered.graph_key.owner {
        PhaseGraphOwner::Session => String::new(),
        PhaseGraphOwner::Role(name) => format!("{name}: "),
        PhaseGraphOwner::Agent(name) => format!("{name}: "),
    };
    let back = if matches!(transition.cause, TransitionCause::RolledBack { .. }) { "back: " } else { "" };
    let warning = transition.warning().map(|warning| format!("\n  {warning}")).unwrap_or_default();
    Some(format!("— {whose}{back}{} → {} —{warning}", transition.from, transition.to))
}

#[cfg(test)]
mod tests;
