//! Four small flows, one in the form of each real one. Core and engine carry them without knowing them.

mod concierge;
mod nodes;
mod project;
mod team;

pub use concierge::MiniConcierge;
pub use nodes::MiniNodes;
pub use project::MiniProject;
pub use team::MiniTeam;

use segue_core::context::{ContextLayer, FragmentSource, FragmentSpec, RenderedFragment};
use segue_core::flow::{FlowContext, FlowStep};
use segue_core::ids::RoleName;

/// A fragment of plain words, as a template would give them.
pub fn template_text(text: impl Into<String>) -> RenderedFragment {
    RenderedFragment::New { text: text.into(), source: FragmentSource::Template("test".into()), why: "always".into() }
}

/// The user's newest message.
pub fn latest_user_message<S>(view: &FlowContext<'_, S>) -> RenderedFragment {
    let Some(waiting) = view.session.current_turn.as_ref().and_then(|turn| turn.messages.last()) else {
        return RenderedFragment::Omitted("no turn runs".into());
    };
    RenderedFragment::Stored {
        text: waiting.text,
        source: FragmentSource::Message(waiting.message),
        why: "what the user said".into(),
    }
}

/// A role's instruction and the user's words, as most roles are shown.
fn instruction_fragment() -> FragmentSpec {
    FragmentSpec::stable("instruction", ContextLayer::Instruction)
}

fn message_fragment() -> FragmentSpec {
    FragmentSpec::changing("message", ContextLayer::UserWords)
}

fn reply_step(text: impl Into<String>, role: &RoleName) -> FlowStep {
    FlowStep::Reply { text: segue_core::flow::ReplyText::New(text.into()), role: Some(role.clone()), call: None }
}
