//! What was said and done, for agents that were away: the user's messages, the agents' answers and completions.

use std::collections::VecDeque;

use segue_core::body::TextRef;
use segue_core::ids::{AgentName, MessageId};
use serde::{Deserialize, Serialize};

use crate::limits::PROJECT_LOG_ENTRIES_MAX;

/// The newest entries of the log.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(in crate::project) struct ProjectLog {
    entries: VecDeque<ProjectLogEntry>,
    /// The number of entries, also of those that are no longer kept.
    total: u64,
}

/// Something that was said or done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(in crate::project) struct ProjectLogEntry {
    pub(in crate::project) speaker: ProjectLogSpeaker,
    pub(in crate::project) text: ProjectLogText,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::project) enum ProjectLogSpeaker {
    User {
        message: MessageId,
    },
    Agent(AgentName),
    /// The workspace, when it merges what agents changed at the same time.
    Workspace,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(in crate::project) enum ProjectLogText {
    Stored(TextRef),
    Inline(String),
}

impl ProjectLog {
    pub(super) fn push(&mut self, speaker: ProjectLogSpeaker, text: ProjectLogText) {
        self.entries.push_back(ProjectLogEntry { speaker, text });
        self.total += 1;
        while self.entries.len() > PROJECT_LOG_ENTRIES_MAX {
            self.entries.pop_front();
        }
    }

    pub(in crate::project) fn entries_total(&self) -> u64 {
        self.total
    }

    /// Returns the entries after the first `seen`, as far as they are kept.
    pub(in crate::project) fn entries_after(&self, seen: u64) -> impl Iterator<Item = &ProjectLogEntry> {
        let first_kept = self.total - self.entries.len() as u64;
        let skip = usize::try_from(seen.saturating_sub(first_kept)).unwrap_or(usize::MAX);
        self.entries.iter().skip(skip)
    }

    /// Returns whether the user has said something after the first `seen` entries.
    pub(in crate::project) fn has_user_message_after(&self, seen: u64) -> bool {
        self.entries_after(seen).any(|entry| matches!(entry.speaker, ProjectLogSpeaker::User { .. }))
    }
}
