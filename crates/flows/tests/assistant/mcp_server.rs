//! Domains with an MCP server: which tools are usable, how prompts describe them, and how calls are handled.

use segue_flows::assistant::AssistantFlow;
use segue_flows::assistant::domain::DomainSchema;
use segue_flows::assistant::settings::ConfiguredDomains;
use segue_testkit::SessionHarness;
use serde_json::{Value, json};

use super::support::*;

const NOTES: &str = r#"
name = "notes"
about = "Notes that are kept elsewhere."
[[type]]
name = "note"
label = "title"
fields = [{ name = "title", kind = "text" }]
[server]
command = ["notes"]
tools = [
  { name = "list_notes", writes = false, returns = "note", at = "/notes" },
  { name = "finish_note", references = { note = "note" } },
]
"#;

fn open_with_server(text: &str) -> SessionHarness {
    let domain = DomainSchema::parse(text).expect("a valid declaration");
    let settings = json!({"domain": domain.name});
    SessionHarness::open_with_settings(AssistantFlow::with_domains(ConfiguredDomains::new([domain])), settings)
}

fn tools(names: &[(&str, Option<bool>)]) -> String {
    let tools = names.iter().map(|(name, writes)| {
        json!({"name": name, "description": format!("does {name}"), "input_schema": {"type": "object"}, "writes": writes})
    });
    json!({"tools": tools.collect::<Vec<_>>()}).to_string()
}

fn both_tools() -> String {
    tools(&[("list_notes", None), ("finish_note", None)])
}

fn finish_server_run(harness: &mut SessionHarness, result: &str) {
    harness.finish_tool("remote", Ok(result));
}

fn two_notes() -> String {
    let rows = [(1, "Buy oak"), (2, "Call Noor")].map(
        |(number, title)| json!({"type": "note", "id": id("note", number), "label": title, "fields": {"title": title}}),
    );
    json!({"rows": rows, "total": 2}).to_string()
}

/// Plays a turn that lists the notes.
fn list_turn(harness: &mut SessionHarness) {
    harness.send_message("my notes?");
    finish_server_run(harness, &both_tools());
    harness.answer_call("understand", &understood("wants notes").to_string());
    harness.answer_call("think", &plan(&[step("read", "note", 1, &[])]).to_string());
    answer_act(harness, tool_call("list_notes", json!({})));
    finish_server_run(harness, &two_notes());
    answer_act(harness, step_complete("two notes"));
    finish_reply(harness, "Two.");
}

#[test]
fn only_the_first_turn_waits_for_the_tool_list() {
    let mut harness = open_with_server(NOTES);
    harness.send_message("my notes?");
    assert!(harness.open_call_roles().is_empty(), "no model is called before the tools are known");
    finish_server_run(&mut harness, &both_tools());
    assert_eq!(harness.open_call_roles(), ["understand"]);
    harness.answer_call("understand", &understood("wants notes").to_string());
    assert!(
        prompt_text(&harness, "think")
            .contains("- list_notes: does list_notes\n- finish_note: does finish_note (changes data")
    );
    harness.answer_call("think", &proposal("Shall I list them?").to_string());
    finish_reply(&mut harness, "Shall I list them?");
    harness.send_message("yes");
    assert_eq!(harness.open_call_roles(), ["understand"], "while the server is asked again");
    finish_server_run(&mut harness, &both_tools());
    assert_eq!(
        (harness.open_call_roles(), facts(&harness, "server_tools_listed").len()),
        (vec!["understand".to_owned()], 1)
    );
}

#[test]
fn removed_tool_is_not_used_and_new_tool_must_be_declared() {
    let mut harness = open_with_server(NOTES);
    list_turn(&mut harness);
    harness.send_message("finish the first");
    finish_server_run(&mut harness, &tools(&[("list_notes", None), ("erase", Some(true))]));
    assert_eq!(facts(&harness, "server_tools_listed").len(), 2);
    harness.answer_call("understand", &understood("finishes").to_string());
    let think = prompt_text(&harness, "think");
    assert!(think.contains("- list_notes") && !think.contains("finish_note") && !think.contains("erase"), "{think}");
    harness.answer_call("think", &plan(&[write_step("finish_note", "note", 1, &["note_1"])]).to_string());
    answer_act(&mut harness, tool_call("finish_note", json!({"note": "note_1"})));
    assert!(ask_text(&harness, "act").contains("there is no tool `finish_note`; the tools are `list_notes`"));
    answer_act(&mut harness, tool_call("erase", json!({})));
    assert_eq!(facts(&harness, "step_ended").pop().expect("the step ended")["status"], "failed");
    assert_eq!(
        runs(&harness).iter().filter(|run| tool_request(run).operation.as_str() == "call_tool").count(),
        1,
        "the list of the first turn"
    );
}

