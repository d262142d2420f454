//! Three small flows, one for each turn shape: one call; a call with a handover to another; three concurrent calls, a
//! mapper in plain code, and a call that replies. Each role has one thread per session.

use std::collections::BTreeMap;
use std::sync::Arc;

use segue_core::body::TextRef;
use segue_core::context::{COMPACTION_FRAGMENT, FragmentContentKind, FragmentSource, FragmentSpec, RenderedFragment};
use segue_core::event::{CallRequest, Event, RecordedEvent, RetryDecision, TurnOutcome};
use segue_core::flow::{
    CompactionPolicy, DynFlow, Flow, FlowContext, FlowSpec, FlowStep, FragmentRenderContext, MessagesToCompact,
    NewOrStoredReplyText, RoleSpec, SummarizerRole,
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

/// The calls of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum BenchTurnShape {
    /// One call.
    Single,
    /// A call with a handover, and the call of the role that received it.
    Handoff,
    /// Three concurrent calls, a mapper in plain code, and a call that replies.
    Fanout,
}

impl BenchTurnShape {
    pub(crate) const ALL: [Self; 3] = [Self::Single, Self::Handoff, Self::Fanout];

    pub(crate) fn flow_name(self) -> &'static str {
        match self {
            Self::Single => "single",
            Self::Handoff => "handoff",
            Self::Fanout => "fanout",
        }
    }

    /// Returns the bytes of new text in a turn: the message and all answers.
    pub(crate) fn new_text_bytes(self) -> usize {
        USER_CHARS + self.calls_per_turn() * REPLY_CHARS
    }

    pub(crate) fn calls_per_turn(self) -> usize {
        match self {
            Self::Single => 1,
            Self::Handoff => 2,
            Self::Fanout => 4,
        }
    }

    /// Returns how many calls are made at once at the beginning of a turn.
    pub(crate) fn concurrent_calls(self) -> usize {
        match self {
            Self::Single | Self::Handoff => 1,
            Self::Fanout => 3,
        }
    }
}

pub(crate) fn all_bench_flows() -> Vec<Arc<dyn DynFlow>> {
    BenchTurnShape::ALL.iter().map(|shape| Arc::new(BenchFlow::new(*shape)) as Arc<dyn DynFlow>).collect()
}

const SPEAKER: &str = "speaker";
const GREETER: &str = "greeter";
const EXPERTS: [&str; 3] = ["analyst", "critic", "planner"];
const SUMMARISER: &str = "summariser";
const BRIEF: &str = "brief";
const SUMMARY_TOKENS: u32 = 400;
/// Characters of each compacted message in the summariser's prompt; few, so that its size does not matter.
const FOLDED_CHARS_SHOWN: usize = 40;
const BRIEF_CHARS: usize = 80;

struct BenchFlow {
    shape: BenchTurnShape,
    spec: FlowSpec,
}

/// The experts' answers in the running turn.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct BenchFlowState {
    texts: BTreeMap<RoleName, TextRef>,
}

