//! Tests the server with the official OpenAI clients, with an agent framework, and with schemathesis, which generates requests from the API
//! description. Installs them under `target/` once, and starts the server.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Stdio};

use anyhow::{Context, Result, bail};

use crate::checkout;
use crate::stages::TestStageOutcome;

/// The exact versions of all packages, with hashes. `uv pip compile --universal --generate-hashes` makes the list anew.
const PYTHON_LOCK_FILE: &str = "requirements.txt";
const NODE_LOCK_FILES: [&str; 2] = ["package.json", "package-lock.json"];
/// Schemathesis runs with one worker, because its data generator is not thread-safe.
const SCHEMATHESIS_ARGUMENTS: [&str; 21] = [
    // These streams never end; the server's own tests cover them.
    "--exclude-path",
    "/v1/changes",
    "--exclude-path",
    "/v1/stream",
    "--phases",
    "examples,coverage,fuzzing",
    "--checks",
    "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance",
    "--max-examples",
    "20",
    "--seed",
    "1",
    "--generation-database",
    "none",
    "--workers",
    "1",
    "--request-timeout",
    "20",
    "--no-color",
    "--warnings",
    "off",
];

/// Runs `cargo xtask clients`.
pub(crate) fn run_clients_task() -> Result<ExitCode> {
    match run_client_tests()? {
        TestStageOutcome::Skipped(reason) => bail!("{reason}"),
        TestStageOutcome::Passed => Ok(ExitCode::SUCCESS),
        TestStageOutcome::Failed | TestStageOutcome::NotReached => Ok(ExitCode::FAILURE),
    }
}

/// Runs all clients at the same time.
pub(crate) fn run_client_tests() -> Result<TestStageOutcome> {
    let folder = checkout::checkout_root().join("target/clients");
    let python = match install_clients(&folder) {
        Ok(python) => python,
        Err(error) => return Ok(TestStageOutcome::Skipped(format!("the clients cannot be installed: {error:#}"))),
    };
    let Some(program) = checkout::build_program()? else { return Ok(TestStageOutcome::Failed) };
    // The clients test streaming and need slow replies; schemathesis does not.
    let slow = SegueServerProcess::start(&program, &folder.join("slow"), "realtime")?;
    let fast = SegueServerProcess::start(&program, &folder.join("fast"), "instant")?;
    let tests = checkout::checkout_root().join("crates/server/tests/clients");
    // Node searches for packages in the folders above the script.
    std::fs::copy(tests.join("talk.mjs"), folder.join("talk.mjs")).context("cannot copy the conversation for Node")?;
    let mut python_client = Command::new(python.join("python"));
    python_client.arg(tests.join("talk.py")).env("SEGUE_URL", &slow.url);
    let mut agents = Command::new(python.join("python"));
    agents.arg(tests.join("agent.py")).env("SEGUE_URL", &slow.url);
    let mut node_client = Command::new("node");
    node_client.arg("talk.mjs").env("SEGUE_URL", &slow.url);
    let mut schemathesis = Command::new(python.join("schemathesis"));
    schemathesis.args(["run", &format!("{}/openapi.json", fast.url)]).args(SCHEMATHESIS_ARGUMENTS);
    schemathesis.env("SEGUE_URL", &fast.url).env("SCHEMATHESIS_HOOKS", "hooks").env("PYTHONPATH", &tests);
    let mut running = Vec::new();
    for command in [&mut python_client, &mut agents, &mut node_client, &mut schemathesis] {
        let name = command.get_program().to_string_lossy().into_owned();
        // Python must not write bytecode files into the checkout.
        let child = command.current_dir(&folder).env("PYTHONDONTWRITEBYTECODE", "1").stdin(Stdio::null()).spawn();
        running.push((child.with_context(|| format!("{name} could not be started"))?, name));
    }
    let mut outcome = TestStageOutcome::Passed;
    for (mut child, name) in running {
        if !child.wait().with_context(|| format!("{name} cannot be waited for"))?.success() {
            println!("{name} failed; see above, and the server's log in {}", folder.display());
            outcome = TestStageOutcome::Failed;
        }
    }
    Ok(outcome)
}

