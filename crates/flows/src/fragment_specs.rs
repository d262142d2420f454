//! Declarations of fragments that several flows share.

use segue_core::context::{FragmentContentKind, FragmentOverflowPolicy, FragmentSpec};

use crate::limits::USER_MESSAGE_TOKENS_MAX;

/// The fragment with the user's message.
pub(crate) const MESSAGE_FRAGMENT: &str = "message";

/// Returns a fragment of which the start is kept if it is too long.
pub(crate) fn fragment_keeping_start(name: &str, layer: FragmentContentKind, tokens_max: u32) -> FragmentSpec {
    FragmentSpec::changing(name, layer).with_budget(tokens_max, FragmentOverflowPolicy::KeepStart)
}

/// Returns a fragment of which the end is kept if it is too long, for content with the oldest part first.
pub(crate) fn fragment_keeping_end(name: &str, layer: FragmentContentKind, tokens_max: u32) -> FragmentSpec {
    FragmentSpec::changing(name, layer).with_budget(tokens_max, FragmentOverflowPolicy::KeepEnd)
}

/// Returns the fragment with the user's message.
pub(crate) fn message_fragment() -> FragmentSpec {
    fragment_keeping_start(MESSAGE_FRAGMENT, FragmentContentKind::UserWords, USER_MESSAGE_TOKENS_MAX)
}
