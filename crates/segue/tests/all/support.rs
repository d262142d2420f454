//! Runs the program in a temporary home folder, and replaces times and paths in its output.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// A scenario that repeats every message, with token counts.
pub(crate) const ECHO: &str = "[default]\ntext = \"You said: {{last}}\"\nusage = { input = 40, output = 5 }\n";

/// An empty home folder.
pub(crate) struct Place {
    folder: TempDir,
}

/// The exit code and output of a run.
#[derive(Debug)]
pub(crate) struct Run {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    /// A home with the echo scenario and a session `a` of these messages.
    pub(crate) fn with_session(messages: &[&str]) -> Self {
        let place = Self::new();
        place.write("echo.toml", ECHO);
        for message in messages {
            place.ok(&["send", "--session", "a", "--script", "echo.toml", message]);
        }
        place
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.path().join(".local/share/segue/segue.db")
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).expect("written");
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).expect("readable")
    }

    /// The program with these arguments, in this home and with a clean environment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
        self.set_environment(&mut command);
        command.args(arguments);
        command
    }

    /// Gives a command this home and a clean environment.
    pub(crate) fn set_environment(&self, command: &mut Command) {
        command
            .env_clear()
            .env("HOME", self.path())
            .env("TZ", "UTC")
            .env("SEGUE_DISCOVER", "off")
            .env("SEGUE_TRUST", "1")
            .current_dir(self.path())
            .stdin(Stdio::null());
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Run {
        Run::of(&self.command(arguments).output().expect("it runs"))
    }

    /// Runs the program with this standard input.
    pub(crate) fn run_reading(&self, arguments: &[&str], input: &[u8]) -> Run {
        let mut command = self.command(arguments);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let written = child.stdin.take().expect("piped").write_all(input);
        let output = child.wait_with_output().expect("it ends");
        written.expect("it reads all of its input");
        Run::of(&output)
    }

    pub(crate) fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs")
    }

    /// The output of a run that must succeed.
    pub(crate) fn ok(&self, arguments: &[&str]) -> String {
        let run = self.run(arguments);
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{arguments:?}: {}", run.out);
        self.redacted(&run.out)
    }

    /// The output of a run that must succeed, as JSON.
    pub(crate) fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let run = self.run(arguments);
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{arguments:?}: {}", run.out);
        serde_json::from_str(&run.out).expect("JSON")
    }

    /// The error of a run that must fail without other output.
    pub(crate) fn fails(&self, arguments: &[&str]) -> String {
        let run = self.run(arguments);
        assert_eq!((run.code, run.out.as_str()), (1, ""), "{arguments:?}: {}", run.err);
        self.redacted(&run.err)
    }

    pub(crate) fn redacted(&self, text: &str) -> String {
        redacted(&text.replace(&self.path().display().to_string(), "HOME"))
    }
}

impl Run {
    pub(crate) fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("the output is UTF-8");
        Self { code: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

/// Replaces times, durations, file sizes and lengths of prompts, which depend on the clock, the disk, or the prompts of a
/// flow.
pub(crate) fn redacted(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(redacted_line).collect();
    lines.join("\n")
}

fn redacted_line(line: &str) -> String {
    const PATTERNS: [(&str, &str); 4] = [
        ("####-##-## ##:##", "DDDD-DD-DD TT:TT"),
        ("##:##:##", "TT:TT:TT"),
        ("\"at\": #############", "\"at\": 0"),
        ("\"duration_ms\": #", "\"duration_ms\": 0"),
    ];
    let mut out = String::new();
    let mut rest = line;
    'next: while !rest.is_empty() {
        for (pattern, replacement) in PATTERNS {
            if let Some(after) = strip_pattern(rest, pattern) {
                out.push_str(replacement);
                rest = after;
                continue 'next;
            }
        }
        let first = rest.chars().next().map_or(1, char::len_utf8);
        out.push_str(&rest[..first]);
        rest = &rest[first..];
    }
    redacted_amounts(&out)
}

/// The rest of the text, if it begins with the pattern. `#` is a digit, and after a JSON key any number of digits.
fn strip_pattern<'t>(text: &'t str, pattern: &str) -> Option<&'t str> {
    let mut rest = text;
    for wanted in pattern.chars() {
        let found = rest.chars().next()?;
        let fits = if wanted == '#' { found.is_ascii_digit() } else { found == wanted };
        if !fits {
            return None;
        }
        rest = &rest[found.len_utf8()..];
    }
    let open_end = pattern.ends_with("\": #");
    Some(if open_end { rest.trim_start_matches(|c: char| c.is_ascii_digit()) } else { rest })
}

/// Replaces `12 ms` and `1.2 s` by `N ms`, `45.1 KB` by `N KB`, `68 tokens` by `N tokens`, and the tokens of instructions.
fn redacted_amounts(line: &str) -> String {
    if line.starts_with("window ") || line.starts_with("instruction ") {
        let is_number = |word: &str| word.chars().all(|c| c.is_ascii_digit() || c == ',');
        let words = line.split_whitespace().map(|word| if is_number(word) { "N" } else { word });
        return words.collect::<Vec<_>>().join(" ");
    }
    let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    for index in 1..words.len() {
        let unit = words[index].trim_end_matches([',', ':', ';']).to_owned();
        let is_digit = |c: char| c.is_ascii_digit() || c == '.' || c == ',';
        let is_number = words[index - 1].chars().all(is_digit) && !words[index - 1].is_empty();
        if is_number && ["ms", "s", "KB", "tokens"].contains(&unit.as_str()) {
            words[index - 1] = "N".to_owned();
            words[index] = words[index].replacen(&unit, if unit == "s" { "ms" } else { &unit }, 1);
        }
    }
    words.join(" ")
}
