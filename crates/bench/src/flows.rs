//! Three tiny flows, one for each shape of turn: one call; a call that hands over to another; three calls side by side, a
//! mapper in plain code and a call that speaks. Each role has a thread that lasts as long as the session.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::body::Text;
use segue_core::context::{COMPACTION, FragmentSpec, Layer, Rendered, Source};
use segue_core::event::{CallWish, Event, Next, Outcome, Recorded};
use segue_core::flow::{Asking, Compaction, Flow, FlowSpec, Folding, RoleSpec, Rules, Speech, Step, Summariser, View};
use segue_core::handover::{Document, Field, FieldSpec, Form, Need, Provenance, Schema};
use segue_core::ids::{FragmentName, RoleName};
use segue_core::scope::Scope;
use segue_core::signal::BlockNames;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::text::{REPLY_CHARS, USER_CHARS};

/// What a turn consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Shape {
    /// One call.
    Single,
    /// A call that hands over, and the call of whoever took over.
    Handoff,
    /// Three calls at once, a mapper in plain code, and a call that speaks.
    Fanout,
}

impl Shape {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Single, Self::Handoff, Self::Fanout];

    /// The flow's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Handoff => "handoff",
            Self::Fanout => "fanout",
        }
    }

    /// Characters of new text in a turn: the message and all answers.
    pub fn new_text_bytes(self) -> usize {
        USER_CHARS + self.calls() * REPLY_CHARS
    }

    /// Calls in a turn.
    pub fn calls(self) -> usize {
        match self {
            Self::Single => 1,
            Self::Handoff => 2,
            Self::Fanout => 4,
        }
    }

    /// Calls under way together at the beginning of a turn.
    pub fn calls_at_once(self) -> usize {
        match self {
            Self::Single | Self::Handoff => 1,
            Self::Fanout => 3,
        }
    }
}

/// All flows.
pub fn all() -> Vec<Arc<dyn Rules>> {
    Shape::ALL.iter().map(|shape| Arc::new(Bench::new(*shape)) as Arc<dyn Rules>).collect()
}

const SPEAKER: &str = "speaker";
const GREETER: &str = "greeter";
const EXPERTS: [&str; 3] = ["analyst", "critic", "planner"];
const SUMMARISER: &str = "summariser";
const BRIEF: &str = "brief";
const SUMMARY_TOKENS: u32 = 400;
/// How much of each folded message the summariser is shown: its call shall cost what its call costs, no more.
const FOLDED_CHARS_SHOWN: usize = 40;
const BRIEF_CHARS: usize = 80;

struct Bench {
    shape: Shape,
    spec: FlowSpec,
}

/// What the experts of the running turn have answered.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Answers {
    texts: BTreeMap<RoleName, Text>,
}

impl Bench {
    fn new(shape: Shape) -> Self {
        let message = || FragmentSpec::changing("message", Layer::Words);
        let speaker = lasting(SPEAKER).heard_by_user(BlockNames::new());
        let spec = FlowSpec::new(shape.name(), "a shape of turn to be measured").role(summariser());
        let spec = match shape {
            Shape::Single => spec.role(speaker.ask("reply", [message()])),
            Shape::Handoff => {
                let goal = FieldSpec { name: "goal".into(), form: Form::Text, need: Need::Required };
                let brief = FragmentSpec::changing(BRIEF, Layer::Handover);
                spec.handover(Schema { kind: BRIEF.into(), fields: vec![goal], repairs_max: 0 })
                    .role(lasting(GREETER).ask("reply", [message()]))
                    .role(speaker.ask("reply", [brief, message()]))
            }
            Shape::Fanout => {
                let answers = EXPERTS.map(|expert| FragmentSpec::changing(expert, Layer::Conversation));
                let asked = answers.into_iter().chain([message()]);
                let spec = spec.role(speaker.ask("reply", asked));
                EXPERTS.iter().fold(spec, |spec, expert| spec.role(lasting(expert).ask("reply", [message()])))
            }
        };
        Self { shape, spec }
    }

    fn first_calls(&self) -> Vec<Step> {
        let call = |role: &str| Step::Call(CallWish::new(role, "reply"));
        match self.shape {
            Shape::Single => vec![call(SPEAKER)],
            Shape::Handoff => vec![call(GREETER)],
            Shape::Fanout => EXPERTS.map(call).into(),
        }
    }

    /// The mapper: how long each answer is.
    fn map(answers: &Answers) -> Vec<Step> {
        if answers.texts.len() < EXPERTS.len() {
            return Vec::new();
        }
        let tokens: BTreeMap<_, _> = answers.texts.iter().map(|(role, text)| (role, text.tokens)).collect();
        vec![Step::Note { kind: "map".to_owned(), value: json!(tokens) }, Step::Call(CallWish::new(SPEAKER, "reply"))]
    }
}

