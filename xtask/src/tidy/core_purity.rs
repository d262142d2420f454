//! Core is a pure function of its arguments. Clippy says so too, by path; this looks at the words, so that it also sees
//! what a lint that is allowed somewhere would let through.

use super::rust_source::{CodeWord, split_words};
use super::source_tree::SourceTree;
use super::{TidyFinding, new_finding};

const CORE_SOURCES: &str = "crates/core/src/";

/// Names that core has no use for at all.
const BANNED_NAMES: [(&str, &str); 6] = [
    ("Instant", "core has no clock; take `Millis` as an argument"),
    ("SystemTime", "core has no clock; take `Millis` as an argument"),
    ("HashMap", "its order is random and could reach a prompt; use `BTreeMap`"),
    ("HashSet", "its order is random and could reach a prompt; use `BTreeSet`"),
    ("tokio", "core is synchronous; what waits belongs to the engine"),
    ("rand", "core draws no random numbers; take them as an argument"),
];

/// Modules of `std` that reach outside.
const BANNED_STD_MODULES: [(&str, &str); 5] = [
    ("fs", "core does no I/O; what reads or writes belongs to the store or the program"),
    ("env", "core reads no environment; take a setting as an argument"),
    ("net", "core does no I/O; what talks to the world belongs to the engine"),
    ("process", "core starts nothing and never ends the program; return an error"),
    ("thread", "core runs where it is called"),
];

/// Whether core is pure, its tests included.
pub fn check_core_purity(tree: &SourceTree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for file in tree.rust_files().iter().filter(|file| file.path.starts_with(CORE_SOURCES)) {
        let code = &file.source.code;
        for word in split_words(code) {
            let name = BANNED_NAMES.iter().find(|(name, _)| *name == word.text);
            let module =
                || BANNED_STD_MODULES.iter().find(|(module, _)| *module == word.text && is_std_path(code, word));
            if let Some((name, right)) = name.or_else(module) {
                findings.push(new_finding(&file.path, word.line, format!("`{name}` in core"), *right));
            }
        }
    }
    findings
}

/// Whether the word stands behind `std::`, or in a `use` of several things from there.
fn is_std_path(code: &str, word: CodeWord<'_>) -> bool {
    let before = &code[..word.offset];
    let statement = before.rsplit(';').next().unwrap_or(before);
    before.ends_with("std::") || statement.contains("use std::{") && before.ends_with(['{', ' ', '\n'])
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    fn check_code(code: &str) -> Vec<String> {
        found(check_core_purity, &[("crates/core/src/a.rs", code)])
    }

    #[test]
    fn every_impure_name_is_found() {
        for (name, _) in BANNED_NAMES {
            assert_eq!(check_code(&format!("use x::{name};\n")), [format!("crates/core/src/a.rs:1: `{name}` in core")]);
        }
        for (module, _) in BANNED_STD_MODULES {
            let expected = [format!("crates/core/src/a.rs:2: `{module}` in core")];
            assert_eq!(check_code(&format!("fn a() {{\n    std::{module}::b();\n}}\n")), expected);
            assert_eq!(check_code(&format!("use std::{{fmt,\n{module}}};\n")), expected);
        }
    }

    #[test]
    fn other_words_and_other_crates_are_free() {
        assert_eq!(check_code("// HashMap\nfn thread(env: &str) { fs(\"tokio\", std::fmt::x, random) }\n"), [""; 0]);
        assert_eq!(check_code("use std::sync::Arc;\nfn process(thread: Thread) {}\n"), [""; 0]);
        assert_eq!(found(check_core_purity, &[("crates/engine/src/a.rs", "use tokio::time::Instant;\n")]), [""; 0]);
    }
}
