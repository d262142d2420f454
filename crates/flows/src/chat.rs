//! One model, one thread: the plainest flow there is, and the baseline to compare the others with.

use segue_core::context::{FragmentSpec, Layer, Rendered, Source};
use segue_core::event::{CallWish, Event, Next, Outcome, Recorded};
use segue_core::flow::{Asking, Compaction, Flow, FlowSpec, Folding, RoleSpec, Speech, Step, Summariser, View};
use segue_core::ids::FragmentName;
use segue_core::prompt::Speaker;
use segue_core::scope::Scope;
use segue_core::signal::BlockNames;
use serde::Serialize;

use crate::template::fill;

/// The role that answers.
pub const ASSISTANT: &str = "assistant";
const SUMMARISER: &str = "summariser";
const SUMMARY_TOKENS: u32 = 800;
const SUMMARY_WORDS: u32 = 400;

/// The flow.
#[derive(Debug)]
pub struct Chat {
    spec: FlowSpec,
}

impl Chat {
    /// The flow as it is shipped.
    #[must_use]
    pub fn new() -> Self {
        let mut assistant = RoleSpec::new(ASSISTANT, Scope::session())
            .opens_with(FragmentSpec::stable("instruction", Layer::Instruction))
            .ask("reply", [FragmentSpec::changing("message", Layer::Words)])
            .heard_by_user(BlockNames::new());
        assistant.compaction = Compaction {
            by: Some(Summariser { role: SUMMARISER.into(), ask: "summarise".into() }),
            tokens_max: SUMMARY_TOKENS,
            ..Compaction::default()
        };
        let mut summariser = RoleSpec::new(SUMMARISER, Scope::Fresh)
            .opens_with(FragmentSpec::stable("summarise", Layer::Instruction))
            .ask("summarise", [FragmentSpec::changing("folded", Layer::Conversation)]);
        summariser.reply_tokens_max = SUMMARY_TOKENS;
        let spec = FlowSpec::new("chat", "one model, one conversation").role(assistant).role(summariser);
        Self { spec }
    }
}

impl Default for Chat {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Serialize)]
struct FoldedEntry<'f> {
    speaker: &'static str,
    text: &'f str,
}

impl Flow for Chat {
    type State = ();

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn react(&self, view: &View<'_, ()>, event: &Recorded) -> Vec<Step> {
        match (&event.event, view.about.call.as_deref()) {
            (Event::TurnStarted { .. }, _) => vec![Step::Call(CallWish::new(ASSISTANT, "reply"))],
            (Event::CallAnswered(answered), Some(call)) if call.role == ASSISTANT => vec![
                Step::Say { text: Speech::Stored(answered.text), by: Some(call.role.clone()), call: Some(call.call) },
                Step::EndTurn(Outcome::Done),
            ],
            (Event::CallFailed { next: Next::GiveUp, failure, .. }, Some(call)) if call.role == ASSISTANT => {
                vec![Step::EndTurn(Outcome::Failed { reason: failure.to_string() })]
            }
            (
                Event::CallUnknown { next: Next::GiveUp, .. } | Event::CallResolved { next: Next::GiveUp, .. },
                Some(call),
            ) if call.role == ASSISTANT => {
                let reason = "the answer was lost when the process died, and is not asked for again".to_owned();
                vec![Step::EndTurn(Outcome::Failed { reason })]
            }
            _ => Vec::new(),
        }
    }

    fn fragment(&self, view: &View<'_, ()>, asking: &Asking<'_>, name: &FragmentName) -> Rendered {
        match name.as_str() {
            "instruction" => {
                let text = fill(include_str!("../prompts/chat/instruction.md"), &());
                template("instruction", text, "who answers, and how")
            }
            "message" => message(view),
            name => shortening(asking, name),
        }
    }
}

fn template(file: &str, text: String, why: &str) -> Rendered {
    Rendered::New { text, source: Source::Template(format!("chat/{file}")), why: why.to_owned() }
}

/// What a summariser is told and shown, and what stands in the place of what was folded; the same for every flow that
/// has its threads shortened by a model.
pub(crate) fn shortening(asking: &Asking<'_>, name: &str) -> Rendered {
    match (name, asking.folding) {
        ("summarise", _) => {
            #[derive(Serialize)]
            struct Arguments {
                words: u32,
            }
            let text = fill(include_str!("../prompts/chat/summarise.md"), &Arguments { words: SUMMARY_WORDS });
            template("summarise", text, "how to shorten")
        }
        ("folded", Some(folding)) => {
            let text = fill(include_str!("../prompts/chat/folded.md"), &folded(folding));
            template("folded", text, "what is shortened")
        }
        (segue_core::context::COMPACTION, Some(folding)) => {
            #[derive(Serialize)]
            struct Arguments<'f> {
                summary: Option<&'f str>,
            }
            let arguments = Arguments { summary: folding.summary.as_deref() };
            template("standing", fill(include_str!("../prompts/chat/standing.md"), &arguments), "what was folded")
        }
        _ => Rendered::Out("there is nothing of that name".to_owned()),
    }
}

fn folded(folding: &Folding) -> impl Serialize {
    #[derive(Serialize)]
    struct Arguments<'f> {
        entries: Vec<FoldedEntry<'f>>,
    }
    let speaker = |speaker: &Speaker| match speaker {
        Speaker::User => "User",
        Speaker::Assistant => "Assistant",
        Speaker::Tool => "Tool",
        Speaker::System => "Note",
    };
    let entries = folding.entries.iter();
    Arguments { entries: entries.map(|(who, text)| FoldedEntry { speaker: speaker(who), text }).collect() }
}

/// The words of the turn: one message as it stands, several as one text.
fn message(view: &View<'_, ()>) -> Rendered {
    let Some(turn) = &view.session.turn else { return Rendered::Out("no turn runs".to_owned()) };
    match turn.messages.as_slice() {
        [] => Rendered::Out("the turn has no message".to_owned()),
        [only] => Rendered::Stored {
            text: only.text,
            source: Source::Message(only.message),
            why: "what the user said".to_owned(),
        },
        several => {
            let texts: Vec<String> = several.iter().map(|waiting| view.text(waiting.text).to_string()).collect();
            Rendered::New {
                text: texts.join("\n\n"),
                source: Source::Message(several[several.len() - 1].message),
                why: format!("the {} messages that came together", several.len()),
            }
        }
    }
}
