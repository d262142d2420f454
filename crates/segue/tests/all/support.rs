//! A folder to run the program in, and what it said there with times and places made alike.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

/// Answers everything by repeating it, with figures as a vendor would give them.
pub const ECHO: &str = "[default]\ntext = \"You said: {{last}}\"\nusage = { input = 40, output = 5 }\n";

/// A home with nothing in it.
pub struct Place {
    folder: TempDir,
}

/// How a run ended.
#[derive(Debug)]
pub struct Run {
    pub code: i32,
    pub out: String,
    pub err: String,
}

impl Place {
    pub fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    /// A home with the echo scenario and a session `a` of these messages.
    pub fn with_session(messages: &[&str]) -> Self {
        let place = Self::new();
        place.write("echo.toml", ECHO);
        for message in messages {
            place.ok(&["send", "--session", "a", "--script", "echo.toml", message]);
        }
        place
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    pub fn store(&self) -> PathBuf {
        self.path().join(".local/share/segue/segue.db")
    }

    pub fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).expect("written");
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path().join(name)).expect("readable")
    }

    /// The program with these arguments, in this home and no other environment.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_segue"));
        self.settle(&mut command);
        command.args(arguments);
        command
    }

    /// Has a command run in this home and no other environment.
    pub fn settle(&self, command: &mut Command) {
        command
            .env_clear()
            .env("HOME", self.path())
            .env("TZ", "UTC")
            .env("SEGUE_DISCOVER", "off")
            .current_dir(self.path())
            .stdin(Stdio::null());
    }

    pub fn run(&self, arguments: &[&str]) -> Run {
        Run::of(&self.command(arguments).output().expect("it runs"))
    }

    /// Runs with something to read.
    pub fn run_reading(&self, arguments: &[&str], input: &[u8]) -> Run {
        let mut command = self.command(arguments);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
        let written = child.stdin.take().expect("piped").write_all(input);
        let output = child.wait_with_output().expect("it ends");
        written.expect("it reads all of its input");
        Run::of(&output)
    }

    pub fn start(&self, arguments: &[&str]) -> Child {
        self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs")
    }

    /// What a run that must succeed wrote.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let run = self.run(arguments);
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{arguments:?}: {}", run.out);
        self.redacted(&run.out)
    }

    /// What a run that must succeed wrote, as JSON.
    pub fn json(&self, arguments: &[&str]) -> serde_json::Value {
        let run = self.run(arguments);
        assert_eq!((run.code, run.err.as_str()), (0, ""), "{arguments:?}: {}", run.out);
        serde_json::from_str(&run.out).expect("JSON")
    }

    /// What a run that must fail complained about; it must not have written anything else.
    pub fn fails(&self, arguments: &[&str]) -> String {
        let run = self.run(arguments);
        assert_eq!((run.code, run.out.as_str()), (1, ""), "{arguments:?}: {}", run.err);
        self.redacted(&run.err)
    }

    pub fn redacted(&self, text: &str) -> String {
        redacted(&text.replace(&self.path().display().to_string(), "HOME"))
    }
}

impl Run {
    pub fn of(output: &Output) -> Self {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).expect("it speaks UTF-8");
        Self { code: output.status.code().unwrap_or(-1), out: text(&output.stdout), err: text(&output.stderr) }
    }
}

/// The text with every moment, duration, file size and length of a prompt replaced by a stand-in: what depends on the
/// clock, the disk, or the wording of a flow.
pub fn redacted(text: &str) -> String {
    let lines: Vec<String> = text.split('\n').map(redacted_line).collect();
    lines.join("\n")
}

fn redacted_line(line: &str) -> String {
    const FORMS: [(&str, &str); 4] = [
        ("####-##-## ##:##", "DDDD-DD-DD TT:TT"),
        ("##:##:##", "TT:TT:TT"),
        ("\"at\": #############", "\"at\": 0"),
        ("\"ms\": #", "\"ms\": 0"),
    ];
    let mut out = String::new();
    let mut rest = line;
    'next: while !rest.is_empty() {
        for (form, stand_in) in FORMS {
            if let Some(after) = matched(rest, form) {
                out.push_str(stand_in);
                rest = after;
                continue 'next;
            }
        }
        let first = rest.chars().next().map_or(1, char::len_utf8);
        out.push_str(&rest[..first]);
        rest = &rest[first..];
    }
    amounts(&out)
}

/// What follows, if the text begins like the form; `#` is a digit, and at its end any number of them.
fn matched<'t>(text: &'t str, form: &str) -> Option<&'t str> {
    let mut rest = text;
    for wanted in form.chars() {
        let found = rest.chars().next()?;
        let fits = if wanted == '#' { found.is_ascii_digit() } else { found == wanted };
        if !fits {
            return None;
        }
        rest = &rest[found.len_utf8()..];
    }
    let open_end = form.ends_with("\": #");
    Some(if open_end { rest.trim_start_matches(|c: char| c.is_ascii_digit()) } else { rest })
}

/// `12 ms` and `1.2 s` as `N ms`, `45.1 KB` as `N KB`, `68 tokens` as `N tokens`; and how long an instruction is.
fn amounts(line: &str) -> String {
    if line.starts_with("window ") || line.starts_with("instruction ") {
        let is_number = |word: &str| word.chars().all(|c| c.is_ascii_digit() || c == ',');
        let words = line.split_whitespace().map(|word| if is_number(word) { "N" } else { word });
        return words.collect::<Vec<_>>().join(" ");
    }
    let mut words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    for place in 1..words.len() {
        let unit = words[place].trim_end_matches([',', ':', ';']).to_owned();
        let digit = |c: char| c.is_ascii_digit() || c == '.' || c == ',';
        let number = words[place - 1].chars().all(digit) && !words[place - 1].is_empty();
        if number && ["ms", "s", "KB", "tokens"].contains(&unit.as_str()) {
            words[place - 1] = "N".to_owned();
            words[place] = words[place].replacen(&unit, if unit == "s" { "ms" } else { &unit }, 1);
        }
    }
    words.join(" ")
}
