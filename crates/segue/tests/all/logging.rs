//! The log of the program: where it goes, what it contains, and what it must not contain.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{ECHO, Place, Run};
use crate::vendor::Vendor;

const VENDOR_KEY: &str = "sk-vendor-key-4711";
const WRONG_VENDOR_KEY: &str = "sk-wrong-vendor-key-4712";
const WRONG_CLIENT_KEY: &str = "sg_abcdef_wrong-client-key-4713";
const WEBHOOK_SECRET: &str = "webhook-secret-4714";
/// Part of every text of the conversation.
const MARKER: &str = "marker-4715";

/// A running server whose log goes to the file `log`.
struct Server {
    child: Child,
    port: u16,
}

impl Server {
    fn start(place: &Place, arguments: &[&str], env: &[(&str, &str)]) -> Self {
        let log = File::create(place.path().join("log")).expect("created");
        let mut command = place.command(&[&["serve", "--port", "0"], arguments].concat());
        let mut child =
            command.envs(env.iter().copied()).stdout(Stdio::piped()).stderr(log).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("it prints its address");
        let port = line.split("http://127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
        Self { child, port: port.unwrap_or_else(|| panic!("no address in {line:?}")) }
    }

    fn post(&self, path: &str, key: &str, body: &Value) -> (u16, Value) {
        let body = body.to_string();
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        // With HTTP/1.0 a response ends with its connection.
        let head = format!(
            "POST {path} HTTP/1.0\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             authorization: Bearer {key}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        socket.write_all(format!("{head}{body}").as_bytes()).expect("asked");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("answered");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, serde_json::from_str(body).expect("JSON"))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The errors may be dropped: the server may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs a turn that succeeds, one that fails, and a request with a wrong key, with the most detailed log there is.
fn log_of_conversation() -> Vec<Value> {
    let (place, vendor) = (Place::new(), Vendor::new(VENDOR_KEY));
    let model = |name: &str, key_env: &str| {
        format!(
            "[models.{name}]\nprovider = \"openai-compatible\"\nbase_url = \"{}\"\nkey_env = \"{key_env}\"\n\
             model = \"echo\"\nwindow_tokens = 9000\n",
            vendor.url()
        )
    };
    let (echo, locked) = (model("echo", "ECHO_KEY"), model("locked", "WRONG_KEY"));
    place.write("segue.toml", &format!("[models]\ndefault = \"echo\"\n{echo}{locked}"));
    let added = place.run(&["keys", "add", "laptop"]);
    let key = added.out.trim();
    assert!(key.starts_with("sg_"), "{key}");
    let env = [
        ("SEGUE_LOG", "trace"),
        ("ECHO_KEY", VENDOR_KEY),
        ("WRONG_KEY", WRONG_VENDOR_KEY),
        ("SEGUE_WEBHOOK_SECRET", WEBHOOK_SECRET),
    ];
    let server = Server::start(&place, &["--require-key", "--log-format", "json"], &env);
    let open = |session: &str, model: &str| {
        let body = json!({ "session": session, "title": format!("title {MARKER}"), "models": { "assistant": model } });
        assert_eq!(server.post("/v1/sessions", key, &body).0, 201);
    };
    open("s1", "echo");
    open("s2", "locked");
    let message = json!({ "text": format!("hello {MARKER}"), "key": format!("idempotency-{MARKER}") });
    let (status, reply) = server.post("/v1/sessions/s1/messages", key, &message);
    assert_eq!((status, reply["reply"].as_str()), (200, Some(format!("You said: hello {MARKER}").as_str())));
    let (_, failed) = server.post("/v1/sessions/s2/messages", key, &message);
    assert_eq!(failed["outcome"]["type"], "failed", "{failed}");
    assert_eq!(server.post("/v1/sessions", WRONG_CLIENT_KEY, &json!({})).0, 401);
    drop(server);
    let log = place.read("log");
    let (_, client_secret) = key.rsplit_once('_').expect("a secret");
    for secret in [MARKER, VENDOR_KEY, WRONG_VENDOR_KEY, "wrong-client-key", WEBHOOK_SECRET, client_secret] {
        assert!(!log.contains(secret), "the log contains `{secret}`:\n{log}");
    }
    log.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not JSON: {line}"))).collect()
}

/// Returns the first line with this level and message.
fn find_line<'a>(log: &'a [Value], level: &str, message: &str) -> &'a Value {
    let found = log.iter().find(|line| line["level"] == level && line["message"] == message);
    found.unwrap_or_else(|| panic!("no {level} line `{message}` in {log:#?}"))
}

#[test]
fn log_of_a_server_contains_ids_and_no_text_and_no_secret() {
    let log = log_of_conversation();
    find_line(&log, "INFO", "listening");
    let refused = find_line(&log, "WARN", "request refused");
    assert_eq!((&refused["code"], &refused["route"]), (&json!("key-invalid"), &json!("/v1/sessions")));
    let answered = find_line(&log, "DEBUG", "call answered");
    assert_eq!(
        (&answered["session"], &answered["call"], &answered["attempt"]),
        (&json!("s1"), &json!("c1"), &json!(1))
    );
    let failed = find_line(&log, "ERROR", "call failed; the configured API key is not accepted");
    assert_eq!((&failed["session"], &failed["call"]), (&json!("s2"), &json!("c1")));

    let spans = find_line(&log, "DEBUG", "vendor responded")["spans"].as_array().expect("spans").clone();
    let names: Vec<&str> = spans.iter().filter_map(|span| span["name"].as_str()).collect();
    assert_eq!(names, ["session", "turn", "call"], "{spans:?}");
    assert_eq!((&spans[0]["session"], &spans[1]["turn"]), (&json!("s1"), &json!("t1")));
    assert!(spans[0]["epoch"].is_u64(), "{spans:?}");
    let call = &spans[2];
    assert_eq!((&call["call"], &call["attempt"], &call["model"]), (&json!("c1"), &json!(1), &json!("echo")));
    assert!(call["provider"].as_str().is_some_and(|provider| provider.contains("127.0.0.1")), "{call}");
    assert!(log.iter().all(|line| line["target"].as_str().is_some_and(|target| target.starts_with("segue"))));
}

/// Polls the log until one line has all these parts.
fn wait_for_line(place: &Place, parts: &[&str]) {
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(60) {
        if place.read("log").lines().any(|line| parts.iter().all(|part| line.contains(part))) {
            return;
        }
        std::thread::yield_now();
    }
    panic!("no line with {parts:?} in:\n{}", place.read("log"));
}

#[test]
fn log_tells_of_a_lease_taken_over_from_a_dead_process() {
    let place = Place::new();
    place.write("hang.toml", "[default]\nhang = true\n");
    place.write("segue.toml", "[models.hanging]\nkind = \"scripted\"\nfile = \"hang.toml\"\n");
    let killed = Server::start(&place, &[], &[]);
    assert_eq!(killed.post("/v1/sessions", "", &json!({ "session": "s" })).0, 201);
    let message = json!({ "text": "hello", "wait": false });
    assert_eq!(killed.post("/v1/sessions/s/messages", "", &message).0, 202);
    drop(killed);
    let _server = Server::start(&place, &[], &[]);
    wait_for_line(&place, &["INFO", "resuming sessions with pending work", "sessions=1"]);
    wait_for_line(&place, &["INFO", "taking over the lease of another process", "session=s", "epoch=", "holder="]);
    wait_for_line(&place, &["INFO", "recovering unfinished work", "session=s"]);
}

#[test]
fn log_tells_of_webhooks_that_fail_without_their_address() {
    let place = Place::new();
    place.write("echo.toml", ECHO);
    let env = [("SEGUE_WEBHOOK_SECRET", WEBHOOK_SECRET)];
    let server = Server::start(&place, &["--script", "echo.toml"], &env);
    // Nothing listens at this port.
    let (status, created) = server.post("/v1/webhooks", "", &json!({ "url": "http://127.0.0.1:9/?token=token-4716" }));
    assert_eq!(status, 201, "{created}");
    assert_eq!(server.post("/v1/sessions", "", &json!({ "session": "s" })).0, 201);
    wait_for_line(&place, &["WARN", "webhook delivery failed", "session=s", "seq=1", "attempt=1", "retry_ms="]);
    let log = place.read("log");
    assert!(!log.contains("token-4716") && !log.contains(WEBHOOK_SECRET), "{log}");
}

#[test]
fn server_logs_information_and_commands_log_nothing() {
    let place = Place::new();
    place.write("echo.toml", ECHO);
    let server = Server::start(&place, &["--script", "echo.toml"], &[]);
    let opened = server.post("/v1/sessions", "", &json!({ "session": "s" }));
    assert_eq!(opened.0, 201);
    drop(server);
    let log = place.read("log");
    assert!(log.contains("INFO segue_server::http_server: listening address=127.0.0.1:"), "{log}");
    assert!(!log.contains("DEBUG") && !log.contains("session opened"), "{log}");

    assert_eq!(place.ok(&["send", "--script", "echo.toml", "--session", "a", "hi"]), "You said: hi\n");
    let mut command = place.command(&["send", "--script", "echo.toml", "--session", "a", "hi again"]);
    let run = Run::of(&command.env("SEGUE_LOG", "segue_engine=debug").output().expect("it runs"));
    assert_eq!((run.code, run.out.as_str()), (0, "You said: hi again\n"));
    assert!(run.err.contains("DEBUG") && run.err.contains("turn started session=a turn=t2"), "{}", run.err);
    assert!(!run.err.contains("segue_store"), "{}", run.err);
}

#[test]
fn invalid_log_filter_is_an_error() {
    let place = Place::new();
    let run = Run::of(&place.command(&["sessions"]).env("SEGUE_LOG", "segue=loud").output().expect("it runs"));
    assert_eq!(run.code, 1);
    assert!(run.err.starts_with("error: `segue=loud` in SEGUE_LOG is not a log filter; try `debug`"), "{}", run.err);
}
