//! `segue trust`: shows what the configuration of the current folder wants, and trusts it or revokes the trust.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use anyhow::bail;
use serde_json::json;

use crate::cli::{FolderTrustArgs, FolderTrustSubcommand, GlobalArgs};
use crate::config::UserDirs;
use crate::print::text::to_single_line;
use crate::trust::{ConfigTrustStatus, FolderTrustAssessment, TrustedFolders, canonical_folder};
use crate::{print, setup};

pub(crate) fn run_trust(global: &GlobalArgs, arguments: FolderTrustArgs) -> anyhow::Result<()> {
    match arguments.action {
        None => show_trust(global),
        Some(FolderTrustSubcommand::Add { yes }) => add_trust(global, yes),
        Some(FolderTrustSubcommand::Revoke { folder }) => revoke_trust(global, folder),
    }
}

fn show_trust(global: &GlobalArgs) -> anyhow::Result<()> {
    let trust = setup::load_config(global)?.folder_trust;
    let trusted = TrustedFolders::load(&UserDirs::from_env())?;
    let folders: Vec<String> = trusted.folders().map(|folder| to_single_line(&folder.display().to_string())).collect();
    if global.json {
        let wants: Vec<&str> =
            trust.iter().flat_map(|trust| &trust.requests).map(|it| it.description.as_str()).collect();
        return print::print_json(&json!({
            "file": trust.as_ref().map(|trust| &trust.file),
            "status": trust.as_ref().map(|trust| trust_status_name(trust.status)),
            "wants": wants,
            "folders": folders,
        }));
    }
    let mut text = trust.as_ref().map_or_else(|| no_folder_config_message(global), describe_trust);
    if !folders.is_empty() {
        text.push_str("\ntrusted folders:\n");
        text.extend(folders.iter().map(|folder| format!("  {folder}\n")));
    }
    print::write_stdout(&text)
}

fn trust_status_name(status: ConfigTrustStatus) -> &'static str {
    match status {
        ConfigTrustStatus::NotNeeded => "not_needed",
        ConfigTrustStatus::Trusted => "trusted",
        ConfigTrustStatus::Changed => "changed",
        ConfigTrustStatus::Untrusted => "untrusted",
    }
}

fn no_folder_config_message(global: &GlobalArgs) -> String {
    match &global.config {
        Some(file) => {
            let file = to_single_line(&file.display().to_string());
            format!("{file} was named explicitly, so it needs no trust\n")
        }
        None => "there is no segue.toml in this folder\n".to_owned(),
    }
}

fn describe_trust(trust: &FolderTrustAssessment) -> String {
    let (file, status) = (trust.display_file(), trust.status.describe());
    let wants: String = trust.requests.iter().map(|request| format!("  {}\n", request.description)).collect();
    match trust.status {
        ConfigTrustStatus::NotNeeded => {
            format!("{file} {status}: it uses no keys, calls no other servers and starts no programs\n")
        }
        ConfigTrustStatus::Trusted => format!("{file} {status}. It may:\n{wants}"),
        ConfigTrustStatus::Changed | ConfigTrustStatus::Untrusted => {
            format!("{file} {status}. It would:\n{wants}`segue trust add` allows this until the file changes\n")
        }
    }
}

fn add_trust(global: &GlobalArgs, yes: bool) -> anyhow::Result<()> {
    let Some(trust) = setup::load_config(global)?.folder_trust else {
        bail!("{}", no_folder_config_message(global).trim_end());
    };
    if trust.status == ConfigTrustStatus::NotNeeded {
        return print::write_stdout(&describe_trust(&trust));
    }
    let file = trust.display_file();
    if !yes {
        if !std::io::stdin().is_terminal() {
            bail!("refusing to trust {file} without confirmation (use --yes)");
        }
        if !trust.ask_for_trust()? {
            return print::write_stdout("not trusted\n");
        }
    }
    trust.remember_trust(&UserDirs::from_env())?;
    if global.json {
        return print::print_json(&json!({ "trusted": trust.file }));
    }
    print::write_stdout(&format!("{file} is trusted until it changes\n"))
}

fn revoke_trust(global: &GlobalArgs, folder: Option<PathBuf>) -> anyhow::Result<()> {
    let folder = canonical_folder(folder.as_deref().unwrap_or(Path::new(".")));
    let mut trusted = TrustedFolders::load(&UserDirs::from_env())?;
    let shown = to_single_line(&folder.display().to_string());
    if !trusted.remove(&folder) {
        bail!("{shown} is not trusted, so there is nothing to revoke; `segue trust` lists the trusted folders");
    }
    trusted.save()?;
    if global.json {
        return print::print_json(&json!({ "revoked": folder }));
    }
    print::write_stdout(&format!("{shown} is no longer trusted\n"))
}
