//! What was said: the newest exchanges as they were, older ones folded into one text.

use std::collections::VecDeque;

use segue_core::body::TextRef;
use segue_core::ids::MessageId;
use serde::{Deserialize, Serialize};

use super::facts::PendingUserInput;
use super::reasoning::CompactedTurns;
use crate::limits::{EXCHANGES_AGED_MAX, UNDERSTAND_TURNS_SHOWN};

/// The layer of what was said.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ConversationMemory {
    /// The newest exchanges.
    pub recent: VecDeque<ConversationExchange>,
    /// Older ones that are not folded yet.
    pub uncompacted: VecDeque<ConversationExchange>,
    /// Those before, folded.
    pub compacted: Option<CompactedTurns>,
    /// What waits for the user's answer.
    pub pending: Option<PendingUserInput>,
}

/// What was said in a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConversationExchange {
    /// Which turn.
    pub turn: u32,
    /// By the user.
    #[serde(default)]
    pub messages: Vec<(MessageId, TextRef)>,
    /// To the user; nothing if the turn came to nothing.
    #[serde(default)]
    pub reply: Option<TextRef>,
}

impl ConversationMemory {
    pub(super) fn push_exchange(&mut self, exchange: ConversationExchange, pending: Option<PendingUserInput>) {
        self.recent.push_back(exchange);
        while self.recent.len() > UNDERSTAND_TURNS_SHOWN {
            self.uncompacted.extend(self.recent.pop_front());
        }
        while self.uncompacted.len() > EXCHANGES_AGED_MAX {
            self.uncompacted.pop_front();
        }
        self.pending = pending;
    }

    pub(super) fn compact_through(&mut self, through_turn: u32, text: TextRef) {
        self.uncompacted.retain(|exchange| exchange.turn > through_turn);
        self.compacted = Some(CompactedTurns { through_turn, text });
    }
}
