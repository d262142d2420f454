//! Reports of ended turns, and the callers that wait for them.

use std::collections::BTreeMap;

use segue_core::body::TextRef;
use segue_core::decide::InputRefusal;
use segue_core::event::{Event, RecordedEvent, TurnOutcome};
use segue_core::ids::{MessageId, Seq, TurnId};
use segue_core::session::{Session, UsageTotals};
use tokio::sync::oneshot;

use crate::error::Error;

/// The result of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnReport {
    /// The message that the caller sent.
    pub message: MessageId,
    /// The sequence number of the turn's last event.
    pub last_seq: Seq,
    pub turn: TurnId,
    pub outcome: TurnOutcome,
    /// The replies shown to the user, in order.
    pub replies: Vec<String>,
    /// The phase after the turn, as text; empty if the flow has no phases.
    pub phase: String,
    /// Calls, tokens and cost of the turn.
    pub spent: UsageTotals,
}

pub(crate) type TurnReportSender = oneshot::Sender<Result<TurnReport, Error>>;

/// Callers that wait for the end of a turn, by the message they sent.
#[derive(Debug, Default)]
pub(crate) struct TurnWaiters {
    by_message: BTreeMap<MessageId, Vec<TurnReportSender>>,
    turn: Option<PartialTurnReport>,
}

/// The running turn, as far as its events are known.
#[derive(Debug)]
struct PartialTurnReport {
    messages: Vec<MessageId>,
    /// The replies so far; unknown if the turn started before this task.
    replies: Option<Vec<TextRef>>,
}

/// An ended turn and the callers that wait for it.
#[derive(Debug)]
pub(crate) struct EndedTurnWithWaiters {
    pub last_seq: Seq,
    pub turn: TurnId,
    pub outcome: TurnOutcome,
    /// One of its messages.
    pub message: MessageId,
    pub replies: Option<Vec<TextRef>>,
    pub waiters: Vec<(MessageId, TurnReportSender)>,
}

impl TurnWaiters {
    /// Creates an empty list for a session, in which a turn may be running.
    pub(crate) fn from_session(session: &Session) -> Self {
        let turn = session.current_turn.as_ref().map(|turn| {
            let messages = turn.messages.iter().map(|queued| queued.message).collect();
            PartialTurnReport { messages, replies: None }
        });
        Self { by_message: BTreeMap::new(), turn }
    }

    pub(crate) fn add(&mut self, message: MessageId, waiter: TurnReportSender) {
        self.by_message.entry(message).or_default().push(waiter);
    }

    /// Applies recorded events. Returns the turns that ended and have waiting callers.
    pub(crate) fn apply_events(&mut self, events: &[RecordedEvent]) -> Vec<EndedTurnWithWaiters> {
        let mut ended = Vec::new();
        for recorded in events {
            match &recorded.event {
                Event::TurnStarted { messages, .. } => {
                    self.turn = Some(PartialTurnReport { messages: messages.clone(), replies: Some(Vec::new()) });
                }
                Event::ReplySent(reply) => {
                    if let Some(replies) = self.turn.as_mut().and_then(|turn| turn.replies.as_mut()) {
                        replies.push(reply.text);
                    }
                }
                Event::TurnEnded { turn, outcome } => {
                    let Some(PartialTurnReport { messages, replies }) = self.turn.take() else { continue };
                    let take_waiters = |message: &MessageId| {
                        let waiters = self.by_message.remove(message).unwrap_or_default();
                        let message = *message;
                        waiters.into_iter().map(move |waiter| (message, waiter))
                    };
                    let waiters: Vec<(MessageId, TurnReportSender)> = messages.iter().flat_map(take_waiters).collect();
                    if let Some(message) = messages.first().filter(|_| !waiters.is_empty()) {
                        let (seq, turn, outcome) = (recorded.seq, *turn, outcome.clone());
                        ended.push(EndedTurnWithWaiters {
                            last_seq: seq,
                            turn,
                            outcome,
                            message: *message,
                            replies,
                            waiters,
                        });
                    }
                }
                Event::SessionClosed { reason } => self.fail_waiters_of_queued_messages(reason),
                _ => {}
            }
        }
        ended
    }

    /// Fails the callers whose message was still queued when the session closed.
    fn fail_waiters_of_queued_messages(&mut self, reason: &str) {
        let error = Error::Refused(InputRefusal::Closed { reason: reason.to_owned() });
        let running = self.turn.as_ref().map(|turn| turn.messages.clone()).unwrap_or_default();
        let (kept, failed) =
            std::mem::take(&mut self.by_message).into_iter().partition(|(message, _)| running.contains(message));
        self.by_message = kept;
        let failed: BTreeMap<MessageId, Vec<TurnReportSender>> = failed;
        for waiter in failed.into_values().flatten() {
            // The caller may be gone.
            let _ = waiter.send(Err(error.clone()));
        }
    }

    /// Removes and returns all waiting callers.
    pub(crate) fn take_all_waiters(&mut self) -> Vec<(MessageId, TurnReportSender)> {
        let waiters = std::mem::take(&mut self.by_message).into_iter();
        waiters.flat_map(|(message, waiters)| waiters.into_iter().map(move |waiter| (message, waiter))).collect()
    }

    /// Fails all waiting callers.
    pub(crate) fn fail_all_waiters(&mut self, error: &Error) {
        for waiter in std::mem::take(&mut self.by_message).into_values().flatten() {
            // The caller may be gone.
            let _ = waiter.send(Err(error.clone()));
        }
    }
}

impl EndedTurnWithWaiters {
    /// Sends the report to the waiting callers.
    pub(crate) fn notify_waiters(self, report: &Result<TurnReport, Error>) {
        for (message, waiter) in self.waiters {
            // The caller may be gone.
            let _ = waiter.send(report.clone().map(|report| TurnReport { message, ..report }));
        }
    }
}
