//! The server as others know it: the official OpenAI clients, unmodified, and a tester that knows nothing but the API's description. Sets up
//! what they need under `target/`, once, and starts the program for them.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::checkout;
use crate::stages::Outcome;

const PYTHON_PACKAGES: [&str; 2] = ["openai==3.49.0", "schemathesis==4.32.5"];
const NODE_PACKAGES: [&str; 1] = ["openai@7.53.0"];
/// Streams without an end are tested elsewhere.
const ENDLESS: &str = "/v1/changes";

/// Runs them all.
pub fn check() -> Result<Outcome> {
    if !runs("python3", &["-c", "import venv, ensurepip"]) || !runs("npm", &["--version"]) {
        let why =
            "Python 3 (with venv) and npm are needed to run the clients; Debian: `apt-get install python3-venv npm`";
        return Ok(Outcome::Skipped(why.to_owned()));
    }
    let folder = checkout::root().join("target/clients");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let python = python(&folder)?;
    node(&folder)?;
    let built = checkout::cargo().args(["build", "--package", "segue", "--locked"]).status();
    if !built.context("cargo could not be started")?.success() {
        return Ok(Outcome::Failed);
    }
    let server = Server::start(&folder)?;
    let tests = checkout::root().join("crates/server/tests/clients");
    // Node looks for packages above the file that wants them.
    std::fs::copy(tests.join("talk.mjs"), folder.join("talk.mjs")).context("cannot copy the conversation for Node")?;
    let mut talks = Command::new(python.join("python"));
    talks.arg(tests.join("talk.py"));
    let mut node = Command::new("node");
    node.arg("talk.mjs");
    let mut tester = Command::new(python.join("schemathesis"));
    tester
        .args([
            "run",
            &format!("{}/openapi.json", server.url),
            "--exclude-path",
            ENDLESS,
            "--phases",
            "examples,coverage,fuzzing",
        ])
        .args([
            "--checks",
            "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
        ])
        .args(["--max-examples", "15", "--seed", "1", "--workers", "2", "--request-timeout", "20", "--no-color"]);
    for command in [&mut talks, &mut node, &mut tester] {
        let status = command.current_dir(&folder).env("SEGUE_URL", &server.url).stdin(Stdio::null()).status();
        let name = command.get_program().to_string_lossy().into_owned();
        if !status.with_context(|| format!("{name} could not be started"))?.success() {
            return Ok(Outcome::Failed);
        }
    }
    Ok(Outcome::Passed)
}

fn runs(program: &str, arguments: &[&str]) -> bool {
    let command =
        Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    command.is_ok_and(|status| status.success())
}

/// A Python of its own with the packages; where its programs are.
fn python(folder: &Path) -> Result<PathBuf> {
    let place = folder.join("python");
    let programs = place.join("bin");
    let wanted = PYTHON_PACKAGES.join("\n");
    if std::fs::read_to_string(place.join("installed")).is_ok_and(|installed| installed == wanted) {
        return Ok(programs);
    }
    println!("installing {} into {}, once", PYTHON_PACKAGES.join(", "), place.display());
    run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&place))?;
    run(Command::new(programs.join("pip"))
        .args(["install", "--quiet", "--disable-pip-version-check"])
        .args(PYTHON_PACKAGES))?;
    std::fs::write(place.join("installed"), wanted).context("cannot note what is installed")?;
    Ok(programs)
}

fn node(folder: &Path) -> Result<()> {
    let wanted = NODE_PACKAGES.join("\n");
    let note = folder.join("node_modules/installed");
    if std::fs::read_to_string(&note).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    println!("installing {} into {}, once", NODE_PACKAGES.join(", "), folder.display());
    std::fs::write(folder.join("package.json"), "{\"private\": true, \"type\": \"module\"}\n")
        .context("cannot write package.json")?;
    run(Command::new("npm")
        .current_dir(folder)
        .args(["install", "--silent", "--no-audit", "--no-fund", "--save-exact"])
        .args(NODE_PACKAGES))?;
    std::fs::write(note, wanted).context("cannot note what is installed")
}

fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("{name} could not be started"))?;
    if status.success() { Ok(()) } else { bail!("{name} failed; see above") }
}

/// The program, serving, until this is dropped.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    fn start(folder: &Path) -> Result<Self> {
        let config = folder.join("segue.toml");
        std::fs::write(&config, "[models.rehearsal]\nkind = \"rehearsal\"\npace = \"instant\"\n")
            .context("cannot write the configuration")?;
        for left in ["store.db", "store.db-wal", "store.db-shm"] {
            // Nothing of an earlier run may be found in it.
            let _ = std::fs::remove_file(folder.join(left));
        }
        let own = std::env::current_exe().context("this program does not know where it is")?;
        let program = own.with_file_name(format!("segue{}", std::env::consts::EXE_SUFFIX));
        let mut child = Command::new(program)
            .args(["serve", "--port", "0", "--config"])
            .arg(&config)
            .arg("--store")
            .arg(folder.join("store.db"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("the program could not be started")?;
        let mut line = String::new();
        let output = child.stdout.take().context("its output is ours")?;
        BufReader::new(output).read_line(&mut line).context("it says nothing")?;
        let url = line.split_whitespace().find(|word| word.starts_with("http://")).map(ToOwned::to_owned);
        let server = Self { child, url: url.unwrap_or_default() };
        if server.url.is_empty() { bail!("the program did not say where it listens: {line}") } else { Ok(server) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
