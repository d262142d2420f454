//! A flow to talk with: phases with a gate, two experts asked at once, a guide whose words are not always what is said.

use std::collections::BTreeSet;

use segue_core::context::{FragmentSpec, Layer, Rendered, Source};
use segue_core::event::{CallWish, Event, Next, Outcome, Owner, PhaseKey, Recorded};
use segue_core::flow::{Asking, Flow, FlowSpec, RoleSpec, Speech, Step, UnknownPolicy, View};
use segue_core::ids::FragmentName;
use segue_core::phase::guard::{Guard, Proposer};
use segue_core::phase::state::Proposal;
use segue_core::phase::{Attached, Edge, Gate, Phase, PhaseGraph, PhaseKind};
use segue_core::scope::Scope;
use segue_core::signal::BlockNames;

pub struct Play {
    spec: FlowSpec,
}

impl Play {
    pub fn new() -> Self {
        let role = |name: &str, scope: Scope| {
            RoleSpec::new(name, scope)
                .opens_with(FragmentSpec::stable("instruction", Layer::Instruction))
                .ask("reply", [FragmentSpec::changing("message", Layer::Words)])
        };
        let mut guide = role("guide", Scope::phase()).lives_by("stage").heard_by_user(BlockNames::new());
        guide.unknown = UnknownPolicy::Ask;
        let expert = role("expert", Scope::Fresh);
        let spec = FlowSpec::new("play", "for tests").role(guide).role(expert).graph(stage());
        Self { spec }
    }
}

fn stage() -> PhaseGraph {
    let edge = |from: &str, to: &str, guard| Edge { from: from.into(), to: to.into(), guard };
    PhaseGraph {
        name: "stage".into(),
        attached: Attached::Session,
        start: "begin".into(),
        phases: vec![
            Phase { purpose: "find out what is wanted".to_owned(), ..Phase::named("begin") },
            Phase::named("act"),
            Phase::named("review"),
            Phase { kind: PhaseKind::End, ..Phase::named("end") },
        ],
        edges: vec![
            edge("begin", "act", Guard::Always),
            edge("act", "review", Guard::Holds("applause".to_owned())),
            edge("act", "end", Guard::Always),
            edge("review", "end", Guard::Always),
        ],
        gates: vec![Gate {
            name: "looked over".to_owned(),
            opened_by: "act".into(),
            satisfied_by: "review".into(),
            blocks: BTreeSet::new(),
        }],
    }
}

fn key() -> PhaseKey {
    PhaseKey { graph: "stage".into(), owner: Owner::Session }
}

impl Flow for Play {
    type State = ();

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn react(&self, view: &View<'_, ()>, event: &Recorded) -> Vec<Step> {
        let guide = || Step::Call(CallWish::new("guide", "reply"));
        match (&event.event, view.about.call.as_deref()) {
            (Event::TurnStarted { .. }, _) => {
                let asks_experts = view.session.turn.iter().flat_map(|turn| &turn.messages);
                let asks_experts =
                    asks_experts.map(|waiting| view.text(waiting.text)).any(|text| text.contains("experts"));
                if asks_experts {
                    let expert = |model: &str| Step::Call(CallWish::new("expert", "reply").on(&model.into()));
                    return vec![expert("north"), expert("south")];
                }
                vec![guide()]
            }
            (Event::CallAnswered(answered), Some(call)) if call.role == "guide" => {
                let words = view.text(answered.text);
                let say = |text| Step::Say { text, by: Some(call.role.clone()), call: Some(call.call) };
                let mut steps = match words.strip_prefix("thinks: ") {
                    Some(_) => vec![say(Speech::New("What was really said.".to_owned()))],
                    None => vec![say(Speech::Stored(answered.text))],
                };
                if words.contains("let us act") {
                    let proposal = Proposal::new("act", Proposer::Role(call.role.clone()));
                    steps.push(Step::Propose { phase: key(), proposal });
                }
                steps.push(Step::EndTurn(Outcome::Done));
                steps
            }
            (Event::CallAnswered(_) | Event::CallFailed { next: Next::GiveUp, .. }, Some(call))
                if call.role == "expert" =>
            {
                if view.session.calls.is_empty() {
                    vec![guide()]
                } else {
                    Vec::new()
                }
            }
            (Event::CallFailed { next: Next::GiveUp, failure, .. }, Some(_)) => {
                vec![Step::EndTurn(Outcome::Failed { reason: failure.to_string() })]
            }
            (Event::CallResolved { next: Next::GiveUp, .. }, Some(_)) => {
                vec![Step::EndTurn(Outcome::Failed { reason: "given up by hand".to_owned() })]
            }
            _ => Vec::new(),
        }
    }

    fn fragment(&self, view: &View<'_, ()>, _: &Asking<'_>, name: &FragmentName) -> Rendered {
        let new = |text: String| Rendered::New { text, source: Source::State, why: "the test wants it".to_owned() };
        match (name.as_str(), view.session.turn.as_ref().and_then(|turn| turn.messages.first())) {
            ("message", Some(waiting)) => Rendered::Stored {
                text: waiting.text,
                source: Source::Message(waiting.message),
                why: "what the user said".to_owned(),
            },
            ("instruction", _) => new("Play your part.".to_owned()),
            _ => Rendered::Out("nothing to show".to_owned()),
        }
    }
}
