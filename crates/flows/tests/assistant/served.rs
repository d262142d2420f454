//! A domain whose tools a server brings: which of them are offered, what models are told of them, and what comes of a call.

use segue_flows::assistant::AssistantFlow;
use segue_flows::assistant::domain::DomainSchema;
use segue_flows::assistant::settings::DomainCatalog;
use segue_testkit::SessionHarness;
use serde_json::{Value, json};

use super::play::*;

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

fn serving(text: &str) -> SessionHarness {
    let domain = DomainSchema::parse(text).expect("sound");
    let settings = json!({"domain": domain.name});
    SessionHarness::open_with_settings(AssistantFlow::with_domains(DomainCatalog::new([domain])), settings)
}

fn tools(names: &[(&str, Option<bool>)]) -> String {
    let tools = names.iter().map(|(name, writes)| {
        json!({"name": name, "about": format!("does {name}"), "arguments": {"type": "object"}, "writes": writes})
    });
    json!({"tools": tools.collect::<Vec<_>>()}).to_string()
}

fn both() -> String {
    tools(&[("list_notes", None), ("finish_note", None)])
}

fn server(stage: &mut SessionHarness, result: &str) {
    stage.finish_tool("remote", Ok(result));
}

fn listed() -> String {
    let rows = [(1, "Buy oak"), (2, "Call Noor")].map(
        |(number, title)| json!({"type": "note", "id": id("note", number), "label": title, "fields": {"title": title}}),
    );
    json!({"rows": rows, "total": 2}).to_string()
}

/// A turn in which the notes are listed.
fn list_turn(stage: &mut SessionHarness) {
    stage.send_message("my notes?");
    server(stage, &both());
    stage.answer_call("understand", &heard("wants notes").to_string());
    stage.answer_call("think", &plan(&[step("read", "note", 1, &[])]).to_string());
    act(stage, tool("list_notes", json!({})));
    server(stage, &listed());
    act(stage, done("two notes"));
    replied(stage, "Two.");
}

#[test]
fn the_first_turn_waits_for_what_the_server_has_and_later_ones_do_not() {
    let mut stage = serving(NOTES);
    stage.send_message("my notes?");
    assert!(stage.open_call_roles().is_empty(), "nobody is asked before it is known what can be done");
    server(&mut stage, &both());
    assert_eq!(stage.open_call_roles(), ["understand"]);
    stage.answer_call("understand", &heard("wants notes").to_string());
    assert!(
        shown(&stage, "think")
            .contains("- list_notes: does list_notes\n- finish_note: does finish_note (changes something")
    );
    stage.answer_call("think", &propose("Shall I list them?").to_string());
    replied(&mut stage, "Shall I list them?");
    stage.send_message("yes");
    assert_eq!(stage.open_call_roles(), ["understand"], "while the server is asked again");
    server(&mut stage, &both());
    assert_eq!((stage.open_call_roles(), facts(&stage, "described").len()), (vec!["understand".to_owned()], 1));
}

#[test]
fn a_tool_that_is_gone_is_offered_no_more_and_a_new_one_only_if_it_is_allowed() {
    let mut stage = serving(NOTES);
    list_turn(&mut stage);
    stage.send_message("finish the first");
    server(&mut stage, &tools(&[("list_notes", None), ("erase", Some(true))]));
    assert_eq!(facts(&stage, "described").len(), 2);
    stage.answer_call("understand", &heard("finishes").to_string());
    let think = shown(&stage, "think");
    assert!(think.contains("- list_notes") && !think.contains("finish_note") && !think.contains("erase"), "{think}");
    stage.answer_call("think", &plan(&[step("write", "note", 1, &["note_1"])]).to_string());
    act(&mut stage, tool("finish_note", json!({"note": "note_1"})));
    assert!(asked(&stage, "act").contains("there is no tool `finish_note`; there are `list_notes`"));
    act(&mut stage, tool("erase", json!({})));
    assert_eq!(facts(&stage, "step_ended").pop().expect("it ended")["end"], "failed");
    assert_eq!(
        runs(&stage).iter().filter(|run| told(run).operation.as_str() == "call").count(),
        1,
        "the list of the first turn"
    );
}

#[test]
fn a_server_that_cannot_be_asked_fails_no_turn() {
    let mut stage = serving(NOTES);
    stage.send_message("my notes?");
    stage.finish_tool("remote", Err("the server `notes` cannot be started"));
    stage.answer_call("understand", &heard("wants notes").to_string());
    stage.answer_call("think", &plan(&[step("read", "note", 1, &[])]).to_string());
    act(&mut stage, tool("list_notes", json!({})));
    stage.finish_tool("remote", Err("the server `notes` cannot be started"));
    assert!(asked(&stage, "act").starts_with("## list_notes was not done\n\nthe server `notes` cannot be started"));
    act(&mut stage, json!({"action": "fail", "reason": "the notes cannot be reached"}));
    assert!(asked(&stage, "reply").contains("failed. the notes cannot be reached"));
    replied(&mut stage, "They cannot be reached.");
}

#[test]
fn a_tool_of_which_nobody_says_that_it_only_reads_needs_a_write_step() {
    for (says, is_refused) in [(None, true), (Some(true), true), (Some(false), false)] {
        let mut stage = serving(NOTES);
        stage.send_message("go");
        server(&mut stage, &tools(&[("list_notes", Some(true)), ("finish_note", says)]));
        stage.answer_call("understand", &heard("goes").to_string());
        stage.answer_call("think", &plan(&[step("analyze", "note", 1, &[])]).to_string());
        let guide = shown(&stage, "act");
        assert!(guide.contains("list_notes"), "it was declared to read, whatever the server says");
        assert_eq!(guide.contains("- finish_note"), !is_refused, "{says:?}");
        act(&mut stage, tool("finish_note", json!({})));
        assert_eq!(runs(&stage).iter().any(|run| told(run).operation.as_str() == "call"), !is_refused, "{says:?}");
        if is_refused {
            assert!(asked(&stage, "act").contains("only a `write` step may do that"));
        }
    }
}

