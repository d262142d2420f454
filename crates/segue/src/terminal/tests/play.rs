//! A flow for tests: phases with a gate, two concurrent experts, and a guide whose reply may differ from its answer.

use std::collections::BTreeSet;

use segue_core::context::{FragmentContentKind, FragmentSource, FragmentSpec, RenderedFragment};
use segue_core::event::{
    CallRequest, Event, PhaseGraphKey, PhaseStateOwner, RecordedEvent, RetryDecision, TurnOutcome,
};
use segue_core::flow::{
    Flow, FlowContext, FlowSpec, FlowStep, FragmentRenderContext, NewOrStoredReplyText, RoleSpec, UnknownOutcomePolicy,
};
use segue_core::ids::FragmentName;
use segue_core::phase::{
    Guard, PhaseEdge, PhaseEntryGate, PhaseGraph, PhaseGraphOwnerKind, PhaseKind, PhaseSpec, PhaseTransitionNote,
    PhaseTransitionProposer,
};
use segue_core::scope::Scope;
use segue_core::signal::BlockSet;

pub(crate) struct Play {
    spec: FlowSpec,
}

impl Play {
    pub(crate) fn new() -> Self {
        let role = |name: &str, scope: Scope| {
            RoleSpec::new(name, scope)
                .with_opening_fragment(FragmentSpec::stable("instruction", FragmentContentKind::Instruction))
                .with_ask("reply", [FragmentSpec::changing("message", FragmentContentKind::UserWords)])
        };
        let mut guide =
            role("guide", Scope::per_phase()).with_phase_graph("stage").visible_to_user(BlockSet::default());
        guide.unknown_outcome = UnknownOutcomePolicy::AskOperator;
        let expert = role("expert", Scope::Fresh);
        let spec = FlowSpec::new("play", "for tests").with_role(guide).with_role(expert).with_graph(stage());
        Self { spec }
    }
}

fn stage() -> PhaseGraph {
    let edge = |from: &str, to: &str, guard| PhaseEdge { from: from.into(), to: to.into(), guard };
    PhaseGraph {
        name: "stage".into(),
        owner_kind: PhaseGraphOwnerKind::Session,
        start: "begin".into(),
        phases: vec![
            PhaseSpec { purpose: "find out what is wanted".to_owned(), ..PhaseSpec::new("begin") },
            PhaseSpec::new("act"),
            PhaseSpec::new("review"),
            PhaseSpec { kind: PhaseKind::End, ..PhaseSpec::new("end") },
        ],
        edges: vec![
            edge("begin", "act", Guard::Always),
            edge("act", "review", Guard::Condition("applause".to_owned())),
            edge("act", "end", Guard::Always),
            edge("review", "end", Guard::Always),
        ],
        gates: vec![PhaseEntryGate {
            name: "looked over".to_owned(),
            opened_by: "act".into(),
            satisfied_by: "review".into(),
            condition: None,
            blocks: BTreeSet::new(),
        }],
    }
}

fn key() -> PhaseGraphKey {
    PhaseGraphKey { graph: "stage".into(), owner: PhaseStateOwner::Session }
}

impl Flow for Play {
    type State = ();

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn react(&self, view: &FlowContext<'_, ()>, event: &RecordedEvent) -> Vec<FlowStep> {
        let guide = || FlowStep::Call(CallRequest::new("guide", "reply"));
        match (&event.event, view.subject.call.as_deref()) {
            (Event::TurnStarted { .. }, _) => {
                let asks_experts = view.session.current_turn.iter().flat_map(|turn| &turn.messages);
                let asks_experts =
                    asks_experts.map(|waiting| view.read_text(waiting.text)).any(|text| text.contains("experts"));
                if asks_experts {
                    let expert = |model: &str| {
                        FlowStep::Call(CallRequest { model: Some(model.into()), ..CallRequest::new("expert", "reply") })
                    };
                    return vec![expert("north"), expert("south")];
                }
                vec![guide()]
            }
            (Event::CallAnswered(answered), Some(call)) if call.role == "guide" => {
                let answer = view.read_text(answered.text);
                let reply = |text| FlowStep::Reply { text, role: Some(call.role.clone()), call: Some(call.call) };
                let mut steps = match answer.strip_prefix("thinks: ") {
                    Some(_) => vec![reply(NewOrStoredReplyText::New("What was really said.".to_owned()))],
                    None => vec![reply(NewOrStoredReplyText::Stored(answered.text))],
                };
                if answer.contains("let us act") {
                    let (by, note) = (PhaseTransitionProposer::Role(call.role.clone()), PhaseTransitionNote::default());
                    steps.push(FlowStep::ProposePhase { phase: key(), to: "act".into(), by, note });
                }
                steps.push(FlowStep::EndTurn(TurnOutcome::Done));
                steps
            }
            (Event::CallAnswered(_) | Event::CallFailed { next: RetryDecision::GiveUp, .. }, Some(call))
                if call.role == "expert" =>
            {
                if view.session.open_calls.is_empty() {
                    vec![guide()]
                } else {
                    Vec::new()
                }
            }
            (Event::CallFailed { next: RetryDecision::GiveUp, failure, .. }, Some(_)) => {
                vec![FlowStep::EndTurn(TurnOutcome::Failed { reason: failure.to_string() })]
            }
            (Event::CallResolved { next: RetryDecision::GiveUp, .. }, Some(_)) => {
                vec![FlowStep::EndTurn(TurnOutcome::Failed { reason: "given up by hand".to_owned() })]
            }
            _ => Vec::new(),
        }
    }

    fn render_fragment(
        &self,
        view: &FlowContext<'_, ()>,
        _: &FragmentRenderContext<'_>,
        name: &FragmentName,
    ) -> RenderedFragment {
        let new = |text: String| RenderedFragment::New {
            text,
            source: FragmentSource::State,
            why: "the test wants it".to_owned(),
        };
        match (name.as_str(), view.session.current_turn.as_ref().and_then(|turn| turn.messages.first())) {
            ("message", Some(waiting)) => RenderedFragment::Stored {
                text: waiting.text,
                source: FragmentSource::Message(waiting.message),
                why: "what the user said".to_owned(),
            },
            ("instruction", _) => new("Play your part.".to_owned()),
            _ => RenderedFragment::Omitted("nothing to show".to_owned()),
        }
    }
}
