//! Commands that read sessions.

use expect_test::expect;
use serde_json::json;

use crate::support::Place;

#[test]
fn sessions_are_listed_newest_first() {
    let place = Place::with_session(&["a fox runs"]);
    place.ok(&["send", "--session", "b", "--script", "echo.toml", "a hare hides"]);
    expect![[r#"
        SESSION  FLOW  TURNS  COST  CHANGED           TITLE
        b        chat      1     ?  DDDD-DD-DD TT:TT  a hare hides
        a        chat      1     ?  DDDD-DD-DD TT:TT  a fox runs
    "#]]
    .assert_eq(&place.ok(&["sessions"]));
    expect![[r#"
        SESSION  FLOW  TURNS  COST  CHANGED           TITLE
        b        chat      1     ?  DDDD-DD-DD TT:TT  a hare hides
        the newest 1; use --limit for more
    "#]]
    .assert_eq(&place.ok(&["sessions", "--limit", "1"]));
    let found = place.json(&["sessions", "--search", "FOX", "--json"]);
    assert_eq!((found.as_array().map(Vec::len), &found[0]["session"]), (Some(1), &json!("a")));
    assert_eq!(place.ok(&["sessions", "--search", "bear"]), "no matching sessions\n");
    assert_eq!(
        place.fails(&["sessions", "--flow", "chatt"]),
        "error: there is no flow `chatt`; did you mean `chat`?\n"
    );
}

#[test]
fn a_session_is_shown_turn_by_turn() {
    let place = Place::with_session(&["hello there", "and again"]);
    expect![[r#"
        a  hello there
        flow chat, opened DDDD-DD-DD TT:TT
        2 turns · 2 calls · 80 in, 10 out · ?

        t1 · TT:TT:TT
          m1 user      hello there
          c1 assistant asked reply on scripted, th1 new: first call in this scope; N tokens
          c1 answered in N ms: 40 in, 5 out · ?
          assistant    You said: hello there

        t2 · TT:TT:TT
          m2 user      and again
          c2 assistant asked reply on scripted, th1 continued (2 messages); N tokens
          c2 answered in N ms: 40 in, 5 out · ?
          assistant    You said: and again
    "#]]
    .assert_eq(&place.ok(&["show", "a"]));
}

#[test]
fn every_event_can_be_shown() {
    let place = Place::with_session(&["hello"]);
    expect![[r#"
        1 TT:TT:TT session a opened with flow chat
        2 TT:TT:TT renamed to "hello"
        3 TT:TT:TT m1 user: hello
        4 TT:TT:TT t1 started with m1
        5 TT:TT:TT c1 assistant asked reply on scripted, th1 new: first call in this scope
        6 TT:TT:TT c1 answered: You said: hello
        7 TT:TT:TT reply by assistant: You said: hello
        8 TT:TT:TT t1 done"#]]
    .assert_eq(&place.ok(&["show", "a", "--events"]).lines().map(str::trim).collect::<Vec<_>>().join("\n"));
    let shown = place.json(&["show", "a", "--json"]);
    assert_eq!((&shown["turns"], &shown["open_calls"]), (&json!(1), &json!([])));
    let events = shown["events"].as_array().expect("a list");
    assert_eq!(events.len(), 8);
    let body = events[2]["event"]["text"]["body"].as_str().expect("a text's id");
    assert_eq!(shown["texts"][body], "hello");
}

#[test]
fn long_texts_are_cut_without_full() {
    let long = format!("{} the end", "word ".repeat(200));
    let place = Place::with_session(&[&long]);
    assert!(!place.ok(&["show", "a"]).contains("the end"));
    assert_eq!(place.ok(&["show", "a", "--full"]).matches("the end").count(), 2);
}

#[test]
fn a_receipt_lists_the_fragments_of_a_prompt() {
    let place = Place::with_session(&["hello there", "and again"]);
    let receipt = place.ok(&["explain", "a", "c2"]);
    let receipt = receipt.lines().filter(|line| !line.starts_with("digest")).collect::<Vec<_>>().join("\n");
    expect![[r#"
        c2 · assistant asked reply on scripted
        session a, t2, DDDD-DD-DD TT:TT, event 11

        thread    th1 continues: nothing that ends the thread of assistant has changed (scope: the whole
                  session)
        prefix    extends the prompt of c1, so all of that prompt can be cached
        window N of N tokens (0 %); the answer may have N
        answer    40 in, 5 out by the vendor's count · ? · N ms

        FRAGMENT     LAYER         TOKENS  SOURCE                     WHY
        instruction instruction N template chat/instruction who answers, and how (since c1)
        (thread)     conversation      19  thread th1                 earlier exchanges: 2 messages
        message      user_words         2  message m2                 what the user said"#]]
    .assert_eq(&receipt);
    assert_eq!(
        place.ok(&["explain", "c2"]),
        place.ok(&["explain", "last", "2"]),
        "the newest session, with or without the c"
    );
    let first = place.ok(&["explain", "a", "c1"]);
    assert!(first.contains("th1 is new: it is the first call of assistant in this scope"), "{first}");
    let receipt = place.json(&["explain", "a", "c2", "--json"]);
    assert_eq!((&receipt["previous_call"], &receipt["thread_opened_by"]), (&json!("c1"), &json!("c1")));
}

#[test]
fn the_exact_prompt_can_be_printed_and_compared() {
    let place = Place::with_session(&["hello there", "and again"]);
    let text = place.ok(&["explain", "a", "c2", "--prompt"]);
    let messages = "── user ──\nhello there\n── assistant ──\nYou said: hello there\n── user ──\nand again\n";
    assert!(text.starts_with("── system ──\n") && text.ends_with(messages), "{text}");
    let prompt = place.json(&["explain", "a", "c2", "--prompt", "--json"]);
    assert_eq!(prompt["messages"][3], json!({ "chat_role": "user", "parts": ["and again"] }));
    assert_eq!((&prompt["model"], &prompt["reply_tokens_max"]), (&json!("scripted"), &json!(4096)));
    let diff = place.ok(&["explain", "a", "c2", "--diff"]);
    assert!(diff.starts_with("--- c1\n+++ c2\n ── system ──\n"), "{diff}");
    assert!(
        diff.ends_with(" hello there\n+── assistant ──\n+You said: hello there\n+── user ──\n+and again\n"),
        "{diff}"
    );
    let lines = place.json(&["explain", "a", "c2", "--diff", "--json"]);
    assert_eq!(lines["lines"].as_array().and_then(|lines| lines.last()), Some(&json!({ "added": "and again" })));
}

#[test]
fn failures_and_retries_are_shown() {
    let place = Place::new();
    place.write(
        "shaky.toml",
        "[[reply]]\ntimes = 1\nfail = \"overload\"\nretry_after_ms = 1\n\n[default]\ntext = \"At last.\"\n",
    );
    let report = place.json(&["send", "--session", "a", "--script", "shaky.toml", "--json", "hello"]);
    assert_eq!((&report["reply"], &report["calls"][0]["failed_attempts"]), (&json!("At last."), &json!(1)));
    let shown = place.ok(&["show", "a"]);
    assert!(shown.contains("c1 attempt 1 failed (overloaded: scripted failure); retry at"), "{shown}");
    assert!(shown.contains("1 turn · 1 call · 1 failed ·"), "{shown}");
    assert!(place.ok(&["explain", "a", "c1"]).contains("attempt   c1 attempt 1 failed (overloaded"));
}

#[test]
fn control_characters_of_a_reply_are_not_printed() {
    let place = Place::new();
    place.write("evil.toml", "[default]\ntext = \"red\\u001b[31m alert\"\n");
    place.ok(&["send", "--session", "a", "--script", "evil.toml", "hello"]);
    assert!(place.ok(&["show", "a"]).contains("red\u{fffd}[31m alert"));
    assert!(place.ok(&["show", "a", "--full"]).contains("red\u{fffd}[31m alert"));
}

#[test]
fn a_session_can_be_renamed() {
    let place = Place::with_session(&["hello"]);
    assert_eq!(place.ok(&["rename", "a", "Of foxes and hares"]), "renamed a to “Of foxes and hares”\n");
    assert_eq!(place.json(&["rename", "a", "Hares", "--json"]), json!({ "session": "a", "title": "Hares" }));
    assert!(place.ok(&["sessions"]).ends_with("Hares\n"));
}

#[test]
fn flows_are_described() {
    let place = Place::new();
    assert!(place.ok(&["flows"]).lines().any(|line| line.starts_with("chat ")));
    expect![[r#"
        chat  one model, one conversation

        Roles
        ROLE        MEMORY                       RECIPE                       VISIBLE TO  ON UNKNOWN OUTCOME
        assistant   the whole session            opening: instruction;        user        retry
                                                 reply: message
        summariser  none: every call starts a    opening: summarise;          flow only   retry
                    new thread                   summarise: folded

        Settings
        SETTING      DEFAULT  DESCRIPTION
        instruction the system prompt; by default a short instruction to answer directly: a text
                              of at most 20000 characters
        prompts               your own prompt templates by name, in place of the built-in ones: a table of
                              at most 131072 bytes
    "#]]
    .assert_eq(&place.ok(&["flows", "chat"]));
    assert_eq!(place.json(&["flows", "chat", "--json"])["roles"][0]["memory"], "the whole session");
    assert_eq!(place.fails(&["flows", "chta"]), "error: there is no flow `chta`; did you mean `chat`?\n");
    assert_eq!(place.fails(&["flows", "chat", "--mermaid"]), "error: flow `chat` has no phase graph\n");
}

#[test]
fn a_flow_without_phases_has_no_phases_to_show() {
    let place = Place::with_session(&["hello"]);
    assert_eq!(place.ok(&["phase", "a"]), "flow `chat` has no phases\n");
    assert_eq!(place.json(&["phase", "a", "--json"]), json!({ "session": "a", "graphs": [] }));
    assert_eq!(place.fails(&["phase", "a", "propose", "build"]), "error: flow `chat` has no phases\n");
    assert_eq!(place.fails(&["phase", "a", "--mermaid"]), "error: flow `chat` has no phase graph\n");
}

#[test]
fn completion_scripts_contain_the_commands() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = place.ok(&["completions", shell]);
        assert!(script.contains("explain") && script.contains("doctor"), "{shell}");
    }
}
