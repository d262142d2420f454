//! Command lines: how they are split into words, and which are allowed. No shell is involved.

use std::path::{Path, PathBuf};

use crate::limits::COMMAND_LINE_BYTES_MAX;

/// The entry of an allow-list that allows everything.
const EVERY_COMMAND: &str = "*";
/// Words that only a shell understands.
const SHELL_OPERATORS: [&str; 9] = ["|", "||", "&", "&&", ";", ">", ">>", "<", "<<"];

/// A command line as a program and its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct WorkspaceCommandLine {
    pub program: String,
    pub arguments: Vec<String>,
}

impl WorkspaceCommandLine {
    /// Splits a command line into words, with quotes as in a shell.
    pub(crate) fn parse(line: &str) -> Result<Self, String> {
        let line = line.trim();
        if line.len() > COMMAND_LINE_BYTES_MAX {
            return Err(format!("the command has {} bytes; at most {COMMAND_LINE_BYTES_MAX} are allowed", line.len()));
        }
        if line.contains('\0') {
            return Err("the command contains a zero byte".to_owned());
        }
        if line.contains('\n') {
            return Err("the command has several lines; run one command at a time".to_owned());
        }
        let words = shlex::split(line).ok_or_else(|| "the command has an open quote".to_owned())?;
        let is_operator = |word: &&String| {
            SHELL_OPERATORS.contains(&word.as_str()) || word.starts_with("2>") || word.starts_with("&>")
        };
        if let Some(operator) = words.iter().find(is_operator) {
            return Err(format!(
                "the command contains `{operator}`, but commands run without a shell; run one program at a time"
            ));
        }
        match words.split_first() {
            None => Err("the command is empty".to_owned()),
            Some((program, _)) if program.contains('=') => {
                Err(format!("`{program}` sets a variable, but commands run without a shell; begin with the program"))
            }
            Some((program, arguments)) => Ok(Self { program: program.clone(), arguments: arguments.to_vec() }),
        }
    }

    /// Returns an error unless an entry of the list equals the first words of the command, or is `*`.
    pub(crate) fn check_allowed(&self, allowed: &[String]) -> Result<(), String> {
        let words: Vec<&str> = std::iter::once(&self.program).chain(&self.arguments).map(String::as_str).collect();
        let allows = |entry: &String| {
            let entry = shlex::split(entry).unwrap_or_default();
            !entry.is_empty()
                && (entry == [EVERY_COMMAND] || (entry.len() <= words.len() && words[..entry.len()] == entry))
        };
        if allowed.iter().any(allows) {
            return Ok(());
        }
        match allowed.is_empty() {
            true => Err("no commands are allowed in this workspace".to_owned()),
            false => Err(format!(
                "`{}` is not allowed; allowed are commands that begin with: {}",
                self.program,
                allowed.join(", ")
            )),
        }
    }

    /// Returns the file of the program: in a folder of `search_path`, or relative to the workspace if its name contains a slash.
    pub(crate) fn find_program(&self, folder: &Path, search_path: &str) -> Result<PathBuf, String> {
        let missing = || format!("there is no program `{}` (searched in {search_path})", self.program);
        if self.program.contains('/') {
            let path = folder.join(&self.program);
            return if is_executable(&path) { Ok(path) } else { Err(format!("`{}` is not a program", self.program)) };
        }
        let folders = search_path.split(':').filter(|folder| folder.starts_with('/'));
        folders.map(|folder| Path::new(folder).join(&self.program)).find(|path| is_executable(path)).ok_or_else(missing)
    }
}

fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> WorkspaceCommandLine {
        WorkspaceCommandLine::parse(line).expect("the line is valid")
    }

    #[test]
    fn quotes_are_understood_and_nothing_is_expanded() {
        let command = parse("grep -n 'a b' \"$HOME\" *.rs");
        assert_eq!(command.program, "grep");
        assert_eq!(command.arguments, ["-n", "a b", "$HOME", "*.rs"]);
    }

    #[test]
    fn shell_syntax_is_refused_with_the_reason() {
        for line in ["a && b", "a | b", "a > b", "a ; b", "a 2>&1", "A=1 b", "a\nb", "a 'b", "", "  "] {
            assert!(WorkspaceCommandLine::parse(line).is_err(), "{line}");
        }
        assert!(
            WorkspaceCommandLine::parse("cargo test | tail").expect_err("it is refused").contains("without a shell")
        );
    }

    #[test]
    fn only_commands_that_begin_with_an_entry_are_allowed() {
        let allowed = ["cargo test".to_owned(), "ls".to_owned()];
        for line in ["cargo test", "cargo test --lib", "ls", "ls -l"] {
            assert_eq!(parse(line).check_allowed(&allowed), Ok(()), "{line}");
        }
        for line in ["cargo", "cargo run", "cargo tests", "lsof", "sh -c ls", "./ls", "/bin/ls"] {
            assert!(parse(line).check_allowed(&allowed).is_err(), "{line}");
        }
        assert_eq!(parse("anything").check_allowed(&["*".to_owned()]), Ok(()));
        assert!(parse("anything").check_allowed(&[]).is_err());
        assert!(parse("anything").check_allowed(&[String::new()]).is_err());
    }
}
