//! What was said: the newest exchanges as they were, older ones folded into one text.

use std::collections::VecDeque;

use segue_core::body::Text;
use segue_core::ids::MessageId;
use serde::{Deserialize, Serialize};

use super::facts::Pending;
use super::reasoning::Folded;
use crate::limits::{EXCHANGES_AGED_MAX, UNDERSTAND_TURNS};

/// The layer of what was said.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Conversation {
    /// The newest exchanges.
    pub recent: VecDeque<Exchange>,
    /// Older ones that are not folded yet.
    pub aged: VecDeque<Exchange>,
    /// Those before, folded.
    pub folded: Option<Folded>,
    /// What waits for the user's answer.
    pub pending: Option<Pending>,
}

/// What was said in a turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exchange {
    /// Which turn.
    pub turn: u32,
    /// By the user.
    #[serde(default)]
    pub said: Vec<(MessageId, Text)>,
    /// To the user; nothing if the turn came to nothing.
    #[serde(default)]
    pub reply: Option<Text>,
}

impl Conversation {
    pub(super) fn add(&mut self, exchange: Exchange, pending: Option<Pending>) {
        self.recent.push_back(exchange);
        while self.recent.len() > UNDERSTAND_TURNS {
            self.aged.extend(self.recent.pop_front());
        }
        while self.aged.len() > EXCHANGES_AGED_MAX {
            self.aged.pop_front();
        }
        self.pending = pending;
    }

    pub(super) fn fold(&mut self, through: u32, text: Text) {
        self.aged.retain(|exchange| exchange.turn > through);
        self.folded = Some(Folded { through, text });
    }
}
