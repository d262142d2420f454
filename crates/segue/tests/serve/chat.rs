//! `segue chat --server` behaves like `segue chat` with a local engine.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::process::{Output, Stdio};
use std::thread;

use serde_json::json;

use crate::place::{Place, Serving};

const SCENARIO: &str = r#"
[[reply]]
contains = "fail"
fail = "invalid_api_key"

[default]
chunks = ["turn {{turn}}: ", "you said ", "{{last}}"]
"#;

/// Pipes lines through a chat.
fn chat(place: &Place, arguments: &[&str], key: Option<&str>, input: &str) -> Output {
    let mut command = place.command(&["chat"]);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(key) = key {
        command.env("SEGUE_KEY", key);
    }
    let mut child = command.spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("piped");
    let input = input.to_owned();
    // The write may fail if the chat ends early.
    let writer = thread::spawn(move || drop(stdin.write_all(input.as_bytes())));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("written");
    output
}

fn out(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn url(server: &Serving) -> String {
    format!("http://127.0.0.1:{}", server.port)
}

/// Replaces times, which differ from run to run.
fn timeless(text: &str) -> String {
    let is_time = |word: &str| word.ends_with("ms") || word.contains(':') || word.starts_with("20");
    let plain = |line: &str| {
        let words = line.split_whitespace().map(|word| if is_time(word) { "·" } else { word });
        words.filter(|word| *word != "ms" && word.parse::<u64>().is_err()).collect::<Vec<_>>().join(" ")
    };
    text.lines().map(plain).collect::<Vec<_>>().join("\n")
}

#[test]
fn every_command_prints_the_same_as_with_a_local_engine() {
    let input = "one\n/rename Tea\ntwo\n/explain\n/explain c1\n/cost\n/phase\n/artifacts\n/sessions\n/cancel\n/recompute c1 model=scripted\n\
                 /reset assistant\nthree\n/fork leaf\nfour\n/nonsense\nfail\n/retry\nfive\n";
    let here = Place::new(SCENARIO);
    let expected = chat(&here, &["--session", "tea"], None, input);
    let there = Place::new(SCENARIO);
    let server = there.serve(0, &[]);
    let got = chat(&there, &["--server", &url(&server), "--session", "tea"], None, input);
    assert_eq!(timeless(&out(&got)), timeless(&out(&expected)));
    assert_eq!(timeless(&err(&got)), timeless(&err(&expected)));
    assert_eq!(got.status.code(), expected.status.code());
    assert!(
        out(&got).contains("turn 3: you said three") && out(&got).contains("turn 4: you said four"),
        "{}",
        out(&got)
    );
    let (_, session) = server.get("/v1/sessions/leaf", None);
    assert_eq!((&session["title"], &session["turns"]), (&json!("Tea"), &json!(7)), "{session}");
}

#[test]
fn the_concierge_prints_the_same_as_with_a_local_engine() {
    let input =
        "Should we move?\nWe have a cat.\n/phase\n/propose executor\n/artifacts\nWe will do it, give us a plan.\n";
    let here = Place::rehearsed();
    let expected = chat(&here, &["--flow", "concierge", "--session", "sea"], None, input);
    let there = Place::rehearsed();
    let server = there.serve(0, &[]);
    let got = chat(&there, &["--server", &url(&server), "--flow", "concierge", "--session", "sea"], None, input);
    assert!(out(&got).len() > 500, "{}", out(&got));
    assert_eq!(timeless(&out(&got)), timeless(&out(&expected)));
    assert_eq!(timeless(&err(&got)), timeless(&err(&expected)));
}

#[test]
fn a_session_is_continued_exported_and_listed() {
    let place = Place::new(SCENARIO);
    let server = place.serve(0, &[]);
    let at = ["--server", &url(&server), "--session", "tea"];
    assert_eq!(out(&chat(&place, &at, None, "one\n")), "turn 1: you said one\n");
    assert_eq!(
        out(&chat(&place, &at, None, "two\n/export copy.jsonl\n")),
        "turn 2: you said two\nexported to copy.jsonl\n"
    );
    let exported = std::fs::read_to_string(place.path().join("copy.jsonl")).expect("written");
    let (status, direct) = server.text("/v1/sessions/tea/export");
    assert_eq!((status, exported), (200, direct));
    let model = chat(&place, &["--server", &url(&server), "--model", "scripted"], None, "");
    assert!(model.status.code() == Some(2) && err(&model).contains("cannot be used with '--model"), "{}", err(&model));
    let set = chat(&place, &["--server", &url(&server), "--session", "tea", "--set", "a=b"], None, "");
    assert!(err(&set).contains("the settings of session `tea` cannot change"), "{}", err(&set));
}

#[test]
fn a_key_is_required_and_limits_the_visible_sessions() {
    let place = Place::new(SCENARIO);
    let made = place.command(&["keys", "add", "laptop", "--owner", "acme"]).output().expect("it runs");
    let key = out(&made).trim().to_owned();
    let server = place.serve(0, &["--require-key"]);
    let at = ["--server", &url(&server), "--session", "tea"];
    let without = chat(&place, &at, None, "one\n");
    assert!(!without.status.success() && err(&without).contains("SEGUE_KEY"), "{}", err(&without));
    let wrong = chat(&place, &at, Some("sg_nobody_nothing"), "one\n");
    assert!(!wrong.status.success() && err(&wrong).contains("unknown key"), "{}", err(&wrong));
    let with = chat(&place, &at, Some(&key), "one\n/sessions\n");
    assert!(out(&with).starts_with("turn 1: you said one\n") && !out(&with).contains("acme"), "{}", out(&with));
}

#[test]
fn an_unreachable_or_foreign_server_is_refused() {
    let place = Place::new(SCENARIO);
    let nobody = TcpListener::bind("127.0.0.1:0").expect("a port");
    let away = format!("http://{}", nobody.local_addr().expect("bound"));
    drop(nobody);
    let refused = |url: &str| {
        let output = chat(&place, &["--server", url], None, "one\n");
        assert!(!output.status.success() && output.stdout.is_empty(), "{}", out(&output));
        err(&output)
    };
    assert!(refused(&away).contains(&format!("cannot reach the server at {away}; is it running?")));
    assert!(refused("tea").contains("`tea` is not the address of a server (like http://127.0.0.1:7348)"));
    let newer = stand_in("application/json", r#"{"version": "9.1.0"}"#);
    assert!(refused(&newer).contains("is segue 9.1.0, and this is segue "), "{newer}");
    assert!(refused(&stand_in("text/html", "<h1>hello</h1>")).contains("is not a Segue server"));
}

/// A server that gives the same response to every request.
fn stand_in(kind: &str, body: &str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("bound"));
    let answer = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        body.len()
    );
    thread::spawn(move || {
        let (mut socket, _) = listener.accept().expect("asked");
        let mut lines = BufReader::new(socket.try_clone().expect("the same")).lines();
        while lines.next().is_some_and(|line| line.is_ok_and(|line| !line.is_empty())) {}
        socket.write_all(answer.as_bytes()).expect("answered");
    });
    url
}
