//! The conversation slice: the newest exchanges in the words that were said, the rest folded, and what is pending.

use segue_core::body::Text;
use segue_core::signal::fence;
use serde::Serialize;

use super::{Sight, cut};
use crate::assistant::conversation::Exchange;
use crate::assistant::facts::PendingKind;
use crate::assistant::state::Memory;
use crate::limits::{FOLDED_CHARS_MAX, SAID_CHARS_MAX};

/// What was said.
#[derive(Debug, Clone, Serialize)]
pub struct Talk {
    /// What was said long ago, in short.
    pub folded: Option<String>,
    /// The newest exchanges, the oldest first.
    pub turns: Vec<ExchangeShown>,
}

/// An exchange as it is shown. The user's words are fenced.
#[derive(Debug, Clone, Serialize)]
pub struct ExchangeShown {
    turn: u32,
    said: String,
    reply: Option<String>,
}

impl Talk {
    /// The newest exchanges.
    #[must_use]
    pub fn of(view: &Sight<'_>, turns: usize) -> Self {
        let conversation = &view.state.conversation;
        let recent = conversation.recent.iter().rev().take(turns);
        let mut turns: Vec<ExchangeShown> = recent.map(|exchange| shown(view, exchange)).collect();
        turns.reverse();
        Self { folded: conversation.folded.map(|folded| text(view, folded.text)), turns }
    }

    /// The exchanges that are to be folded, after what is folded already.
    #[must_use]
    pub fn aged(view: &Sight<'_>) -> Self {
        let conversation = &view.state.conversation;
        let turns = conversation.aged.iter().map(|exchange| shown(view, exchange)).collect();
        Self { folded: conversation.folded.map(|folded| text(view, folded.text)), turns }
    }

    /// Whether nothing was said yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.folded.is_none() && self.turns.is_empty()
    }
}

fn shown(view: &Sight<'_>, exchange: &Exchange) -> ExchangeShown {
    let said: Vec<String> = exchange.said.iter().map(|(_, text)| view.text(*text).to_string()).collect();
    ExchangeShown {
        turn: exchange.turn,
        said: fence(&cut(&said.join("\n\n"), SAID_CHARS_MAX)),
        reply: exchange.reply.map(|text| fence(&cut(&view.text(text), SAID_CHARS_MAX))),
    }
}

fn text(view: &Sight<'_>, text: Text) -> String {
    cut(view.text(text).trim(), FOLDED_CHARS_MAX)
}

/// What waits for the user's answer.
#[derive(Debug, Clone, Serialize)]
pub struct PendingShown {
    kind: &'static str,
    turn: u32,
    text: String,
    partial: Option<String>,
}

impl PendingShown {
    /// What is pending, if anything is.
    #[must_use]
    pub fn of(memory: &Memory) -> Option<Self> {
        let pending = memory.conversation.pending.as_ref()?;
        let kind = match pending.what {
            PendingKind::Proposal => "proposal",
            PendingKind::Question => "question",
        };
        let partial = pending.partial.as_ref().map(|partial| fence(&super::pretty(partial)));
        Some(Self { kind, turn: pending.turn, text: fence(&pending.text), partial })
    }
}
