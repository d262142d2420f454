//! Which texts an event names: what must travel with it when a session is exported.

use super::Event;
use crate::body::{BodyId, BodyKind};
use crate::context::Piece;
use crate::session::PlannedMessage;

impl Event {
    /// The texts it names, and what they are to the people in the conversation.
    #[must_use]
    pub fn bodies(&self) -> Vec<(BodyId, BodyKind)> {
        let inner = |id: BodyId| (id, BodyKind::Inner);
        let said = |id: BodyId| (id, BodyKind::Said);
        match self {
            Self::MessageReceived(received) => {
                let images = received.images.iter().map(|image| inner(image.body));
                std::iter::once(said(received.text.body)).chain(images).collect()
            }
            Self::Said(words) => vec![said(words.text.body)],
            Self::MessagePosted(posted) => vec![inner(posted.text.body)],
            Self::CallOpened(opened) => {
                let pieces = opened.receipt.opening.iter().chain(&opened.receipt.ask);
                let texts = pieces.clone().filter_map(|piece: &Piece| piece.text).map(|text| text.body);
                let images = pieces.flat_map(|piece| &piece.images).map(|image| image.body);
                let frozen =
                    opened.recomputes.iter().flat_map(|again| &again.messages).flat_map(PlannedMessage::bodies);
                texts.chain(images).chain(opened.tools).chain(opened.output).chain(frozen).map(inner).collect()
            }
            Self::CallAnswered(answered) => {
                let texts = [Some(answered.text), answered.reasoning].into_iter().flatten().map(|text| text.body);
                texts.chain(answered.seal).map(inner).collect()
            }
            Self::CallAnsweredLate { text, .. } | Self::ToolAnswered { text, .. } => vec![inner(text.body)],
            Self::ThreadCompacted(compacted) => compacted.summary.iter().map(|text| inner(text.body)).collect(),
            _ => Vec::new(),
        }
    }
}
