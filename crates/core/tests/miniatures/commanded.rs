//! What a flow offers to a person at the controls: it says whether that can be done now, and then does it.

use segue_core::context::Rendered;
use segue_core::decide::{Command, Input, Refusal};
use segue_core::event::{Event, Outcome, Recorded};
use segue_core::flow::{Asking, Flow, FlowSpec, Speech, Step, View};
use segue_core::ids::FragmentName;
use segue_testkit::{Puppet, Stage};
use serde_json::{Value, json};

/// A bell that can be rung while no turn runs.
pub struct Bell {
    spec: FlowSpec,
}

pub fn flow() -> Bell {
    let spec = Puppet::spec_of(Puppet::speaker());
    Bell { spec: spec.command("ring", "rings the bell", &[("times", "how often")]) }
}

impl Flow for Bell {
    type State = u32;

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn apply(&self, rung: &mut u32, event: &Recorded) {
        if let Event::Commanded { arguments, .. } = &event.event {
            *rung += arguments["times"].as_u64().map_or(1, |times| times as u32);
        }
    }

    fn react(&self, view: &View<'_, u32>, event: &Recorded) -> Vec<Step> {
        let say = |text: &str| Step::Say { text: Speech::New(text.to_owned()), by: None, call: None };
        match &event.event {
            Event::TurnStarted { .. } => vec![say("it is quiet"), Step::EndTurn(Outcome::Done)],
            Event::Commanded { .. } => vec![say(&format!("rung {} times", view.state))],
            _ => Vec::new(),
        }
    }

    fn fragment(&self, _: &View<'_, u32>, _: &Asking<'_>, _: &FragmentName) -> Rendered {
        Rendered::Out("nobody is asked".to_owned())
    }

    fn permits(&self, view: &View<'_, u32>, _: &str, _: &Value) -> Result<(), String> {
        if *view.state >= 3 { Err("the bell is worn out".to_owned()) } else { Ok(()) }
    }
}

fn ring(arguments: Value) -> Input {
    Input::Operator(Command::Flow { command: "ring".to_owned(), arguments })
}

pub fn play() -> Stage {
    let mut stage = Stage::open(flow());
    stage.say("is it on?").give(ring(Value::Null)).give(ring(json!({"times": 2})));
    stage
}

#[test]
fn a_command_of_the_flow_is_recorded_and_followed() {
    let stage = play();
    assert_eq!(stage.said(), "rung 3 times");
    let lines: Vec<String> = stage.journal().iter().map(|recorded| recorded.event.line(&|_| String::new())).collect();
    assert!(lines.contains(&"asked by hand: ring".to_owned()), "{lines:?}");
    assert!(lines.contains(&"asked by hand: ring {\"times\":2}".to_owned()), "{lines:?}");
}

#[test]
fn a_command_that_cannot_be_followed_is_refused_with_the_reason_and_nothing_is_recorded() {
    let mut stage = play();
    let before = stage.journal().len();
    let refused = |stage: &mut Stage, input: Input| stage.try_give(input).expect_err("refused").to_string();
    assert_eq!(refused(&mut stage, ring(Value::Null)), "the bell is worn out");
    assert_eq!(refused(&mut stage, ring(json!({"loud": true}))), "`ring`: it takes no `loud`; it takes `times`");
    assert_eq!(refused(&mut stage, ring(json!(3))), "`ring`: its arguments must be an object");
    let other = Input::Operator(Command::Flow { command: "sing".to_owned(), arguments: Value::Null });
    assert_eq!(refused(&mut stage, other), "the flow has no command `sing`; it has `ring`");
    let too_long = ring(json!({"times": "9".repeat(2 << 20)}));
    assert!(refused(&mut stage, too_long).contains("bytes of JSON"));
    assert_eq!(stage.journal().len(), before);
    stage.command(Command::Close);
    assert!(matches!(stage.try_give(ring(Value::Null)), Err(Refusal::Closed { .. })));
}
