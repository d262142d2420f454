//! The conversation part of a prompt: the newest exchanges verbatim, a summary of the rest, and the pending question or proposal.

use segue_core::body::TextRef;
use segue_core::signal::wrap_in_code_fence;
use serde::Serialize;

use super::{AssistantFlowContext, truncate_chars};
use crate::assistant::conversation::ConversationExchange;
use crate::assistant::facts::ProposalOrQuestion;
use crate::assistant::state::AssistantState;
use crate::limits::{FOLDED_CHARS_MAX, MESSAGE_EXCERPT_CHARS_MAX};

/// The exchanges that a prompt shows.
#[derive(Debug, Clone, Serialize)]
pub struct ConversationForPrompt {
    /// The summary of older exchanges.
    pub compacted: Option<String>,
    /// The exchanges, oldest first.
    pub turns: Vec<ExchangeForPrompt>,
}

/// One exchange. The texts are in code fences.
#[derive(Debug, Clone, Serialize)]
pub struct ExchangeForPrompt {
    turn: u32,
    user_text: String,
    reply: Option<String>,
}

impl ConversationForPrompt {
    /// Returns the newest exchanges, and the summary of those that were compacted.
    #[must_use]
    pub fn from_recent_turns(view: &AssistantFlowContext<'_>, turns: usize) -> Self {
        let conversation = &view.state.conversation;
        let recent = conversation.recent.iter().rev().take(turns);
        let mut turns: Vec<ExchangeForPrompt> = recent.map(|exchange| render_exchange(view, exchange)).collect();
        turns.reverse();
        Self { compacted: conversation.compacted.map(|compacted| render_compacted_text(view, compacted.text)), turns }
    }

    /// Returns the exchanges that wait for compaction, and the summary so far.
    #[must_use]
    pub fn from_uncompacted_turns(view: &AssistantFlowContext<'_>) -> Self {
        let conversation = &view.state.conversation;
        let turns = conversation.uncompacted.iter().map(|exchange| render_exchange(view, exchange)).collect();
        Self { compacted: conversation.compacted.map(|compacted| render_compacted_text(view, compacted.text)), turns }
    }

    /// Returns whether there is nothing to show.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.compacted.is_none() && self.turns.is_empty()
    }
}

fn render_exchange(view: &AssistantFlowContext<'_>, exchange: &ConversationExchange) -> ExchangeForPrompt {
    let messages: Vec<String> = exchange.messages.iter().map(|(_, text)| view.read_text(*text).to_string()).collect();
    ExchangeForPrompt {
        turn: exchange.turn,
        user_text: wrap_in_code_fence(&truncate_chars(&messages.join("\n\n"), MESSAGE_EXCERPT_CHARS_MAX)),
        reply: exchange
            .reply
            .map(|text| wrap_in_code_fence(&truncate_chars(&view.read_text(text), MESSAGE_EXCERPT_CHARS_MAX))),
    }
}

fn render_compacted_text(view: &AssistantFlowContext<'_>, text: TextRef) -> String {
    truncate_chars(view.read_text(text).trim(), FOLDED_CHARS_MAX)
}

/// The question or proposal that waits for the user's answer.
#[derive(Debug, Clone, Serialize)]
pub struct PendingQuestionForPrompt {
    kind: &'static str,
    turn: u32,
    text: String,
    partial: Option<String>,
}

impl PendingQuestionForPrompt {
    /// Returns the pending question or proposal, if there is one.
    #[must_use]
    pub fn from_state(state: &AssistantState) -> Option<Self> {
        let pending = state.conversation.pending.as_ref()?;
        let kind = match pending.kind {
            ProposalOrQuestion::Proposal => "proposal",
            ProposalOrQuestion::Question => "question",
        };
        let partial = pending.partial_result.as_ref().map(|partial| wrap_in_code_fence(&super::value_to_text(partial)));
        Some(Self { kind, turn: pending.turn, text: wrap_in_code_fence(&pending.text), partial })
    }
}
