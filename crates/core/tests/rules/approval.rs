//! Tool runs that wait for a person's approval.

use segue_core::decide::{InputRefusal, OperatorCommand, SessionInput};
use segue_core::event::{Event, MidTurnPolicy, ToolRunOutcome};
use segue_core::flow::{
    FlowSpec, FlowToolApprovalPolicy, FlowToolDeclaration, OperatorToolApprovalRules, ToolRunnerKind,
};
use segue_core::ids::ToolRunId;
use segue_core::limits::SESSION_LIMITS;
use segue_core::scope::Scope;
use segue_core::session::Effect;
use segue_core::tool::ToolResult;
use segue_testkit::{ClosureFlow, SessionHarness};
use serde_json::{Value, json};

use super::{events, outcomes, tool};

fn flow_with(approval: FlowToolApprovalPolicy) -> ClosureFlow {
    let role = ClosureFlow::test_role("speaker", Scope::per_session()).with_tool("look");
    let look = FlowToolDeclaration { approval, ..tool("look", ToolRunnerKind::Host) };
    ClosureFlow::new(ClosureFlow::spec_with_role(role).with_tool(look), ClosureFlow::react_as_chat)
}

/// A session in which the model has requested the tool once.
fn session_with_run(approval: FlowToolApprovalPolicy) -> SessionHarness {
    let mut harness = SessionHarness::open(flow_with(approval));
    harness.send_message("look").answer_with_tool_call("speaker", "look", json!({"at": 1}));
    harness
}

fn approve(run: u32) -> OperatorCommand {
    OperatorCommand::Approve { run: ToolRunId(run), arguments: None, remember: false, by: None }
}

fn deny(run: u32, reason: &str) -> OperatorCommand {
    OperatorCommand::Deny { run: ToolRunId(run), reason: reason.to_owned() }
}

fn allow_for_session(run: u32) -> OperatorCommand {
    OperatorCommand::Approve { run: ToolRunId(run), arguments: None, remember: true, by: Some("ada".to_owned()) }
}

fn runs_to_start(harness: &SessionHarness) -> Vec<u32> {
    let effects = harness.session().pending_effects(&FlowSpec::new("any", "no phases"));
    let runs = effects.into_iter().filter_map(|effect| match effect {
        Effect::RunTool { run } => Some(run.0),
        Effect::CallModel { .. } | Effect::Wake { .. } => None,
    });
    runs.collect()
}

fn refusal(harness: &mut SessionHarness, command: OperatorCommand) -> InputRefusal {
    harness.try_input(SessionInput::Operator(command)).expect_err("it is refused")
}

#[test]
fn held_run_starts_only_after_approval() {
    let mut harness = session_with_run(FlowToolApprovalPolicy::Required);
    assert_eq!(runs_to_start(&harness), Vec::<u32>::new());
    let early = SessionInput::ToolResult { run: ToolRunId(1), result: ToolResult::done("too early") };
    assert_eq!(harness.try_input(early).err(), Some(InputRefusal::ToolRunNotPending { run: ToolRunId(1) }));
    harness.crash_and_recover();
    assert_eq!(runs_to_start(&harness), Vec::<u32>::new(), "a crash approves nothing");
    harness.run_command(approve(1));
    assert_eq!(runs_to_start(&harness), [1]);
    harness.finish_tool("look", Ok("two files")).answer_call("speaker", "I see");
    assert_eq!(harness.last_reply(), "I see");
    assert!(harness.session().held_tool_runs.is_empty() && harness.session().is_idle());
}

#[test]
fn r10_session_that_only_waits_for_approval_is_at_rest_but_not_idle() {
    let mut harness = session_with_run(FlowToolApprovalPolicy::NotRequired);
    assert!(!harness.session().is_at_rest(), "the tool is running");
    harness.finish_tool("look", Ok("two files"));
    assert!(!harness.session().is_at_rest(), "the model is called");
    let mut harness = session_with_run(FlowToolApprovalPolicy::Required);
    assert!(harness.session().is_at_rest() && !harness.session().is_idle());
    harness.send_message("are you there?");
    assert!(harness.session().is_at_rest(), "the message waits for the turn");
    assert_eq!(harness.session().queued_messages.len(), 1);
    harness.run_command(approve(1));
    assert!(!harness.session().is_at_rest());
}