#[test]
fn unreachable_server_does_not_fail_the_turn() {
    let mut harness = open_with_server(NOTES);
    harness.send_message("my notes?");
    harness.finish_tool("remote", Err("the server `notes` cannot be started"));
    harness.answer_call("understand", &understood("wants notes").to_string());
    harness.answer_call("think", &plan(&[step("read", "note", 1, &[])]).to_string());
    answer_act(&mut harness, tool_call("list_notes", json!({})));
    harness.finish_tool("remote", Err("the server `notes` cannot be started"));
    assert!(ask_text(&harness, "act").starts_with("## list_notes failed\n\nthe server `notes` cannot be started"));
    answer_act(&mut harness, json!({"action": "fail", "reason": "the notes cannot be reached"}));
    assert!(ask_text(&harness, "reply").contains("failed. the notes cannot be reached"));
    finish_reply(&mut harness, "They cannot be reached.");
}

#[test]
fn tool_not_known_to_be_read_only_needs_a_write_step() {
    for (says, is_refused) in [(None, true), (Some(true), true), (Some(false), false)] {
        let mut harness = open_with_server(NOTES);
        harness.send_message("go");
        finish_server_run(&mut harness, &tools(&[("list_notes", Some(true)), ("finish_note", says)]));
        harness.answer_call("understand", &understood("goes").to_string());
        harness.answer_call("think", &plan(&[step("analyze", "note", 1, &[])]).to_string());
        let guide = prompt_text(&harness, "act");
        assert!(guide.contains("list_notes"), "the declaration counts, not the server");
        assert_eq!(guide.contains("- finish_note"), !is_refused, "{says:?}");
        answer_act(&mut harness, tool_call("finish_note", json!({})));
        assert_eq!(
            runs(&harness).iter().any(|run| tool_request(run).operation.as_str() == "call_tool"),
            !is_refused,
            "{says:?}"
        );
        if is_refused {
            assert!(ask_text(&harness, "act").contains("only a `write` step may call it"));
        }
    }
}

#[test]
fn server_write_is_reported_only_if_the_server_confirmed_it() {
    let mut harness = open_with_server(NOTES);
    list_turn(&mut harness);
    let finish = |harness: &mut SessionHarness| {
        harness.send_message("finish the first");
        finish_server_run(harness, &both_tools());
        harness.answer_call("understand", &understood("finishes").to_string());
        harness.answer_call("think", &plan(&[write_step("finish_note", "note", 1, &["note_1"])]).to_string());
        answer_act(harness, tool_call("finish_note", json!({"note": "note_1"})));
    };
    finish(&mut harness);
    assert_eq!(
        tool_request(&runs(&harness).pop().expect("called")).parameters["arguments"],
        json!({"note": id("note", 1)})
    );
    finish_server_run(&mut harness, &json!({"text": "finished"}).to_string());
    answer_act(&mut harness, step_complete("finished"));
    assert!(ask_text(&harness, "reply").contains("- ran finish_note (“Buy oak”)"), "{}", ask_text(&harness, "reply"));
    finish_reply(&mut harness, "Done.");
    assert_eq!(flow_state(&harness).writes.len(), 1);
    // The server refuses: the step is told and may try something else.
    finish(&mut harness);
    finish_server_run(&mut harness, &json!({"refusal": "it is locked"}).to_string());
    assert!(ask_text(&harness, "act").starts_with("## finish_note failed\n\nit is locked"));
    answer_act(&mut harness, json!({"action": "blocked", "reason": "it is locked"}));
    finish_reply(&mut harness, "It is locked.");
    // The outcome is unknown: the call is not repeated, and nothing is claimed.
    finish(&mut harness);
    harness.finish_tool("remote", Err("the server went away"));
    assert!(ask_text(&harness, "reply").contains("it is unknown whether this was executed: the server went away"));
    finish_reply(&mut harness, "I do not know.");
    assert_eq!(flow_state(&harness).writes.len(), 1);
}

