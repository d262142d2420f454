//! Rules: core is pure, and flows do not log. Clippy bans impure paths too; this rule searches for names, so that it also finds uses where the
//! lint is allowed.

use super::rust_source::{RustIdentifierOrKeyword, split_words};
use super::source_tree::SourceTree;
use super::{TidyFinding, new_finding};

const CORE_SOURCES: &str = "crates/core/src/";

/// Names that must not appear in core.
const BANNED_NAMES: [(&str, &str); 7] = [
    ("Instant", "core has no clock; take `Millis` as an argument"),
    ("SystemTime", "core has no clock; take `Millis` as an argument"),
    ("HashMap", "its order is random and could reach a prompt; use `BTreeMap`"),
    ("HashSet", "its order is random and could reach a prompt; use `BTreeSet`"),
    ("tokio", "core is synchronous; asynchronous code belongs in the engine"),
    ("rand", "core draws no random numbers; take them as an argument"),
    (LOG_CRATE, "core does not log; what it decides is recorded in the journal, and the engine logs that"),
];

/// The crate with which the other crates log.
const LOG_CRATE: &str = "tracing";
const FLOW_SOURCES: &str = "crates/flows/src/";

/// Modules of `std` with side effects.
const BANNED_STD_MODULES: [(&str, &str); 5] = [
    ("fs", "core does no I/O; file access belongs in the store or the program"),
    ("env", "core reads no environment; take a setting as an argument"),
    ("net", "core does no I/O; network access belongs in the engine"),
    ("process", "core starts no process and never exits; return an error"),
    ("thread", "core starts no threads"),
];

/// Finds impure names in core and its unit tests.
pub(crate) fn check_core_purity(tree: &SourceTree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for file in tree.rust_files().iter().filter(|file| file.path.starts_with(CORE_SOURCES)) {
        let code = &file.source.code;
        for word in split_words(code) {
            let name = BANNED_NAMES.iter().find(|(name, _)| *name == word.text);
            let module =
                || BANNED_STD_MODULES.iter().find(|(module, _)| *module == word.text && is_std_path(code, word));
            if let Some((name, fix)) = name.or_else(module) {
                findings.push(new_finding(&file.path, word.line, format!("`{name}` in core"), *fix));
            }
        }
    }
    findings
}

/// Finds log statements in flows, which are pure functions too.
pub(crate) fn check_flows_do_not_log(tree: &SourceTree) -> Vec<TidyFinding> {
    let fix = "flows do not log; record a fact, and the engine logs that";
    let flows = tree.rust_files().iter().filter(|file| file.path.starts_with(FLOW_SOURCES));
    let words = flows.flat_map(|file| split_words(&file.source.code).into_iter().map(move |word| (file, word)));
    words
        .filter(|(_, word)| word.text == LOG_CRATE)
        .map(|(file, word)| new_finding(&file.path, word.line, format!("`{LOG_CRATE}` in a flow"), fix))
        .collect()
}

/// Whether a word follows `std::`, or is in the braces of a `use std::{…}`.
fn is_std_path(code: &str, word: RustIdentifierOrKeyword<'_>) -> bool {
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
    fn log_statement_in_a_flow_is_found() {
        let code = "fn a() {\n    tracing::info!(\"b\");\n}\n";
        let in_file = |path: &str| found(check_flows_do_not_log, &[(path, code)]);
        assert_eq!(in_file("crates/flows/src/a.rs"), ["crates/flows/src/a.rs:2: `tracing` in a flow"]);
        assert_eq!(in_file("crates/engine/src/a.rs"), [""; 0]);
    }

    #[test]
    fn other_names_and_other_crates_are_allowed() {
        assert_eq!(check_code("// HashMap\nfn thread(env: &str) { fs(\"tokio\", std::fmt::x, random) }\n"), [""; 0]);
        assert_eq!(check_code("use std::sync::Arc;\nfn process(thread: Thread) {}\n"), [""; 0]);
        assert_eq!(found(check_core_purity, &[("crates/engine/src/a.rs", "use tokio::time::Instant;\n")]), [""; 0]);
    }
}
