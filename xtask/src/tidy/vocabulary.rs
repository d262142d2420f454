//! The parts of the project's language that a program can check: type names that are unique in the workspace, doc
//! comments that say something, and a short list of phrases that readers stumbled over.

use std::collections::BTreeMap;

use super::rust_source::split_words;
use super::source_tree::SourceTree;
use super::{TidyFinding, new_finding};

/// Type names that several crates or flows may use: their module always stands beside them.
const SHARED_TYPE_NAMES: [&str; 5] = ["Error", "Settings", "State", "Fact", "Options"];

/// Phrases of an earlier private dialect, and what to write instead.
const PHRASES: [(&str, &str); 16] = [
    ("whoever", "name the caller, the client or the process"),
    ("how-manieth", "write `n-th`"),
    ("is owed", "write `is pending`"),
    ("are owed", "write `are pending`"),
    ("at hand", "write `cached` or `available`"),
    ("stands there", "write `exists`"),
    ("comes to the same", "write `is equivalent`"),
    ("is let go", "write `is cancelled` or `is released`"),
    ("taken up again", "write `resumed`"),
    ("further down", "name the section"),
    ("behind that answer", "write `after your reply`"),
    ("the one who goes on", "name the role"),
    ("what is the matter", "name the problem"),
    ("is told so", "write `is informed` or name the error"),
    ("see the module's words", "describe the item itself"),
    ("is no part of", "write `is not part of`"),
];

/// File endings in which the phrases are looked for.
const PROSE_ENDINGS: [&str; 6] = [".rs", ".md", ".svelte", ".ts", ".toml", ".txt"];

/// Crates whose public surface is kept small, with the most lines that may declare a public item.
const PUBLIC_LINES: [(&str, usize); 2] = [("crates/core/src/", 350), ("crates/server/src/", 60)];

/// Words that declare a public item after `pub `.
const ITEM_KEYWORDS: [&str; 9] = ["fn", "async", "struct", "enum", "trait", "const", "type", "mod", "use"];

/// Finds types that share a name with another type and are visible outside their file.
pub(crate) fn check_type_names(tree: &SourceTree) -> Vec<TidyFinding> {
    let mut places: BTreeMap<&str, Vec<(&str, usize)>> = BTreeMap::new();
    for file in tree.production_files() {
        for (name, line) in visible_types(&file.source.production) {
            if !SHARED_TYPE_NAMES.contains(&name) {
                places.entry(name).or_default().push((&file.path, line));
            }
        }
    }
    let mut findings = Vec::new();
    for (name, places) in places.iter().filter(|(_, places)| places.len() > 1) {
        // The same type may be declared once for each platform in one file.
        if places.iter().all(|(path, _)| *path == places[0].0) {
            continue;
        }
        for (path, line) in places {
            let (other, other_line) = places.iter().find(|place| *place != &(*path, *line)).unwrap_or(&places[0]);
            let wrong = format!("type `{name}` is also defined at {other}:{other_line}");
            findings.push(new_finding(path, *line, wrong, "say in the name what the type is, without its module"));
        }
    }
    findings
}

/// Returns the name and line of each type that is declared with any form of `pub`.
fn visible_types(code: &str) -> Vec<(&str, usize)> {
    let mut found = Vec::new();
    for pair in split_words(code).windows(2) {
        let [keyword, name] = pair else { continue };
        if !["struct", "enum", "trait", "type", "union"].contains(&keyword.text) {
            continue;
        }
        let line_start = code[..keyword.offset].rfind('\n').map_or(0, |offset| offset + 1);
        let before = code[line_start..keyword.offset].trim_start();
        // Type names begin with a capital letter; a field called `r#type` and a macro's placeholder do not.
        let is_type = name.text.starts_with(char::is_uppercase) && !before.contains("r#") && !before.contains(':');
        if before.starts_with("pub") && is_type {
            found.push((name.text, name.line));
        }
    }
    found
}

/// Finds doc comments that consist of a single word.
pub(crate) fn check_doc_comments(tree: &SourceTree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with(".rs")) {
        let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
        for (index, line) in lines.iter().enumerate() {
            let Some(comment) = doc_text(line) else { continue };
            let continues = |line: Option<&&str>| line.is_some_and(|line| doc_text(line).is_some());
            let is_alone = !continues(index.checked_sub(1).and_then(|before| lines.get(before)))
                && !continues(lines.get(index + 1));
            if is_alone && is_one_word(comment) {
                let wrong = format!("the doc comment `{comment}` says nothing");
                findings.push(new_finding(path, index + 1, wrong, "write a sentence, or remove it"));
            }
        }
    }
    findings
}

fn doc_text(line: &str) -> Option<&str> {
    line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::trim)
}

fn is_one_word(comment: &str) -> bool {
    let word = comment.strip_suffix(['.', '?']).unwrap_or(comment);
    !word.is_empty() && word.chars().all(char::is_alphabetic)
}

