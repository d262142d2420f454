//! A flow that does as a test tells it: roles from the test, reactions from a closure, and plain words for every
//! fragment.

use segue_core::context::{FragmentSpec, Layer, Rendered, Source};
use segue_core::event::{CallWish, Event, Next, Outcome, Recorded};
use segue_core::flow::{Asking, Flow, FlowSpec, RoleSpec, Speech, Step, Summariser, View};
use segue_core::ids::FragmentName;
use segue_core::scope::Scope;

type Reaction = Box<dyn Fn(&View<'_, ()>, &Recorded) -> Vec<Step> + Send + Sync>;

/// A flow that does as a test tells it.
pub struct Puppet {
    spec: FlowSpec,
    react: Reaction,
}

impl std::fmt::Debug for Puppet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Puppet").field("spec", &self.spec.name).finish_non_exhaustive()
    }
}

impl Puppet {
    /// A flow of these parts with this reaction.
    #[must_use]
    pub fn new(spec: FlowSpec, react: impl Fn(&View<'_, ()>, &Recorded) -> Vec<Step> + Send + Sync + 'static) -> Self {
        Self { spec, react: Box::new(react) }
    }

    /// One role, `speaker`, answers each turn.
    #[must_use]
    pub fn chat(speaker: RoleSpec) -> Self {
        Self::new(Self::spec_of(speaker), Self::chats)
    }

    /// A flow's data with this role in it.
    #[must_use]
    pub fn spec_of(role: RoleSpec) -> FlowSpec {
        FlowSpec::new("puppet", "does as it is told").role(role)
    }

    /// A role of this name that is told who it is, and with `reply` what the user said, with `note` what its wish notes.
    #[must_use]
    pub fn role(name: &str, scope: Scope) -> RoleSpec {
        RoleSpec::new(name, scope)
            .opens_with(FragmentSpec::stable("instruction", Layer::Instruction))
            .ask("reply", [FragmentSpec::changing("message", Layer::Words)])
            .ask("note", [FragmentSpec::changing("note", Layer::Task)])
            .ask("pin", [FragmentSpec::changing("note", Layer::Task).pinned()])
    }

    /// The role `speaker` with a memory as long as the session.
    #[must_use]
    pub fn speaker() -> RoleSpec {
        Self::role("speaker", Scope::session())
    }

    /// A role that writes summaries, and how to ask it.
    #[must_use]
    pub fn scribe() -> (RoleSpec, Summariser) {
        let scribe = RoleSpec::new("scribe", Scope::Fresh).ask("fold", [FragmentSpec::changing("folded", Layer::Task)]);
        (scribe, Summariser { role: "scribe".into(), ask: "fold".into() })
    }

    /// How a chat goes on: a turn asks the speaker, its answer is said and ends the turn, as does its failure.
    #[must_use]
    pub fn chats(view: &View<'_, ()>, event: &Recorded) -> Vec<Step> {
        let failed = |reason: String| vec![Step::EndTurn(Outcome::Failed { reason })];
        match &event.event {
            Event::TurnStarted { .. } => vec![Step::Call(CallWish::new("speaker", "reply"))],
            Event::CallAnswered(answered) if answered.tool_calls.is_empty() => {
                let call = view.about.call.as_ref().map(|call| call.call);
                let text = Speech::Stored(answered.text);
                vec![Step::Say { text, by: Some("speaker".into()), call }, Step::EndTurn(Outcome::Done)]
            }
            Event::CallFailed { next: Next::GiveUp, failure, .. } => failed(failure.to_string()),
            Event::CallUnknown { next: Next::GiveUp, .. } | Event::CallResolved { next: Next::GiveUp, .. } => {
                failed("its end is not known".to_owned())
            }
            _ => Vec::new(),
        }
    }
}

impl Flow for Puppet {
    type State = ();

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn react(&self, view: &View<'_, ()>, event: &Recorded) -> Vec<Step> {
        (self.react)(view, event)
    }

    fn fragment(&self, view: &View<'_, ()>, asking: &Asking<'_>, name: &FragmentName) -> Rendered {
        let new = |text: String| Rendered::New { text, source: Source::State, why: "as the test wants".into() };
        match name.as_str() {
            "instruction" => new(format!("be {}", asking.wish.role)),
            "message" => {
                let Some(turn) = &view.session.turn else { return Rendered::Out("no turn runs".into()) };
                match turn.messages.as_slice() {
                    [one] => {
                        let source = Source::Message(one.message);
                        Rendered::Stored { text: one.text, source, why: "what the user said".into() }
                    }
                    several => {
                        let said: Vec<_> = several.iter().map(|waiting| view.text(waiting.text).to_string()).collect();
                        new(said.join(" + "))
                    }
                }
            }
            "note" => match &asking.wish.note {
                serde_json::Value::String(text) => new(text.clone()),
                other => new(other.to_string()),
            },
            "folded" => {
                let folded = asking.folding.map(|folding| folding.entries.as_slice()).unwrap_or_default();
                new(folded.iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join(" | "))
            }
            _ => match asking.folding {
                Some(folding) => match &folding.summary {
                    Some(summary) => new(format!("so far: {summary}")),
                    None => new(format!("{} messages were left out", folding.entries.len())),
                },
                None => Rendered::Out("nothing is folded".into()),
            },
        }
    }
}
