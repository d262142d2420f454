//! Three tiny flows, one for each shape of turn: one call; a call that hands over to another; three calls side by side, a
//! mapper in plain code and a call that speaks. Each role has a thread that lasts as long as the session.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::body::TextRef;
use segue_core::context::{COMPACTION_FRAGMENT, ContextLayer, FragmentSource, FragmentSpec, RenderedFragment};
use segue_core::event::{CallRequest, Event, RecordedEvent, RetryDecision, TurnResult};
use segue_core::flow::{
    CompactedMessages, CompactionPolicy, DynFlow, Flow, FlowContext, FlowSpec, FlowStep, FragmentRequest, ReplyText,
    RoleSpec, Summarizer,
};
use segue_core::handover::{
    HandoverDocument, HandoverFieldPresence, HandoverFieldSpec, HandoverFieldType, HandoverFieldValue,
    HandoverProvenance, HandoverSpec,
};
use segue_core::ids::{FragmentName, RoleName};
use segue_core::scope::Scope;
use segue_core::signal::BlockSet;
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::sample_text::{REPLY_CHARS, USER_CHARS};

/// What a turn consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum TurnShape {
    /// One call.
    Single,
    /// A call that hands over, and the call of whoever took over.
    Handoff,
    /// Three calls at once, a mapper in plain code, and a call that speaks.
    Fanout,
}

impl TurnShape {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Single, Self::Handoff, Self::Fanout];

    /// The flow's name.
    pub fn flow_name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Handoff => "handoff",
            Self::Fanout => "fanout",
        }
    }

    /// Characters of new text in a turn: the message and all answers.
    pub fn new_text_bytes(self) -> usize {
        USER_CHARS + self.calls_per_turn() * REPLY_CHARS
    }

    /// Calls in a turn.
    pub fn calls_per_turn(self) -> usize {
        match self {
            Self::Single => 1,
            Self::Handoff => 2,
            Self::Fanout => 4,
        }
    }

    /// Calls under way together at the beginning of a turn.
    pub fn concurrent_calls(self) -> usize {
        match self {
            Self::Single | Self::Handoff => 1,
            Self::Fanout => 3,
        }
    }
}

/// All flows.
pub fn all_bench_flows() -> Vec<Arc<dyn DynFlow>> {
    TurnShape::ALL.iter().map(|shape| Arc::new(BenchFlow::new(*shape)) as Arc<dyn DynFlow>).collect()
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

struct BenchFlow {
    shape: TurnShape,
    spec: FlowSpec,
}

/// What the experts of the running turn have answered.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct ExpertAnswers {
    texts: BTreeMap<RoleName, TextRef>,
}

impl BenchFlow {
    fn new(shape: TurnShape) -> Self {
        let message = || FragmentSpec::changing("message", ContextLayer::UserWords);
        let speaker = session_scoped_role(SPEAKER).visible_to_user(BlockSet::new());
        let spec = FlowSpec::new(shape.flow_name(), "a shape of turn to be measured").with_role(summarizer_role());
        let spec = match shape {
            TurnShape::Single => spec.with_role(speaker.with_ask("reply", [message()])),
            TurnShape::Handoff => {
                let goal = HandoverFieldSpec {
                    name: "goal".into(),
                    field_type: HandoverFieldType::Text,
                    presence: HandoverFieldPresence::Required,
                };
                let brief = FragmentSpec::changing(BRIEF, ContextLayer::Handover);
                spec.with_handover(HandoverSpec { kind: BRIEF.into(), fields: vec![goal], repairs_max: 0 })
                    .with_role(session_scoped_role(GREETER).with_ask("reply", [message()]))
                    .with_role(speaker.with_ask("reply", [brief, message()]))
            }
            TurnShape::Fanout => {
                let answers = EXPERTS.map(|expert| FragmentSpec::changing(expert, ContextLayer::Conversation));
                let asked = answers.into_iter().chain([message()]);
                let spec = spec.with_role(speaker.with_ask("reply", asked));
                EXPERTS.iter().fold(spec, |spec, expert| {
                    spec.with_role(session_scoped_role(expert).with_ask("reply", [message()]))
                })
            }
        };
        Self { shape, spec }
    }

    fn first_calls(&self) -> Vec<FlowStep> {
        let call = |role: &str| FlowStep::Call(CallRequest::new(role, "reply"));
        match self.shape {
            TurnShape::Single => vec![call(SPEAKER)],
            TurnShape::Handoff => vec![call(GREETER)],
            TurnShape::Fanout => EXPERTS.map(call).into(),
        }
    }

    /// The mapper: how long each answer is.
    fn mapper_steps(answers: &ExpertAnswers) -> Vec<FlowStep> {
        if answers.texts.len() < EXPERTS.len() {
            return Vec::new();
        }
        let tokens: BTreeMap<_, _> = answers.texts.iter().map(|(role, text)| (role, text.tokens)).collect();
        vec![
            FlowStep::RecordFact { kind: "map".to_owned(), value: json!(tokens) },
            FlowStep::Call(CallRequest::new(SPEAKER, "reply")),
        ]
    }
}

