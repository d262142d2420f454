//! What a turn came to, for whoever waits for it.

use std::collections::BTreeMap;

use segue_core::body::TextRef;
use segue_core::decide::InputRefusal;
use segue_core::event::{Event, RecordedEvent, TurnResult};
use segue_core::ids::{MessageId, Seq, TurnId};
use segue_core::ledger::UsageTotals;
use segue_core::session::Session;
use tokio::sync::oneshot;

use crate::error::Error;

/// What a turn came to.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnReport {
    /// The message it was waited for with.
    pub message: MessageId,
    /// The place of its last event.
    pub last_seq: Seq,
    /// Which.
    pub turn: TurnId,
    /// How it ended.
    pub outcome: TurnResult,
    /// What was said to the user, in order.
    pub replies: Vec<String>,
    /// The phase afterwards, in words; empty where there is none.
    pub phase: String,
    /// Calls, tokens and cost of the turn.
    pub spent: UsageTotals,
}

pub(crate) type TurnReportSender = oneshot::Sender<Result<TurnReport, Error>>;

/// Those who wait for a turn's end, by the message they sent.
#[derive(Debug, Default)]
pub(crate) struct TurnWaiters {
    by_message: BTreeMap<MessageId, Vec<TurnReportSender>>,
    turn: Option<RunningTurn>,
}

/// The turn that runs, as far as it was followed.
#[derive(Debug)]
struct RunningTurn {
    messages: Vec<MessageId>,
    /// What was said in it; not known where its beginning was not followed.
    replies: Option<Vec<TextRef>>,
}

/// A turn that ended, and those who waited for it.
#[derive(Debug)]
pub(crate) struct EndedTurn {
    /// Its last event.
    pub last_seq: Seq,
    pub turn: TurnId,
    pub outcome: TurnResult,
    /// One of its messages.
    pub message: MessageId,
    pub replies: Option<Vec<TextRef>>,
    pub waiters: Vec<(MessageId, TurnReportSender)>,
}

impl TurnWaiters {
    /// Nobody waits yet; a turn may run that somebody will wait for.
    pub fn from_session(session: &Session) -> Self {
        let turn = session.current_turn.as_ref().map(|turn| {
            let messages = turn.messages.iter().map(|waiting| waiting.message).collect();
            RunningTurn { messages, replies: None }
        });
        Self { by_message: BTreeMap::new(), turn }
    }

    pub fn add(&mut self, message: MessageId, waiter: TurnReportSender) {
        self.by_message.entry(message).or_default().push(waiter);
    }

    /// Follows what was recorded. Gives the turns that ended and were waited for.
    pub fn apply_events(&mut self, events: &[RecordedEvent]) -> Vec<EndedTurn> {
        let mut ended = Vec::new();
        for recorded in events {
            match &recorded.event {
                Event::TurnStarted { messages, .. } => {
                    self.turn = Some(RunningTurn { messages: messages.clone(), replies: Some(Vec::new()) });
                }
                Event::ReplySent(words) => {
                    if let Some(said) = self.turn.as_mut().and_then(|turn| turn.replies.as_mut()) {
                        said.push(words.text);
                    }
                }
                Event::TurnEnded { turn, outcome } => {
                    let Some(RunningTurn { messages, replies: said }) = self.turn.take() else { continue };
                    let waiting = |message: &MessageId| {
                        let waiters = self.by_message.remove(message).unwrap_or_default();
                        let message = *message;
                        waiters.into_iter().map(move |waiter| (message, waiter))
                    };
                    let waiters: Vec<(MessageId, TurnReportSender)> = messages.iter().flat_map(waiting).collect();
                    if let Some(message) = messages.first().filter(|_| !waiters.is_empty()) {
                        let (seq, turn, outcome) = (recorded.seq, *turn, outcome.clone());
                        ended.push(EndedTurn {
                            last_seq: seq,
                            turn,
                            outcome,
                            message: *message,
                            replies: said,
                            waiters,
                        });
                    }
                }
                Event::SessionClosed { reason } => self.fail_queued(reason),
                _ => {}
            }
        }
        ended
    }

    /// Messages that waited when the session closed get no turn.
    fn fail_queued(&mut self, reason: &str) {
        let error = Error::Refused(InputRefusal::Closed { reason: reason.to_owned() });
        let running = self.turn.as_ref().map(|turn| turn.messages.clone()).unwrap_or_default();
        let (go_on, over) = std::mem::take(&mut self.by_message).into_iter().partition(|(of, _)| running.contains(of));
        self.by_message = go_on;
        let over: BTreeMap<MessageId, Vec<TurnReportSender>> = over;
        for waiter in over.into_values().flatten() {
            // Whoever asked may have gone away.
            let _ = waiter.send(Err(error.clone()));
        }
    }

    /// Tells everybody that it will not come.
    pub fn fail_all(&mut self, error: &Error) {
        for waiter in std::mem::take(&mut self.by_message).into_values().flatten() {
            let _ = waiter.send(Err(error.clone()));
        }
    }
}

impl EndedTurn {
    /// Tells those who waited.
    pub fn notify_waiters(self, report: &Result<TurnReport, Error>) {
        for (message, waiter) in self.waiters {
            // Whoever asked may have gone away.
            let _ = waiter.send(report.clone().map(|report| TurnReport { message, ..report }));
        }
    }
}
