//! The queue of one webhook: which sessions have events to deliver, how far each was delivered, and when a failed event is tried
//! again. A session is identified by its uid, so a session that reuses a name starts anew. Each queue is saved in a record of its
//! own.

use std::collections::BTreeMap;

use segue_core::ids::{Seq, SessionId, SessionUid, UnixMillis};
use segue_engine::{
    PendingWorkStatus, SessionListChangeCursor, SharedRecordVersion, SharedRecordWrite, SharedRecordWriteCondition,
    SharedRecordWriteOutcome, SharedRecords, StoreError, StoredSessionListChange, StoredSessionListEntry,
};
use serde::{Deserialize, Serialize};

use super::Webhook;
use crate::limits::{WEBHOOK_CLOCK_JUMP_WINDOW_MS, WEBHOOK_IDLE_SESSIONS_MAX};
use crate::shared_state::read_whole_record;

/// A queue and the version in which it was saved. If another server has saved it since then, that server delivers now.
#[derive(Debug)]
pub(crate) struct VersionedWebhookDeliveryQueue {
    pub queue: WebhookDeliveryQueue,
    version: Option<SharedRecordVersion>,
}

/// What became of a queue that was to be saved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WebhookDeliveryQueueSaveOutcome {
    Saved,
    /// Another server has saved it, so this one must not deliver any more.
    TakenOver,
}

/// What one webhook must still deliver: how far it has read the session list, and the progress of each session.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WebhookDeliveryQueue {
    /// Up to where the changes of the session list were read.
    pub changes: SessionListChangeCursor,
    pub sessions: BTreeMap<SessionUid, SessionWebhookDeliveryProgress>,
    /// Of sessions that were forgotten because they were idle, everything up to this time was delivered.
    #[serde(default)]
    pub forgotten_until: UnixMillis,
}

/// The deliveries of one session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SessionWebhookDeliveryProgress {
    pub session: SessionId,
    pub flow: String,
    /// The last event that is known to be recorded.
    pub head: Seq,
    /// Whether more events may follow without a change of the session list.
    pub is_active: bool,
    /// The last event that was delivered, dropped or filtered out.
    pub last_seq: Seq,
    /// When that event was recorded.
    pub at: UnixMillis,
    /// Events before this time are not delivered; zero once an event was.
    pub from: UnixMillis,
    /// Failed attempts of the next event.
    pub attempts: usize,
    /// The earliest time of the next attempt.
    pub retry_at: UnixMillis,
}

impl SessionWebhookDeliveryProgress {
    /// Returns whether something may have to be delivered now. `retry_delays_ms` are the delays after each attempt.
    #[must_use]
    pub(crate) fn is_due(&self, now: UnixMillis, retry_delays_ms: &[u64]) -> bool {
        if self.attempts == 0 {
            return self.head > self.last_seq || self.is_active;
        }
        // A wait that is longer than it should be means that the clock was set back.
        let delay_ms = retry_delays_ms.get(self.attempts - 1).copied().unwrap_or_default();
        let wait_ms = self.retry_at.ms_since(now);
        wait_ms == 0 || wait_ms > delay_ms
    }

    /// Records that an event was delivered, dropped or filtered out.
    pub(crate) fn advance_past_event(&mut self, seq: Seq, at: UnixMillis) {
        (self.last_seq, self.at) = (seq, at);
        self.head = self.head.max(seq);
        (self.attempts, self.retry_at) = (0, UnixMillis(0));
    }

    fn is_idle(&self) -> bool {
        self.attempts == 0 && !self.is_active && self.head <= self.last_seq
    }
}

impl VersionedWebhookDeliveryQueue {
    /// Loads the queue of a webhook. A new one starts with the changes after the webhook was created.
    ///
    /// # Errors
    /// The queue cannot be read.
    pub(crate) async fn load(records: &dyn SharedRecords, webhook: &Webhook) -> Result<Self, StoreError> {
        let Some((version, bytes)) = read_whole_record(records, &queue_record_name(&webhook.webhook)).await? else {
            return Ok(Self { queue: WebhookDeliveryQueue::new(webhook), version: None });
        };
        let queue = serde_json::from_slice(&bytes).unwrap_or_else(|error| {
            tracing::error!(webhook = webhook.webhook, %error, "the queue is damaged; events are delivered again");
            WebhookDeliveryQueue::new(webhook)
        });
        Ok(Self { queue, version: Some(version) })
    }

