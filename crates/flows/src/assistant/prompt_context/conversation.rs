//! The conversation slice: the newest exchanges in the words that were said, the rest folded, and what is pending.

use segue_core::body::TextRef;
use segue_core::signal::wrap_in_code_fence;
use serde::Serialize;

use super::{AssistantView, truncate_chars};
use crate::assistant::conversation::ConversationExchange;
use crate::assistant::facts::PendingInputKind;
use crate::assistant::state::AssistantState;
use crate::limits::{FOLDED_CHARS_MAX, MESSAGE_EXCERPT_CHARS_MAX};

/// What was said.
#[derive(Debug, Clone, Serialize)]
pub struct PromptConversation {
    /// What was said long ago, in short.
    pub compacted: Option<String>,
    /// The newest exchanges, the oldest first.
    pub turns: Vec<PromptExchange>,
}

/// An exchange as it is shown. The user's words are fenced.
#[derive(Debug, Clone, Serialize)]
pub struct PromptExchange {
    turn: u32,
    user_text: String,
    reply: Option<String>,
}

impl PromptConversation {
    /// The newest exchanges.
    #[must_use]
    pub fn recent(view: &AssistantView<'_>, turns: usize) -> Self {
        let conversation = &view.state.conversation;
        let recent = conversation.recent.iter().rev().take(turns);
        let mut turns: Vec<PromptExchange> = recent.map(|exchange| render_exchange(view, exchange)).collect();
        turns.reverse();
        Self { compacted: conversation.compacted.map(|folded| render_compacted_text(view, folded.text)), turns }
    }

    /// The exchanges that are to be folded, after what is folded already.
    #[must_use]
    pub fn uncompacted(view: &AssistantView<'_>) -> Self {
        let conversation = &view.state.conversation;
        let turns = conversation.uncompacted.iter().map(|exchange| render_exchange(view, exchange)).collect();
        Self { compacted: conversation.compacted.map(|folded| render_compacted_text(view, folded.text)), turns }
    }

    /// Whether nothing was said yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.compacted.is_none() && self.turns.is_empty()
    }
}

fn render_exchange(view: &AssistantView<'_>, exchange: &ConversationExchange) -> PromptExchange {
    let said: Vec<String> = exchange.messages.iter().map(|(_, text)| view.read_text(*text).to_string()).collect();
    PromptExchange {
        turn: exchange.turn,
        user_text: wrap_in_code_fence(&truncate_chars(&said.join("\n\n"), MESSAGE_EXCERPT_CHARS_MAX)),
        reply: exchange
            .reply
            .map(|text| wrap_in_code_fence(&truncate_chars(&view.read_text(text), MESSAGE_EXCERPT_CHARS_MAX))),
    }
}

fn render_compacted_text(view: &AssistantView<'_>, text: TextRef) -> String {
    truncate_chars(view.read_text(text).trim(), FOLDED_CHARS_MAX)
}

/// What waits for the user's answer.
#[derive(Debug, Clone, Serialize)]
pub struct PromptPendingInput {
    kind: &'static str,
    turn: u32,
    text: String,
    partial: Option<String>,
}

impl PromptPendingInput {
    /// What is pending, if anything is.
    #[must_use]
    pub fn from_state(state: &AssistantState) -> Option<Self> {
        let pending = state.conversation.pending.as_ref()?;
        let kind = match pending.kind {
            PendingInputKind::Proposal => "proposal",
            PendingInputKind::Question => "question",
        };
        let partial = pending.partial_result.as_ref().map(|partial| wrap_in_code_fence(&super::value_to_text(partial)));
        Some(Self { kind, turn: pending.turn, text: wrap_in_code_fence(&pending.text), partial })
    }
}
