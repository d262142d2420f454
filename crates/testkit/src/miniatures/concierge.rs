//! Fan-out to three, a fresh mapper, a speaker whose thread lives as long as its phase, a handover between two phases.

use std::collections::BTreeMap;

use segue_core::body::Text;
use segue_core::context::{FragmentSpec, Layer, Rendered, Source};
use segue_core::event::{CallWish, Event, Next, Outcome, Owner, PhaseKey, Recorded};
use segue_core::flow::{Asking, Flow, FlowSpec, RoleSpec, Step, View};
use segue_core::handover::{Document, Field, FieldSpec, Form, Need, Schema, Settlement, settle};
use segue_core::ids::{CallId, FragmentName, ModelName};
use segue_core::phase::guard::{Guard, Proposer};
use segue_core::phase::state::Proposal;
use segue_core::phase::{Attached, Edge, Phase, PhaseGraph};
use segue_core::scope::{Scope, Until};
use segue_core::signal::fields::Shape;
use segue_core::signal::{BlockNames, read};
use serde::{Deserialize, Serialize};

use super::{instruction, message, say, user_message, words};

/// Many answer, one speaks.
#[derive(Debug)]
pub struct Concierge {
    spec: FlowSpec,
    blocks: BlockNames,
}

/// The answers of this turn, and what was made of them.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Memory {
    answers: BTreeMap<ModelName, Text>,
    map: Option<Text>,
}

const BATCH: [&str; 3] = ["ant", "bee", "cat"];

impl Concierge {
    /// The flow.
    #[must_use]
    pub fn new() -> Self {
        let graph = PhaseGraph {
            name: "talk".into(),
            attached: Attached::Role,
            start: "starter".into(),
            phases: vec![Phase::named("starter"), Phase::named("explorer")],
            edges: vec![
                Edge { from: "starter".into(), to: "explorer".into(), guard: Guard::Handover("intent".into()) },
                Edge { from: "explorer".into(), to: "starter".into(), guard: Guard::Always },
            ],
            gates: Vec::new(),
        };
        let goal = FieldSpec { name: "goal".into(), form: Form::Text, need: Need::Required };
        let intent = Schema { kind: "intent".into(), fields: vec![goal], repairs_max: 1 };
        let blocks = BlockNames::new().block("HANDOVER", Shape::new().text("goal"));
        let expert = RoleSpec::new("expert", Scope::model()).opens_with(instruction()).ask("question", [message()]);
        let sources = FragmentSpec::changing("sources", Layer::Conversation);
        let mapper = RoleSpec::new("mapper", Scope::Fresh).opens_with(instruction()).ask("map", [sources]);
        let speaker = RoleSpec::new("speaker", Scope::phase().until(Until::Model))
            .lives_by("talk")
            .opens_with(instruction())
            .opens_with(FragmentSpec::changing("brief", Layer::Handover))
            .ask("reply", [message()])
            .ask("repair", [FragmentSpec::changing("repair", Layer::Task)])
            .heard_by_user(blocks.clone());
        let spec = FlowSpec::new("mini-concierge", "many answer, one speaks");
        Self { spec: spec.graph(graph).handover(intent).role(expert).role(mapper).role(speaker), blocks }
    }

    fn after_speaker(&self, view: &View<'_, Memory>, call: CallId, text: Text) -> Vec<Step> {
        let reading = read(&view.text(text), &self.blocks);
        let found = reading.blocks.first().map(|block| {
            let goal = block.fields.text("goal").unwrap_or_default().to_owned();
            Document::from([("goal".to_owned(), Field::Text(goal))])
        });
        let mut steps = Vec::new();
        let asked = view.session.asked.get("intent").copied().unwrap_or_default();
        if asked == 0 {
            steps.push(say(reading.visible.trim_end(), &"speaker".into()));
        }
        let phase = PhaseKey { graph: "talk".into(), owner: Owner::Role("speaker".into()) };
        let in_starter = view.session.phases.get(&phase).is_some_and(|stand| stand.now.current == "starter");
        if !in_starter || (found.is_none() && view.session.last.turn.0 < 2) {
            steps.push(Step::EndTurn(Outcome::Done));
            return steps;
        }
        let (document, how) = match settle(&self.spec.handovers["intent"], found, asked) {
            Settlement::Ask { .. } => {
                steps.push(Step::AskHandover("intent".into()));
                steps.push(Step::Call(CallWish::new("speaker", "repair")));
                return steps;
            }
            Settlement::Make(checked, how) => (checked.document, how),
            Settlement::Build(_) => {
                let goal = Field::Text("as discussed".into());
                (Document::from([("goal".to_owned(), goal)]), segue_core::handover::Provenance::Built)
            }
        };
        steps.push(Step::Hand { kind: "intent".into(), document, calls: vec![call], how });
        steps.push(Step::Propose { phase, proposal: Proposal::new("explorer", Proposer::Role("speaker".into())) });
        steps.push(Step::EndTurn(Outcome::Done));
        steps
    }
}

