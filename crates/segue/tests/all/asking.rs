//! `segue send`: one message, one reply.

use expect_test::expect;

use crate::support::Place;

#[test]
fn without_configuration_the_rehearsal_model_replies_with_a_warning() {
    let place = Place::new();
    let run = place.run(&["send", "hello"]);
    assert_eq!(run.code, 0);
    assert!(run.out.ends_with("(rehearsal)\n"), "{}", run.out);
    expect![[r#"
        no model is configured, so the built-in rehearsal model gives canned replies (see `segue doctor`)
    "#]]
    .assert_eq(&run.err);
}

#[test]
fn a_session_is_created_once_and_continued() {
    let place = Place::with_session(&["hello"]);
    assert_eq!(place.ok(&["send", "--session", "a", "--script", "echo.toml", "again"]), "You said: again\n");
    assert_eq!(place.ok(&["send", "--session", "last", "--script", "echo.toml", "last"]), "You said: last\n");
    assert_eq!(place.json(&["sessions", "--json"])[0]["turns"], 3);
}

#[test]
fn json_output_describes_the_turn() {
    let place = Place::with_session(&["hello"]);
    let out = place.ok(&["send", "--session", "a", "--script", "echo.toml", "--json", "again"]);
    expect![[r#"
        {
          "calls": [
            {
              "call": "c2",
              "cost_microusd": null,
              "duration_ms": 0,
              "failed_attempts": 0,
              "model": "scripted",
              "outcome": "answered",
              "role": "assistant",
              "stop_reason": "done",
              "tokens_cached": 0,
              "tokens_in": 40,
              "tokens_out": 5,
              "unknown_attempts": 0,
              "usage_source": "vendor"
            }
          ],
          "outcome": "done",
          "phase": "",
          "reason": null,
          "rehearsal": false,
          "replies": [
            "You said: again"
          ],
          "reply": "You said: again",
          "session": "a",
          "turn": "t2",
          "usage": {
            "calls": 1,
            "cost_microusd": null,
            "failed_attempts": 0,
            "tokens_cached": 0,
            "tokens_in": 40,
            "tokens_out": 5,
            "unknown_attempts": 0
          }
        }
    "#]]
    .assert_eq(&out);
}

#[test]
fn a_repeated_idempotency_key_is_the_same_message() {
    let place = Place::with_session(&["hello"]);
    let send = |key: &str, text: &str| {
        place.json(&["send", "--session", "a", "--script", "echo.toml", "--json", "--idempotency-key", key, text])
    };
    let first = send("k1", "once");
    place.ok(&["send", "--session", "a", "--script", "echo.toml", "between"]);
    assert_eq!(send("k1", "once"), first);
    assert_eq!(place.json(&["sessions", "--json"])[0]["calls"], 3);
}

#[test]
fn a_message_can_come_from_standard_input() {
    let place = Place::with_session(&[]);
    let run = place.run_reading(&["send", "--script", "echo.toml", "-"], "two\nlines ünd more\r\n".as_bytes());
    assert_eq!((run.code, run.out.as_str()), (0, "You said: two\nlines ünd more\n"), "{}", run.err);
    let run = place.run_reading(&["send", "--script", "echo.toml", "-"], b"\xff\xfe");
    assert_eq!((run.code, run.out.as_str()), (1, ""));
    assert!(run.err.starts_with("error: the message on standard input is not UTF-8\n"), "{}", run.err);
}

#[test]
fn a_failed_turn_prints_the_reason_and_exits_with_an_error() {
    let place = Place::new();
    place.write("fail.toml", "[default]\nfail = \"invalid_api_key\"\nmessage = \"who are you?\"\n");
    let error = place.fails(&["send", "--session", "f", "--script", "fail.toml", "hello"]);
    assert_eq!(error, "error: the turn failed: key not accepted: who are you?\n");
    let run = place.run(&["send", "--session", "f", "--script", "fail.toml", "--json", "hello"]);
    let report: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    let outcomes = (&report["outcome"], &report["calls"][0]["outcome"]);
    assert_eq!((run.code, outcomes), (1, (&"failed".into(), &"failed".into())));
    assert_eq!(report["reason"], "key not accepted: who are you?");
}

#[test]
fn a_refused_first_message_leaves_no_session_behind() {
    let place = Place::with_session(&[]);
    let huge = vec![b'x'; 10 << 20];
    let run = place.run_reading(&["send", "--session", "big", "--script", "echo.toml", "-"], &huge);
    expect![[r#"
        error: the message has 10485760 bytes, but at most 1048576 are allowed; shorten it or send it in parts
    "#]]
    .assert_eq(&run.err);
    let error = place.fails(&["send", "--session", "odd", "--script", "echo.toml", "be\u{7}ll"]);
    expect![[r#"
        error: the message contains the control character U+0007 at character 3; only tabs and line breaks are allowed
    "#]]
    .assert_eq(&error);
    assert_eq!(
        place.fails(&["send", "--session", "void", "--script", "echo.toml", "  "]),
        "error: the message is empty\n"
    );
    assert_eq!(place.json(&["sessions", "--json"]), serde_json::json!([]));
}

#[test]
fn a_refused_message_does_not_change_an_existing_session() {
    let place = Place::with_session(&["hello"]);
    place.fails(&["send", "--session", "a", "--script", "echo.toml", ""]);
    assert_eq!(place.json(&["sessions", "--json"])[0]["turns"], 1);
}

#[test]
fn errors_in_a_scenario_are_reported() {
    let place = Place::new();
    place.write("other.toml", "[scenario]\nflow = \"nowhere\"\n[default]\ntext = \"x\"\n");
    let error = place.fails(&["send", "--script", "other.toml", "hello"]);
    assert!(error.starts_with("error: there is no flow `nowhere`; there are `"), "{error}");
    place.write("broken.toml", "[[reply]]\ntxet = \"x\"\n");
    let error = place.fails(&["send", "--script", "broken.toml", "hello"]);
    expect![[r#"
        error: the scenario broken.toml is invalid
          because: line 2, [[reply]] 1: unknown key `txet`; did you mean `text`?
    "#]]
    .assert_eq(&error);
    let error = place.fails(&["send", "--script", "absent.toml", "hello"]);
    assert!(error.starts_with("error: cannot read the scenario absent.toml\n  because: No such file"), "{error}");
}

#[test]
fn an_unknown_flow_is_refused_with_a_suggestion() {
    let place = Place::with_session(&["hello"]);
    let error = place.fails(&["send", "--flow", "chta", "--script", "echo.toml", "hello"]);
    assert_eq!(error, "error: there is no flow `chta`; did you mean `chat`?\n");
    assert_eq!(place.ok(&["send", "--flow", "chat", "--session", "a", "--script", "echo.toml", "x"]), "You said: x\n");
}

#[test]
fn an_interrupt_cancels_the_turn_and_keeps_the_message() {
    let place = Place::new();
    place.write("hang.toml", "[default]\nhang = true\n");
    let child = place.start(&["send", "--session", "s", "--script", "hang.toml", "hello"]);
    crate::crash::wait_for(&place, "s", "c1 assistant asked");
    let interrupt = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(interrupt.expect("kill runs").success());
    let run = crate::support::Run::of(&child.wait_with_output().expect("it ends"));
    assert_eq!((run.code, run.err.as_str()), (130, "cancelled the turn; the session is `s`\n"), "{}", run.out);
    let shown = place.ok(&["show", "s"]);
    assert!(shown.contains("m1 user      hello") && shown.contains("t1 was cancelled"), "{shown}");
}
