//! Which texts an event names: what must travel with it when a session is exported.

use super::Event;
use crate::body::{BodyId, BodyKind};
use crate::context::FragmentReceipt;
use crate::session::PromptMessageRef;

impl Event {
    /// The texts it names, and what they are to the people in the conversation.
    #[must_use]
    pub fn referenced_bodies(&self) -> Vec<(BodyId, BodyKind)> {
        let inner = |id: BodyId| (id, BodyKind::Internal);
        let said = |id: BodyId| (id, BodyKind::Conversation);
        match self {
            Self::UserMessageReceived(received) => {
                let images = received.images.iter().map(|image| inner(image.body));
                std::iter::once(said(received.text.body)).chain(images).collect()
            }
            Self::ReplySent(words) => vec![said(words.text.body)],
            Self::AgentMessageSent(posted) => vec![inner(posted.text.body)],
            Self::CallOpened(opened) => {
                let pieces = opened.receipt.opening.iter().chain(&opened.receipt.ask);
                let texts = pieces.clone().filter_map(|piece: &FragmentReceipt| piece.text).map(|text| text.body);
                let images = pieces.flat_map(|piece| &piece.images).map(|image| image.body);
                let frozen =
                    opened.recomputation.iter().flat_map(|again| &again.messages).flat_map(PromptMessageRef::body_ids);
                texts
                    .chain(images)
                    .chain(opened.tools_body)
                    .chain(opened.output_schema)
                    .chain(frozen)
                    .map(inner)
                    .collect()
            }
            Self::CallAnswered(answered) => {
                let texts = [Some(answered.text), answered.reasoning].into_iter().flatten().map(|text| text.body);
                texts.chain(answered.vendor_state).map(inner).collect()
            }
            Self::CallAnsweredLate { text, .. } | Self::ToolRunEnded { text, .. } => vec![inner(text.body)],
            Self::ThreadCompacted(compacted) => compacted.summary.iter().map(|text| inner(text.body)).collect(),
            _ => Vec::new(),
        }
    }
}