    /// Saves the queue, unless another server has done so since it was loaded.
    ///
    /// # Errors
    /// The queue cannot be written.
    pub(crate) async fn save(
        &mut self,
        records: &dyn SharedRecords,
        webhook: &str,
    ) -> Result<WebhookDeliveryQueueSaveOutcome, StoreError> {
        let condition = self.version.map_or(SharedRecordWriteCondition::Missing, SharedRecordWriteCondition::Version);
        // Our own types can always be serialized.
        let bytes = serde_json::to_vec(&self.queue).unwrap_or_default();
        let write = SharedRecordWrite { name: queue_record_name(webhook), bytes, condition, expires_in_ms: None };
        Ok(match records.write_record(write).await? {
            SharedRecordWriteOutcome::Conflict => WebhookDeliveryQueueSaveOutcome::TakenOver,
            SharedRecordWriteOutcome::Written(version) => {
                self.version = Some(version);
                WebhookDeliveryQueueSaveOutcome::Saved
            }
        })
    }
}

impl WebhookDeliveryQueue {
    fn new(webhook: &Webhook) -> Self {
        Self { changes: webhook.after_change, ..Self::default() }
    }

    /// Returns the number of sessions with an event that is being retried.
    #[must_use]
    pub(crate) fn failing_session_count(&self) -> usize {
        self.sessions.values().filter(|session| session.attempts > 0).count()
    }

    /// Applies a change of the session list. Returns the session that was deleted, if it was in the queue.
    pub(crate) fn apply_change(&mut self, webhook: &Webhook, change: StoredSessionListChange) -> Option<SessionId> {
        match change {
            StoredSessionListChange::Deleted(uid) => self.sessions.remove(&uid).map(|session| session.session),
            StoredSessionListChange::Updated(entry) => {
                if webhook.matches_session(&entry.session, &entry.summary.flow) {
                    self.update_session(webhook, entry);
                }
                None
            }
        }
    }

    fn update_session(&mut self, webhook: &Webhook, entry: StoredSessionListEntry) {
        let is_active = entry.summary.pending_work == PendingWorkStatus::Now;
        if let Some(known) = self.sessions.get_mut(&entry.uid) {
            (known.head, known.is_active, known.session) = (known.head.max(entry.head), is_active, entry.session);
            return;
        }
        let from = UnixMillis(webhook.created).max(self.forgotten_until);
        // The session changed after the webhook was created. If its clock says otherwise, the clock was set back.
        let updated_at = entry.summary.updated_at;
        let from = if updated_at < from {
            UnixMillis(updated_at.0.saturating_sub(WEBHOOK_CLOCK_JUMP_WINDOW_MS))
        } else {
            from
        };
        let session = SessionWebhookDeliveryProgress {
            session: entry.session,
            flow: entry.summary.flow,
            head: entry.head,
            is_active,
            last_seq: Seq(0),
            at: UnixMillis(0),
            from,
            attempts: 0,
            retry_at: UnixMillis(0),
        };
        self.sessions.insert(entry.uid, session);
    }

    /// Forgets the sessions that were idle for longest, if there are too many.
    pub(crate) fn prune_idle_sessions(&mut self) {
        let mut idle: Vec<(UnixMillis, SessionUid)> =
            self.sessions.iter().filter(|(_, session)| session.is_idle()).map(|(uid, it)| (it.at, *uid)).collect();
        let Some(surplus) = idle.len().checked_sub(WEBHOOK_IDLE_SESSIONS_MAX) else { return };
        idle.sort_unstable();
        for (at, uid) in idle.into_iter().take(surplus) {
            self.sessions.remove(&uid);
            self.forgotten_until = self.forgotten_until.max(at.plus_ms(1));
        }
    }
}

