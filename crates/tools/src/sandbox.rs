//! The sandbox of the kernel (Landlock, on Linux) for commands: which files they can read and write, and whether they can use the network.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// What a command may access.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct SandboxRules {
    pub readable: Vec<PathBuf>,
    pub writable: Vec<PathBuf>,
    pub denies_network: bool,
    /// Whether the command is refused if the kernel has no sandbox.
    pub is_required: bool,
}

/// The folders of the system, which commands can read.
pub(crate) const SYSTEM_FOLDERS: [&str; 13] = [
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/usr",
    "/etc",
    "/opt",
    "/nix",
    "/proc",
    "/sys",
    "/dev",
    "/run/systemd/resolve",
];
/// The devices that commands can write to.
pub(crate) const WRITABLE_DEVICES: [&str; 6] =
    ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty", "/dev/ptmx", "/dev/pts"];

/// Returns whether the kernel can confine commands.
#[must_use]
pub fn sandbox_is_available() -> bool {
    kernel::is_available()
}

/// Confines this process and all that it starts, for ever.
///
/// # Errors
/// Returns why the rules cannot be applied. If the kernel has no sandbox, this is an error only if it is required.
pub(crate) fn confine_this_process(rules: &SandboxRules) -> Result<(), String> {
    let is_confined = kernel::confine(rules)?;
    if !is_confined && rules.is_required {
        return Err(
            "this kernel cannot confine commands (it has no Landlock), but the workspace requires it".to_owned()
        );
    }
    Ok(())
}

#[cfg(target_os = "linux")]
mod kernel {
    use landlock::{
        ABI, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr, RulesetCreatedAttr,
        RulesetError, RulesetStatus, Scope, path_beneath_rules,
    };

    use super::{SYSTEM_FOLDERS, SandboxRules, WRITABLE_DEVICES};

    /// The newest version of Landlock whose restrictions are used. Older kernels apply those that they have.
    const NEWEST: ABI = ABI::V6;

    pub(super) fn is_available() -> bool {
        let ruleset = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
        ruleset.handle_access(AccessFs::from_all(ABI::V1)).and_then(Ruleset::create).is_ok()
    }

    pub(super) fn confine(rules: &SandboxRules) -> Result<bool, String> {
        let apply = || -> Result<bool, RulesetError> {
            let mut ruleset = Ruleset::default()
                .handle_access(AccessFs::from_all(NEWEST))?
                .scope(BitFlags::from(Scope::Signal) | Scope::AbstractUnixSocket)?;
            if rules.denies_network {
                ruleset = ruleset.handle_access(AccessNet::from_all(NEWEST))?;
            }
            let (read, all) = (AccessFs::from_read(NEWEST), AccessFs::from_all(NEWEST));
            let status = ruleset
                .create()?
                .add_rules(path_beneath_rules(SYSTEM_FOLDERS, read))?
                .add_rules(path_beneath_rules(&rules.readable, read))?
                .add_rules(path_beneath_rules(WRITABLE_DEVICES, all))?
                .add_rules(path_beneath_rules(&rules.writable, all))?
                .restrict_self()?;
            Ok(status.ruleset != RulesetStatus::NotEnforced)
        };
        apply().map_err(|error| format!("the command cannot be confined: {error}"))
    }
}

#[cfg(not(target_os = "linux"))]
mod kernel {
    pub(super) fn is_available() -> bool {
        false
    }

    pub(super) fn confine(_: &super::SandboxRules) -> Result<bool, String> {
        Ok(false)
    }
}
