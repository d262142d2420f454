//! Reads a diff as `git diff` writes it, and checks what code can check before a model reviews it: that something changed,
//! that only allowed files changed, and that no test was weakened without a word about it.

use std::collections::BTreeMap;

use super::story::Story;
use crate::limits::DIFF_PROBLEMS_MAX;

/// A diff, by file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ParsedDiff {
    pub files: Vec<FileDiff>,
}

/// The changes to one file.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileDiff {
    /// The path after the change; of a deleted file, the path before it.
    pub path: String,
    /// The path before the change, if it differs.
    pub old_path: Option<String>,
    pub is_deleted: bool,
    pub is_binary: bool,
    /// The lines that the diff shows, by their number after the change.
    pub lines: BTreeMap<u32, String>,
    pub added: Vec<String>,
    pub removed: Vec<String>,
    /// The lines that the diff removes, by their number before the change.
    pub removed_lines: BTreeMap<u32, String>,
    /// This file's part of the diff.
    pub text: String,
}

impl ParsedDiff {
    /// Returns the file with this path, before or after the change.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<&FileDiff> {
        self.files.iter().find(|file| file.path == path || file.old_path.as_deref() == Some(path))
    }

    /// Returns true if the diff shows this line, after the change or as a removed one.
    #[must_use]
    pub fn shows_line(&self, path: &str, line: u32) -> bool {
        self.file(path).is_some_and(|file| file.lines.contains_key(&line) || file.removed_lines.contains_key(&line))
    }
}

/// Reads a diff. What is not understood is skipped.
#[must_use]
pub fn parse_diff(text: &str) -> ParsedDiff {
    let mut files: Vec<FileDiff> = Vec::new();
    // The numbers of the next lines, and how many lines the hunk still has.
    let mut hunk: Option<HunkPosition> = None;
    for line in text.lines() {
        if hunk.is_none_or(|hunk| hunk.is_complete()) {
            hunk = None;
            if let Some(names) = line.strip_prefix("diff --git ") {
                let path = second_path(names);
                files.push(FileDiff { path, text: format!("{line}\n"), ..FileDiff::default() });
                continue;
            }
        }
        let Some(file) = files.last_mut() else { continue };
        file.text.push_str(line);
        file.text.push('\n');
        match &mut hunk {
            Some(position) => file.read_hunk_line(line, position),
            None => match line.strip_prefix("@@ ") {
                Some(header) => hunk = HunkPosition::parse(header),
                None => file.read_header_line(line),
            },
        }
    }
    ParsedDiff { files }
}

/// The numbers of the next lines of a hunk, and how many lines it still has.
#[derive(Debug, Clone, Copy)]
struct HunkPosition {
    old_line: u32,
    new_line: u32,
    old_left: u32,
    new_left: u32,
}

impl HunkPosition {
    /// Reads `-1,3 +1,4 @@ …`.
    fn parse(header: &str) -> Option<Self> {
        let mut ranges = header.split(' ');
        let range = |text: &str, sign: char| -> Option<(u32, u32)> {
            let text = text.strip_prefix(sign)?;
            let (start, count) = text.split_once(',').unwrap_or((text, "1"));
            Some((start.parse().ok()?, count.parse().ok()?))
        };
        let (old_line, old_left) = range(ranges.next()?, '-')?;
        let (new_line, new_left) = range(ranges.next()?, '+')?;
        Some(Self { old_line, new_line, old_left, new_left })
    }

    fn is_complete(self) -> bool {
        self.old_left == 0 && self.new_left == 0
    }
}

impl FileDiff {
    fn read_hunk_line(&mut self, line: &str, position: &mut HunkPosition) {
        let content = line.get(1..).unwrap_or_default().to_owned();
        let (is_old, is_new) = match line.as_bytes().first() {
            Some(b'+') => (false, true),
            Some(b'-') => (true, false),
            // "\ No newline at end of file".
            Some(b'\\') => return,
            _ => (true, true),
        };
        if is_new {
            if !is_old {
                self.added.push(content.clone());
            }
            self.lines.insert(position.new_line, content.clone());
            position.new_line += 1;
            position.new_left = position.new_left.saturating_sub(1);
        }
        if is_old {
            if !is_new {
                self.removed.push(content.clone());
                self.removed_lines.insert(position.old_line, content);
            }
            position.old_line += 1;
            position.old_left = position.old_left.saturating_sub(1);
        }
    }

    fn read_header_line(&mut self, line: &str) {
        if let Some(path) = line.strip_prefix("+++ ") {
            if path != "/dev/null" {
                self.path = strip_side(path);
            }
        } else if let Some(path) = line.strip_prefix("--- ") {
            let path = strip_side(path);
            if path != "/dev/null" && path != self.path {
                self.old_path = Some(path);
            }
        } else if let Some(path) = line.strip_prefix("rename from ") {
            self.old_path = Some(unquote_path(path));
        } else if let Some(path) = line.strip_prefix("rename to ") {
            self.path = unquote_path(path);
        } else if line.starts_with("deleted file mode") {
            self.is_deleted = true;
        } else if line.starts_with("Binary files ") || line == "GIT binary patch" {
            self.is_binary = true;
        }
    }

