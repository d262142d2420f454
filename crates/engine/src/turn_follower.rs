//! Lets a caller wait for a turn of a session that has no task, because its turn waits for a person. The caller follows
//! the journal, whichever process continues the turn.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use segue_core::decide::InputRefusal;
use segue_core::event::{Event, RecordedEvent};
use segue_core::ids::{MessageId, Seq, SessionId, TurnId};

use crate::engine::EngineShared;
use crate::error::Error;
use crate::limits::HEAD_POLL_MS;
use crate::subscriptions::{SessionSubscription, SessionUpdate};
use crate::turn_report::TurnReportSender;

/// A message whose turn a caller waits for.
pub(crate) struct MessageWithAwaitedTurn {
    pub session: SessionId,
    pub message: MessageId,
    /// The running turn, if it answers the message.
    pub turn: Option<TurnId>,
}

/// Sends the report of a turn when it has ended. Reads the events after `after`.
pub(crate) fn follow_turn_in_background(
    shared: &Arc<EngineShared>,
    awaited: MessageWithAwaitedTurn,
    after: Seq,
    waiter: TurnReportSender,
) {
    let subscription =
        SessionSubscription::new(shared.subscriptions.clone(), shared.store.clone(), awaited.session.clone(), after);
    tokio::spawn(follow_turn(Arc::downgrade(shared), awaited, subscription, waiter));
}

/// Ends without a report if the caller is gone or the engine shuts down.
async fn follow_turn(
    shared: Weak<EngineShared>,
    mut awaited: MessageWithAwaitedTurn,
    mut subscription: SessionSubscription,
    mut waiter: TurnReportSender,
) {
    loop {
        // Wakes up regularly, because nobody tells it that the engine shuts down.
        let update = tokio::time::timeout(Duration::from_millis(HEAD_POLL_MS), subscription.next_update());
        let update = tokio::select! {
            biased;
            () = waiter.closed() => return,
            update = update => update,
        };
        let Some(shared) = shared.upgrade().filter(|shared| !shared.is_shutting_down.load(Ordering::Acquire)) else {
            return;
        };
        let report = match update {
            Ok(Ok(SessionUpdate::Event(event))) => match awaited.apply_event(&event) {
                AwaitedTurnStatus::Pending => continue,
                AwaitedTurnStatus::Ended => shared.rebuild_turn_report(&awaited.session, awaited.message).await,
                AwaitedTurnStatus::Dropped(refusal) => Err(refusal.into()),
            },
            Err(_) | Ok(Ok(SessionUpdate::TextDelta { .. } | SessionUpdate::ToolProgress { .. })) => continue,
            Ok(Err(Error::NoSuchSession(session))) => Err(Error::SessionDeleted(session)),
            Ok(Err(error)) => Err(error),
        };
        // The caller may be gone.
        let _ = waiter.send(report);
        return;
    }
}

enum AwaitedTurnStatus {
    Pending,
    Ended,
    /// The message will not be answered.
    Dropped(InputRefusal),
}

impl MessageWithAwaitedTurn {
    fn apply_event(&mut self, recorded: &RecordedEvent) -> AwaitedTurnStatus {
        match &recorded.event {
            Event::TurnStarted { turn, messages, .. } if messages.contains(&self.message) => {
                self.turn = Some(*turn);
                AwaitedTurnStatus::Pending
            }
            Event::TurnEnded { turn, .. } if self.turn == Some(*turn) => AwaitedTurnStatus::Ended,
            Event::SessionClosed { reason } if self.turn.is_none() => {
                AwaitedTurnStatus::Dropped(InputRefusal::Closed { reason: reason.clone() })
            }
            _ => AwaitedTurnStatus::Pending,
        }
    }
}
