//! Four small flows, each with the structure of a real one.

mod concierge;
mod nodes;
mod project;
mod team;

pub use concierge::MiniConciergeFlow;
pub use nodes::MiniFiveNodeFlow;
pub use project::MiniProjectFlow;
pub use team::MiniTeamFlow;

use segue_core::context::{FragmentContentKind, FragmentSource, FragmentSpec, RenderedFragment};
use segue_core::flow::{FlowContext, FlowStep};
use segue_core::ids::RoleName;

/// Renders a text as if from a template.
pub fn template_text(text: impl Into<String>) -> RenderedFragment {
    RenderedFragment::New { text: text.into(), source: FragmentSource::Template("test".into()), why: "always".into() }
}

/// Renders the newest message of the user.
pub fn latest_user_message<S>(view: &FlowContext<'_, S>) -> RenderedFragment {
    let Some(queued) = view.session.current_turn.as_ref().and_then(|turn| turn.messages.last()) else {
        return RenderedFragment::Omitted("no turn is running".into());
    };
    RenderedFragment::Stored {
        text: queued.text,
        source: FragmentSource::Message(queued.message),
        why: "the user's message".into(),
    }
}

fn instruction_fragment() -> FragmentSpec {
    FragmentSpec::stable("instruction", FragmentContentKind::Instruction)
}

fn message_fragment() -> FragmentSpec {
    FragmentSpec::changing("message", FragmentContentKind::UserWords)
}

fn reply_step(text: impl Into<String>, role: &RoleName) -> FlowStep {
    FlowStep::Reply {
        text: segue_core::flow::NewOrStoredReplyText::New(text.into()),
        role: Some(role.clone()),
        call: None,
    }
}
