//! Fan-out to three, a fresh mapper, a speaker whose thread lives as long as its phase, a handover between two phases.

use std::collections::BTreeMap;

use expect_test::expect;
use segue_core::body::Text;
use segue_core::context::{FragmentSpec, Layer, Rendered, Source};
use segue_core::event::{CallWish, Event, Next, Outcome, Owner, PhaseKey, Recorded};
use segue_core::flow::{Asking, Flow, FlowSpec, RoleSpec, Step, View};
use segue_core::handover::{Document, Field, FieldSpec, Form, Need, Schema, Settlement, settle};
use segue_core::ids::{CallId, FragmentName, ModelName};
use segue_core::phase::guard::{Guard, Proposer};
use segue_core::phase::state::Proposal;
use segue_core::phase::{Attached, Edge, Phase, PhaseGraph};
use segue_core::prompt::FailureKind;
use segue_core::scope::{Scope, Until};
use segue_core::signal::fields::Shape;
use segue_core::signal::{BlockNames, read};
use segue_testkit::Stage;
use serde::{Deserialize, Serialize};

use super::{instruction, message, say, user_message, words};

pub struct Concierge {
    spec: FlowSpec,
    blocks: BlockNames,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Memory {
    answers: BTreeMap<ModelName, Text>,
    map: Option<Text>,
}

const BATCH: [&str; 3] = ["ant", "bee", "cat"];

impl Concierge {
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

#[test]
fn three_answer_one_maps_one_speaks_and_the_phase_ends_the_speakers_memory() {
    let mut stage = Stage::open(Concierge::new());
    stage.say("which way?");
    assert_eq!(stage.open_roles(), ["expert", "expert", "expert"]);
    stage.answer("expert", "left").answer("expert", "right").answer("expert", "straight");
    assert_eq!(stage.prompt_lines("mapper"), "System: be the mapper\nUser: left | right | straight\n");
    stage.answer("mapper", "two say turn").answer("speaker", "Turn, perhaps?");
    assert_eq!(stage.said(), "Turn, perhaps?");

    stage.say("I must be home by six");
    assert_eq!(
        stage.prompt_lines("speaker"),
        "System: be the speaker⏎⏎two say turn\nUser: which way?\nAssistant: Turn, perhaps?\nUser: I must be home by six\n"
    );
    stage.answer("speaker", "Then left.\n<<<HANDOVER>>>\ngoal: home by six\n<<<END>>>");
    assert_eq!(stage.said(), "Then left.");

    stage.say("why left?");
    assert_eq!(stage.prompt_lines("speaker"), "System: be the speaker⏎⏎goal: home by six\nUser: why left?\n");
    stage.log();
    stage.answer("speaker", "It is short.");
    expect![[r#"
        c7 answered: It is short.
        said by speaker: It is short.
        t3 done
    "#]]
    .assert_eq(&stage.log());
}

#[test]
fn a_missing_handover_is_asked_for_privately_in_the_same_thread_and_then_built() {
    let mut stage = Stage::open(Concierge::new());
    stage.say("which way?").answer("expert", "l").answer("expert", "r").answer("expert", "s");
    stage.answer("mapper", "m").answer("speaker", "Hm?").say("home").log();
    stage.answer("speaker", "Left.").answer("speaker", "still no block");
    expect![[r#"
        c6 answered: Left.
        said by speaker: Left.
        handover intent asked for again
        c7 speaker asked repair on plain in starter, th5 continued (4 messages)
        c7 answered: still no block
        h1 handover intent (built)
        talk of speaker: starter → explorer by role `speaker`
        t2 done
    "#]]
    .assert_eq(&stage.log());
}

#[test]
fn a_failed_expert_is_tolerated_and_a_crash_asks_nobody_twice() {
    let mut stage = Stage::open(Concierge::new());
    stage.say("which way?").answer("expert", "left").log();
    stage.crash();
    expect![[r#"
        c2 try 1 was in flight when the process died, maybe billed; again at 1004
        c3 try 1 was in flight when the process died, maybe billed; again at 1004
    "#]]
    .assert_eq(&stage.log());
    stage.fail("expert", FailureKind::BadKey).answer("expert", "straight").crash();
    assert_eq!(stage.open_roles(), ["mapper"]);
    stage.answer("mapper", "m").answer("speaker", "Go.");
    assert_eq!(stage.said(), "Go.");
    assert!(stage.session().is_idle());
}

#[test]
fn another_model_in_mid_phase_opens_a_new_thread() {
    let mut stage = Stage::open(Concierge::new());
    stage.say("which way?").answer("expert", "l").answer("expert", "r").answer("expert", "s");
    stage.answer("mapper", "m").answer("speaker", "Hm?");
    stage.cast("speaker", "dog");
    stage.say("home").log();
    assert_eq!(stage.prompt_lines("speaker"), "System: be the speaker\nUser: home\n");
}
