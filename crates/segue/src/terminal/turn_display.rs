//! Shows a turn on the screen. Answers are shown while they stream in, but the recorded reply decides: in the end the
//! screen shows exactly that. Only one call streams at a time; other output waits until its reply is complete.

use std::collections::BTreeMap;
use std::io;

use segue_core::event::{
    CallOpened, Event, PhaseEntered, PhaseStateOwner, RecordedEvent, RetryDecision, ToolRunOutcome, TurnOutcome,
};
use segue_core::ids::{CallId, UnixMillis};
use segue_core::phase::PhaseTransitionCause;
use segue_core::session::Session;

use super::screen::{Screen, TerminalOrPipedOutput};
use crate::follow::answer_truncation_warning;
use crate::print::number_format::format_duration;
use crate::progress_text::{call_label, speaker_name};
use crate::tool_run_lines::ToolRunLineBuilder;

/// The display of a session's turns.
#[derive(Debug)]
pub(crate) struct ChatTurnRenderer {
    speaker_names: SpeakerNameVisibility,
    /// The speakers of the calls of this turn.
    speakers: BTreeMap<CallId, String>,
    /// The text so far of calls that are being answered.
    partial_replies: BTreeMap<CallId, StreamingReplyText>,
    active_reply: Option<ActiveReply>,
    deferred: Vec<OutputDeferredUntilReplyEnd>,
    tool_runs: ToolRunLineBuilder,
}

/// Whether replies have a heading with the name of the speaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SpeakerNameVisibility {
    Shown,
    Hidden,
}

#[derive(Debug)]
struct StreamingReplyText {
    attempt: u32,
    text: String,
}

/// The reply at the end of the screen.
#[derive(Debug)]
struct ActiveReply {
    call: CallId,
    /// The line with the speaker's name, or an empty string.
    heading: String,
    shown_text: String,
    status: ActiveReplyStatus,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ActiveReplyStatus {
    Streaming,
    /// The call has ended, but its answer is not recorded as a reply yet.
    Answered,
}

/// Output that waits until the active reply is complete.
#[derive(Debug)]
enum OutputDeferredUntilReplyEnd {
    Note(String),
    Reply(String),
}

/// Whether a turn ended with a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TurnEndStatus {
    /// The turn is done, or was cancelled on purpose.
    Completed,
    Failed,
}

impl ChatTurnRenderer {
    #[must_use]
    pub(crate) fn new(speaker_names: SpeakerNameVisibility) -> Self {
        Self {
            speaker_names,
            speakers: BTreeMap::new(),
            partial_replies: BTreeMap::new(),
            active_reply: None,
            deferred: Vec::new(),
            tool_runs: ToolRunLineBuilder::default(),
        }
    }

    /// Records the speaker of a call.
    pub(crate) fn record_call_speaker(&mut self, opened: &CallOpened) {
        self.speakers.insert(opened.call, speaker_name(opened).to_owned());
    }

    /// Shows another chunk of a call's answer, or keeps it for later.
    pub(crate) fn show_chunk(&mut self, screen: &mut Screen, call: CallId, attempt: u32, text: &str) -> io::Result<()> {
        if screen.output_mode() == TerminalOrPipedOutput::Piped {
            return Ok(());
        }
        let partial =
            self.partial_replies.entry(call).or_insert_with(|| StreamingReplyText { attempt, text: String::new() });
        if partial.attempt != attempt {
            (partial.attempt, partial.text) = (attempt, String::new());
        }
        partial.text.push_str(text);
        match &mut self.active_reply {
            Some(active) if active.call == call => {
                active.shown_text.push_str(text);
                screen.write_chunk(text)
            }
            Some(active) if active.status == ActiveReplyStatus::Streaming => Ok(()),
            Some(_) => self.retract_reply(screen),
            None => self.activate_next_reply(screen),
        }
    }

    /// Erases an answer that was not recorded as a reply some time after its call ended: it never will be.
    pub(crate) fn retract_unrecorded_reply(&mut self, screen: &mut Screen) -> io::Result<()> {
        match &self.active_reply {
            Some(active) if active.status == ActiveReplyStatus::Answered => self.retract_reply(screen),
            Some(_) | None => Ok(()),
        }
    }

    /// Whether an answer is on the screen that is not a recorded reply yet.
    #[must_use]
    pub(crate) fn is_streaming(&self) -> bool {
        self.active_reply.is_some()
    }

    /// Shows a recorded reply.
    pub(crate) fn show_reply(
        &mut self,
        screen: &mut Screen,
        call: Option<CallId>,
        role: Option<&str>,
        text: &str,
    ) -> io::Result<()> {
        if let Some(call) = call {
            self.partial_replies.remove(&call);
        }
        match self.active_reply.take() {
            Some(active) if Some(active.call) == call => {
                self.reconcile_reply(screen, &active, text)?;
                self.show_deferred_output(screen)
            }
            Some(active) if active.status == ActiveReplyStatus::Streaming => {
                self.active_reply = Some(active);
                let heading = self.speaker_heading(call, role);
                self.deferred.push(OutputDeferredUntilReplyEnd::Reply(heading + text));
                Ok(())
            }
            active @ Some(_) => {
                self.active_reply = active;
                let heading = self.speaker_heading(call, role);
                self.deferred.push(OutputDeferredUntilReplyEnd::Reply(heading + text));
                self.retract_reply(screen)
            }
            None if screen.output_mode() == TerminalOrPipedOutput::Piped => screen.print_text(text),
            None => {
                let heading = self.speaker_heading(call, role);
                screen.print_text(&(heading + text))
            }
        }
    }