impl Default for Concierge {
    fn default() -> Self {
        Self::new()
    }
}

impl Flow for Concierge {
    type State = Memory;

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn apply(&self, state: &mut Memory, event: &Recorded) {
        match &event.event {
            Event::TurnStarted { .. } => *state = Memory::default(),
            Event::Fact { kind, value } if kind == "answer" => {
                let (model, text) = serde_json::from_value(value.clone()).expect("written by this flow");
                state.answers.insert(model, text);
            }
            Event::Fact { kind, value } if kind == "map" => state.map = serde_json::from_value(value.clone()).ok(),
            _ => {}
        }
    }

    fn react(&self, view: &View<'_, Memory>, event: &Recorded) -> Vec<Step> {
        let experts_open = view.session.calls.values().any(|open| open.opened.role == "expert");
        let map_or_speak = || match (experts_open, view.state.answers.len()) {
            (true, _) => Vec::new(),
            (false, 0) => vec![Step::EndTurn(Outcome::Failed { reason: "no expert answered".into() })],
            (false, _) => vec![Step::Call(CallWish::new("mapper", "map"))],
        };
        match (&event.event, view.about.call.as_deref()) {
            (Event::TurnStarted { turn, .. }, _) if turn.0 == 1 => {
                BATCH.map(|model| Step::Call(CallWish::new("expert", "question").on(&model.into()))).into()
            }
            (Event::TurnStarted { .. }, _) => vec![Step::Call(CallWish::new("speaker", "reply"))],
            (Event::CallAnswered(answered), Some(call)) => match call.role.as_str() {
                "expert" => {
                    vec![Step::Note { kind: "answer".into(), value: serde_json::json!([call.model, answered.text]) }]
                }
                "mapper" => vec![
                    Step::Note { kind: "map".into(), value: serde_json::json!(answered.text) },
                    Step::Call(CallWish::new("speaker", "reply")),
                ],
                _ => self.after_speaker(view, call.call, answered.text),
            },
            (Event::Fact { kind, .. }, _) if kind == "answer" => map_or_speak(),
            (Event::CallFailed { next: Next::GiveUp, .. }, Some(call)) if call.role == "expert" => map_or_speak(),
            (Event::CallFailed { next: Next::GiveUp, failure, .. }, _) => {
                vec![Step::EndTurn(Outcome::Failed { reason: failure.to_string() })]
            }
            _ => Vec::new(),
        }
    }

    fn fragment(&self, view: &View<'_, Memory>, asking: &Asking<'_>, name: &FragmentName) -> Rendered {
        match name.as_str() {
            "instruction" => words(format!("be the {}", asking.wish.role)),
            "sources" => words(
                view.state.answers.values().map(|text| view.text(*text).to_string()).collect::<Vec<_>>().join(" | "),
            ),
            "brief" => match (view.session.handover("intent"), view.state.map) {
                (Some(handover), _) => words(format!("goal: {}", handover.text("goal").unwrap_or("none"))),
                (None, Some(map)) => Rendered::Stored { text: map, source: Source::State, why: "the map".into() },
                (None, None) => Rendered::Out("nothing was mapped".into()),
            },
            "repair" => words("write the handover"),
            _ => user_message(view),
        }
    }
}
