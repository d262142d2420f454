//! Error messages of the program, and exit codes.

use std::process::Stdio;

use expect_test::expect;

use crate::support::{Place, Run};

#[test]
fn an_unknown_session_is_refused_with_a_suggestion() {
    let place = Place::with_session(&["hello"]);
    place.ok(&["send", "--session", "alpha-one", "--script", "echo.toml", "x"]);
    place.ok(&["send", "--session", "alpha-two", "--script", "echo.toml", "x"]);
    assert_eq!(place.fails(&["show", "zebra"]), "error: there is no session `zebra`; `segue sessions` lists them\n");
    assert_eq!(
        place.fails(&["show", "alphaone"]),
        "error: there is no session `alphaone`; did you mean `alpha-one`?\n"
    );
    assert_eq!(
        place.fails(&["export", "alpha"]),
        "error: `alpha` matches 2 sessions: `alpha-two`, `alpha-one`; write more of the name\n"
    );
    assert!(place.ok(&["show", "alpha-o"]).starts_with("alpha-one  x\n"));
    assert!(place.ok(&["show", "last"]).starts_with("alpha-two  x\n"));
}

#[test]
fn reading_does_not_create_a_store() {
    let place = Place::new();
    let error = place.fails(&["show", "a"]);
    assert_eq!(error, "error: there are no sessions yet: the store HOME/.local/share/segue/segue.db does not exist\n");
    for arguments in [&["rename", "a", "b"] as &[&str], &["cancel", "a"], &["fork", "a"], &["delete", "a", "--yes"]] {
        assert_eq!(place.fails(arguments), error);
    }
    assert_eq!(place.ok(&["sessions"]), "no sessions yet; `segue chat` starts one\n");
    assert!(place.ok(&["doctor"]).contains("(created at first use)"));
    assert!(!place.store().exists());
}

#[test]
fn a_file_that_is_not_a_store_is_left_alone() {
    let place = Place::new();
    place.write("notes.txt", &"these are my notes\n".repeat(100));
    let error = place.fails(&["--store", "notes.txt", "send", "hello"]);
    expect![[r#"
        error: cannot open the store notes.txt
          because: HOME/notes.txt is not a Segue store (not an SQLite database); choose another file
    "#]]
    .assert_eq(&error);
    let run = place.run(&["--store", "notes.txt", "doctor"]);
    assert_eq!(run.code, 1);
    assert!(run.out.contains("failed  store     "), "{}", run.out);
    assert_eq!(place.read("notes.txt"), "these are my notes\n".repeat(100));
}

#[test]
fn a_store_in_an_invalid_folder_is_refused() {
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
fn wrong_usage_exits_with_code_two() {
    let place = Place::with_session(&["hello"]);
    for arguments in [&["frobnicate"] as &[&str], &["resolve", "a", "c1", "maybe"], &["flows", "--mermaid"], &["send"]]
    {
        let run = place.run(arguments);
        assert_eq!((run.code, run.out.as_str()), (2, ""), "{arguments:?}: {}", run.err);
        assert!(run.err.starts_with("error: "), "{}", run.err);
    }
}

#[test]
fn a_broken_pipe_is_not_an_error() {
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
fn an_unknown_call_or_turn_is_refused_with_the_nearest_ones() {
    let place = Place::with_session(&["one", "two"]);
    assert_eq!(place.fails(&["explain", "a", "c7"]), "error: session `a` has no call c7; the nearest are c1, c2\n");
    assert_eq!(place.fails(&["explain", "a", "seven"]), "error: `seven` is not a call id (like c3)\n");
    assert_eq!(
        place.fails(&["explain", "c1", "a"]),
        "error: `a` is not a call id (like c3); the session comes first\n"
    );
    assert_eq!(
        place.fails(&["explain", "a", "c1", "--diff"]),
        "error: c1 is the first call of assistant in this session, so there is nothing to compare it with\n"
    );
    assert_eq!(
        place.fails(&["fork", "a", "--at", "t9"]),
        "error: session `a` has no finished turn t9; the nearest are t1, t2\n"
    );
    assert_eq!(
        place.fails(&["fork", "a", "--at", "yesterday"]),
        "error: `yesterday` is neither a turn (like t3) nor the number of an event (like 17)\n"
    );
    let error = place.fails(&["fork", "a", "--at", "99"]);
    assert!(error.contains("has records 1 to 14, so it cannot be forked at 99"), "{error}");
    assert!(place.fails(&["fork", "a", "--name", "a"]).contains("the session `a` already exists"));
    assert!(place.fails(&["fork", "a", "--name", "a b"]).contains("it may contain only letters, digits"));
}

#[test]
fn deleting_needs_confirmation() {
    let place = Place::with_session(&["hello"]);
    assert_eq!(place.fails(&["delete", "a"]), "error: refusing to delete `a` without confirmation (use --yes)\n");
    assert_eq!(place.ok(&["delete", "a", "--yes"]), "deleted a\n");
    assert_eq!(place.ok(&["sessions"]), "no sessions yet; `segue chat` starts one\n");
}
