//! The conversation layer of the memory: the newest exchanges verbatim, and one summary text for the older ones.

use std::collections::VecDeque;

use segue_core::body::TextRef;
use segue_core::ids::MessageId;
use serde::{Deserialize, Serialize};

use super::facts::PendingQuestion;
use super::reasoning::CompactedTurnsSummary;
use crate::limits::{EXCHANGES_AGED_MAX, UNDERSTAND_TURNS_SHOWN};

/// The exchanges of a session, and the question or proposal that is open.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AssistantConversation {
    /// The newest exchanges, oldest first.
    pub recent: VecDeque<ConversationExchange>,
    /// Older exchanges that wait for compaction.
    pub uncompacted: VecDeque<ConversationExchange>,
    /// The summary of all exchanges before.
    pub compacted: Option<CompactedTurnsSummary>,
    /// The question or proposal that waits for the user's answer.
    pub pending: Option<PendingQuestion>,
}

/// The messages and the reply of one turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConversationExchange {
    pub turn: u32,
    #[serde(default)]
    pub messages: Vec<(MessageId, TextRef)>,
    /// The reply; `None` if the turn ended without one.
    #[serde(default)]
    pub reply: Option<TextRef>,
}

impl AssistantConversation {
    pub(super) fn push_exchange(&mut self, exchange: ConversationExchange, pending: Option<PendingQuestion>) {
        self.recent.push_back(exchange);
        while self.recent.len() > UNDERSTAND_TURNS_SHOWN {
            self.uncompacted.extend(self.recent.pop_front());
        }
        while self.uncompacted.len() > EXCHANGES_AGED_MAX {
            self.uncompacted.pop_front();
        }
        self.pending = pending;
    }

    pub(super) fn store_compacted_summary(&mut self, through_turn: u32, text: TextRef) {
        self.uncompacted.retain(|exchange| exchange.turn > through_turn);
        self.compacted = Some(CompactedTurnsSummary { through_turn, text });
    }
}