#[test]
fn a_write_of_a_server_is_claimed_only_if_it_answered() {
    let mut stage = serving(NOTES);
    list_turn(&mut stage);
    let finish = |stage: &mut SessionHarness| {
        stage.send_message("finish the first");
        server(stage, &both());
        stage.answer_call("understand", &heard("finishes").to_string());
        stage.answer_call("think", &plan(&[step("write", "note", 1, &["note_1"])]).to_string());
        act(stage, tool("finish_note", json!({"note": "note_1"})));
    };
    finish(&mut stage);
    assert_eq!(told(&runs(&stage).pop().expect("called")).parameters["arguments"], json!({"note": id("note", 1)}));
    server(&mut stage, &json!({"said": "finished"}).to_string());
    act(&mut stage, done("finished"));
    assert!(asked(&stage, "reply").contains("- finish_note was done (“Buy oak”)"), "{}", asked(&stage, "reply"));
    replied(&mut stage, "Done.");
    assert_eq!(memory(&stage).writes.len(), 1);
    // The server says that it did not: the step is told, and may try something else.
    finish(&mut stage);
    server(&mut stage, &json!({"refused": "it is locked"}).to_string());
    assert!(asked(&stage, "act").starts_with("## finish_note was not done\n\nit is locked"));
    act(&mut stage, json!({"action": "blocked", "reason": "it is locked"}));
    replied(&mut stage, "It is locked.");
    // Nobody knows: it is not asked for again, and nobody claims anything.
    finish(&mut stage);
    stage.finish_tool("remote", Err("the server went away"));
    assert!(asked(&stage, "reply").contains("it is not known whether this was done: the server went away"));
    replied(&mut stage, "I do not know.");
    assert_eq!(memory(&stage).writes.len(), 1);
}

#[test]
fn what_a_server_did_is_not_taken_back_from_here() {
    let mut stage = serving(NOTES);
    list_turn(&mut stage);
    stage.send_message("finish the first");
    server(&mut stage, &both());
    stage.answer_call("understand", &heard("finishes").to_string());
    stage.answer_call("think", &plan(&[step("write", "note", 1, &["note_1"])]).to_string());
    act(&mut stage, tool("finish_note", json!({"note": "note_1"})));
    server(&mut stage, &json!({"said": "finished"}).to_string());
    act(&mut stage, done("finished"));
    replied(&mut stage, "Done.");
    stage.run_command(segue_core::decide::OperatorCommand::Flow { command: "undo".to_owned(), arguments: Value::Null });
    assert!(stage.last_reply().contains("only whoever did it can take it back"), "{}", stage.last_reply());
    assert!(stage.session().is_idle());
}

#[test]
fn ids_in_the_words_of_a_server_become_references_that_it_gets_back_as_ids() {
    let mut stage = serving("name = \"bare\"\n[server]\nurl = \"https://notes.example/mcp\"");
    stage.send_message("find it");
    server(&mut stage, &tools(&[("search", Some(false)), ("open", Some(false))]));
    stage.answer_call("understand", &heard("looks").to_string());
    assert!(shown(&stage, "think").contains("subdomain: a word for what it is about"));
    stage.answer_call("think", &plan(&[step("read", "anything", 1, &[])]).to_string());
    act(&mut stage, tool("search", json!({"text": "oak"})));
    let found = format!("one: {}, two: {}.", id("x", 1), id("x", 2));
    server(&mut stage, &json!({"said": found}).to_string());
    assert!(asked(&stage, "act").contains("one: item_1, two: item_2."), "{}", asked(&stage, "act"));
    act(&mut stage, tool("open", json!({"which": {"ids": ["item_2", "item_7"]}, "how": "item"})));
    let given = &told(&runs(&stage).pop().expect("called")).parameters["arguments"];
    assert_eq!(*given, json!({"which": {"ids": [id("x", 2), "item_7"]}, "how": "item"}));
    server(&mut stage, &json!({"said": format!("{} again", id("x", 1))}).to_string());
    assert!(asked(&stage, "act").contains("item_1 again"), "the same id has the same reference");
    act(&mut stage, done("found"));
    replied(&mut stage, "There.");
    for (call, prompt) in stage.rebuild_all_prompts() {
        assert!(prompt.messages.iter().all(|message| !message.text().contains("0198c0de")), "{call}");
    }
}

#[test]
fn many_tools_are_told_of_briefly() {
    let names: Vec<String> = (0..40).map(|number| format!("tool_{number}")).collect();
    let mut stage = serving("name = \"bare\"\n[server]\ncommand = [\"many\"]");
    stage.send_message("go");
    let long: String = "x".repeat(3_000);
    let many = names.iter().map(
        |name| json!({"name": name, "about": "does", "arguments": {"type": "object", "note": long}, "writes": false}),
    );
    server(&mut stage, &json!({"tools": many.collect::<Vec<_>>()}).to_string());
    stage.answer_call("understand", &heard("goes").to_string());
    stage.answer_call("think", &plan(&[step("read", "x", 1, &[])]).to_string());
    let opened = calls(&stage, "act").pop().expect("asked");
    let guide = fragment(&stage, &opened, "guide").expect("it has one");
    assert!(names.iter().all(|name| guide.contains(&format!("- {name}: does"))), "each is named: {guide}");
    assert!(opened.receipt.tokens < 8_000, "{}", opened.receipt.tokens);
}
