//! The delivery cursor of each webhook and session, saved after every round: a position in the journal, and the time of the
//! next attempt after a failure.

use std::collections::BTreeMap;
use std::path::Path;

use segue_core::ids::{Seq, SessionId, UnixMillis};
use serde::{Deserialize, Serialize};

use crate::limits::WEBHOOK_IDLE_MS_MAX;

const CURSORS_FILE: &str = "webhooks-delivered.json";

/// All delivery cursors.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DeliveryCursors {
    /// Sessions without a cursor start with the events recorded after this time.
    pub since: u64,
    /// By webhook and session.
    pub cursors: BTreeMap<String, BTreeMap<SessionId, DeliveryCursor>>,
}

/// The delivery progress of one webhook in one session.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct DeliveryCursor {
    /// The last event that was delivered, dropped or filtered out.
    pub last_seq: Seq,
    /// When that event was recorded.
    pub at: UnixMillis,
    /// Failed attempts of the next event.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: usize,
    /// The earliest time of the next attempt.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub retry_at: UnixMillis,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn is_unset(time: &UnixMillis) -> bool {
    time.0 == 0
}

impl DeliveryCursors {
    /// Loads the cursors; empty if none were saved.
    #[must_use]
    pub(crate) fn load(folder: &Path) -> Self {
        let bytes = match std::fs::read(folder.join(CURSORS_FILE)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Self::default(),
            Err(error) => {
                tracing::error!(%error, "cannot read {CURSORS_FILE}; webhooks get recent events again");
                return Self::default();
            }
        };
        serde_json::from_slice(&bytes).unwrap_or_else(|error| {
            tracing::error!(%error, "{CURSORS_FILE} is damaged; webhooks get recent events again");
            Self::default()
        })
    }

    /// Saves the cursors.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub(crate) fn save(&self, folder: &Path) -> std::io::Result<()> {
        // Our own types can always be serialized.
        crate::files::replace_file(&folder.join(CURSORS_FILE), &serde_json::to_vec(self).unwrap_or_default())
    }

    /// Returns the number of sessions with an event that is being retried.
    #[must_use]
    pub(crate) fn failing_session_count(&self, webhook: &str) -> usize {
        self.cursors
            .get(webhook)
            .map_or(0, |by_session| by_session.values().filter(|cursor| cursor.attempts > 0).count())
    }

    /// Removes the cursors of idle sessions and of deleted webhooks. `heads` has the last sequence number of each recently
    /// changed session.
    pub(crate) fn prune(&mut self, now: UnixMillis, known: &[String], heads: &BTreeMap<SessionId, Seq>) {
        self.cursors.retain(|webhook, _| known.contains(webhook));
        let long_ago = UnixMillis(now.0.saturating_sub(WEBHOOK_IDLE_MS_MAX));
        for by_session in self.cursors.values_mut() {
            by_session.retain(|session, cursor| {
                // A session that is not among the recently changed ones has no new events.
                let is_delivered = heads.get(session).is_none_or(|head| *head <= cursor.last_seq);
                !(is_delivered && cursor.attempts == 0 && cursor.at < long_ago)
            });
        }
        self.since = self.since.max(long_ago.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cursor(last_seq: u64, at: u64, attempts: usize) -> DeliveryCursor {
        DeliveryCursor { last_seq: Seq(last_seq), at: UnixMillis(at), attempts, retry_at: UnixMillis(0) }
    }

    #[test]
    fn only_delivered_and_idle_cursors_are_removed() {
        let now = WEBHOOK_IDLE_MS_MAX + 1_000;
        let sessions = [
            ("delivered", cursor(5, 10, 0)),
            ("undelivered", cursor(4, 10, 0)),
            ("recent", cursor(5, now - 1, 0)),
            ("failing", cursor(5, 10, 1)),
        ];
        let by_session = |sessions: &[(&str, DeliveryCursor)]| {
            sessions.iter().map(|(name, cursor)| (SessionId::from(*name), *cursor)).collect()
        };
        let mut cursors = DeliveryCursors {
            since: 0,
            cursors: BTreeMap::from([
                ("wh".to_owned(), by_session(&sessions)),
                ("old".to_owned(), by_session(&sessions)),
            ]),
        };
        let heads = sessions.iter().map(|(name, _)| (SessionId::from(*name), Seq(5))).collect();
        cursors.prune(UnixMillis(now), &["wh".to_owned()], &heads);
        let left: Vec<&str> = cursors.cursors["wh"].keys().map(SessionId::as_str).collect();
        assert_eq!(left, ["failing", "recent", "undelivered"]);
        assert_eq!((cursors.cursors.len(), cursors.since), (1, 1_000));
    }
}
