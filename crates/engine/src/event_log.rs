//! Log lines about recorded events. They contain ids, names and numbers, never the text of a conversation: the journal
//! has the texts.

use segue_core::event::{Event, RecordedEvent, RetryDecision, ToolRunOutcome, TurnOutcome};
use segue_core::ids::{CallId, SessionId};
use segue_core::prompt::CallFailureKind;
use tracing::{Level, debug, error, trace, warn};

/// Logs events that were written.
pub(crate) fn log_recorded_events(session: &SessionId, events: &[RecordedEvent]) {
    if tracing::enabled!(Level::ERROR) {
        events.iter().for_each(|event| log_event(session, event));
    }
}

fn log_event(session: &SessionId, recorded: &RecordedEvent) {
    match &recorded.event {
        Event::SessionOpened(opened) => debug!(%session, flow = %opened.flow, "session opened"),
        Event::SessionForked { from, at_seq, .. } => debug!(%session, %from, %at_seq, "session forked"),
        Event::SessionClosed { .. } => debug!(%session, "session closed"),
        Event::TurnStarted { turn, messages, .. } => {
            debug!(%session, %turn, messages = messages.len(), "turn started");
        }
        Event::TurnEnded { turn, outcome: TurnOutcome::Failed { .. } } => warn!(%session, %turn, "turn failed"),
        Event::TurnEnded { turn, outcome } => debug!(%session, %turn, ?outcome, "turn ended"),
        Event::CallOpened(opened) => {
            let (call, turn) = (opened.call, opened.turn.map(tracing::field::display));
            debug!(%session, turn, %call, role = %opened.role, model = %opened.model, "call opened");
        }
        Event::CallAnswered(answered) => {
            let (call, attempt, duration_ms) = (answered.call, answered.attempt, answered.duration_ms);
            debug!(%session, %call, attempt, duration_ms, "call answered");
        }
        Event::CallAnsweredLate { call, .. } => debug!(%session, %call, "abandoned call answered"),
        Event::CallFailed { call, attempt, failure, next } => {
            log_failed_attempt(session, *call, *attempt, failure.kind, next);
        }
        Event::CallFailedOver { call, from, to } => {
            warn!(%session, %call, %from, %to, "call continues with the fallback model");
        }
        Event::CallOutcomeUnknown { call, attempt, next: RetryDecision::AwaitOperator } => {
            error!(%session, %call, attempt, "outcome of the call unknown; it waits for the decision of an operator");
        }
        Event::CallOutcomeUnknown { call, attempt, next } => {
            let is_retried = matches!(next, RetryDecision::Retry { .. });
            warn!(%session, %call, attempt, is_retried, "outcome of the call unknown, possibly billed");
        }
        Event::CallCancelled { call, in_flight, .. } => debug!(%session, %call, in_flight, "call cancelled"),
        Event::ToolRunOpened(opened) => {
            let turn = opened.turn.map(tracing::field::display);
            debug!(%session, turn, run = %opened.run, tool = %opened.tool, "tool run opened");
        }
        Event::ToolRunEnded { run, outcome: ToolRunOutcome::Unknown, .. } => {
            warn!(%session, %run, "outcome of the tool run unknown");
        }
        Event::ToolRunEnded { run, outcome, .. } => debug!(%session, %run, ?outcome, "tool run ended"),
        Event::ThreadCompacted(compacted) => {
            let (thread, tokens_before, tokens_after) =
                (compacted.thread, compacted.tokens_before, compacted.tokens_after);
            debug!(%session, %thread, tokens_before, tokens_after, "thread compacted");
        }
        _ => trace!(%session, seq = recorded.seq.0, "event recorded"),
    }
}

/// Logs a failed attempt. The message of the failure is left out, because vendors quote prompts in it.
fn log_failed_attempt(session: &SessionId, call: CallId, attempt: u32, kind: CallFailureKind, next: &RetryDecision) {
    match (kind, next) {
        (CallFailureKind::InvalidApiKey, _) => {
            error!(%session, %call, attempt, failure = %kind, "call failed; the configured API key is not accepted");
        }
        (_, RetryDecision::AwaitOperator) => {
            error!(%session, %call, attempt, failure = %kind, "call failed; it waits for the decision of an operator");
        }
        (_, RetryDecision::Retry { .. }) => {
            warn!(%session, %call, attempt, failure = %kind, "attempt failed; the call is retried");
        }
        (_, RetryDecision::GiveUp) => warn!(%session, %call, attempt, failure = %kind, "call failed"),
    }
}
