//! The `chat` flow: the system prompt of the user's own.

use segue_core::prompt::ChatRole;
use segue_flows::chat::ChatFlow;
use segue_testkit::SessionHarness;
use serde_json::{Value, json};

fn system_prompt(settings: Value) -> String {
    let mut harness = SessionHarness::open_with_settings(ChatFlow::new(), settings);
    harness.send_message("hello");
    let messages = harness.prompt_for_role("assistant").messages;
    let system = messages.iter().find(|message| message.chat_role == ChatRole::System).expect("there is one");
    assert_eq!(messages.last().map(|message| message.text().to_string()), Some("hello".to_owned()));
    system.text().to_string()
}

#[test]
fn own_instruction_is_the_system_prompt() {
    assert_eq!(system_prompt(json!({"instruction": " Answer like a pirate. "})), "Answer like a pirate.");
    for settings in [json!({}), Value::Null, json!({"instruction": "  "})] {
        assert!(system_prompt(settings.clone()).starts_with("You are a helpful assistant."), "{settings}");
    }
}

#[test]
fn receipt_names_the_source_of_the_instruction() {
    let mut harness = SessionHarness::open_with_settings(ChatFlow::new(), json!({"instruction": "Be brief."}));
    harness.send_message("hello");
    let (call, _) = harness.oldest_open_call("assistant");
    let opened = harness.session().open_calls[&call].opened.clone();
    assert_eq!(opened.receipt.opening[0].why, "the setting `instruction` of the session");
}

#[test]
fn instruction_of_another_type_or_length_is_refused() {
    let spec = segue_core::flow::Flow::spec(&ChatFlow::new()).clone();
    let problems = |value: Value| spec.invalid_settings(&json!({ "instruction": value })).len();
    assert_eq!(
        (problems(json!(7)), problems(json!("x".repeat(20_001))), problems(json!("x".repeat(20_000)))),
        (1, 1, 0)
    );
}