#[test]
fn denied_run_is_a_failed_result_with_the_persons_reason() {
    let mut harness = session_with_run(FlowToolApprovalPolicy::Required);
    harness.run_command(deny(1, "not on Sundays"));
    let prompt = harness.prompt_for_role("speaker");
    let last = prompt.messages.last().expect("the result");
    assert!(last.failed && last.text() == "a person denied this tool call: not on Sundays", "{}", last.text());
    let recorded = events(&harness, |event| match event {
        Event::ToolRunDenied { reason, .. } => Some(reason.clone()),
        Event::ToolRunEnded { outcome: ToolRunOutcome::Refused, .. } => Some("refused".to_owned()),
        _ => None,
    });
    assert_eq!(recorded, ["not on Sundays", "refused"]);
}

#[test]
fn person_may_change_the_arguments_and_the_model_is_told() {
    let mut harness = session_with_run(FlowToolApprovalPolicy::Required);
    let edited = |arguments: Value| OperatorCommand::Approve {
        run: ToolRunId(1),
        arguments: Some(arguments),
        remember: false,
        by: None,
    };
    assert!(matches!(refusal(&mut harness, edited(json!([1]))), InputRefusal::BadToolArguments { .. }));
    let long = "x".repeat(SESSION_LIMITS.tool_arguments_bytes_max);
    assert!(matches!(refusal(&mut harness, edited(json!({"at": long}))), InputRefusal::BadToolArguments { .. }));
    harness.run_command(edited(json!({"at": 2})));
    assert_eq!(harness.session().open_tool_runs[&ToolRunId(1)].arguments, json!({"at": 2}));
    harness.crash_and_recover();
    harness.finish_tool("look", Ok("nothing"));
    let shown = "Tool: (a person changed the arguments of this call to {\"at\":2})⏎nothing\n";
    assert!(harness.prompt_lines("speaker").ends_with(shown), "{}", harness.prompt_lines("speaker"));
    assert!(harness.session().edited_tool_runs.is_empty());
}

#[test]
fn r9_stale_decision_names_its_run_and_is_refused() {
    let mut harness = session_with_run(FlowToolApprovalPolicy::Required);
    let why = |refusal: InputRefusal| match refusal {
        InputRefusal::ToolRunNotHeld { why, .. } => why,
        other => panic!("{other}"),
    };
    assert_eq!(why(refusal(&mut harness, approve(2))), "does not exist");
    harness.run_command(approve(1));
    assert_eq!(why(refusal(&mut harness, approve(1))), "has already started");
    assert_eq!(why(refusal(&mut harness, deny(1, ""))), "has already started");
    harness.finish_tool("look", Ok("two files"));
    assert_eq!(why(refusal(&mut harness, deny(1, ""))), "has ended");
    harness.answer_with_tool_call("speaker", "look", json!({}));
    assert_eq!(why(refusal(&mut harness, approve(1))), "has ended", "the second run waits, not the first");
    assert_eq!(runs_to_start(&harness), Vec::<u32>::new());
}

#[test]
fn tool_can_be_allowed_for_the_rest_of_the_session() {
    let mut harness = session_with_run(FlowToolApprovalPolicy::Required);
    harness.run_command(allow_for_session(1)).finish_tool("look", Ok("two files"));
    harness.answer_with_tool_call("speaker", "look", json!({}));
    assert_eq!(runs_to_start(&harness), [2], "the second run is not held");
    let rules = events(&harness, |event| match event {
        Event::ToolApprovalRuleAdded(allowed) => Some((allowed.tool.to_string(), allowed.role.clone())),
        _ => None,
    });
    assert_eq!(rules, [("look".to_owned(), Some("speaker".into()))]);
}