    /// Shows an event; `before` is the session before it.
    pub(crate) fn show_event(
        &mut self,
        screen: &mut Screen,
        before: &Session,
        recorded: &RecordedEvent,
    ) -> io::Result<()> {
        match &recorded.event {
            Event::CallOpened(opened) => self.record_call_speaker(opened),
            Event::CallAnswered(answered) => {
                self.partial_replies.remove(&answered.call);
                if let Some(active) = self.active_reply.as_mut().filter(|active| active.call == answered.call) {
                    active.status = ActiveReplyStatus::Answered;
                }
            }
            Event::CallFailed { call, .. }
            | Event::CallOutcomeUnknown { call, .. }
            | Event::CallCancelled { call, .. } => {
                self.stop_streaming(screen, *call)?;
            }
            _ => {}
        }
        // The line of a run says more than the note about a failure.
        let tool_line = self.tool_runs.apply_event(recorded);
        match tool_line.or_else(|| event_note(before, recorded)) {
            Some(line) => self.show_note(screen, line),
            None => Ok(()),
        }
    }

    /// Shows how a turn ended.
    pub(crate) fn end_turn(&mut self, screen: &mut Screen, outcome: &TurnOutcome) -> io::Result<TurnEndStatus> {
        self.retract_unrecorded_reply(screen)?;
        // A call that still streams is not part of this turn, and its answer starts again below.
        self.active_reply = None;
        self.speakers.clear();
        match outcome {
            TurnOutcome::Done => {}
            TurnOutcome::Failed { reason } => {
                screen.print_error(&format!("the turn failed: {reason}"))?;
                return Ok(TurnEndStatus::Failed);
            }
            TurnOutcome::Cancelled => screen.print_note("— cancelled —")?,
            TurnOutcome::Interrupted => screen.print_note("— interrupted by another message —")?,
        }
        Ok(TurnEndStatus::Completed)
    }

    /// Shows a note as soon as no reply is active.
    pub(crate) fn show_note(&mut self, screen: &mut Screen, line: String) -> io::Result<()> {
        if self.active_reply.is_some() {
            self.deferred.push(OutputDeferredUntilReplyEnd::Note(line));
            return Ok(());
        }
        screen.print_note(&line)
    }

    /// Ends the answer of a call that failed. The text so far stays on the screen.
    fn stop_streaming(&mut self, screen: &mut Screen, call: CallId) -> io::Result<()> {
        self.partial_replies.remove(&call);
        if self.active_reply.as_ref().is_some_and(|active| active.call == call) {
            self.active_reply = None;
            screen.end_line()?;
            return self.show_deferred_output(screen);
        }
        Ok(())
    }

    /// Erases an answer that did not become a reply.
    fn retract_reply(&mut self, screen: &mut Screen) -> io::Result<()> {
        if let Some(active) = self.active_reply.take()
            && !screen.erase_text(&(active.heading + &active.shown_text))?
        {
            screen.print_note("— the text above is not part of the reply —")?;
        }
        self.show_deferred_output(screen)
    }

    /// Replaces the streamed text by the recorded reply.
    fn reconcile_reply(&mut self, screen: &mut Screen, reply: &ActiveReply, text: &str) -> io::Result<()> {
        let ActiveReply { heading, shown_text: shown, .. } = reply;
        if let Some(rest) = text.strip_prefix(shown.as_str()) {
            screen.write_chunk(rest)?;
        } else if shown.trim_end() != text.trim_end() {
            if !screen.erase_text(&format!("{heading}{shown}"))? {
                screen.print_note("— the reply is: —")?;
            }
            screen.write_chunk(&format!("{heading}{text}"))?;
        }
        screen.end_line()
    }

    /// Shows the deferred output, then the next answer that is streaming in.
    fn show_deferred_output(&mut self, screen: &mut Screen) -> io::Result<()> {
        screen.end_line()?;
        for output in std::mem::take(&mut self.deferred) {
            match output {
                OutputDeferredUntilReplyEnd::Note(line) => screen.print_note(&line)?,
                OutputDeferredUntilReplyEnd::Reply(text) => screen.print_text(&text)?,
            }
        }
        self.activate_next_reply(screen)
    }

    fn activate_next_reply(&mut self, screen: &mut Screen) -> io::Result<()> {
        let Some((call, partial)) = self.partial_replies.iter().find(|(_, partial)| !partial.text.is_empty()) else {
            return Ok(());
        };
        let (call, shown) = (*call, partial.text.clone());
        let heading = self.speaker_heading(Some(call), None);
        screen.end_line()?;
        screen.write_chunk(&format!("{heading}{shown}"))?;
        self.active_reply =
            Some(ActiveReply { call, heading, shown_text: shown, status: ActiveReplyStatus::Streaming });
        Ok(())
    }

