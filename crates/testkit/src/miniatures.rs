//! Four small flows, one in the form of each real one. Core and engine carry them without knowing them.

mod concierge;
mod nodes;
mod project;
mod team;

pub use concierge::Concierge;
pub use nodes::Nodes;
pub use project::Project;
pub use team::Team;

use segue_core::context::{FragmentSpec, Layer, Rendered, Source};
use segue_core::flow::{Step, View};
use segue_core::ids::RoleName;

/// A fragment of plain words, as a template would give them.
pub fn words(text: impl Into<String>) -> Rendered {
    Rendered::New { text: text.into(), source: Source::Template("test".into()), why: "always".into() }
}

/// The user's newest message.
pub fn user_message<S>(view: &View<'_, S>) -> Rendered {
    let Some(waiting) = view.session.turn.as_ref().and_then(|turn| turn.messages.last()) else {
        return Rendered::Out("no turn runs".into());
    };
    Rendered::Stored { text: waiting.text, source: Source::Message(waiting.message), why: "what the user said".into() }
}

/// A role's instruction and the user's words, as most roles are shown.
fn instruction() -> FragmentSpec {
    FragmentSpec::stable("instruction", Layer::Instruction)
}

fn message() -> FragmentSpec {
    FragmentSpec::changing("message", Layer::Words)
}

fn say(text: impl Into<String>, by: &RoleName) -> Step {
    Step::Say { text: segue_core::flow::Speech::New(text.into()), by: Some(by.clone()), call: None }
}
