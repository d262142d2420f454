//! Lists the stored texts that an event refers to, which are exported together with it.

use super::Event;
use crate::body::{BodyId, BodyVisibility};
use crate::context::FragmentReceipt;
use crate::event::RecordedClientTurnOptions;
use crate::session::UnloadedPromptMessage;

impl Event {
    /// Returns the ids of the texts and images that the event refers to.
    #[must_use]
    pub fn referenced_bodies(&self) -> Vec<(BodyId, BodyVisibility)> {
        let internal = |id: BodyId| (id, BodyVisibility::Internal);
        let conversation = |id: BodyId| (id, BodyVisibility::Conversation);
        match self {
            Self::UserMessageReceived(received) => {
                let images = received.images.iter().map(|image| internal(image.body));
                let options = received.options.iter().flat_map(option_bodies).map(internal);
                std::iter::once(conversation(received.text.body)).chain(images).chain(options).collect()
            }
            Self::TurnOptionsChanged { options, .. } => option_bodies(options).map(internal).collect(),
            Self::ReplySent(reply) => vec![conversation(reply.text.body)],
            Self::AgentMessageSent(sent) => vec![internal(sent.text.body)],
            Self::CallOpened(opened) => {
                let fragments = opened.receipt.opening.iter().chain(&opened.receipt.ask);
                let texts =
                    fragments.clone().filter_map(|fragment: &FragmentReceipt| fragment.text).map(|text| text.body);
                let images = fragments.flat_map(|fragment| &fragment.images).map(|image| image.body);
                let repeated = opened
                    .recomputation
                    .iter()
                    .flat_map(|again| &again.messages)
                    .flat_map(UnloadedPromptMessage::body_ids);
                texts
                    .chain(images)
                    .chain(opened.tools_body)
                    .chain(opened.output_schema)
                    .chain(repeated)
                    .map(internal)
                    .collect()
            }
            Self::CallAnswered(answered) => {
                let texts = [Some(answered.text), answered.reasoning].into_iter().flatten().map(|text| text.body);
                texts.chain(answered.vendor_state).map(internal).collect()
            }
            Self::CallAnsweredLate { text, .. } => vec![internal(text.body)],
            Self::ToolRunEnded { text, artifacts, .. } => {
                let artifacts = artifacts.iter().map(|artifact| internal(artifact.text.body));
                std::iter::once(internal(text.body)).chain(artifacts).collect()
            }
            Self::ThreadCompacted(compacted) => compacted.summary.iter().map(|text| internal(text.body)).collect(),
            _ => Vec::new(),
        }
    }
}

fn option_bodies(options: &RecordedClientTurnOptions) -> impl Iterator<Item = BodyId> + use<> {
    options.tools.into_iter().chain(options.output_schema)
}
