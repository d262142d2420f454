//! The database of a cluster: a temporary PostgreSQL, or one that somebody else started and knows how to kill.

use std::process::Command;

use segue_testkit::TemporaryPostgres;

const DATABASE: &str = "cluster";

pub(crate) enum Database {
    Temporary(TemporaryPostgres),
    Failover(FailoverDatabase),
}

/// A database with standbys. The commands are words separated by spaces.
pub(crate) struct FailoverDatabase {
    /// The URL of an empty database, which stays the same when another server becomes the primary.
    url: String,
    kill_command: String,
    repair_command: String,
}

impl Database {
    pub(crate) fn start_temporary() -> Self {
        let postgres = TemporaryPostgres::start();
        let _ = postgres.run_sql("postgres", &format!("CREATE DATABASE {DATABASE}"));
        Self::Temporary(postgres)
    }

    /// Returns the database that `SEGUE_CLUSTER_URL` names, with `SEGUE_CLUSTER_KILL`, which kills its primary, and
    /// `SEGUE_CLUSTER_REPAIR`, which brings dead servers back as standbys.
    pub(crate) fn from_env() -> Option<Self> {
        let url = std::env::var("SEGUE_CLUSTER_URL").ok()?;
        let command = |name| std::env::var(name).unwrap_or_else(|_| panic!("{name} is missing"));
        let (kill_command, repair_command) = (command("SEGUE_CLUSTER_KILL"), command("SEGUE_CLUSTER_REPAIR"));
        Some(Self::Failover(FailoverDatabase { url, kill_command, repair_command }))
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Self::Temporary(postgres) => postgres.url(DATABASE),
            Self::Failover(database) => database.url.clone(),
        }
    }

    /// Executes SQL. Returns what it printed, one line per row.
    pub(crate) fn run_sql(&self, sql: &str) -> String {
        match self {
            Self::Temporary(postgres) => postgres.run_sql(DATABASE, sql),
            Self::Failover(database) => {
                run(Command::new("psql").args(["-XAt", "-v", "ON_ERROR_STOP=1", "-c", sql]).arg(&database.url))
            }
        }
    }

    pub(crate) fn restart(&mut self) {
        match self {
            Self::Temporary(postgres) => {
                postgres.stop_server();
                postgres.start_server();
            }
            Self::Failover(_) => panic!("a database with standbys is killed, not restarted"),
        }
    }

    pub(crate) fn kill_primary(&self) {
        self.run_failover_command(|database| &database.kill_command);
    }

    pub(crate) fn repair(&self) {
        self.run_failover_command(|database| &database.repair_command);
    }

    pub(crate) fn has_standbys(&self) -> bool {
        matches!(self, Self::Failover(_))
    }

    fn run_failover_command(&self, select: impl Fn(&FailoverDatabase) -> &String) {
        let Self::Failover(database) = self else { panic!("the temporary database has no standbys") };
        let mut words = select(database).split_whitespace();
        let _ = run(Command::new(words.next().expect("a program")).args(words));
    }
}

/// Runs a program, which must succeed. Returns its output.
fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program starts");
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}
