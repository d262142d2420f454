//! What goes wrong is said clearly, and nothing is lost by it.

use std::process::Stdio;

use expect_test::expect;

use crate::support::{Place, Run};

#[test]
fn a_session_that_is_not_there_is_named_and_another_suggested() {
    let place = Place::with_session(&["hello"]);
    place.ok(&["send", "--session", "alpha-one", "--script", "echo.toml", "x"]);
    place.ok(&["send", "--session", "alpha-two", "--script", "echo.toml", "x"]);
    assert_eq!(
        place.fails(&["show", "zebra"]),
        "error: there is no session `zebra`; `segue sessions` lists those there are\n"
    );
    assert_eq!(
        place.fails(&["show", "alphaone"]),
        "error: there is no session `alphaone`; did you mean `alpha-one`?\n"
    );
    assert_eq!(
        place.fails(&["export", "alpha"]),
        "error: `alpha` could be any of 2 sessions: `alpha-two`, `alpha-one`; give more of its name\n"
    );
    assert!(place.ok(&["show", "alpha-o"]).starts_with("alpha-one  x\n"));
    assert!(place.ok(&["show", "last"]).starts_with("alpha-two  x\n"));
}

#[test]
fn a_store_is_not_made_by_looking_for_one() {
    let place = Place::new();
    let error = place.fails(&["show", "a"]);
    assert_eq!(error, "error: there are no sessions yet: there is no store at HOME/.local/share/segue/segue.db\n");
    for arguments in [&["rename", "a", "b"] as &[&str], &["cancel", "a"], &["fork", "a"], &["delete", "a", "--yes"]] {
        assert_eq!(place.fails(arguments), error);
    }
    assert_eq!(place.ok(&["sessions"]), "no sessions yet; `segue chat` begins one\n");
    assert!(place.ok(&["doctor"]).contains("which is made at first use"));
    assert!(!place.store().exists());
}

#[test]
fn a_file_that_is_no_store_is_left_alone() {
    let place = Place::new();
    place.write("notes.txt", &"these are my notes\n".repeat(100));
    let error = place.fails(&["--store", "notes.txt", "send", "hello"]);
    expect![[r#"
        error: cannot open the store notes.txt
          because: HOME/notes.txt is not a store of ours (no SQLite database); name another file
    "#]]
    .assert_eq(&error);
    let run = place.run(&["--store", "notes.txt", "doctor"]);
    assert_eq!(run.code, 1);
    assert!(run.out.contains("broken store     "), "{}", run.out);
    assert_eq!(place.read("notes.txt"), "these are my notes\n".repeat(100));
}

#[test]
fn a_place_nobody_can_write_to_is_named() {
    let place = Place::new();
    place.write("file", "");
    let error = place.fails(&["--store", "file/segue.db", "send", "hello"]);
    assert!(error.starts_with("error: cannot open the store file/segue.db\n  because: "), "{error}");
    assert!(error.contains("Not a directory") || error.contains("exists"), "{error}");
}

#[test]
fn a_damaged_store_is_found_by_the_doctor() {
    let place = Place::with_session(&["hello", "again"]);
    let store = place.store();
    let mut bytes = std::fs::read(&store).expect("readable");
    let middle = bytes.len() / 2;
    bytes[middle..].fill(0xAB);
    std::fs::write(&store, bytes).expect("written");
    let run = place.run(&["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!((run.code, &report["ok"]), (1, &false.into()), "{report}");
}

#[test]
fn wrong_usage_ends_with_two() {
    let place = Place::with_session(&["hello"]);
    for arguments in [&["frobnicate"] as &[&str], &["resolve", "a", "c1", "maybe"], &["flows", "--mermaid"], &["send"]]
    {
        let run = place.run(arguments);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{arguments:?}: {}", run.err);
        assert!(run.err.starts_with("error: "), "{}", run.err);
    }
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let place = Place::with_session(&["hello"]);
    for arguments in [&["show", "a"] as &[&str], &["show", "a", "--json"], &["sessions"], &["export", "a"], &["flows"]]
    {
        let (reader, writer) = std::io::pipe().expect("a pipe");
        drop(reader);
        let mut command = place.command(arguments);
        let output = command.stdout(writer).stderr(Stdio::piped()).output().expect("it runs");
        let run = Run::of(&output);
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{arguments:?}");
    }
}

#[test]
fn a_call_or_a_place_that_is_not_there_is_told_those_near_it() {
    let place = Place::with_session(&["one", "two"]);
    assert_eq!(place.fails(&["explain", "a", "c7"]), "error: the session `a` has no call c7; near it are c1, c2\n");
    assert_eq!(
        place.fails(&["explain", "a", "seven"]),
        "error: `seven` is not a valid id (like c3)\n"
    );
    assert_eq!(
        place.fails(&["explain", "a", "c1", "--diff"]),
        "error: c1 is the first call of assistant in this session, so there is nothing to compare it with\n"
    );
    assert_eq!(
        place.fails(&["fork", "a", "--at", "t9"]),
        "error: the session `a` has no finished turn t9; near it are t1, t2\n"
    );
    assert_eq!(
        place.fails(&["fork", "a", "--at", "yesterday"]),
        "error: `yesterday` is no place in a session; give a turn such as `t3` or an event's number such as `17`\n"
    );
    let error = place.fails(&["fork", "a", "--at", "99"]);
    assert!(error.contains("has records 1 to 14, so it cannot be forked at 99"), "{error}");
    assert!(place.fails(&["fork", "a", "--name", "a"]).contains("there is a session `a` already"));
    assert!(place.fails(&["fork", "a", "--name", "a b"]).contains("it may hold letters, digits"));
}

#[test]
fn deleting_is_asked_for_twice() {
    let place = Place::with_session(&["hello"]);
    assert_eq!(place.fails(&["delete", "a"]), "error: `a` is not deleted without a word from you; add --yes\n");
    assert_eq!(place.ok(&["delete", "a", "--yes"]), "a is deleted\n");
    assert_eq!(place.ok(&["sessions"]), "no sessions yet; `segue chat` begins one\n");
}