#[test]
fn allowing_a_tool_also_approves_the_other_runs_that_wait() {
    let mut harness = SessionHarness::open(flow_with(FlowToolApprovalPolicy::Required));
    harness.send_message("look twice");
    let tool_calls = vec![super::wants("a", "look"), super::wants("b", "look")];
    harness.reply_to_call("speaker", segue_core::prompt::ModelReply { tool_calls, ..Default::default() });
    assert_eq!(harness.session().held_tool_runs.len(), 2);
    harness.run_command(allow_for_session(2));
    assert_eq!(runs_to_start(&harness), [1, 2]);
}

#[test]
fn r7_copy_denies_the_runs_that_it_inherited_and_forgets_what_was_allowed() {
    let mut original = session_with_run(FlowToolApprovalPolicy::Required);
    original.run_command(allow_for_session(1)).finish_tool("look", Ok("two files")).answer_call("speaker", "I see");
    let mut fork = original.fork_at(original.journal().len());
    assert!(fork.session().allowed_tool_uses.is_empty() && !original.session().allowed_tool_uses.is_empty());
    fork.send_message("again").answer_with_tool_call("speaker", "look", json!({}));
    assert_eq!(fork.session().held_tool_runs.len(), 1, "the copy asks again");

    let held = session_with_run(FlowToolApprovalPolicy::Required);
    let fork = held.fork_at(held.journal().len());
    let denied = events(&fork, |event| match event {
        Event::ToolRunDenied { reason, .. } => Some(reason.starts_with("inherited")),
        _ => None,
    });
    assert_eq!(denied, [true]);
    assert!(fork.session().open_tool_runs.is_empty() && fork.session().is_idle());
    assert_eq!(held.session().held_tool_runs.len(), 1, "the original still waits");
}

#[test]
fn held_run_ends_with_its_turn() {
    let mut cancelled = session_with_run(FlowToolApprovalPolicy::Required);
    cancelled.run_command(OperatorCommand::Cancel { turn: None });
    let mut interrupted = session_with_run(FlowToolApprovalPolicy::Required);
    interrupted.apply_input(SessionInput::Message {
        text: "stop".to_owned(),
        idempotency_key: None,
        mid_turn_policy: Some(MidTurnPolicy::Interrupt),
        images: Vec::new(),
    });
    for (harness, outcome) in [(cancelled, "cancelled"), (interrupted, "interrupted")] {
        assert_eq!(outcomes(&harness), [outcome]);
        assert!(harness.session().held_tool_runs.is_empty() && harness.session().open_tool_runs.is_empty());
    }
}

#[test]
fn approval_depends_on_role_and_on_the_operators_rules() {
    let required_for =
        |role: &str| FlowToolApprovalPolicy::RequiredFor { roles: vec![role.into()], phases: Vec::new() };
    let rules = |ask: &[&str], allow: &[&str]| {
        let parse = |patterns: &[&str]| patterns.iter().map(|pattern| pattern.parse().expect("sound")).collect();
        OperatorToolApprovalRules { ask: parse(ask), allow: parse(allow) }
    };
    for (declared, rules, is_held) in [
        (required_for("speaker"), rules(&[], &[]), true),
        (required_for("other"), rules(&[], &[]), false),
        (required_for("other"), rules(&["speaker/look"], &[]), true),
        (FlowToolApprovalPolicy::NotRequired, rules(&["*"], &[]), true),
        (FlowToolApprovalPolicy::NotRequired, rules(&["*"], &["look"]), false),
        (FlowToolApprovalPolicy::Required, rules(&[], &["speaker/look"]), false),
    ] {
        let case = format!("{declared:?} {rules:?}");
        let mut harness = SessionHarness::open(flow_with(declared)).with_approval_rules(rules);
        harness.send_message("look").answer_with_tool_call("speaker", "look", json!({}));
        assert_eq!(harness.session().held_tool_runs.len() == 1, is_held, "{case}");
    }
}
