//! Five nodes a turn, no threads, each shown its own slice of three layers.

use expect_test::expect;
use segue_core::context::{FragmentSpec, Layer, Over, Prefix, Rendered, Source};
use segue_core::event::{CallWish, Event, Next, Outcome, Recorded};
use segue_core::flow::{Asking, Flow, FlowSpec, RoleSpec, Step, View};
use segue_core::ids::FragmentName;
use segue_core::prompt::{FailureKind, Output};
use segue_core::scope::Scope;
use segue_core::signal::json;
use segue_testkit::Stage;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{instruction, message, say, user_message, words};

pub struct Nodes {
    spec: FlowSpec,
}

/// The three layers: what exists, what was said, what was decided.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Layers {
    entities: Vec<String>,
    conversation: Vec<String>,
    reasoning: Vec<String>,
    steps_left: u32,
}

impl Nodes {
    pub fn new() -> Self {
        let entities = || FragmentSpec::changing("entities", Layer::Entities).within(4, Over::KeepEnd);
        let conversation = || FragmentSpec::changing("conversation", Layer::Conversation);
        let reasoning = || FragmentSpec::changing("reasoning", Layer::Reasoning).within(8, Over::LeaveOut);
        let node = |name: &str| RoleSpec::new(name, Scope::Fresh).opens_with(instruction());
        let mut think = node("think").ask("go", [entities(), reasoning(), message()]);
        think.output = Output::Json(json!({"type": "object", "required": ["steps"]}));
        let spec = FlowSpec::new("mini-nodes", "five nodes a turn")
            .role(node("understand").ask("go", [entities(), conversation(), message()]))
            .role(think)
            .role(node("act").ask("go", [entities()]))
            .role(node("reply").ask("go", [conversation(), message()]))
            .role(node("summarize").ask("go", [conversation(), reasoning()]));
        Self { spec }
    }
}

fn note(kind: &str, value: impl Serialize) -> Step {
    Step::Note { kind: kind.into(), value: json!(value) }
}

fn call(role: &str) -> Step {
    Step::Call(CallWish::new(role, "go"))
}

impl Flow for Nodes {
    type State = Layers;

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn apply(&self, state: &mut Layers, event: &Recorded) {
        let Event::Fact { kind, value } = &event.event else { return };
        let text = value.as_str().unwrap_or_default().to_owned();
        match kind.as_str() {
            "entity" => state.entities.push(text),
            "said" => state.conversation.push(text),
            "decided" => state.reasoning.push(text),
            "steps" => state.steps_left = value.as_u64().unwrap_or_default() as u32,
            _ => state.steps_left = state.steps_left.saturating_sub(1),
        }
    }

    fn react(&self, view: &View<'_, Layers>, event: &Recorded) -> Vec<Step> {
        match (&event.event, view.about.call.as_deref()) {
            (Event::TurnStarted { .. }, _) => vec![call("understand")],
            (Event::CallAnswered(answered), Some(about)) => {
                let text = view.text(answered.text);
                match about.role.as_str() {
                    "understand" => vec![call("think")],
                    "think" => {
                        let plan = json::find(&text).value.unwrap_or_default();
                        let steps = plan["steps"].as_u64().unwrap_or(0);
                        vec![note("steps", steps), call(if steps == 0 { "reply" } else { "act" })]
                    }
                    "act" => {
                        let next = if view.state.steps_left > 1 { "act" } else { "reply" };
                        vec![note("entity", &*text), note("done", 1), call(next)]
                    }
                    "reply" => vec![note("said", &*text), say(&*text, &about.role), call("summarize")],
                    _ => vec![note("decided", &*text), Step::EndTurn(Outcome::Done)],
                }
            }
            // A summary is worth nothing to the user: its failure does not fail the turn.
            (Event::CallFailed { next: Next::GiveUp, .. }, Some(about)) if about.role == "summarize" => {
                vec![Step::EndTurn(Outcome::Done)]
            }
            (Event::CallFailed { next: Next::GiveUp, failure, .. }, _) => {
                vec![Step::EndTurn(Outcome::Failed { reason: failure.to_string() })]
            }
            _ => Vec::new(),
        }
    }

    fn fragment(&self, view: &View<'_, Layers>, asking: &Asking<'_>, name: &FragmentName) -> Rendered {
        let layer = |items: &[String]| match items {
            [] => Rendered::Out("nothing yet".into()),
            items => Rendered::New { text: items.join(" "), source: Source::State, why: "its layer".into() },
        };
        match name.as_str() {
            "instruction" => words(format!("be {}", asking.wish.role)),
            "entities" => layer(&view.state.entities),
            "conversation" => layer(&view.state.conversation),
            "reasoning" => layer(&view.state.reasoning),
            _ => user_message(view),
        }
    }
}

#[test]
fn each_node_is_shown_its_own_slice_and_nothing_of_the_others() {
    let mut stage = Stage::open(Nodes::new());
    stage.say("plan meals").answer("understand", "ok").answer("think", "```json\n{\"steps\": 2}\n```");
    stage
        .answer("act", "rice beans")
        .answer("act", "fish")
        .answer("reply", "Rice or fish?")
        .answer("summarize", "offered two");
    stage.say("no fish");
    assert_eq!(
        stage.prompt_lines("understand"),
        "System: be understand\nUser: rice beans fish⏎⏎Rice or fish?⏎⏎no fish\n"
    );
    stage.answer("understand", "demote fish");
    assert_eq!(stage.prompt_lines("think"), "System: be think\nUser: rice beans fish⏎⏎offered two⏎⏎no fish\n");
    stage.answer("think", "{\"steps\": 0}");
    assert_eq!(stage.prompt_lines("reply"), "System: be reply\nUser: Rice or fish?⏎⏎no fish\n");
    stage.answer("reply", "Rice.").log();
    stage.fail("summarize", FailureKind::Refused);
    expect![[r#"
        c10 try 1 failed (refused: as the test wants); given up
        t2 done
    "#]]
    .assert_eq(&stage.log());
}

#[test]
fn a_stateless_role_keeps_its_stable_prefix_and_names_what_broke_it() {
    let mut stage = Stage::open(Nodes::new());
    stage.say("one").answer("understand", "ok").answer("think", "{}").answer("reply", "r").answer("summarize", "s");
    stage.say("two");
    let (call, _) = stage.open_call("understand");
    let receipt = &stage.session().calls[&call].opened.receipt;
    assert!(
        matches!(&receipt.prefix, Prefix::Broken { kept: 2, by, .. } if by == "conversation"),
        "{:?}",
        receipt.prefix
    );
}

#[test]
fn a_layer_over_its_budget_is_cut_and_the_receipt_says_so() {
    let mut stage = Stage::open(Nodes::new());
    stage.say("one").answer("understand", "ok").answer("think", "{\"steps\": 1}");
    stage.answer("act", "a b c d e f g").answer("reply", "r").answer("summarize", "1 2 3 4 5 6 7 8 9");
    stage.say("two").answer("understand", "ok");
    let (call, _) = stage.open_call("think");
    let receipt = &stage.session().calls[&call].opened.receipt;
    let fates: Vec<_> =
        receipt.ask.iter().map(|piece| (piece.name.as_str(), piece.text.is_some(), piece.cut_from)).collect();
    assert_eq!(fates, [("entities", true, Some(7)), ("reasoning", false, Some(9)), ("message", true, None)]);
}
