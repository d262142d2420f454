//! What was told to whom, written down after every round: a lane for each webhook and session, which is a place in the journal and, where
//! telling failed, when it is tried again.

use std::collections::BTreeMap;
use std::path::Path;

use segue_core::ids::{Millis, Seq, SessionId};
use serde::{Deserialize, Serialize};

use crate::limits::WEBHOOK_QUIET_MS_MAX;

const FILE: &str = "webhooks-told.json";

/// All lanes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Lanes {
    /// Events before this need not be told where there is no lane.
    pub since: u64,
    /// By webhook and session.
    pub lanes: BTreeMap<String, BTreeMap<SessionId, Lane>>,
}

/// How far telling has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lane {
    /// The last event that was told, given up or not wanted.
    pub after: Seq,
    /// When that was recorded.
    pub at: Millis,
    /// Failed tries of the next one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub attempts: usize,
    /// Not before this moment.
    #[serde(default, skip_serializing_if = "is_now")]
    pub next: Millis,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

fn is_now(moment: &Millis) -> bool {
    moment.0 == 0
}

impl Lanes {
    /// As they were last written down; none if they never were.
    #[must_use]
    pub fn read(folder: &Path) -> Self {
        let bytes = std::fs::read(folder.join(FILE)).unwrap_or_default();
        serde_json::from_slice(&bytes).unwrap_or_default()
    }

    /// Writes them down.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn write(&self, folder: &Path) -> std::io::Result<()> {
        crate::files::replace(&folder.join(FILE), &serde_json::to_vec(self).unwrap_or_default())
    }

    /// Sessions of which something waits after a failed try.
    #[must_use]
    pub fn waiting(&self, webhook: &str) -> usize {
        self.lanes.get(webhook).map_or(0, |lanes| lanes.values().filter(|lane| lane.attempts > 0).count())
    }

    /// Lets go of lanes that are quiet for long and of those of webhooks that are gone. `heads` says where sessions end.
    pub fn prune(&mut self, now: Millis, known: &[String], heads: &BTreeMap<SessionId, Seq>) {
        self.lanes.retain(|webhook, _| known.contains(webhook));
        let long_ago = Millis(now.0.saturating_sub(WEBHOOK_QUIET_MS_MAX));
        for lanes in self.lanes.values_mut() {
            lanes.retain(|session, lane| {
                // A session that is not in the list of those that changed lately is at its end.
                let is_told = heads.get(session).is_none_or(|head| *head <= lane.after);
                !(is_told && lane.attempts == 0 && lane.at < long_ago)
            });
        }
        self.since = self.since.max(long_ago.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lane(after: u64, at: u64, attempts: usize) -> Lane {
        Lane { after: Seq(after), at: Millis(at), attempts, next: Millis(0) }
    }

    #[test]
    fn only_what_is_told_and_long_quiet_is_let_go() {
        let now = WEBHOOK_QUIET_MS_MAX + 1_000;
        let sessions = [
            ("told", lane(5, 10, 0)),
            ("untold", lane(4, 10, 0)),
            ("late", lane(5, now - 1, 0)),
            ("failing", lane(5, 10, 1)),
        ];
        let of =
            |sessions: &[(&str, Lane)]| sessions.iter().map(|(name, lane)| (SessionId::from(*name), *lane)).collect();
        let mut lanes = Lanes {
            since: 0,
            lanes: BTreeMap::from([("wh".to_owned(), of(&sessions)), ("old".to_owned(), of(&sessions))]),
        };
        let heads = sessions.iter().map(|(name, _)| (SessionId::from(*name), Seq(5))).collect();
        lanes.prune(Millis(now), &["wh".to_owned()], &heads);
        let left: Vec<&str> = lanes.lanes["wh"].keys().map(SessionId::as_str).collect();
        assert_eq!(left, ["failing", "late", "untold"]);
        assert_eq!((lanes.lanes.len(), lanes.since), (1, 1_000));
    }
}