fn lasting(name: &str) -> RoleSpec {
    let mut role =
        RoleSpec::new(name, Scope::session()).opens_with(FragmentSpec::stable("instruction", Layer::Instruction));
    role.compaction = Compaction {
        by: Some(Summariser { role: SUMMARISER.into(), ask: "summarise".into() }),
        tokens_max: SUMMARY_TOKENS,
        ..Compaction::default()
    };
    role
}

fn summariser() -> RoleSpec {
    let mut role = RoleSpec::new(SUMMARISER, Scope::Fresh)
        .opens_with(FragmentSpec::stable("instruction", Layer::Instruction))
        .ask("summarise", [FragmentSpec::changing("folded", Layer::Conversation)]);
    role.reply_tokens_max = SUMMARY_TOKENS;
    role
}

impl Flow for Bench {
    type State = Answers;

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn apply(&self, state: &mut Answers, event: &Recorded) {
        match &event.event {
            Event::TurnStarted { .. } => state.texts.clear(),
            Event::Fact { kind, value } if kind == "answer" => {
                if let Ok((role, text)) = serde_json::from_value(value.clone()) {
                    state.texts.insert(role, text);
                }
            }
            _ => {}
        }
    }

    fn react(&self, view: &View<'_, Answers>, event: &Recorded) -> Vec<Step> {
        match (&event.event, view.about.call.as_deref()) {
            (Event::TurnStarted { .. }, _) => self.first_calls(),
            (Event::CallAnswered(answered), Some(call)) => match call.role.as_str() {
                SPEAKER => vec![
                    Step::Say {
                        text: Speech::Stored(answered.text),
                        by: Some(call.role.clone()),
                        call: Some(call.call),
                    },
                    Step::EndTurn(Outcome::Done),
                ],
                GREETER => {
                    let goal = view.text(answered.text).chars().take(BRIEF_CHARS).collect();
                    let document = Document::from([("goal".to_owned(), Field::Text(goal))]);
                    let (calls, how) = (vec![call.call], Provenance::Emitted);
                    vec![
                        Step::Hand { kind: BRIEF.into(), document, calls, how },
                        Step::Call(CallWish::new(SPEAKER, "reply")),
                    ]
                }
                SUMMARISER => Vec::new(),
                _ => vec![Step::Note { kind: "answer".to_owned(), value: json!([call.role, answered.text]) }],
            },
            (Event::Fact { kind, .. }, _) if kind == "answer" => Self::map(view.state),
            (Event::CallFailed { next: Next::GiveUp, failure, .. }, Some(call)) if call.role != SUMMARISER => {
                vec![Step::EndTurn(Outcome::Failed { reason: failure.to_string() })]
            }
            _ => Vec::new(),
        }
    }

    fn fragment(&self, view: &View<'_, Answers>, asking: &Asking<'_>, name: &FragmentName) -> Rendered {
        let stored = |text: Text, source: Source, why: &str| Rendered::Stored { text, source, why: why.to_owned() };
        let words = |text: String, why: &str| Rendered::New { text, source: Source::State, why: why.to_owned() };
        match (name.as_str(), asking.folding) {
            ("instruction", _) => words(format!("Speak as the {}.", asking.wish.role), "who speaks"),
            ("folded", Some(folding)) => words(beginnings(folding), "what is shortened"),
            (COMPACTION, Some(folding)) => words(folding.summary.clone().unwrap_or_default(), "what was folded"),
            (BRIEF, _) => match view.session.handover(BRIEF) {
                Some(brief) => Rendered::New {
                    text: brief.text("goal").unwrap_or_default().to_owned(),
                    source: Source::Handover(brief.id),
                    why: "what was handed over".to_owned(),
                },
                None => Rendered::Out("nothing was handed over".to_owned()),
            },
            ("message", _) => match view.session.turn.as_ref().and_then(|turn| turn.messages.first()) {
                Some(first) => stored(first.text, Source::Message(first.message), "what the user said"),
                None => Rendered::Out("no turn runs".to_owned()),
            },
            (expert, _) => match view.state.texts.get(expert) {
                Some(text) => stored(*text, Source::State, "an answer"),
                None => Rendered::Out("it has not answered".to_owned()),
            },
        }
    }
}

fn beginnings(folding: &Folding) -> String {
    let beginning = |text: &String| text.chars().take(FOLDED_CHARS_SHOWN).collect::<String>();
    folding.entries.iter().map(|(_, text)| beginning(text)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_flow_has_a_fault() {
        for rules in all() {
            assert_eq!(rules.spec().faults(), [""; 0], "{}", rules.spec().name);
        }
    }
}
