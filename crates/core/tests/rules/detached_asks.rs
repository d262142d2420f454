//! Private questions that read a thread without adding to it, or need no thread at all; fragments that do not stay in the
//! thread; answers with a schema of their own, and turns that a command starts.

use segue_core::context::{
    CallThread, FragmentContentKind, FragmentRetention, FragmentSpec, PreviousPromptComparison, PromptReceipt,
};
use segue_core::decide::OperatorCommand;
use segue_core::event::{CallRequest, Event, TurnOutcome};
use segue_core::flow::{FlowCommandSpec, FlowStep, PrivateAskKind, RoleSpec};
use segue_core::prompt::ModelOutputFormat;
use segue_core::signal::SignalForm;
use segue_testkit::{ClosureFlow, SessionHarness};
use serde_json::json;

/// Opens a session in which a private question follows each reply.
fn open_with_question() -> SessionHarness {
    open_with_role(ClosureFlow::speaker_role().with_private_ask(
        "question",
        PrivateAskKind::Detached,
        [note_fragment()],
    ))
}

fn note_fragment() -> FragmentSpec {
    FragmentSpec::changing("note", FragmentContentKind::Task)
}

fn open_with_role(speaker: RoleSpec) -> SessionHarness {
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

fn open_with_standalone_question() -> SessionHarness {
    open_with_role(ClosureFlow::speaker_role().with_private_ask(
        "question",
        PrivateAskKind::Standalone,
        [note_fragment()],
    ))
}

fn last_receipt(harness: &SessionHarness) -> PromptReceipt {
    let opened = harness.journal().iter().rev().find_map(|recorded| match &recorded.event {
        Event::CallOpened(opened) => Some(opened.receipt.clone()),
        _ => None,
    });
    opened.expect("a call was opened")
}

#[test]
fn standalone_question_sees_nothing_else_and_leaves_no_trace() {
    let mut harness = open_with_standalone_question();
    harness.send_message("hello").answer_call("speaker", "good day");
    assert_eq!(texts(&harness), ["is it done?"], "neither the opening nor the thread");
    assert!(matches!(last_receipt(&harness).thread, CallThread::Opened { .. }));
    harness.answer_call("speaker", "{}").send_message("and now?");
    let next = texts(&harness);
    assert_eq!(next[1..], ["hello", "good day", "and now?"], "{next:?}");
    assert!(
        matches!(last_receipt(&harness).prefix, PreviousPromptComparison::Extends(_)),
        "the prefix of the thread is still cached"
    );
    assert_eq!(harness.session().threads.len(), 1, "the thread of the question is gone");
}

#[test]
fn standalone_question_costs_the_same_however_long_the_thread_is() {
    let mut harness = open_with_standalone_question();
    let mut tokens = Vec::new();
    for _ in 0..3 {
        harness.send_message("hello").answer_call("speaker", "good day");
        tokens.push(last_receipt(&harness).tokens);
        harness.answer_call("speaker", "{}");
    }
    assert_eq!(tokens, [tokens[0]; 3]);
    let prefix = last_receipt(&harness).prefix;
    assert!(matches!(prefix, PreviousPromptComparison::Extends(_)), "the same question was asked before: {prefix:?}");
}

/// Opens a session in which each reply is asked for with a note that does not stay in the thread.
fn open_with_passing_note() -> SessionHarness {
    let message = FragmentSpec::changing("message", FragmentContentKind::UserWords);
    let speaker = ClosureFlow::speaker_role()
        .with_ask("reply", [note_fragment().with_retention(FragmentRetention::CallOnly), message]);
    let flow = ClosureFlow::new(ClosureFlow::spec_with_role(speaker), |_, event| match &event.event {
        Event::TurnStarted { .. } => {
            vec![FlowStep::Call(CallRequest { metadata: json!("news"), ..CallRequest::new("speaker", "reply") })]
        }
        Event::CallAnswered(_) => vec![FlowStep::EndTurn(TurnOutcome::Done)],
        _ => Vec::new(),
    });
    SessionHarness::open(flow)
}

#[test]
fn fragment_for_its_call_only_does_not_stay_in_the_thread() {
    let mut harness = open_with_passing_note();
    harness.send_message("hello");
    let first = harness.prompt_for_role("speaker").messages;
    let parts: Vec<&str> = first[1].parts.iter().map(|part| &**part).collect();
    assert_eq!(parts, ["news", "hello"]);
    let first_call = harness.oldest_open_call("speaker").0;
    harness.answer_call("speaker", "good day").send_message("and now?");
    let second = harness.prompt_for_role("speaker").messages;
    let sent: Vec<Vec<&str>> =
        second[1..].iter().map(|message| message.parts.iter().map(|part| &**part).collect()).collect();
    assert_eq!(sent, [vec!["hello"], vec!["good day"], vec!["news", "and now?"]]);
    assert_eq!(harness.rebuild_prompt(first_call).messages, first, "the past prompt is rebuilt with the note");
}

#[test]
fn prompt_after_a_fragment_for_its_call_only_reports_where_the_cached_prefix_ends() {
    let mut harness = open_with_passing_note();
    harness.send_message("hello").answer_call("speaker", "good day").send_message("and now?");
    let before = last_receipt(&harness);
    harness.answer_call("speaker", "later").send_message("well?");
    match last_receipt(&harness).prefix {
        PreviousPromptComparison::Broken { kept_tokens, cause, .. } => {
            assert_eq!((kept_tokens, cause.as_str()), (before.carried.tokens, "note"));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn role_with_tools_must_keep_its_fragments() {
    let mut speaker =
        ClosureFlow::speaker_role().with_ask("reply", [note_fragment().with_retention(FragmentRetention::CallOnly)]);
    speaker.tools.push("lookup".into());
    let errors = ClosureFlow::spec_with_role(speaker).validation_errors();
    assert!(errors.iter().any(|error| error.contains("all its fragments must stay")), "{errors:?}");
    let speaker =
        ClosureFlow::speaker_role().with_opening_fragment(note_fragment().with_retention(FragmentRetention::CallOnly));
    let errors = ClosureFlow::spec_with_role(speaker).validation_errors();
    assert!(errors.iter().any(|error| error.contains("cannot be for its call only")), "{errors:?}");
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