fn session_scoped_role(name: &str) -> RoleSpec {
    let mut role = RoleSpec::new(name, Scope::per_session())
        .with_opening_fragment(FragmentSpec::stable("instruction", ContextLayer::Instruction));
    role.compaction = CompactionPolicy {
        summarizer: Some(Summarizer { role: SUMMARISER.into(), ask: "summarise".into() }),
        summary_tokens_max: SUMMARY_TOKENS,
        ..CompactionPolicy::default()
    };
    role
}

fn summarizer_role() -> RoleSpec {
    let mut role = RoleSpec::new(SUMMARISER, Scope::Fresh)
        .with_opening_fragment(FragmentSpec::stable("instruction", ContextLayer::Instruction))
        .with_ask("summarise", [FragmentSpec::changing("folded", ContextLayer::Conversation)]);
    role.reply_tokens_max = SUMMARY_TOKENS;
    role
}

impl Flow for BenchFlow {
    type State = ExpertAnswers;

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn apply(&self, state: &mut ExpertAnswers, event: &RecordedEvent) {
        match &event.event {
            Event::TurnStarted { .. } => state.texts.clear(),
            Event::FlowFactRecorded { kind, value } if kind == "answer" => {
                if let Ok((role, text)) = serde_json::from_value(value.clone()) {
                    state.texts.insert(role, text);
                }
            }
            _ => {}
        }
    }

    fn react(&self, view: &FlowContext<'_, ExpertAnswers>, event: &RecordedEvent) -> Vec<FlowStep> {
        match (&event.event, view.subject.call.as_deref()) {
            (Event::TurnStarted { .. }, _) => self.first_calls(),
            (Event::CallAnswered(answered), Some(call)) => match call.role.as_str() {
                SPEAKER => vec![
                    FlowStep::Reply {
                        text: ReplyText::Stored(answered.text),
                        role: Some(call.role.clone()),
                        call: Some(call.call),
                    },
                    FlowStep::EndTurn(TurnResult::Done),
                ],
                GREETER => {
                    let goal = view.read_text(answered.text).chars().take(BRIEF_CHARS).collect();
                    let document = HandoverDocument::from([("goal".to_owned(), HandoverFieldValue::Text(goal))]);
                    let (calls, how) = (vec![call.call], HandoverProvenance::Emitted);
                    vec![
                        FlowStep::MakeHandover { kind: BRIEF.into(), document, calls, provenance: how },
                        FlowStep::Call(CallRequest::new(SPEAKER, "reply")),
                    ]
                }
                SUMMARISER => Vec::new(),
                _ => vec![FlowStep::RecordFact { kind: "answer".to_owned(), value: json!([call.role, answered.text]) }],
            },
            (Event::FlowFactRecorded { kind, .. }, _) if kind == "answer" => Self::mapper_steps(view.state),
            (Event::CallFailed { next: RetryDecision::GiveUp, failure, .. }, Some(call)) if call.role != SUMMARISER => {
                vec![FlowStep::EndTurn(TurnResult::Failed { reason: failure.to_string() })]
            }
            _ => Vec::new(),
        }
    }

    fn render_fragment(
        &self,
        view: &FlowContext<'_, ExpertAnswers>,
        asking: &FragmentRequest<'_>,
        name: &FragmentName,
    ) -> RenderedFragment {
        let stored = |text: TextRef, source: FragmentSource, why: &str| RenderedFragment::Stored {
            text,
            source,
            why: why.to_owned(),
        };
        let words = |text: String, why: &str| RenderedFragment::New {
            text,
            source: FragmentSource::State,
            why: why.to_owned(),
        };
        match (name.as_str(), asking.compacted) {
            ("instruction", _) => words(format!("Speak as the {}.", asking.call_request.role), "who speaks"),
            ("folded", Some(folding)) => words(folded_message_excerpts(folding), "what is shortened"),
            (COMPACTION_FRAGMENT, Some(folding)) => {
                words(folding.summary.clone().unwrap_or_default(), "what was folded")
            }
            (BRIEF, _) => match view.session.latest_handover(BRIEF) {
                Some(brief) => RenderedFragment::New {
                    text: brief.text_field("goal").unwrap_or_default().to_owned(),
                    source: FragmentSource::Handover(brief.id),
                    why: "what was handed over".to_owned(),
                },
                None => RenderedFragment::Omitted("nothing was handed over".to_owned()),
            },
            ("message", _) => match view.session.current_turn.as_ref().and_then(|turn| turn.messages.first()) {
                Some(first) => stored(first.text, FragmentSource::Message(first.message), "what the user said"),
                None => RenderedFragment::Omitted("no turn runs".to_owned()),
            },
            (expert, _) => match view.state.texts.get(expert) {
                Some(text) => stored(*text, FragmentSource::State, "an answer"),
                None => RenderedFragment::Omitted("it has not answered".to_owned()),
            },
        }
    }
}

fn folded_message_excerpts(folding: &CompactedMessages) -> String {
    let beginning = |text: &String| text.chars().take(FOLDED_CHARS_SHOWN).collect::<String>();
    folding.messages.iter().map(|(_, text)| beginning(text)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_flow_has_a_fault() {
        for rules in all_bench_flows() {
            assert_eq!(rules.spec().validation_errors(), [""; 0], "{}", rules.spec().name);
        }
    }
}
