//! Renders the fragments of a call's prompt and fits each to its budget.

use super::draft::DecisionDraft;
use crate::body::{BodyId, BodyVisibility, ImageRef, TextRef};
use crate::context::{
    FragmentContentKind, FragmentFitResult, FragmentReceipt, FragmentRetention, FragmentSource, FragmentSpec,
    RenderedFragment, fit_to_budget,
};
use crate::flow::{EventSubject, FragmentRenderContext};
use crate::session::thread::{MESSAGE_OVERHEAD_TOKENS, estimate_image_tokens};

impl DecisionDraft<'_> {
    /// Renders fragments and fits each to its budget.
    pub(super) fn render_fragments(
        &mut self,
        specs: &[FragmentSpec],
        request: &FragmentRenderContext<'_>,
    ) -> Vec<FragmentReceipt> {
        specs.iter().map(|spec| self.render_fragment(spec, request)).collect()
    }

    /// Renders fragments into a message of at most `tokens_max` tokens. Each fragment gets what the earlier ones left.
    pub(super) fn render_fragments_within(
        &mut self,
        specs: &[FragmentSpec],
        request: &FragmentRenderContext<'_>,
        tokens_max: u32,
    ) -> Vec<FragmentReceipt> {
        let mut fragments: Vec<FragmentReceipt> = Vec::with_capacity(specs.len());
        for spec in specs {
            let left = tokens_max.saturating_sub(sum_message_tokens(&fragments).max(MESSAGE_OVERHEAD_TOKENS));
            let tokens_max = spec.tokens_max.map_or(left, |own| own.min(left));
            fragments.push(self.render_fragment(&spec.clone().with_budget(tokens_max, spec.overflow), request));
        }
        fragments
    }

    fn render_fragment(&mut self, spec: &FragmentSpec, request: &FragmentRenderContext<'_>) -> FragmentReceipt {
        let rendered = self.flow.render_fragment(self.flow_context(&EventSubject::default()), request, &spec.name);
        let mut fragment = FragmentReceipt {
            name: spec.name.clone(),
            layer: spec.layer,
            source: None,
            why: String::new(),
            text: None,
            tokens_before_cut: None,
            pinned: spec.retention == FragmentRetention::Pinned,
            call_only: spec.retention == FragmentRetention::CallOnly,
            images: Vec::new(),
        };
        // The user's words are searchable; all other texts are internal.
        let kind = if spec.layer == FragmentContentKind::UserWords {
            BodyVisibility::Conversation
        } else {
            BodyVisibility::Internal
        };
        let (content, text) = match rendered {
            RenderedFragment::Omitted(why) => {
                fragment.why = why;
                return fragment;
            }
            RenderedFragment::New { text, source, why } => {
                fragment.images = self.attached_images(spec, &source);
                (fragment.source, fragment.why) = (Some(source), why);
                let content: std::sync::Arc<str> = text.into();
                let tokens = self.env.token_counter.count_tokens(&content);
                (content.clone(), TextRef { body: BodyId::hash_text(&content), tokens })
            }
            RenderedFragment::Stored { text, source, why } => {
                fragment.images = self.attached_images(spec, &source);
                (fragment.source, fragment.why) = (Some(source), why);
                if spec.tokens_max.is_none_or(|max| text.tokens <= max) {
                    fragment.text = Some(text);
                    return fragment;
                }
                (self.texts.resolve_or_mark_missing(text.body), text)
            }
        };
        match fit_to_budget(spec, &content, text.tokens, self.env.token_counter) {
            FragmentFitResult::Whole => {
                self.store_uncounted_text(content, kind);
                fragment.text = Some(text);
            }
            FragmentFitResult::Cut(cut) => {
                fragment.tokens_before_cut = Some(text.tokens);
                fragment.text = Some(self.store_text(cut, BodyVisibility::Internal));
            }
            FragmentFitResult::Omitted => {
                fragment.tokens_before_cut = Some(text.tokens);
                fragment.images.clear();
                fragment.why = format!("left out: its {} tokens exceed its budget", text.tokens);
            }
        }
        fragment
    }

    /// Returns the images of a user message, for a fragment that contains the message.
    fn attached_images(&self, spec: &FragmentSpec, source: &FragmentSource) -> Vec<ImageRef> {
        let (FragmentContentKind::UserWords, FragmentSource::Message(message_id)) = (spec.layer, source) else {
            return Vec::new();
        };
        let message = self
            .session()
            .current_turn
            .iter()
            .flat_map(|turn| &turn.messages)
            .find(|queued| queued.message == *message_id);
        message.map(|queued| queued.images.clone()).unwrap_or_default()
    }
}

/// Returns the size of the message made of these fragments.
pub(super) fn sum_message_tokens(fragments: &[FragmentReceipt]) -> u32 {
    let mut texts = fragments.iter().filter_map(|fragment| fragment.text).peekable();
    let overhead = if texts.peek().is_some() { MESSAGE_OVERHEAD_TOKENS } else { 0 };
    let images: u32 = fragments.iter().map(|fragment| estimate_image_tokens(&fragment.images)).sum();
    texts.map(|text| text.tokens).sum::<u32>() + images + overhead
}
