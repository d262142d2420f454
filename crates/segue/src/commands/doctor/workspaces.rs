//! The part of `segue doctor` that checks workspaces and the sandbox of their commands.

use segue_tools::{CommandSandboxPolicy, WorkspaceConfig, sandbox_is_available};

use super::{DoctorCheckStatus, DoctorReport};
use crate::config::Config;

/// Checks the folder of each workspace, and whether the kernel can confine commands.
pub(super) fn check_workspaces(config: &Config, findings: &mut DoctorReport) {
    for (name, workspace) in &config.workspaces {
        let WorkspaceConfig { folder, checks, commands, .. } = &workspace.value;
        let shown = format!("{name}: {}", folder.display());
        match folder.metadata() {
            Ok(metadata) if !metadata.is_dir() => {
                findings.add_finding("workspace", DoctorCheckStatus::Failed, format!("{shown} is not a folder"));
            }
            Err(error) => findings.add_finding("workspace", DoctorCheckStatus::Failed, format!("{shown}: {error}")),
            Ok(_) if checks.is_empty() => {
                let detail = format!("{shown}: no `checks`, so only you can confirm that work is done");
                findings.add_finding("workspace", DoctorCheckStatus::Warning, detail);
            }
            Ok(_) => {
                let detail = format!("{shown}: checks {}; commands {}", join_or_none(checks), join_or_none(commands));
                findings.add_finding("workspace", DoctorCheckStatus::Passed, detail);
            }
        }
    }
    check_sandbox(config, findings);
}

fn join_or_none(items: &[String]) -> String {
    if items.is_empty() { "none".to_owned() } else { items.join(", ") }
}

fn check_sandbox(config: &Config, findings: &mut DoctorReport) {
    let with_policy = |policy: CommandSandboxPolicy| {
        let names = config.workspaces.iter().filter(|(_, workspace)| workspace.value.sandbox == policy);
        names.map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
    };
    let (auto, required, off) = (
        with_policy(CommandSandboxPolicy::Auto),
        with_policy(CommandSandboxPolicy::Required),
        with_policy(CommandSandboxPolicy::Off),
    );
    if !off.is_empty() {
        let detail = format!("off for {off}: commands can access all files of your user");
        findings.add_finding("sandbox", DoctorCheckStatus::Warning, detail);
    }
    if auto.is_empty() && required.is_empty() {
        return;
    }
    if sandbox_is_available() {
        return findings.add_finding("sandbox", DoctorCheckStatus::Passed, "commands are confined by Landlock");
    }
    if !required.is_empty() {
        let detail = format!("this kernel has no Landlock, but {required} requires it: commands are refused");
        findings.add_finding("sandbox", DoctorCheckStatus::Failed, detail);
    }
    if !auto.is_empty() {
        let detail = format!("this kernel has no Landlock: commands in {auto} can access all files of your user");
        findings.add_finding("sandbox", DoctorCheckStatus::Warning, detail);
    }
}