/// Installs the clients and returns the folder of the Python programs.
fn install_clients(folder: &Path) -> Result<PathBuf> {
    if !command_succeeds("python3", &["-c", "import venv, ensurepip"]) || !command_succeeds("npm", &["--version"]) {
        bail!("Python 3 with venv and npm are required (Debian: `apt-get install python3-venv npm`)");
    }
    std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
    install_node_packages(folder)?;
    install_python_packages(folder)
}

fn command_succeeds(program: &str, arguments: &[&str]) -> bool {
    let command =
        Command::new(program).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    command.is_ok_and(|status| status.success())
}

/// Installs the packages into a virtual environment and returns the folder of its programs.
fn install_python_packages(folder: &Path) -> Result<PathBuf> {
    let venv = folder.join("python");
    let programs = venv.join("bin");
    let lock_file = lock_file(PYTHON_LOCK_FILE);
    let wanted = std::fs::read_to_string(&lock_file).with_context(|| format!("cannot read {}", lock_file.display()))?;
    if std::fs::read_to_string(venv.join("installed")).is_ok_and(|installed| installed == wanted) {
        return Ok(programs);
    }
    println!("installing the Python clients into {}, once", venv.display());
    run_to_success(Command::new("python3").args(["-m", "venv", "--clear"]).arg(&venv))?;
    run_to_success(
        Command::new(programs.join("pip"))
            .args(["install", "--quiet", "--disable-pip-version-check", "--require-hashes", "--requirement"])
            .arg(&lock_file),
    )?;
    std::fs::write(venv.join("installed"), wanted).context("cannot record the installed packages")?;
    Ok(programs)
}

fn install_node_packages(folder: &Path) -> Result<()> {
    let mut wanted = String::new();
    for name in NODE_LOCK_FILES {
        let text = std::fs::read_to_string(lock_file(name)).with_context(|| format!("cannot read {name}"))?;
        std::fs::write(folder.join(name), &text).with_context(|| format!("cannot write {name}"))?;
        wanted.push_str(&text);
    }
    let marker = folder.join("node_modules/installed");
    if std::fs::read_to_string(&marker).is_ok_and(|installed| installed == wanted) {
        return Ok(());
    }
    println!("installing the Node client into {}, once", folder.display());
    run_to_success(Command::new("npm").current_dir(folder).args(["ci", "--silent", "--no-audit", "--no-fund"]))?;
    std::fs::write(marker, wanted).context("cannot record the installed packages")
}

fn lock_file(name: &str) -> PathBuf {
    checkout::checkout_root().join("crates/server/tests/clients").join(name)
}

fn run_to_success(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.stdin(Stdio::null()).status().with_context(|| format!("{name} could not be started"))?;
    if status.success() { Ok(()) } else { bail!("{name} failed; see above") }
}

/// A running `segue serve`, which is killed when this is dropped.
struct SegueServerProcess {
    child: Child,
    url: String,
}

impl SegueServerProcess {
    /// Starts the server in an empty folder.
    fn start(program: &Path, folder: &Path, rehearsal_speed: &str) -> Result<Self> {
        if folder.exists() {
            std::fs::remove_dir_all(folder).with_context(|| format!("cannot clear {}", folder.display()))?;
        }
        std::fs::create_dir_all(folder).with_context(|| format!("cannot create {}", folder.display()))?;
        let config = folder.join("segue.toml");
        std::fs::write(&config, format!("[models.rehearsal]\nkind = \"rehearsal\"\nspeed = \"{rehearsal_speed}\"\n"))
            .context("cannot write the configuration")?;
        let log = std::fs::File::create(folder.join("server.log")).context("cannot write server.log")?;
        let mut child = Command::new(program)
            .args(["serve", "--port", "0", "--config"])
            .arg(&config)
            .arg("--store")
            .arg(folder.join("store.db"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .context("the program could not be started")?;
        let mut line = String::new();
        let output = child.stdout.take().context("the output of the server is not piped")?;
        BufReader::new(output).read_line(&mut line).context("the server printed nothing")?;
        let url = line.split_whitespace().find(|word| word.starts_with("http://")).map(ToOwned::to_owned);
        let server = Self { child, url: url.unwrap_or_default() };
        if server.url.is_empty() { bail!("the server did not print its address: {line}") } else { Ok(server) }
    }
}

impl Drop for SegueServerProcess {
    fn drop(&mut self) {
        // The errors may be dropped: the server may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
