//! Private questions that read a thread without adding to it, answers with a schema of their own, and turns that a command
//! starts.

use segue_core::context::{ContextLayer, FragmentSpec, PreviousPromptComparison};
use segue_core::decide::OperatorCommand;
use segue_core::event::{CallRequest, Event, TurnOutcome};
use segue_core::flow::{FlowCommandSpec, FlowStep};
use segue_core::prompt::ModelOutputFormat;
use segue_core::signal::SignalForm;
use segue_testkit::{ClosureFlow, SessionHarness};
use serde_json::json;

/// Opens a session in which a private question follows each reply.
fn open_with_question() -> SessionHarness {
    let speaker =
        ClosureFlow::speaker_role().with_detached_ask("question", [FragmentSpec::changing("note", ContextLayer::Task)]);
    let flow = ClosureFlow::new(ClosureFlow::spec_with_role(speaker), |view, event| {
        match (&event.event, view.subject.call.as_deref()) {
            (Event::TurnStarted { .. }, _) => vec![FlowStep::Call(CallRequest::new("speaker", "reply"))],
            (Event::CallAnswered(_), Some(call)) if call.ask == *"reply" => {
                let question = CallRequest {
                    metadata: json!("is it done?"),
                    output_schema: json!({"type": "object", "required": ["done"]}),
                    ..CallRequest::new("speaker", "question")
                };
                vec![FlowStep::Call(question)]
            }
            (Event::CallAnswered(_), Some(_)) => vec![FlowStep::EndTurn(TurnOutcome::Done)],
            _ => Vec::new(),
        }
    });
    SessionHarness::open(flow)
}

fn texts(harness: &SessionHarness) -> Vec<String> {
    let prompt = harness.prompt_for_role("speaker");
    prompt.messages.iter().map(|message| message.text().to_string()).collect()
}

#[test]
fn detached_question_sees_the_thread_and_leaves_no_trace() {
    let mut harness = open_with_question();
    harness.send_message("hello").answer_call("speaker", "good day");
    let question = texts(&harness);
    assert_eq!(question[1..], ["hello", "good day", "is it done?"], "{question:?}");
    assert_eq!(
        harness.prompt_for_role("speaker").output_format,
        ModelOutputFormat::Json(json!({"type": "object", "required": ["done"]}))
    );
    harness.answer_call("speaker", "{\"done\": true}").send_message("and now?");
    let next = texts(&harness);
    assert_eq!(next[1..], ["hello", "good day", "and now?"], "{next:?}");
    assert_eq!(harness.prompt_for_role("speaker").output_format, ModelOutputFormat::Text);
}

#[test]
fn prompt_after_a_detached_question_still_continues_the_cached_prefix() {
    let mut harness = open_with_question();
    harness.send_message("hello").answer_call("speaker", "good day").answer_call("speaker", "{}");
    harness.send_message("and now?");
    let opened = harness.journal().iter().rev().find_map(|recorded| match &recorded.event {
        Event::CallOpened(opened) => Some(opened.clone()),
        _ => None,
    });
    let prefix = opened.expect("a call is open").receipt.prefix.clone();
    assert!(matches!(prefix, PreviousPromptComparison::Extends(_)), "{prefix:?}");
}

#[test]
fn signal_form_of_the_model_is_recorded_with_the_call() {
    let mut harness = open_with_question();
    harness.assign_model("speaker", "small");
    harness.use_structured_signals("small");
    harness.send_message("hello");
    let forms: Vec<SignalForm> = harness
        .journal()
        .iter()
        .filter_map(|recorded| match &recorded.event {
            Event::CallOpened(opened) => Some(opened.signal_form),
            _ => None,
        })
        .collect();
    assert_eq!(forms, [SignalForm::Structured]);
}

#[test]
fn command_can_start_a_turn_without_a_message() {
    let mut spec = ClosureFlow::spec_with_role(ClosureFlow::speaker_role());
    let go = FlowCommandSpec { description: "starts".to_owned(), arguments: Default::default() };
    spec.commands.insert("go".to_owned(), go);
    let flow = ClosureFlow::new(spec, |_, event| match &event.event {
        Event::CommandIssued { .. } => vec![FlowStep::StartTurn],
        Event::TurnStarted { .. } => vec![FlowStep::Call(CallRequest::new("speaker", "note"))],
        Event::CallAnswered(_) => vec![FlowStep::EndTurn(TurnOutcome::Done)],
        _ => Vec::new(),
    });
    let mut harness = SessionHarness::open(flow);
    let go = || OperatorCommand::Flow { command: "go".to_owned(), arguments: serde_json::Value::Null };
    harness.run_command(go());
    assert_eq!(harness.open_call_roles(), ["speaker"]);
    harness.run_command(go());
    assert_eq!(harness.open_call_roles(), ["speaker"], "a second turn is refused while the first is running");
    harness.answer_call("speaker", "done");
    assert!(harness.session().is_idle());
}