#[test]
fn server_write_cannot_be_undone() {
    let mut harness = open_with_server(NOTES);
    list_turn(&mut harness);
    harness.send_message("finish the first");
    finish_server_run(&mut harness, &both_tools());
    harness.answer_call("understand", &understood("finishes").to_string());
    harness.answer_call("think", &plan(&[write_step("finish_note", "note", 1, &["note_1"])]).to_string());
    answer_act(&mut harness, tool_call("finish_note", json!({"note": "note_1"})));
    finish_server_run(&mut harness, &json!({"text": "finished"}).to_string());
    answer_act(&mut harness, step_complete("finished"));
    finish_reply(&mut harness, "Done.");
    harness
        .run_command(segue_core::decide::OperatorCommand::Flow { command: "undo".to_owned(), arguments: Value::Null });
    assert!(harness.last_reply().contains("which must undo it itself"), "{}", harness.last_reply());
    assert!(harness.session().is_idle());
}

#[test]
fn ids_in_server_texts_become_references_and_back() {
    let mut harness = open_with_server("name = \"bare\"\n[server]\nurl = \"https://notes.example/mcp\"");
    harness.send_message("find it");
    finish_server_run(&mut harness, &tools(&[("search", Some(false)), ("open", Some(false))]));
    harness.answer_call("understand", &understood("looks").to_string());
    assert!(prompt_text(&harness, "think").contains("subdomain: one word for what the step is about"));
    harness.answer_call("think", &plan(&[step("read", "anything", 1, &[])]).to_string());
    answer_act(&mut harness, tool_call("search", json!({"text": "oak"})));
    let found = format!("one: {}, two: {}.", id("x", 1), id("x", 2));
    finish_server_run(&mut harness, &json!({"text": found}).to_string());
    assert!(ask_text(&harness, "act").contains("one: item_1, two: item_2."), "{}", ask_text(&harness, "act"));
    answer_act(&mut harness, tool_call("open", json!({"which": {"ids": ["item_2", "item_7"]}, "how": "item"})));
    let given = &tool_request(&runs(&harness).pop().expect("called")).parameters["arguments"];
    assert_eq!(*given, json!({"which": {"ids": [id("x", 2), "item_7"]}, "how": "item"}));
    finish_server_run(&mut harness, &json!({"text": format!("{} again", id("x", 1))}).to_string());
    assert!(ask_text(&harness, "act").contains("item_1 again"), "the same id has the same reference");
    answer_act(&mut harness, step_complete("found"));
    finish_reply(&mut harness, "There.");
    for (call, prompt) in harness.rebuild_all_prompts() {
        assert!(prompt.messages.iter().all(|message| !message.text().contains("0198c0de")), "{call}");
    }
}

#[test]
fn descriptions_of_many_tools_are_shortened() {
    let names: Vec<String> = (0..40).map(|number| format!("tool_{number}")).collect();
    let mut harness = open_with_server("name = \"bare\"\n[server]\ncommand = [\"many\"]");
    harness.send_message("go");
    let long: String = "x".repeat(3_000);
    let many = names.iter().map(
        |name| json!({"name": name, "description": "does", "input_schema": {"type": "object", "note": long}, "writes": false}),
    );
    finish_server_run(&mut harness, &json!({"tools": many.collect::<Vec<_>>()}).to_string());
    harness.answer_call("understand", &understood("goes").to_string());
    harness.answer_call("think", &plan(&[step("read", "x", 1, &[])]).to_string());
    let opened = calls(&harness, "act").pop().expect("asked");
    let guide = fragment(&harness, &opened, "guide").expect("it has one");
    assert!(names.iter().all(|name| guide.contains(&format!("- {name}: does"))), "each is named: {guide}");
    assert!(opened.receipt.tokens < 8_000, "{}", opened.receipt.tokens);
}