/// Returns the name of the record with the queue of a webhook.
pub(crate) fn queue_record_name(webhook: &str) -> String {
    format!("webhooks/{webhook}")
}

#[cfg(test)]
mod tests {
    use segue_engine::SessionSummary;

    use super::*;

    fn webhook() -> Webhook {
        Webhook {
            webhook: "wh".into(),
            url: "http://x".into(),
            events: None,
            flows: None,
            owner: None,
            created: 10_000_000,
            after_change: SessionListChangeCursor(7),
        }
    }

    fn entry(session: &str, uid: u64, updated_at: u64) -> StoredSessionListEntry {
        let summary = SessionSummary {
            flow: "chat".into(),
            title: String::new(),
            phase: String::new(),
            turns: 0,
            calls: 0,
            cost_microusd: None,
            created_at: UnixMillis(1),
            updated_at: UnixMillis(updated_at),
            pending_work: PendingWorkStatus::None,
        };
        StoredSessionListEntry {
            session: session.into(),
            uid: SessionUid(uid),
            parent: None,
            summary,
            head: Seq(3),
            is_quarantined: false,
            excerpt: None,
        }
    }

    #[test]
    fn session_that_reuses_a_name_starts_anew() {
        let mut queue = WebhookDeliveryQueue::new(&webhook());
        assert_eq!(queue.changes, SessionListChangeCursor(7));
        queue.apply_change(&webhook(), StoredSessionListChange::Updated(entry("fox", 1, 20_000_000)));
        queue.sessions.get_mut(&SessionUid(1)).expect("queued").advance_past_event(Seq(3), UnixMillis(20_000_000));
        let removed = queue.apply_change(&webhook(), StoredSessionListChange::Deleted(SessionUid(1)));
        assert_eq!(removed, Some("fox".into()));
        queue.apply_change(&webhook(), StoredSessionListChange::Updated(entry("fox", 2, 20_000_000)));
        assert_eq!(queue.sessions[&SessionUid(2)].last_seq, Seq(0));
        assert_eq!(queue.sessions.len(), 1, "nothing of the deleted session is left");
    }

    #[test]
    fn clock_that_is_set_back_mutes_nothing() {
        let mut queue = WebhookDeliveryQueue::default();
        queue.apply_change(&webhook(), StoredSessionListChange::Updated(entry("later", 1, 10_000_001)));
        assert_eq!(queue.sessions[&SessionUid(1)].from, UnixMillis(10_000_000));
        queue.apply_change(&webhook(), StoredSessionListChange::Updated(entry("jumped", 2, 5_000_000)));
        let jumped = queue.sessions.get_mut(&SessionUid(2)).expect("queued");
        assert!(jumped.from < UnixMillis(5_000_000));
        (jumped.attempts, jumped.retry_at) = (1, UnixMillis(10_000_500));
        assert!(!jumped.is_due(UnixMillis(10_000_000), &[1_000]), "it waits");
        assert!(jumped.is_due(UnixMillis(10_000_500), &[1_000]));
        assert!(jumped.is_due(UnixMillis(5_000_000), &[1_000]), "the clock was set back");
    }

    #[test]
    fn only_idle_sessions_are_forgotten() {
        let mut queue = WebhookDeliveryQueue::default();
        for uid in 0..=WEBHOOK_IDLE_SESSIONS_MAX as u64 + 1 {
            queue.apply_change(&webhook(), StoredSessionListChange::Updated(entry("s", uid, 10_000_000 + uid)));
            if uid > 0 {
                queue
                    .sessions
                    .get_mut(&SessionUid(uid))
                    .expect("queued")
                    .advance_past_event(Seq(3), UnixMillis(10_000_000 + uid));
            }
        }
        queue.prune_idle_sessions();
        assert!(queue.sessions.contains_key(&SessionUid(0)), "it has something to deliver");
        assert!(!queue.sessions.contains_key(&SessionUid(1)), "it was idle for longest");
        assert_eq!(queue.forgotten_until, UnixMillis(10_000_002));
    }
}
