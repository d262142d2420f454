//! One message, one reply.

use expect_test::expect;

use crate::support::Place;

#[test]
fn a_message_is_answered_without_any_configuration_and_the_rehearsal_says_so() {
    let place = Place::new();
    let run = place.run(&["send", "hello"]);
    assert_eq!(run.code, 0);
    assert!(run.out.ends_with("(rehearsal)\n"), "{}", run.out);
    expect![[r#"
        no model is configured: a rehearsal model answers, and only pretends (see `segue doctor`)
    "#]]
    .assert_eq(&run.err);
}

#[test]
fn a_session_is_begun_once_and_gone_on_with() {
    let place = Place::with_session(&["hello"]);
    assert_eq!(place.ok(&["send", "--session", "a", "--script", "echo.toml", "again"]), "You said: again\n");
    assert_eq!(place.ok(&["send", "--session", "last", "--script", "echo.toml", "last"]), "You said: last\n");
    assert_eq!(place.json(&["sessions", "--json"])[0]["turns"], 3);
}

#[test]
fn machines_are_told_what_the_turn_came_to() {
    let place = Place::with_session(&["hello"]);
    let out = place.ok(&["send", "--session", "a", "--script", "echo.toml", "--json", "again"]);
    expect![[r#"
        {
          "calls": [
            {
              "call": "c2",
              "cost_microusd": null,
              "counted_by": "vendor",
              "end": "answered",
              "failed_tries": 0,
              "model": "scripted",
              "ms": 0,
              "role": "assistant",
              "stop": "done",
              "tokens_cached": 0,
              "tokens_in": 40,
              "tokens_out": 5,
              "unknown_tries": 0
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
          "spent": {
            "calls": 1,
            "cost_microusd": null,
            "failed_tries": 0,
            "tokens_cached": 0,
            "tokens_in": 40,
            "tokens_out": 5,
            "unknown_tries": 0
          },
          "turn": "t2"
        }
    "#]]
    .assert_eq(&out);
}

#[test]
fn the_same_key_is_the_same_message() {
    let place = Place::with_session(&["hello"]);
    let send = |key: &str, text: &str| {
        place.json(&["send", "--session", "a", "--script", "echo.toml", "--json", "--key", key, text])
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
    assert!(run.err.starts_with("error: the message on standard input is no UTF-8 text\n"), "{}", run.err);
}

#[test]
fn a_turn_that_fails_says_why_and_ends_with_a_code() {
    let place = Place::new();
    place.write("fail.toml", "[default]\nfail = \"invalid_api_key\"\nmessage = \"who are you?\"\n");
    let error = place.fails(&["send", "--session", "f", "--script", "fail.toml", "hello"]);
    assert_eq!(error, "error: the turn failed: key not accepted: who are you?\n");
    let run = place.run(&["send", "--session", "f", "--script", "fail.toml", "--json", "hello"]);
    let report: serde_json::Value = serde_json::from_str(&run.out).expect("JSON");
    assert_eq!((run.code, &report["outcome"], &report["calls"][0]["end"]), (1, &"failed".into(), &"failed".into()));
    assert_eq!(report["reason"], "key not accepted: who are you?");
}

#[test]
fn what_is_refused_leaves_no_session_behind() {
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
fn what_is_refused_in_a_session_that_stands_leaves_it_standing() {
    let place = Place::with_session(&["hello"]);
    place.fails(&["send", "--session", "a", "--script", "echo.toml", ""]);
    assert_eq!(place.json(&["sessions", "--json"])[0]["turns"], 1);
}

#[test]
fn a_scenario_names_its_flow_and_its_mistakes() {
    let place = Place::new();
    place.write("other.toml", "[scenario]\nflow = \"nowhere\"\n[default]\ntext = \"x\"\n");
    let error = place.fails(&["send", "--script", "other.toml", "hello"]);
    assert!(error.starts_with("error: there is no flow `nowhere`; there are `"), "{error}");
    place.write("broken.toml", "[[reply]]\ntxet = \"x\"\n");
    let error = place.fails(&["send", "--script", "broken.toml", "hello"]);
    expect![[r#"
        error: the scenario broken.toml has a mistake
          because: line 2, [[reply]] 1: unknown key `txet`; did you mean `text`?
    "#]]
    .assert_eq(&error);
    let error = place.fails(&["send", "--script", "absent.toml", "hello"]);
    assert!(error.starts_with("error: cannot read the scenario absent.toml\n  because: No such file"), "{error}");
}

#[test]
fn a_flow_that_is_not_there_is_told_apart_from_one_that_is_another() {
    let place = Place::with_session(&["hello"]);
    let error = place.fails(&["send", "--flow", "chta", "--script", "echo.toml", "hello"]);
    assert_eq!(error, "error: there is no flow `chta`; did you mean `chat`?\n");
    assert_eq!(place.ok(&["send", "--flow", "chat", "--session", "a", "--script", "echo.toml", "x"]), "You said: x\n");
}

#[test]
fn an_interrupt_stops_the_turn_and_keeps_the_message() {
    let place = Place::new();
    place.write("hang.toml", "[default]\nhang = true\n");
    let child = place.start(&["send", "--session", "s", "--script", "hang.toml", "hello"]);
    crate::crash::wait_for(&place, "s", "c1 assistant asked");
    let interrupt = std::process::Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(interrupt.expect("kill runs").success());
    let run = crate::support::Run::of(&child.wait_with_output().expect("it ends"));
    assert_eq!((run.code, run.err.as_str()), (130, "stopped; the session is `s`\n"), "{}", run.out);
    let shown = place.ok(&["show", "s"]);
    assert!(shown.contains("m1 user      hello") && shown.contains("t1 was cancelled"), "{shown}");
}