    fn is_test_file(&self) -> bool {
        let path = self.old_path.as_deref().unwrap_or(&self.path).to_lowercase();
        let is_test_part = |part: &str| {
            let words = part.split(|letter: char| !letter.is_alphanumeric());
            words.into_iter().any(|word| matches!(word, "test" | "tests" | "spec" | "specs" | "testing"))
        };
        path.split('/').any(is_test_part)
    }
}

/// Returns the second path of `a/one b/two`.
fn second_path(names: &str) -> String {
    if let Some((_, quoted)) = names.split_once(" \"b/") {
        return unquote_path(&format!("\"{quoted}"));
    }
    let middle = names.len() / 2;
    // Without a rename both halves are equal, also if the name contains spaces.
    match (names.get(..middle), names.get(middle + 1..)) {
        (Some(first), Some(second)) if first.strip_prefix("a/") == second.strip_prefix("b/") => strip_side(second),
        _ => names.rsplit_once(" b/").map_or_else(|| names.to_owned(), |(_, path)| path.to_owned()),
    }
}

fn strip_side(path: &str) -> String {
    // A path with spaces is followed by a tab.
    let path = unquote_path(path.trim_end_matches('\t'));
    let stripped = path.strip_prefix("a/").or_else(|| path.strip_prefix("b/"));
    stripped.map_or_else(|| path.clone(), str::to_owned)
}

/// Reads a path that git quoted because of unusual characters.
fn unquote_path(path: &str) -> String {
    let Some(quoted) = path.strip_prefix('"').and_then(|path| path.strip_suffix('"')) else { return path.to_owned() };
    let mut bytes = Vec::new();
    let mut letters = quoted.bytes().peekable();
    while let Some(byte) = letters.next() {
        if byte != b'\\' {
            bytes.push(byte);
            continue;
        }
        match letters.next() {
            Some(b'n') => bytes.push(b'\n'),
            Some(b't') => bytes.push(b'\t'),
            Some(digit @ b'0'..=b'7') => {
                let mut value = u32::from(digit - b'0');
                for _ in 0..2 {
                    if let Some(next) = letters.next_if(|next| (b'0'..=b'7').contains(next)) {
                        value = value * 8 + u32::from(next - b'0');
                    }
                }
                bytes.push(u8::try_from(value).unwrap_or(b'?'));
            }
            Some(other) => bytes.push(other),
            None => {}
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns why code refuses a diff for a story. `account` is what the coder says about its work.
#[must_use]
pub fn diff_problems(diff: &ParsedDiff, story: &Story, knowledge_file: &str, account: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for file in &diff.files {
        let paths = [Some(file.path.as_str()), file.old_path.as_deref()];
        for path in paths.into_iter().flatten().filter(|path| !story.may_touch(path)) {
            let allowed = story.files.join(", ");
            problems.push(format!("`{path}` may not be changed by this story; it may touch {allowed}"));
        }
        if file.path == knowledge_file {
            problems.push(format!("`{knowledge_file}` is written by the team itself; use `knowledge_add` instead"));
        }
    }
    if !mentions_tests(account) {
        for file in &diff.files {
            problems.extend(weakened_test(file).map(|why| {
                format!("{why}; undo it, or explain in your account of the work why the test has to change")
            }));
        }
    }
    problems.truncate(DIFF_PROBLEMS_MAX);
    problems
}

fn mentions_tests(account: &str) -> bool {
    let account = account.to_lowercase();
    account.split(|letter: char| !letter.is_alphanumeric()).any(|word| matches!(word, "test" | "tests" | "testing"))
}

/// Returns how a change weakens a test, if it does.
fn weakened_test(file: &FileDiff) -> Option<String> {
    let path = &file.path;
    if file.is_deleted && file.is_test_file() {
        return Some(format!("`{path}` contains tests and is deleted"));
    }
    let count = |lines: &[String], is_counted: fn(&str) -> bool| lines.iter().filter(|line| is_counted(line)).count();
    if count(&file.removed, is_test_declaration_line) > count(&file.added, is_test_declaration_line) {
        return Some(format!("`{path}`: a test is removed"));
    }
    if file.is_test_file() && count(&file.removed, is_assertion_line) > count(&file.added, is_assertion_line) {
        return Some(format!("`{path}`: an assertion is removed"));
    }
    (count(&file.added, is_test_skip_line) > count(&file.removed, is_test_skip_line))
        .then(|| format!("`{path}`: a test is skipped"))
}

fn is_test_declaration_line(line: &str) -> bool {
    let line = line.trim();
    ["#[test]", "#[tokio::test", "def test_", "func Test", "fn test_", "it(", "test(", "@Test", "describe("]
        .iter()
        .any(|start| line.starts_with(start) || line.starts_with(&format!("async {start}")))
}

fn is_assertion_line(line: &str) -> bool {
    let line = line.trim();
    ["assert", "expect(", "require.", "t.Error", "t.Fatal", "debug_assert", "self.assert", "[ ", "[[ ", "test "]
        .iter()
        .any(|start| line.starts_with(start))
}

fn is_test_skip_line(line: &str) -> bool {
    let line = line.trim();
    [
        "#[ignore",
        "@pytest.mark.skip",
        "@unittest.skip",
        "pytest.skip(",
        "t.Skip(",
        "it.skip(",
        "test.skip(",
        "xit(",
        "@Disabled",
    ]
    .iter()
    .any(|start| line.starts_with(start))
}
