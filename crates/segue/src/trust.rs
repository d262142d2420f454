//! Trust in the `segue.toml` of the current folder. Such a file may come from anybody, so it needs the user's permission
//! to use API keys, to call other servers and to start programs. The user's own file, and one that is named on the
//! command line, need none.

mod trust_requests;
mod trusted_folders;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use segue_core::body::BodyId;

use crate::config::{Config, UserDirs};
use crate::print;
use crate::print::text::to_single_line;
use trust_requests::collect_trust_requests;
pub(crate) use trust_requests::{ActionRequiringTrust, ActionRequiringTrustKind};
pub(crate) use trusted_folders::{TrustedFolders, canonical_folder};

/// The environment variable that trusts the configuration of every folder, for automated runs.
pub(crate) const TRUST_ENV: &str = "SEGUE_TRUST";

/// Whether a configuration is trusted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConfigTrustStatus {
    /// It wants nothing that needs trust.
    NotNeeded,
    Trusted,
    /// It is not the configuration that was trusted.
    Changed,
    Untrusted,
}

impl ConfigTrustStatus {
    /// Whether the configuration may do what it wants.
    pub(crate) fn allows_use(self) -> bool {
        matches!(self, Self::NotNeeded | Self::Trusted)
    }

    /// Describes the status, to follow the name of the file.
    pub(crate) fn describe(self) -> &'static str {
        match self {
            Self::NotNeeded => "needs no trust",
            Self::Trusted => "is trusted",
            Self::Changed => "has changed since it was trusted",
            Self::Untrusted => "is not trusted",
        }
    }
}

/// The configuration of the current folder, what it wants, and whether it is trusted.
#[derive(Debug)]
pub(crate) struct FolderTrustAssessment {
    pub file: PathBuf,
    pub requests: Vec<ActionRequiringTrust>,
    pub status: ConfigTrustStatus,
    folder: PathBuf,
    /// The digest of the file and of all files that it names.
    digest: BodyId,
}

/// Which requests of a configuration a command would fulfil.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ConfigActionsUsedByCommand {
    /// Models and the servers of domains.
    Everything,
    /// Only the servers of domains, because replies come from a file.
    DomainServers,
}

impl FolderTrustAssessment {
    /// Determines what the configuration in `file` wants, and whether it is trusted.
    pub(crate) fn assess(file: &Path, digest: BodyId, config: &Config, dirs: &UserDirs) -> anyhow::Result<Self> {
        let file = std::path::absolute(file).context("cannot find the current folder")?;
        let folder = canonical_folder(file.parent().unwrap_or(Path::new("/")));
        let requests = collect_trust_requests(config);
        let is_trusted_by_env = std::env::var(TRUST_ENV).is_ok_and(|value| value.trim() == "1");
        let status = if requests.is_empty() {
            ConfigTrustStatus::NotNeeded
        } else if is_trusted_by_env {
            ConfigTrustStatus::Trusted
        } else {
            // A list that cannot be read trusts nothing.
            match TrustedFolders::load(dirs).ok().and_then(|trusted| trusted.find_digest(&folder)) {
                Some(trusted) if trusted == digest.to_string() => ConfigTrustStatus::Trusted,
                Some(_) => ConfigTrustStatus::Changed,
                None => ConfigTrustStatus::Untrusted,
            }
        };
        Ok(Self { file, requests, status, folder, digest })
    }

    /// Returns the name of the file, for display.
    pub(crate) fn display_file(&self) -> String {
        to_single_line(&self.file.display().to_string())
    }

    /// Remembers that the user trusts this configuration.
    pub(crate) fn remember_trust(&self, dirs: &UserDirs) -> anyhow::Result<()> {
        let mut trusted = TrustedFolders::load(dirs)?;
        trusted.add(&self.folder, &self.digest.to_string());
        trusted.save()
    }

    /// Asks on the terminal whether the configuration may do what it wants.
    pub(crate) fn ask_for_trust(&self) -> anyhow::Result<bool> {
        let wants: String = self.requests.iter().map(|request| format!("  {}\n", request.description)).collect();
        let (file, status) = (self.display_file(), self.status.describe());
        print::confirm_on_terminal(&format!("{file} {status}. It would:\n{wants}Trust it until it changes? [y/N] "))
    }
}

/// Returns an error unless the configuration may do what a command needs. On a terminal the user is asked, once.
pub(crate) fn require_trust(
    trust: Option<&FolderTrustAssessment>,
    scope: ConfigActionsUsedByCommand,
) -> anyhow::Result<()> {
    let Some(trust) = trust.filter(|trust| !trust.status.allows_use()) else { return Ok(()) };
    let needed = |request: &&ActionRequiringTrust| {
        scope == ConfigActionsUsedByCommand::Everything || request.kind != ActionRequiringTrustKind::Model
    };
    let needed: Vec<&ActionRequiringTrust> = trust.requests.iter().filter(needed).collect();
    let Some(first) = needed.first() else { return Ok(()) };
    if std::io::stdin().is_terminal() && std::io::stderr().is_terminal() && trust.ask_for_trust()? {
        return trust.remember_trust(&UserDirs::from_env());
    }
    let more = match needed.len() {
        1 => String::new(),
        count => format!(", and {} more", count - 1),
    };
    let refused = format!(
        "{} {}, so it may not use keys, call other servers or start programs; `segue trust` shows what it wants, \
         `segue trust add` allows it",
        trust.display_file(),
        trust.status.describe()
    );
    Err(anyhow!("it would {}{more}", first.description).context(refused))
}
