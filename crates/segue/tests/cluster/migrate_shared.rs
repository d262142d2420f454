//! `segue migrate` also copies what servers keep in files: keys, what they used, and webhooks with their delivery marks. A webhook
//! continues where it was: nothing is delivered twice, and nothing is left out.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};

use segue_store::sqlite::SqliteStore;
use segue_testkit::TemporaryPostgres;
use serde_json::{Value, json};
use tempfile::TempDir;

const CONFIG: &str =
    "[models]\ndefault = \"scripted\"\n[models.scripted]\nkind = \"scripted\"\nfile = \"scenario.toml\"\n";
const SCENARIO: &str = "[default]\ntext = \"You said: {{last}}\"\nusage = { input = 40, output = 5 }\n";

/// A home folder with a store file.
struct Home(TempDir);

/// A running server. It is killed when it is dropped.
struct Server {
    child: Child,
    port: u16,
}

/// Receives webhooks. Every delivery is acknowledged.
struct WebhookReceiver {
    url: String,
    /// The id and the body of each delivery.
    deliveries: Receiver<(String, Value)>,
}

impl Home {
    fn new() -> Self {
        let home = Self(tempfile::tempdir().expect("a folder"));
        for (name, text) in [("segue.toml", CONFIG), ("scenario.toml", SCENARIO)] {
            std::fs::write(home.path().join(name), text).expect("written");
        }
        home
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn file(&self) -> String {
        self.path().join("data/segue.db").display().to_string()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
        command.args(arguments).args(["--config", "segue.toml"]).current_dir(self.path()).env_clear();
        command
            .env("HOME", self.path())
            .env("SEGUE_LOG", "off")
            .env("SEGUE_WEBHOOK_SECRET", "one secret for all servers");
        command.stdin(Stdio::null());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("it runs")
    }

    fn run_json(&self, arguments: &[&str]) -> Value {
        let output = self.run(&[arguments, &["--json"]].concat());
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// Runs a migration, and returns how many keys and webhooks it copied.
    fn migrate(&self, target: &str) -> (u64, u64) {
        let report = self.run_json(&["migrate", &self.file(), target]);
        assert_eq!(report["usage_days"], 1, "{report}");
        let count = |name: &str| report[name].as_u64().expect("a count");
        (count("copied_keys"), count("copied_webhooks"))
    }

    fn serve(&self, store: &str) -> Server {
        let mut command = self.command(&["serve", "--port", "0", "--store", store]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("it prints its address");
        let port = line.split("http://127.0.0.1:").nth(1).and_then(|rest| rest.split(' ').next()?.parse().ok());
        Server { child, port: port.unwrap_or_else(|| panic!("no address in {line:?}")) }
    }
}

impl Server {
    fn ask(&self, method: &str, path: &str, body: &Value, key: &str) -> Value {
        let mut socket = TcpStream::connect(("127.0.0.1", self.port)).expect("it listens");
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let head = format!(
            "{method} {path} HTTP/1.0\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             authorization: Bearer {key}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        socket.write_all(format!("{head}{body}").as_bytes()).expect("asked");
        let mut answer = String::new();
        socket.read_to_string(&mut answer).expect("answered");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        assert!(head.starts_with("HTTP/1.0 2"), "{method} {path}: {answer}");
        serde_json::from_str(body).expect("JSON")
    }

    fn send_message(&self, session: &str, text: &str, key: &str) {
        let answer = self.ask("POST", &format!("/v1/sessions/{session}/messages"), &json!({ "text": text }), key);
        assert_eq!(answer["reply"], format!("You said: {text}"), "{answer}");
    }

    fn stop(mut self) {
        let asked = Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status().expect("kill starts");
        assert!(asked.success());
        self.child.wait().expect("it ends");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl WebhookReceiver {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let url = format!("http://{}/hook", listener.local_addr().expect("bound"));
        let (sender, deliveries) = channel();
        std::thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let Some(delivery) = receive_delivery(socket) else { continue };
                if sender.send(delivery).is_err() {
                    return;
                }
            }
        });
        Self { url, deliveries }
    }

    /// Returns the id and the text of the next reply that is delivered.
    fn next_reply(&self) -> (String, String) {
        let (id, body) = self.deliveries.recv().expect("the receiver runs");
        let text = body["data"]["event"].to_string();
        let (_, said) = text.split_once("You said: ").unwrap_or_else(|| panic!("no reply in {body}"));
        (id, said.split('"').next().expect("a first part").to_owned())
    }
}

/// Reads a delivery and acknowledges it.
fn receive_delivery(mut socket: TcpStream) -> Option<(String, Value)> {
    let mut reader = BufReader::new(socket.try_clone().ok()?);
    let (mut id, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim_end();
        match line.split_once(": ") {
            None if line.is_empty() => break,
            Some((name, value)) if name.eq_ignore_ascii_case("webhook-id") => id = value.to_owned(),
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => length = value.parse().ok()?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    socket.write_all(b"HTTP/1.1 204 No Content\r\nconnection: close\r\n\r\n").ok()?;
    Some((id, serde_json::from_slice(&body).ok()?))
}

/// Creates a key with a limit. Returns its id and the key itself.
fn create_key(home: &Home, store: &str, name: &str) -> (String, String) {
    let made = home.run_json(&["keys", "add", name, "--tokens-per-day", "1000", "--store", store]);
    let text = |field: &str| made[field].as_str().unwrap_or_else(|| panic!("no {field} in {made}")).to_owned();
    let secret = made.as_object().and_then(|made| made.values().find_map(|value| value.as_str()?.strip_prefix("sg_")));
    (text("key"), format!("sg_{}", secret.expect("the key itself")))
}

/// A home whose server delivered one reply, and was stopped before another one was recorded. Returns the key that paid.
fn used_home(receiver: &WebhookReceiver) -> (Home, (String, String)) {
    let home = Home::new();
    let (id, key) = create_key(&home, &home.file(), "laptop");
    let server = home.serve(&home.file());
    server.ask("POST", "/v1/sessions", &json!({"session": "fox", "flow": "chat"}), &key);
    server.send_message("fox", "before the webhook", &key);
    let webhook = json!({"url": receiver.url, "events": ["reply_sent"]});
    server.ask("POST", "/v1/webhooks", &webhook, &key);
    server.ask("POST", "/v1/sessions", &json!({"session": "hen", "flow": "chat"}), &key);
    server.send_message("hen", "delivered", &key);
    assert_eq!(receiver.next_reply().1, "delivered");
    server.stop();
    let sent = home.run(&["send", "--session", "hen", "--store", &home.file(), "recorded without a server"]);
    assert!(sent.status.success(), "{}", String::from_utf8_lossy(&sent.stderr));
    (home, (id, key))
}

fn database_of(target: &str) -> &str {
    target.rsplit('/').next().expect("a name")
}

#[test]
fn webhooks_keys_and_usage_continue_in_the_database() {
    let receiver = WebhookReceiver::start();
    let (home, (_, key)) = used_home(&receiver);
    let (postgres, target) = (TemporaryPostgres::shared(), TemporaryPostgres::shared().create_database());
    let source = SqliteStore::open(home.file()).expect("opens");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let epoch = runtime.block_on(source.newest_epoch()).expect("read").0;
    drop(source);
    assert_eq!(home.migrate(&target), (1, 1));
    let lowest: u64 =
        postgres.run_sql(database_of(&target), "SELECT min(epoch) FROM segue_sessions").parse().expect("an epoch");
    assert!(lowest > epoch, "an epoch that tools remember must not come again: {lowest} after {epoch}");

    let node = home.serve(&target);
    let (id, text) = receiver.next_reply();
    assert_eq!(text, "recorded without a server");
    let usage = node.ask("GET", "/v1/usage", &Value::Null, &key);
    assert_eq!(
        (&usage["keys"][0]["input_tokens"], &usage["keys"][0]["output_tokens"]),
        (&json!(120), &json!(15)),
        "{usage}"
    );
    node.send_message("fox", "in the database", &key);
    let (next_id, text) = receiver.next_reply();
    assert_eq!(text, "in the database", "nothing is delivered twice, and nothing from before the webhook");
    assert_ne!(id, next_id);
    let usage = node.ask("GET", "/v1/usage", &Value::Null, &key);
    assert_eq!(usage["keys"][0]["input_tokens"], 160, "{usage}");
}

#[test]
fn migration_of_keys_and_webhooks_continues_and_undoes_nothing() {
    let receiver = WebhookReceiver::start();
    let (home, (id, _)) = used_home(&receiver);
    let (postgres, target) = (TemporaryPostgres::shared(), TemporaryPostgres::shared().create_database());
    let database = database_of(&target);
    create_key(&home, &target, "there already");
    assert_eq!(home.migrate(&target), (1, 1));
    assert_eq!(home.migrate(&target), (0, 0));
    // As if it had been interrupted before it noted what it had copied, and before the list of webhooks.
    let _ = postgres.run_sql(database, "DELETE FROM segue_records WHERE name IN ('copied-from-files', 'webhooks')");
    assert_eq!(home.migrate(&target), (0, 1));
    let stored = postgres.run_sql(database, "SELECT convert_from(data, 'UTF8') FROM segue_records WHERE name = 'keys'");
    let keys: Value = serde_json::from_str(&stored).expect("JSON");
    assert_eq!(keys.as_array().map(Vec::len), Some(2), "{keys}");
    let used = "SELECT sum(input_tokens) FROM segue_usage";
    assert_eq!(postgres.run_sql(database, used), "120", "usage is added once");

    // What was changed in the database stays so.
    home.run_json(&["keys", "revoke", &id, "--store", &target]);
    assert_eq!(home.migrate(&target), (0, 0));
    let listed = home.run_json(&["keys", "--store", &target]);
    assert!(!listed.to_string().contains(&id), "{listed}");

    // A key that merely has the same id is not taken for the copy.
    let other = "UPDATE segue_records SET data = convert_to(replace(convert_from(data, 'UTF8'), '\"url\": \"http', \
                 '\"url\": \"https'), 'UTF8') WHERE name = 'webhooks'";
    let _ = postgres.run_sql(database, other);
    let _ = postgres.run_sql(database, "DELETE FROM segue_records WHERE name = 'copied-from-files'");
    let refused = home.run(&["migrate", &home.file(), &target]);
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && error.contains("another webhook with the id"), "{error}");
}