impl BenchFlow {
    fn new(shape: BenchTurnShape) -> Self {
        let message = || FragmentSpec::changing("message", FragmentContentKind::UserWords);
        let speaker = session_scoped_role(SPEAKER).visible_to_user(BlockSet::default());
        let spec = FlowSpec::new(shape.flow_name(), "a turn shape for benchmarks").with_role(summarizer_role());
        let spec = match shape {
            BenchTurnShape::Single => spec.with_role(speaker.with_ask("reply", [message()])),
            BenchTurnShape::Handoff => {
                let goal = HandoverFieldSpec {
                    name: "goal".into(),
                    field_type: HandoverFieldType::Text,
                    presence: HandoverFieldPresence::Required,
                };
                let brief = FragmentSpec::changing(BRIEF, FragmentContentKind::Handover);
                spec.with_handover(HandoverSpec { kind: BRIEF.into(), fields: vec![goal], repairs_max: 0 })
                    .with_role(session_scoped_role(GREETER).with_ask("reply", [message()]))
                    .with_role(speaker.with_ask("reply", [brief, message()]))
            }
            BenchTurnShape::Fanout => {
                let answers = EXPERTS.map(|expert| FragmentSpec::changing(expert, FragmentContentKind::Conversation));
                let fragments = answers.into_iter().chain([message()]);
                let spec = spec.with_role(speaker.with_ask("reply", fragments));
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
            BenchTurnShape::Single => vec![call(SPEAKER)],
            BenchTurnShape::Handoff => vec![call(GREETER)],
            BenchTurnShape::Fanout => EXPERTS.map(call).into(),
        }
    }

    /// The mapper: records the length of each answer.
    fn mapper_steps(answers: &BenchFlowState) -> Vec<FlowStep> {
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
        .with_opening_fragment(FragmentSpec::stable("instruction", FragmentContentKind::Instruction));
    role.compaction = CompactionPolicy {
        summarizer: Some(SummarizerRole { role: SUMMARISER.into(), ask: "summarise".into() }),
        summary_tokens_max: SUMMARY_TOKENS,
        ..CompactionPolicy::default()
    };
    role
}

fn summarizer_role() -> RoleSpec {
    let mut role = RoleSpec::new(SUMMARISER, Scope::Fresh)
        .with_opening_fragment(FragmentSpec::stable("instruction", FragmentContentKind::Instruction))
        .with_ask("summarise", [FragmentSpec::changing("folded", FragmentContentKind::Conversation)]);
    role.reply_tokens_max = SUMMARY_TOKENS;
    role
}

impl Flow for BenchFlow {
    type State = BenchFlowState;

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn apply(&self, state: &mut BenchFlowState, event: &RecordedEvent) {
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

    fn react(&self, view: &FlowContext<'_, BenchFlowState>, event: &RecordedEvent) -> Vec<FlowStep> {
        match (&event.event, view.subject.call.as_deref()) {
            (Event::TurnStarted { .. }, _) => self.first_calls(),
            (Event::CallAnswered(answered), Some(call)) => match call.role.as_str() {
                SPEAKER => vec![
                    FlowStep::Reply {
                        text: NewOrStoredReplyText::Stored(answered.text),
                        role: Some(call.role.clone()),
                        call: Some(call.call),
                    },
                    FlowStep::EndTurn(TurnOutcome::Done),
                ],
                GREETER => {
                    let goal = view.read_text(answered.text).chars().take(BRIEF_CHARS).collect();
                    let document = HandoverDocument::from([("goal".to_owned(), HandoverFieldValue::Text(goal))]);
                    let (calls, provenance) = (vec![call.call], HandoverProvenance::Emitted);
                    vec![
                        FlowStep::MakeHandover { kind: BRIEF.into(), document, calls, provenance },
                        FlowStep::Call(CallRequest::new(SPEAKER, "reply")),
                    ]
                }
                SUMMARISER => Vec::new(),
                _ => vec![FlowStep::RecordFact { kind: "answer".to_owned(), value: json!([call.role, answered.text]) }],
            },
            (Event::FlowFactRecorded { kind, .. }, _) if kind == "answer" => Self::mapper_steps(view.state),
            (Event::CallFailed { next: RetryDecision::GiveUp, failure, .. }, Some(call)) if call.role != SUMMARISER => {
                vec![FlowStep::EndTurn(TurnOutcome::Failed { reason: failure.to_string() })]
            }
            _ => Vec::new(),
        }
    }

    fn render_fragment(
        &self,
        view: &FlowContext<'_, BenchFlowState>,
        request: &FragmentRenderContext<'_>,
        name: &FragmentName,
    ) -> RenderedFragment {
        let stored = |text: TextRef, source: FragmentSource, why: &str| RenderedFragment::Stored {
            text,
            source,
            why: why.to_owned(),
        };
        let new_text = |text: String, why: &str| RenderedFragment::New {
            text,
            source: FragmentSource::State,
            why: why.to_owned(),
        };
        match (name.as_str(), request.compacted) {
            ("instruction", _) => new_text(format!("Speak as the {}.", request.call_request.role), "the role"),
            ("folded", Some(compacted)) => new_text(folded_message_excerpts(compacted), "the compacted messages"),
            (COMPACTION_FRAGMENT, Some(compacted)) => {
                new_text(compacted.summary.clone().unwrap_or_default(), "the summary")
            }
            (BRIEF, _) => match view.session.latest_handover(BRIEF) {
                Some(brief) => RenderedFragment::New {
                    text: brief.text_field("goal").unwrap_or_default().to_owned(),
                    source: FragmentSource::Handover(brief.id),
                    why: "the handover".to_owned(),
                },
                None => RenderedFragment::Omitted("there is no handover".to_owned()),
            },
            ("message", _) => match view.session.current_turn.as_ref().and_then(|turn| turn.messages.first()) {
                Some(first) => stored(first.text, FragmentSource::Message(first.message), "the user's message"),
                None => RenderedFragment::Omitted("no turn is running".to_owned()),
            },
            (expert, _) => match view.state.texts.get(expert) {
                Some(text) => stored(*text, FragmentSource::State, "an answer"),
                None => RenderedFragment::Omitted("no answer yet".to_owned()),
            },
        }
    }
}

fn folded_message_excerpts(compacted: &MessagesToCompact) -> String {
    let excerpt = |text: &String| text.chars().take(FOLDED_CHARS_SHOWN).collect::<String>();
    compacted.messages.iter().map(|(_, text)| excerpt(text)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_flows_are_valid() {
        for flow in all_bench_flows() {
            assert_eq!(flow.spec().validation_errors(), [""; 0], "{}", flow.spec().name);
        }
    }
}
