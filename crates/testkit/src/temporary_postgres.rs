//! A PostgreSQL server for tests, in a temporary folder, that ends with the process that started it.

use std::io::Write as _;
use std::net::TcpListener;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// The user that runs the server if the tests run as root, which the server refuses: nobody.
const UNPRIVILEGED_ID: u32 = 65_534;
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The settings of a server for tests: small, because a test process may have several.
const SMALL_SERVER_SETTINGS: &[&str] = &["shared_buffers=64MB"];

/// A running server. Dropping it stops the server and deletes its data.
#[derive(Debug)]
pub struct TemporaryPostgres {
    folder: PathBuf,
    programs: PathBuf,
    port: u16,
    server: Option<Child>,
    databases: AtomicU32,
    settings: Vec<String>,
}

impl TemporaryPostgres {
    /// Returns the server that all tests of this process share.
    #[must_use]
    pub fn shared() -> &'static Self {
        static SHARED: OnceLock<TemporaryPostgres> = OnceLock::new();
        SHARED.get_or_init(Self::start)
    }

    /// Starts a server on a free port.
    #[must_use]
    pub fn start() -> Self {
        Self::start_with_settings(SMALL_SERVER_SETTINGS)
    }

    /// Starts a server on a free port, with settings such as `shared_buffers=64MB`.
    #[must_use]
    pub fn start_with_settings(settings: &[&str]) -> Self {
        let programs = find_or_install_postgres();
        let folder = create_folder();
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let settings = settings.iter().map(|setting| (*setting).to_owned()).collect();
        let mut postgres = Self { folder, programs, port, server: None, databases: AtomicU32::new(0), settings };
        let mut initdb = postgres.command("initdb");
        initdb.args(["--username=segue", "--auth=trust", "--encoding=UTF8", "--locale=C", "--no-sync", "-D"]);
        let made = initdb.arg(postgres.data()).output().expect("initdb starts");
        assert!(made.status.success(), "initdb failed: {}", String::from_utf8_lossy(&made.stderr));
        postgres.start_server();
        postgres
    }

    /// Starts the server again after [`stop_server`](Self::stop_server).
    pub fn start_server(&mut self) {
        // The shell stops the server when the tests' end of its standard input is closed, however that happens. It
        // deletes the data unless it is told to keep it.
        let script = "folder=$1; shift; \"$@\" & server=$!; read word; kill -INT $server; wait $server; \
                      [ \"$word\" = keep ] || rm -rf \"$folder\"";
        let mut shell = self.command("sh");
        shell.arg("-c").arg(script).arg("sh").arg(&self.folder).arg(self.programs.join("postgres"));
        shell.arg("-D").arg(self.data()).arg("-k").arg(&self.folder);
        shell.args(["-h", "127.0.0.1", "-p", &self.port.to_string()]);
        shell.args(["-c", "max_connections=300"]);
        for setting in &self.settings {
            shell.args(["-c", setting]);
        }
        let log = std::fs::File::options().create(true).append(true).open(self.folder.join("log")).expect("a log");
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log).process_group(0);
        self.server = Some(shell.spawn().expect("the server starts"));
        let deadline = Instant::now() + START_TIMEOUT;
        while !self.try_sql("postgres", "SELECT 1") {
            let log = || std::fs::read_to_string(self.folder.join("log")).unwrap_or_default();
            assert!(Instant::now() < deadline, "the server does not answer: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Stops the server; its data stays.
    pub fn stop_server(&mut self) {
        if let Some(mut server) = self.server.take() {
            if let Some(mut stdin) = server.stdin.take() {
                // A shell that has ended needs no word.
                let _ = stdin.write_all(b"keep\n");
            }
            // The server is gone either way.
            let _ = server.wait();
        }
    }

    /// Creates an empty database. Returns its URL.
    #[must_use]
    pub fn create_database(&self) -> String {
        let name = format!("test_{}", self.databases.fetch_add(1, Ordering::Relaxed));
        assert!(self.try_sql("postgres", &format!("CREATE DATABASE {name}")), "the database {name} can be created");
        self.url(&name)
    }

    /// Returns the URL of a database.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://segue@127.0.0.1:{}/{database}", self.port)
    }

    /// Executes SQL in a database. Returns what it printed, one line per row.
    #[must_use]
    pub fn run_sql(&self, database: &str, sql: &str) -> String {
        let output = self.psql(database, sql).output().expect("psql starts");
        assert!(output.status.success(), "{sql}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    }

    fn try_sql(&self, database: &str, sql: &str) -> bool {
        self.psql(database, sql).output().is_ok_and(|output| output.status.success())
    }

    fn psql(&self, database: &str, sql: &str) -> Command {
        let mut psql = self.command("psql");
        psql.args(["-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", "127.0.0.1", "-U", "segue", "-d", database]);
        psql.args(["-p", &self.port.to_string(), "-c", sql]);
        psql
    }

    fn data(&self) -> PathBuf {
        self.folder.join("data")
    }

    /// Prepares a program of PostgreSQL, or another one, run as a user that is not root.
    fn command(&self, program: &str) -> Command {
        let path = self.programs.join(program);
        let mut command = if path.exists() { Command::new(path) } else { Command::new(program) };
        command.current_dir(&self.folder).env("LC_ALL", "C").env_remove("PGDATABASE").env_remove("PGHOST");
        if is_root() {
            command.uid(UNPRIVILEGED_ID).gid(UNPRIVILEGED_ID);
        }
        command
    }
}

impl Drop for TemporaryPostgres {
    fn drop(&mut self) {
        self.stop_server();
        // What cannot be deleted stays in the temporary folder.
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// Creates a private folder for the server's user.
fn create_folder() -> PathBuf {
    static FOLDERS: AtomicU32 = AtomicU32::new(0);
    let number = FOLDERS.fetch_add(1, Ordering::Relaxed);
    let name = format!("segue-postgres-{}-{number}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    // One of an earlier process with the same id.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir(&folder).expect("a temporary folder");
    if is_root() {
        chown(&folder, Some(UNPRIVILEGED_ID), Some(UNPRIVILEGED_ID)).expect("the folder gets another owner");
    }
    folder
}

/// Returns the folder with PostgreSQL's programs: that of the distribution, or the one on the path. Installs the
/// distribution's package if there is none.
fn find_or_install_postgres() -> PathBuf {
    let found = || newest_installation(Path::new("/usr/lib/postgresql")).or_else(find_on_path);
    found().unwrap_or_else(|| {
        let message = b"installing PostgreSQL for the tests of its backend\n";
        // Only a hint for the person who waits.
        let _ = std::io::stderr().write_all(message);
        let mut install = Command::new("apt-get");
        install
            .args(["install", "-y", "--no-install-recommends", "postgresql"])
            .env("DEBIAN_FRONTEND", "noninteractive");
        let _ = install.output();
        found().expect("PostgreSQL is installed; on Debian: apt-get install postgresql")
    })
}

fn newest_installation(folder: &Path) -> Option<PathBuf> {
    let versions = std::fs::read_dir(folder).ok()?.filter_map(|entry| Some(entry.ok()?.path().join("bin")));
    let mut versions: Vec<PathBuf> = versions.filter(|programs| programs.join("initdb").exists()).collect();
    versions.sort();
    versions.pop()
}

fn find_on_path() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).find(|folder| folder.join("initdb").exists())
}
