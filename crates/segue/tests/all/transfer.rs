//! `segue export`, `segue import` and `segue fork`.

use expect_test::expect;

use crate::support::Place;

#[test]
fn an_exported_session_can_be_imported() {
    let place = Place::with_session(&["hello", "again"]);
    assert_eq!(place.ok(&["export", "a", "-o", "a.jsonl"]), "exported a to a.jsonl\n");
    assert!(!place.path().join("a.jsonl.part").exists());
    assert_eq!(place.run(&["export", "a"]).out, place.read("a.jsonl"));
    let (before, prompt) = (place.ok(&["show", "a", "--full"]), place.ok(&["explain", "a", "c2", "--prompt"]));
    assert!(place.fails(&["import", "a.jsonl"]).contains("the session `a` already exists"));
    place.ok(&["delete", "a", "--yes"]);
    assert_eq!(place.ok(&["import", "a.jsonl"]), "imported a\n");
    assert_eq!(place.ok(&["show", "a", "--full"]), before);
    assert_eq!(place.ok(&["explain", "a", "c2", "--prompt"]), prompt);
    let copy = place.run_reading(&["import", "-", "--name", "b", "--json"], place.read("a.jsonl").as_bytes());
    assert_eq!((copy.code, copy.out.as_str()), (0, "{\n  \"session\": \"b\"\n}\n"), "{}", copy.err);
    assert_eq!(place.ok(&["send", "--session", "b", "--script", "echo.toml", "on"]), "You said: on\n");
}

#[test]
fn a_changed_export_is_refused() {
    let place = Place::with_session(&["hello"]);
    place.ok(&["export", "a", "-o", "a.jsonl"]);
    place.ok(&["delete", "a", "--yes"]);
    let good = place.read("a.jsonl");
    let broken = |name: &str, text: String| {
        place.write(name, &text);
        let error = place.fails(&["import", name]);
        assert_eq!(place.json(&["sessions", "--json"]), serde_json::json!([]), "nothing of {name} is kept");
        error
    };
    expect![[r#"
        error: cannot import newer.jsonl
          because: line 1 of the import: it has format 99, but this version reads formats up to 1; use a newer version
    "#]]
    .assert_eq(&broken("newer.jsonl", good.replacen("\"format\":1", "\"format\":99", 1)));
    let error = broken("event.jsonl", good.replacen("\"event\":{", "\"event\":{\"v\":7,", 1));
    assert!(error.contains("has format 7, but this version reads formats up to 1"), "{error}");
    let error = broken("text.jsonl", good.replacen("hello", "hullo", 2));
    assert!(error.contains("the text does not match its id") && error.contains("the file was changed"), "{error}");
    let error =
        broken("cut.jsonl", good.lines().filter(|line| !line.contains("\"seq\":3,")).collect::<Vec<_>>().join("\n"));
    assert!(error.contains("event 4 where event 3 was expected; lines are missing or out of order"), "{error}");
    let error = broken("torn.jsonl", good[..good.len() - 9].to_owned());
    assert!(error.contains("this is not a line of an exported session"), "{error}");
    let error = broken("prose.txt", "Dear diary,\n".to_owned());
    assert!(error.contains("line 1 of the import: this is not a line of an exported session"), "{error}");
    let error = broken("empty.jsonl", String::new());
    assert!(error.contains("the file does not begin with the header of an export"), "{error}");
    assert!(
        place
            .fails(&["import", "absent.jsonl"])
            .starts_with("error: cannot read absent.jsonl\n  because: No such file")
    );
}

#[test]
fn a_fork_shares_the_past_only() {
    let place = Place::with_session(&["one", "two"]);
    assert_eq!(place.ok(&["fork", "a", "--at", "t1", "--name", "b"]), "forked a at event 8 to b\n");
    assert_eq!(place.json(&["fork", "a", "--at", "8", "--name", "c", "--json"])["at"], 8);
    assert_eq!(place.ok(&["send", "--session", "b", "--script", "echo.toml", "other"]), "You said: other\n");
    let prompt = place.ok(&["explain", "b", "c2", "--prompt"]);
    assert!(prompt.contains("one") && prompt.contains("other") && !prompt.contains("two"), "{prompt}");
    place.ok(&["delete", "a", "--yes"]);
    assert!(place.ok(&["show", "b"]).contains("You said: one"), "the fork does not need the original");
}

#[test]
fn a_fork_before_a_turn_answers_its_message_at_the_next_use() {
    let place = Place::with_session(&["one", "two"]);
    assert_eq!(place.ok(&["fork", "a", "--at", "9", "--name", "b"]), "forked a at event 9 to b\n");
    let shown = place.ok(&["show", "b"]);
    assert!(shown.contains("1 message queued\n") && !shown.contains("is pending"), "{shown}");
    let doctor = place.ok(&["doctor"]);
    assert!(doctor.contains("1 session with an unfinished turn, resumed at the next use: b\n"), "{doctor}");
    // The fork uses the models of the process that answers it, not those of the original session.
    assert!(place.run(&["send", "--session", "b", "three"]).out.contains("(rehearsal)"));
    let events = place.ok(&["show", "b", "--events"]);
    for wanted in [
        "forked from a at event 9",
        "t2 started with m2",
        "c2 assistant asked reply on rehearsal",
        "t2 done",
        "t3 done",
    ] {
        assert!(events.contains(wanted), "{wanted} is missing:\n{events}");
    }
    let shown = place.ok(&["show", "b"]);
    assert!(shown.contains("3 turns · 3 calls · ") && !shown.contains("possibly billed"), "{shown}");
}

#[test]
fn a_closed_session_refuses_messages_and_can_be_forked() {
    let place = Place::with_session(&["hello"]);
    place.ok(&["export", "a", "-o", "a.jsonl"]);
    let next = place.read("a.jsonl").lines().filter(|line| line.contains("\"seq\":")).count() + 1;
    let closed = format!(
        "{}{{\"seq\":{next},\"at\":1,\"event\":{{\"type\":\"session_closed\",\"reason\":\"all is said\"}}}}\n",
        place.read("a.jsonl")
    );
    place.write("closed.jsonl", &closed);
    place.ok(&["delete", "a", "--yes"]);
    place.ok(&["import", "closed.jsonl"]);
    assert_eq!(
        place.fails(&["send", "--session", "a", "--script", "echo.toml", "more"]),
        "error: the session is closed (all is said); fork it to continue from here\n"
    );
    assert!(place.ok(&["show", "a"]).contains("closed: all is said"));
    place.ok(&["fork", "a", "--name", "on"]);
    assert_eq!(place.ok(&["send", "--session", "on", "--script", "echo.toml", "more"]), "You said: more\n");
}
