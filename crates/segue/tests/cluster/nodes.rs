//! Nodes as processes of `segue serve` on one database.

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tempfile::TempDir;

use crate::database::Database;
use crate::model_server::ModelServer;

/// Shorter than usual, so that a test sees takeovers.
const LEASE_MS: &str = "2000";

/// Records who wrote which head under which epoch.
const AUDIT: &str = "
    CREATE TABLE audit (uid BIGINT, epoch BIGINT, node TEXT, head BIGINT);
    CREATE FUNCTION audit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
        IF NEW.head <> OLD.head THEN
            INSERT INTO audit VALUES (NEW.uid, NEW.epoch, current_setting('application_name'), NEW.head);
        END IF;
        RETURN NEW;
    END $$;
    CREATE TRIGGER audit AFTER UPDATE ON segue_sessions FOR EACH ROW EXECUTE FUNCTION audit()";

pub(crate) struct Cluster {
    pub(crate) database: Mutex<Database>,
    nodes: Vec<Node>,
    progress: Arc<AtomicUsize>,
}

struct Node {
    folder: TempDir,
    port: u16,
    url: String,
    child: Mutex<Option<Child>>,
}

impl Cluster {
    pub(crate) fn start(count: usize, model: &ModelServer, database: Database) -> Self {
        let url = database.url();
        let new_node = |_| {
            let folder = tempfile::tempdir().expect("a folder");
            let config = format!(
                "[models]\ndefault = \"echo\"\n[models.echo]\nprovider = \"openai-compatible\"\n\
                 base_url = \"http://127.0.0.1:{}/v1\"\nkey_env = \"ECHO_KEY\"\n",
                model.port
            );
            std::fs::write(folder.path().join("node.toml"), config).expect("written");
            Node { folder, port: free_port(), url: url.clone(), child: Mutex::default() }
        };
        let nodes: Vec<Node> = (0..count).map(new_node).collect();
        nodes[0].start();
        let _ = database.run_sql(AUDIT);
        nodes[1..].iter().for_each(Node::start);
        Self { database: Mutex::new(database), nodes, progress: Arc::default() }
    }

    pub(crate) fn ports(&self) -> Vec<u16> {
        self.nodes.iter().map(|node| node.port).collect()
    }

    /// Counts the messages that clients got an answer for.
    pub(crate) fn progress(&self) -> Arc<AtomicUsize> {
        self.progress.clone()
    }

    pub(crate) fn answered(&self) -> usize {
        self.progress.load(Ordering::Acquire)
    }

    pub(crate) fn run_sql(&self, sql: &str) -> String {
        self.database.lock().expect("nobody panicked").run_sql(sql)
    }

    pub(crate) fn kill(&self, node: usize) {
        if let Some(mut child) = self.nodes[node].child.lock().expect("nobody panicked").take() {
            child.kill().expect("killed");
            child.wait().expect("gone");
        }
    }

    pub(crate) fn restart(&self, node: usize) {
        self.nodes[node].start();
    }

    /// Sends a signal to a node.
    pub(crate) fn signal(&self, node: usize, signal: &str) {
        let child = self.nodes[node].child.lock().expect("nobody panicked");
        let id = child.as_ref().expect("it runs").id().to_string();
        let sent = Command::new("kill").args([signal, &id]).status().expect("kill starts");
        assert!(sent.success(), "kill {signal} {id}");
    }

    /// Asks a node to end, and waits until it has.
    pub(crate) fn stop_gracefully(&self, node: usize) {
        self.signal(node, "-TERM");
        if let Some(mut child) = self.nodes[node].child.lock().expect("nobody panicked").take() {
            child.wait().expect("it ends");
        }
    }
}

impl Node {
    fn start(&self) {
        let (port, home) = (self.port.to_string(), self.folder.path());
        let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
        // A configuration that is named is trusted.
        command.args(["serve", "--config", "node.toml", "--port", &port, "--lease-ms", LEASE_MS, "--store", &self.url]);
        command.args(["--advertise", &format!("http://127.0.0.1:{port}")]);
        command.env_clear().env("HOME", home).env("ECHO_KEY", "any").env("SEGUE_LOG", "warn").env("NO_COLOR", "1");
        command.env("SEGUE_CLUSTER_SECRET", "a secret that all nodes of the test share").current_dir(home);
        let log = std::fs::File::options().create(true).append(true).open(home.join("log")).expect("a log");
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().expect("a node starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("it prints its address");
        let log = || std::fs::read_to_string(home.join("log")).unwrap_or_default();
        assert!(line.contains("listens on"), "{line:?} {}", log());
        *self.child.lock().expect("nobody panicked") = Some(child);
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.lock().expect("nobody panicked").take() {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(30)..].join("\n");
            println!("--- the end of the log of the node on port {}:\n{last}", self.port);
        }
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound").port()
}
