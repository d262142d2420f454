//! Commands: explicit decisions of the user that no model interprets.

use segue_core::decide::{InputRefusal, OperatorCommand, SessionInput};
use segue_core::flow::{DecisionTextResolver, EventSubject, Flow, FlowArtifact, FlowContext};
use segue_core::handover::HandoverProvenance;
use segue_core::session::SessionState;
use segue_flows::concierge::ConciergeFlow;
use segue_flows::concierge::state::ConciergeState;
use segue_testkit::SessionHarness;
use serde_json::{Value, json};

use super::support::*;

fn command(name: &str, arguments: Value) -> OperatorCommand {
    OperatorCommand::Flow { command: name.to_owned(), arguments }
}

fn refusal(harness: &mut SessionHarness, name: &str, arguments: Value) -> String {
    match harness.try_input(SessionInput::Operator(command(name, arguments))) {
        Err(InputRefusal::FlowCommandRefused(why)) => why,
        other => panic!("expected a refusal, found {other:?}"),
    }
}

fn session_artifacts(harness: &SessionHarness) -> Vec<FlowArtifact> {
    let flow = ConciergeFlow::new();
    let state = SessionState::fold(&flow, harness.journal());
    let flow_state = state.flow.downcast_ref::<ConciergeState>().expect("the state of this flow");
    let (texts, subject) = (DecisionTextResolver::new(harness.texts()), EventSubject::default());
    flow.artifacts(&FlowContext { session: &state.session, state: flow_state, texts: &texts, subject: &subject })
}

fn asked() -> SessionHarness {
    let mut harness = open_with_settings(json!({"confirm_batches": true}));
    play_until_explorer(&mut harness);
    harness.send_message("give me a plan").answer_call("concierge", &format!("Good.\n{WORKFLOW}"));
    harness
}

#[test]
fn yes_command_starts_the_batch_and_leads_to_a_plan() {
    let mut harness = asked();
    harness.run_command(command("yes", Value::Null));
    assert_eq!(harness.open_call_roles(), ["expert", "expert", "expert"]);
    answer_experts(&mut harness, PLAN_MAP);
    harness.answer_call("concierge", PLAN);
    assert_eq!(phase(&harness).current, *"executor");
    assert!(harness.session().is_idle());
    assert!(refusal(&mut harness, "yes", Value::Null).contains("no question is waiting"));
}

#[test]
fn open_question_has_a_button_for_each_answer() {
    let mut harness = asked();
    let artifacts = serde_json::to_value(session_artifacts(&harness)).expect("artifacts are JSON");
    let question = artifacts.as_array().and_then(|all| all.iter().find(|one| one["name"] == "question")).cloned();
    let commands = &question.expect("a question is open")["rows"][0]["commands"];
    assert_eq!((&commands[0]["command"], &commands[1]["command"]), (&json!("yes"), &json!("no")));
    harness.run_command(command("no", Value::Null));
    assert!(session_artifacts(&harness).iter().all(|artifact| artifact.name != "question"));
}

#[test]
fn no_command_declines_without_a_call() {
    let mut harness = asked();
    harness.run_command(command("no", Value::Null));
    assert!(harness.session().is_idle());
    assert_eq!(facts(&harness, "batch_declined").len(), 1);
    harness.send_message("and the garden?");
    assert!(concierge_prompt(&harness).1.contains("did not want you to ask the experts"));
    harness.answer_call("concierge", "Small.").send_message("yes");
    assert_eq!(harness.open_call_roles(), ["concierge"], "nothing is pending any more");
}

#[test]
fn commands_as_messages_are_explicit_too() {
    let mut harness = asked();
    harness.send_message("/yes");
    assert_eq!(harness.open_call_roles(), ["expert", "expert", "expert"]);
    let mut harness = asked();
    harness.send_message("/no");
    assert_eq!(facts(&harness, "batch_declined").len(), 1);
}

#[test]
fn plan_command_makes_a_plan_in_both_signal_forms() {
    for signals in ["inline", "structured"] {
        let mut harness = open_with_settings(json!({"signals": signals, "handover_by_turn": 2}));
        play_first_turn(&mut harness);
        assert!(refusal(&mut harness, "plan", Value::Null).contains("`explorer`"));
        harness.send_message("I stay five years").answer_call("concierge", "Then buy.").answer_call(
            "concierge",
            if signals == "inline" { HANDOVER } else { r#"{"ready": true, "goal": "a home that lasts"}"# },
        );
        harness.run_command(command("plan", Value::Null));
        assert!(refusal(&mut harness, "plan", Value::Null).contains("must wait"));
        assert!(concierge_prompt(&harness).1.contains("The user wants a plan."), "{signals}");
        harness.answer_call("concierge", r#"{"goal": "buy a flat by May", "prompt": "Write the plan."}"#);
        assert_eq!(harness.open_call_roles(), ["expert", "expert", "expert"], "{signals}");
        answer_experts(&mut harness, PLAN_MAP);
        assert_eq!(phase(&harness).current, *"executor", "{signals}");
        let messages = harness.prompt_for_role("concierge").messages;
        assert!(messages.len() > 1 && messages[1].text().contains("I stay five years"), "{signals}: {messages:?}");
    }
}

#[test]
fn steps_are_marked_and_chosen_by_command() {
    let mut harness = open();
    play_until_plan(&mut harness);
    harness.run_command(command("step", json!({"step": "View flats"})));
    assert_eq!(facts(&harness, "step_started")[0], json!({"step": 1, "title": "View flats"}));
    harness.run_command(command("done", Value::Null));
    assert_eq!(facts(&harness, "step_completed")[0]["title"], "View flats");
    assert!(refusal(&mut harness, "done", json!({"step": 2})).contains("already done"));
    assert!(refusal(&mut harness, "step", json!({"step": "Sell"})).contains("no step “Sell”"));
    assert!(refusal(&mut harness, "step", Value::Null).contains("the number or the title"));
    harness.send_message("what now?");
    assert!(concierge_prompt(&harness).1.contains("[>] 1. See the bank"), "the concierge sees the change");
    harness.answer_call("concierge", "The bank.").run_command(command("done", json!({"step": 1})));
    assert_eq!(phase(&harness).current, *"explorer");
    let outcome = harness.session().latest_handover("outcome").expect("it was made");
    assert_eq!(
        (outcome.provenance, outcome.text_field("outcome")),
        (HandoverProvenance::Built, Some("All 2 steps were done."))
    );
}

#[test]
fn dropped_plan_returns_to_the_explorer_with_what_was_done() {
    let mut harness = open();
    play_until_plan(&mut harness);
    harness.run_command(command("done", Value::Null)).run_command(command("drop", Value::Null));
    assert_eq!(phase(&harness).current, *"explorer");
    assert_eq!(facts(&harness, "plan_dropped"), [json!({"goal": "buy a flat by May", "done": 1})]);
    harness.send_message("it was too much");
    let (system, _) = concierge_prompt(&harness);
    assert!(system.contains("left with 1 of 2 steps done"), "{system}");
    assert!(refusal(&mut harness, "drop", Value::Null).contains("must wait"));
    harness.answer_call("concierge", "I see.");
    assert!(refusal(&mut harness, "drop", Value::Null).contains("no plan is under way"));
}
