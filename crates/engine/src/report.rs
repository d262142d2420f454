//! What a turn came to, for whoever waits for it.

use std::collections::BTreeMap;

use segue_core::event::{Event, Outcome, Recorded};
use segue_core::ids::{MessageId, TurnId};
use segue_core::ledger::Tally;
use tokio::sync::oneshot;

use crate::error::Error;

/// What a turn came to.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnReport {
    /// Which.
    pub turn: TurnId,
    /// How it ended.
    pub outcome: Outcome,
    /// What was said to the user, in order.
    pub said: Vec<String>,
    /// The phase afterwards, in words; empty where there is none.
    pub phase: String,
    /// Calls, tokens and cost of the turn.
    pub spent: Tally,
}

pub(crate) type Answered = oneshot::Sender<Result<TurnReport, Error>>;

/// Those who wait for a turn's end, by the message they sent.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    by_message: BTreeMap<MessageId, Vec<Answered>>,
    messages: Vec<MessageId>,
    said: Vec<String>,
}

impl Waiters {
    pub fn add(&mut self, message: MessageId, waiter: Answered) {
        self.by_message.entry(message).or_default().push(waiter);
    }

    pub fn is_empty(&self) -> bool {
        self.by_message.is_empty()
    }

    /// Follows what was recorded; `words` gives the words of a text, `report` completes a report.
    pub fn follow(
        &mut self,
        events: &[Recorded],
        words: &dyn Fn(segue_core::body::Text) -> String,
        report: &dyn Fn(TurnId, &Outcome, Vec<String>) -> TurnReport,
    ) {
        for event in events {
            match &event.event {
                Event::TurnStarted { messages, .. } => {
                    self.messages.clone_from(messages);
                    self.said.clear();
                }
                Event::Said(said) => {
                    if !self.by_message.is_empty() {
                        self.said.push(words(said.text));
                    }
                }
                Event::TurnEnded { turn, outcome } => {
                    let said = std::mem::take(&mut self.said);
                    for message in std::mem::take(&mut self.messages) {
                        for waiter in self.by_message.remove(&message).unwrap_or_default() {
                            // Whoever asked may have gone away.
                            let _ = waiter.send(Ok(report(*turn, outcome, said.clone())));
                        }
                    }
                }
                _ => {}
            }
        }
    }

    /// Tells everybody that it will not come.
    pub fn fail(&mut self, error: &Error) {
        for waiter in std::mem::take(&mut self.by_message).into_values().flatten() {
            let _ = waiter.send(Err(error.clone()));
        }
    }
}