    fn speaker_heading(&self, call: Option<CallId>, role: Option<&str>) -> String {
        let speaker = call.and_then(|call| self.speakers.get(&call)).map(String::as_str).or(role);
        match (self.speaker_names, speaker) {
            (SpeakerNameVisibility::Shown, Some(speaker)) => format!("{speaker}:\n"),
            (SpeakerNameVisibility::Shown, None) | (SpeakerNameVisibility::Hidden, _) => String::new(),
        }
    }
}

/// Returns the note for an event, or `None` for events that are not shown.
fn event_note(before: &Session, recorded: &RecordedEvent) -> Option<String> {
    let label = |call: &CallId| match before.open_calls.get(call) {
        Some(open) => call_label(&open.opened),
        None => call.to_string(),
    };
    Some(match &recorded.event {
        // The user has already seen that this call was given up.
        Event::CallFailed { call, .. } if before.abandoned_calls.iter().any(|abandoned| abandoned.call == *call) => {
            return None;
        }
        Event::CallFailed { call, attempt, failure, next } => {
            let label = label(call);
            match next {
                RetryDecision::Retry { at } => {
                    retry_note(&label, *attempt, recorded.at, *at, &failure.kind.to_string())
                }
                RetryDecision::AwaitOperator => format!("{label}: {failure}; {}", unknown_outcome_hint(*call)),
                RetryDecision::GiveUp if *attempt > 1 => format!("{label}: failed after {attempt} attempts: {failure}"),
                RetryDecision::GiveUp => format!("{label}: {failure}"),
            }
        }
        Event::CallAnswered(answered) => {
            let role = before.open_calls.get(&answered.call).map(|open| &open.opened.role)?;
            format!("— {} —", answer_truncation_warning(role, answered.stop_reason, answered.usage.output_tokens)?)
        }
        Event::CallFailedOver { call, from, to } => format!("{}: failed over from {from} to {to}", label(call)),
        Event::CallOutcomeUnknown { call, next, .. } => {
            let interrupted = format!("{} was interrupted by a crash and may have been billed", label(call));
            match next {
                RetryDecision::Retry { .. } => format!("{interrupted}; retrying"),
                RetryDecision::AwaitOperator => format!("{interrupted}; {}", unknown_outcome_hint(*call)),
                RetryDecision::GiveUp => format!("{interrupted}; not retried"),
            }
        }
        Event::ThreadCompacted(compacted) => format!(
            "— thread compacted: {} messages, {} → {} tokens —",
            compacted.folded_entries, compacted.tokens_before, compacted.tokens_after
        ),
        Event::ThreadReset { slot, .. } => format!("— {} starts a new thread at its next call —", slot.role),
        Event::PhaseEntered(entered) => return phase_change_note(entered),
        Event::PhaseTransitionRefused { refusal, .. } => format!("— refused: {refusal} —"),
        Event::SkipGranted { grant, .. } => format!("— granted: {grant} —"),
        Event::HandoverCreated(handover) => format!("— handover: {} —", handover.kind),
        Event::ToolRunEnded {
            run,
            outcome: ToolRunOutcome::Failed | ToolRunOutcome::Refused | ToolRunOutcome::Unknown,
            ..
        } => {
            let tool = before.open_tool_runs.get(run).map_or_else(|| run.to_string(), |tool| tool.tool.to_string());
            format!("tool {tool} failed")
        }
        Event::StepRefused { step, reason } => format!("— refused: {step}: {reason} —"),
        Event::SessionForked { from, at_seq, .. } => format!("— forked from {from} at event {at_seq} —"),
        Event::SessionClosed { reason } => format!("— the session is closed: {reason} —"),
        _ => return None,
    })
}

fn retry_note(label: &str, attempt: u32, now: UnixMillis, at: UnixMillis, reason: &str) -> String {
    let next = attempt.saturating_add(1);
    format!("{label}: {reason}; attempt {next} in {}", format_duration(at.ms_since(now)))
}

/// Returns how to decide about a call with an unknown outcome.
#[must_use]
pub(crate) fn unknown_outcome_hint(call: CallId) -> String {
    format!("/retry {call} makes it again, /fail {call} gives up")
}

fn phase_change_note(entered: &PhaseEntered) -> Option<String> {
    let transition = &entered.transition;
    if transition.cause == PhaseTransitionCause::SamePhase {
        return None;
    }
    let owner = match &entered.graph_key.owner {
        PhaseStateOwner::Session => String::new(),
        PhaseStateOwner::Role(name) => format!("{name}: "),
        PhaseStateOwner::Agent(name) => format!("{name}: "),
    };
    let back = if matches!(transition.cause, PhaseTransitionCause::RolledBack { .. }) { "back: " } else { "" };
    let warning =
        transition.describe_skips_or_blocked_exit().map(|warning| format!("\n  {warning}")).unwrap_or_default();
    Some(format!("— {owner}{back}{} → {} —{warning}", transition.from, transition.to))
}

#[cfg(test)]
mod tests;