/// Finds the phrases in code, comments, documents, prompts and the studio.
pub(crate) fn check_phrases(tree: &SourceTree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    let is_prose = |path: &str| PROSE_ENDINGS.iter().any(|ending| path.ends_with(ending));
    for (path, text) in tree.texts().filter(|(path, _)| is_prose(path) && !path.ends_with("tidy/vocabulary.rs")) {
        for (index, line) in text.lines().enumerate() {
            let line = line.to_lowercase();
            for (phrase, right) in PHRASES.iter().filter(|(phrase, _)| contains_phrase(&line, phrase)) {
                findings.push(new_finding(path, index + 1, format!("the phrase \"{phrase}\""), *right));
            }
        }
    }
    findings
}

/// Whether `phrase` occurs in `line` as whole words.
fn contains_phrase(line: &str, phrase: &str) -> bool {
    line.match_indices(phrase).any(|(offset, _)| {
        let before = line[..offset].chars().next_back();
        let after = line[offset + phrase.len()..].chars().next();
        !before.is_some_and(char::is_alphanumeric) && !after.is_some_and(char::is_alphanumeric)
    })
}

/// Finds crates that declare more public items than they should.
pub(crate) fn check_public_surface(tree: &SourceTree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (folder, most) in PUBLIC_LINES {
        let files = tree.production_files().filter(|file| file.path.starts_with(folder));
        let count: usize =
            files.map(|file| file.source.production.lines().filter(|line| is_public_item(line)).count()).sum();
        if count > most {
            let wrong = format!("{count} public items; at most {most} are wanted");
            let right = "make what no other crate uses `pub(crate)`";
            findings.push(new_finding(&format!("{folder}lib.rs"), 1, wrong, right));
        }
    }
    findings
}

fn is_public_item(line: &str) -> bool {
    let Some(item) = line.trim_start().strip_prefix("pub ") else { return false };
    item.split_whitespace().next().is_some_and(|keyword| ITEM_KEYWORDS.contains(&keyword))
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn two_visible_types_of_one_name_are_found() {
        let files =
            [("crates/a/src/b.rs", "pub struct Place;\n"), ("crates/c/src/d.rs", "\npub(crate) enum Place {}\n")];
        assert_eq!(
            found(check_type_names, &files),
            [
                "crates/a/src/b.rs:1: type `Place` is also defined at crates/c/src/d.rs:2",
                "crates/c/src/d.rs:2: type `Place` is also defined at crates/a/src/b.rs:1",
            ]
        );
    }

    #[test]
    fn private_shared_and_test_types_may_repeat() {
        let files = [
            ("crates/a/src/b.rs", "struct Row;\npub enum Error {}\n#[cfg(test)]\nmod tests { pub struct Fake; }\n"),
            ("crates/c/src/d.rs", "pub struct Row;\npub enum Error {}\npub struct Fake;\n"),
            ("crates/c/tests/e.rs", "pub struct Fake;\n"),
        ];
        assert_eq!(found(check_type_names, &files), [""; 0]);
    }

    #[test]
    fn a_doc_comment_of_one_word_is_found() {
        let code = "/// Which.\nfn a() {}\n/// Why\nfn b() {}\n";
        assert_eq!(
            found(check_doc_comments, &[("crates/a/src/b.rs", code)]),
            [
                "crates/a/src/b.rs:1: the doc comment `Which.` says nothing",
                "crates/a/src/b.rs:3: the doc comment `Why` says nothing",
            ]
        );
        let code = "/// Returns it.\nfn a() {}\n/// Longer than\n/// one.\n// Why.\n";
        assert_eq!(found(check_doc_comments, &[("crates/a/src/b.rs", code)]), [""; 0]);
    }

    #[test]
    fn a_banned_phrase_is_found_as_whole_words() {
        let files = [("docs/a.md", "Whoever asks.\n"), ("crates/a/src/b.rs", "/// What is owed.\n")];
        assert_eq!(
            found(check_phrases, &files),
            ["crates/a/src/b.rs:1: the phrase \"is owed\"", "docs/a.md:1: the phrase \"whoever\""]
        );
        assert_eq!(found(check_phrases, &[("docs/a.md", "that handover\n")]), [""; 0]);
    }

    #[test]
    fn a_surface_that_grew_too_large_is_found() {
        let small = "pub fn a() {}\npub(crate) fn b() {}\n    pub name: String,\n";
        assert_eq!(found(check_public_surface, &[("crates/server/src/lib.rs", small)]), [""; 0]);
        let large = "pub fn a() {}\n".repeat(61);
        assert_eq!(
            found(check_public_surface, &[("crates/server/src/app.rs", &large)]),
            ["crates/server/src/lib.rs:1: 61 public items; at most 60 are wanted"]
        );
    }
}
