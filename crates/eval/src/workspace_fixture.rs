//! The workspace of a conversation: the files that are there before it begins, the commands that check them, and how tool
//! runs are decided that wait for a person.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::limits::{FIXTURE_COMMANDS_MAX, FIXTURE_FILES_MAX};

/// A folder that exists for one conversation only. The caller of the evaluation creates it and connects the tools.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EvalWorkspaceFixture {
    /// The content of each file, by its path in the folder.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// The commands that check the content. The engine runs them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<String>,
    /// The commands that agents may run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub commands: Vec<String>,
    /// Whether the folder is a git repository, with the files in its first commit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub git: bool,
}

/// What happens to a tool run that waits for a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SimulatedApproval {
    /// The simulated user approves it. The folder exists only for the conversation.
    #[default]
    Approve,
    Deny,
}

impl EvalWorkspaceFixture {
    /// Returns why the fixture cannot be used, or `None` if it can.
    pub(crate) fn find_problem(&self) -> Option<String> {
        if self.files.len() > FIXTURE_FILES_MAX {
            return Some(format!("`workspace.files` may have at most {FIXTURE_FILES_MAX} files"));
        }
        if let Some(path) = self.files.keys().find(|path| !is_relative_path(path)) {
            return Some(format!(
                "`workspace.files` has the path `{path}`; write it relative to the workspace, like `src/main.py`"
            ));
        }
        if self.checks.len() > FIXTURE_COMMANDS_MAX || self.commands.len() > FIXTURE_COMMANDS_MAX {
            return Some(format!("`workspace` may have at most {FIXTURE_COMMANDS_MAX} checks and commands each"));
        }
        if self.checks.iter().chain(&self.commands).any(|command| command.trim().is_empty()) {
            return Some("a check or command of `workspace` is empty".to_owned());
        }
        (self.git && self.files.is_empty())
            .then(|| "`workspace.git` needs `workspace.files`: a repository begins with a commit".to_owned())
    }

    /// Returns whether a check names this file. An agent that changes such a file changes its own measure.
    pub(crate) fn is_part_of_a_check(&self, path: &str) -> bool {
        let mut words = self.checks.iter().flat_map(|check| check.split_whitespace());
        self.files.contains_key(path) && words.any(|word| word.trim_start_matches("./") == path)
    }
}

fn is_relative_path(path: &str) -> bool {
    let parts_are_names = path.split('/').all(|part| !part.is_empty() && part != "." && part != "..");
    parts_are_names && !path.contains(['\\', '\0', '\n', ':']) && !path.starts_with(".git/") && path != ".git"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fixture(text: &str) -> EvalWorkspaceFixture {
        toml::from_str(text).expect("a fixture")
    }

    #[test]
    fn paths_that_lead_out_are_refused() {
        for path in ["../a", "/etc/passwd", "a//b", "a/../b", "C:\\a", ".git/config", ""] {
            let problem = fixture(&format!("[files]\n{path:?} = \"x\"\n")).find_problem();
            assert!(problem.is_some_and(|problem| problem.contains("relative to the workspace")), "{path}");
        }
        assert_eq!(fixture("[files]\n\"src/a.py\" = \"x\"\n").find_problem(), None);
    }

    #[test]
    fn mistakes_are_explained() {
        let empty_repository = fixture("git = true\n").find_problem().expect("a problem");
        assert!(empty_repository.contains("begins with a commit"), "{empty_repository}");
        assert!(fixture("checks = [\" \"]\n").find_problem().is_some());
    }

    #[test]
    fn file_that_a_check_names_is_part_of_it() {
        let fixture = fixture("checks = [\"sh ./check.sh\"]\n[files]\n\"check.sh\" = \"\"\n\"a.sh\" = \"\"\n");
        assert!(fixture.is_part_of_a_check("check.sh"));
        assert!(!fixture.is_part_of_a_check("a.sh") && !fixture.is_part_of_a_check("sh"));
    }
}
