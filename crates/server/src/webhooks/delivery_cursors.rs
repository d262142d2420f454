//! What was told to whom, written down after every round: a lane for each webhook and session, which is a place in the journal and, where
//! telling failed, when it is tried again.

use std::collections::BTreeMap;
use std::path::Path;

use segue_core::ids::{Seq, SessionId, UnixMillis};
use serde::{Deserialize, Serialize};

use crate::limits::WEBHOOK_IDLE_MS_MAX;

const CURSORS_FILE: &str = "webhooks-told.json";

/// All lanes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DeliveryCursors {
    /// Events before this need not be told where there is no lane.
    pub since: u64,
    /// By webhook and session.
    pub cursors: BTreeMap<String, BTreeMap<SessionId, DeliveryCursor>>,
}

/// How far telling has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeliveryCursor {
    /// The last event that was told, given up or not wanted.
    pub last_seq: Seq,
    /// When that was recorded.
    pub at: UnixMillis,
    /// Failed tries of the next one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: usize,
    /// Not before this moment.
    #[serde(default, skip_serializing_if = "is_unset")]
    pub retry_at: UnixMillis,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn is_unset(moment: &UnixMillis) -> bool {
    moment.0 == 0
}

impl DeliveryCursors {
    /// As they were last written down; none if they never were.
    #[must_use]
    pub fn load(folder: &Path) -> Self {
        let bytes = std::fs::read(folder.join(CURSORS_FILE)).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// Writes them down.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn save(&self, folder: &Path) -> std::io::Result<()> {
        crate::files::replace_file(&folder.join(CURSORS_FILE), &serde_json::to_vec(self).unwrap_or_default())
    }

    /// Sessions of which something waits after a failed try.
    #[must_use]
    pub fn failing_session_count(&self, webhook: &str) -> usize {
        self.cursors.get(webhook).map_or(0, |lanes| lanes.values().filter(|lane| lane.attempts > 0).count())
    }

    /// Lets go of lanes that are quiet for long and of those of webhooks that are gone. `heads` says where sessions end.
    pub fn prune(&mut self, now: UnixMillis, known: &[String], heads: &BTreeMap<SessionId, Seq>) {
        self.cursors.retain(|webhook, _| known.contains(webhook));
        let long_ago = UnixMillis(now.0.saturating_sub(WEBHOOK_IDLE_MS_MAX));
        for lanes in self.cursors.values_mut() {
            lanes.retain(|session, lane| {
                // A session that is not in the list of those that changed lately is at its end.
                let is_told = heads.get(session).is_none_or(|head| *head <= lane.last_seq);
                !(is_told && lane.attempts == 0 && lane.at < long_ago)
            });
        }
        self.since = self.since.max(long_ago.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(after: u64, at: u64, attempts: usize) -> DeliveryCursor {
        DeliveryCursor { last_seq: Seq(after), at: UnixMillis(at), attempts, retry_at: UnixMillis(0) }
    }

    #[test]
    fn only_what_is_told_and_long_quiet_is_let_go() {
        let now = WEBHOOK_IDLE_MS_MAX + 1_000;
        let sessions = [
            ("told", lane(5, 10, 0)),
            ("untold", lane(4, 10, 0)),
            ("late", lane(5, now - 1, 0)),
            ("failing", lane(5, 10, 1)),
        ];
        let of = |sessions: &[(&str, DeliveryCursor)]| {
            sessions.iter().map(|(name, lane)| (SessionId::from(*name), *lane)).collect()
        };
        let mut lanes = DeliveryCursors {
            since: 0,
            cursors: BTreeMap::from([("wh".to_owned(), of(&sessions)), ("old".to_owned(), of(&sessions))]),
        };
        let heads = sessions.iter().map(|(name, _)| (SessionId::from(*name), Seq(5))).collect();
        lanes.prune(UnixMillis(now), &["wh".to_owned()], &heads);
        let left: Vec<&str> = lanes.cursors["wh"].keys().map(SessionId::as_str).collect();
        assert_eq!(left, ["failing", "late", "untold"]);
        assert_eq!((lanes.cursors.len(), lanes.since), (1, 1_000));
    }
}
