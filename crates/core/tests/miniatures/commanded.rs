//! Commands that a flow defines: the flow checks whether one can be run, and then reacts to it.

use segue_core::context::RenderedFragment;
use segue_core::decide::{InputRefusal, OperatorCommand, SessionInput};
use segue_core::event::{Event, RecordedEvent, TurnOutcome};
use segue_core::flow::{
    Flow, FlowCommandSpec, FlowContext, FlowSpec, FlowStep, FragmentRenderContext, NewOrStoredReplyText,
};
use segue_core::ids::FragmentName;
use segue_testkit::{ClosureFlow, SessionHarness};
use serde_json::{Value, json};

/// A bell that can be rung while no turn is running.
pub(crate) struct Bell {
    spec: FlowSpec,
}

pub(crate) fn flow() -> Bell {
    let spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role());
    let ring = FlowCommandSpec {
        description: "rings the bell".to_owned(),
        arguments: [("times".to_owned(), "how often".to_owned())].into(),
    };
    Bell { spec: FlowSpec { commands: [("ring".to_owned(), ring)].into(), ..spec } }
}

impl Flow for Bell {
    type State = u32;

    fn spec(&self) -> &FlowSpec {
        &self.spec
    }

    fn apply(&self, rung: &mut u32, event: &RecordedEvent) {
        if let Event::CommandIssued { arguments, .. } = &event.event {
            *rung += arguments["times"].as_u64().map_or(1, |times| times as u32);
        }
    }

    fn react(&self, view: &FlowContext<'_, u32>, event: &RecordedEvent) -> Vec<FlowStep> {
        let say =
            |text: &str| FlowStep::Reply { text: NewOrStoredReplyText::New(text.to_owned()), role: None, call: None };
        match &event.event {
            Event::TurnStarted { .. } => vec![say("it is quiet"), FlowStep::EndTurn(TurnOutcome::Done)],
            Event::CommandIssued { .. } => vec![say(&format!("rung {} times", view.state))],
            _ => Vec::new(),
        }
    }

    fn render_fragment(
        &self,
        _: &FlowContext<'_, u32>,
        _: &FragmentRenderContext<'_>,
        _: &FragmentName,
    ) -> RenderedFragment {
        RenderedFragment::Omitted("nobody is asked".to_owned())
    }

    fn check_command(&self, view: &FlowContext<'_, u32>, _: &str, _: &Value) -> Result<(), String> {
        if *view.state >= 3 { Err("the bell is worn out".to_owned()) } else { Ok(()) }
    }
}

fn ring(arguments: Value) -> SessionInput {
    SessionInput::Operator(OperatorCommand::Flow { command: "ring".to_owned(), arguments })
}

pub(crate) fn play() -> SessionHarness {
    let mut harness = SessionHarness::open(flow());
    harness.send_message("is it on?").apply_input(ring(Value::Null)).apply_input(ring(json!({"times": 2})));
    harness
}

#[test]
fn command_of_the_flow_is_recorded_and_run() {
    let harness = play();
    assert_eq!(harness.last_reply(), "rung 3 times");
    let lines: Vec<String> =
        harness.journal().iter().map(|recorded| recorded.event.summary_line(&|_| String::new())).collect();
    assert!(lines.contains(&"command ring".to_owned()), "{lines:?}");
    assert!(lines.contains(&"command ring {\"times\":2}".to_owned()), "{lines:?}");
}

#[test]
fn refused_command_states_the_reason_and_records_nothing() {
    let mut harness = play();
    let before = harness.journal().len();
    let refused =
        |harness: &mut SessionHarness, input: SessionInput| harness.try_input(input).expect_err("refused").to_string();
    assert_eq!(refused(&mut harness, ring(Value::Null)), "the bell is worn out");
    assert_eq!(
        refused(&mut harness, ring(json!({"loud": true}))),
        "`ring`: `loud` is not an argument; it takes `times`"
    );
    assert_eq!(refused(&mut harness, ring(json!(3))), "`ring`: its arguments must be an object");
    let other = SessionInput::Operator(OperatorCommand::Flow { command: "sing".to_owned(), arguments: Value::Null });
    assert_eq!(refused(&mut harness, other), "the flow has no command `sing`; it has `ring`");
    let too_long = ring(json!({"times": "9".repeat(2 << 20)}));
    assert!(refused(&mut harness, too_long).contains("bytes of JSON"));
    assert_eq!(harness.journal().len(), before);
    harness.run_command(OperatorCommand::Close);
    assert!(matches!(harness.try_input(ring(Value::Null)), Err(InputRefusal::Closed { .. })));
}
