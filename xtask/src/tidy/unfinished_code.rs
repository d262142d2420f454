//! Rule: no unfinished work, debug output or `unwrap` in production code, and no ignored tests.

use super::rust_source::split_words;
use super::source_tree::{ParsedRustFile, SourceTree};
use super::{TidyFinding, new_finding};

/// Macros that are not allowed in production code, and how to fix them.
const BANNED_MACROS: [(&str, &str); 3] = [
    ("todo", "implement it, or return an error that says it is not supported"),
    ("unimplemented", "implement it, or return an error that says it is not supported"),
    ("dbg", "remove it"),
];

/// Finds unfinished production code, ignored tests and ignored examples.
pub(crate) fn check_unfinished_code(tree: &SourceTree) -> Vec<TidyFinding> {
    let mut findings: Vec<TidyFinding> = tree.production_files().flat_map(find_banned_macros).collect();
    for file in tree.rust_files() {
        let lines = file.source.code.lines().enumerate();
        for (index, _) in lines.filter(|(_, line)| is_ignored_test(line)) {
            findings.push(ignored_test_finding(file, index + 1));
        }
    }
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with(".rs")) {
        for (index, _) in text.lines().enumerate().filter(|(_, line)| is_ignored_example(line)) {
            let fix = "make it compile (```no_run if it must not run), or mark it ```text";
            findings.push(new_finding(path, index + 1, "an example that is not compiled", fix));
        }
    }
    findings
}

fn find_banned_macros(file: &ParsedRustFile) -> Vec<TidyFinding> {
    let code = &file.source.production;
    let mut findings = Vec::new();
    for word in split_words(code) {
        let rest = &code[word.offset + word.text.len()..];
        let found = BANNED_MACROS.iter().find(|(name, _)| *name == word.text && rest.starts_with('!'));
        if let Some((name, fix)) = found {
            findings.push(new_finding(&file.path, word.line, format!("`{name}!` in production code"), *fix));
        }
    }
    for (index, _) in code.lines().enumerate().filter(|(_, line)| line.contains(".unwrap()")) {
        let fix = "return an error, or use `expect` with the invariant that makes a panic impossible";
        findings.push(new_finding(&file.path, index + 1, "`unwrap` in production code", fix));
    }
    findings
}

fn ignored_test_finding(file: &ParsedRustFile, line: usize) -> TidyFinding {
    new_finding(&file.path, line, "an ignored test", "make it pass, or remove it and open an issue")
}

fn is_ignored_test(line: &str) -> bool {
    line.contains("#[ignore")
        || line.contains("#[cfg_attr(") && split_words(line).iter().any(|word| word.text == "ignore")
}

fn is_ignored_example(line: &str) -> bool {
    let line = line.trim_start();
    let comment = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
    comment.is_some_and(|comment| comment.trim_start().starts_with("```ignore"))
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    fn check_code(code: &str) -> Vec<String> {
        found(check_unfinished_code, &[("crates/a/src/b.rs", code)])
    }

    #[test]
    fn unfinished_work_is_found() {
        let code = "fn a() {\n    todo!()\n}\nfn b() {\n    dbg!(1);\n    unimplemented!(\"b\");\n}\n";
        assert_eq!(
            check_code(code),
            [
                "crates/a/src/b.rs:2: `todo!` in production code",
                "crates/a/src/b.rs:5: `dbg!` in production code",
                "crates/a/src/b.rs:6: `unimplemented!` in production code",
            ]
        );
        assert_eq!(check_code("// todo!()\nfn todo() -> &str { \"dbg!\" }\n"), [""; 0]);
    }

    #[test]
    fn unwrap_is_found_outside_tests() {
        assert_eq!(
            check_code("fn a() {\n    b\n        .unwrap();\n}\n"),
            ["crates/a/src/b.rs:3: `unwrap` in production code",]
        );
        assert_eq!(check_code("fn a() { b.unwrap_or(1).expect(\".unwrap()\") }\n"), [""; 0]);
        assert_eq!(check_code("#[cfg(test)]\nmod tests {\n    fn a() { b.unwrap(); }\n}\n"), [""; 0]);
        assert_eq!(found(check_unfinished_code, &[("crates/a/tests/b.rs", "fn a() { b.unwrap(); }\n")]), [""; 0]);
    }

    #[test]
    fn an_ignored_test_is_found_in_all_files() {
        for attribute in ["#[ignore]", "#[ignore = \"slow\"]", "#[cfg_attr(unix, ignore)]"] {
            let code = format!("#[cfg(test)]\nmod tests {{\n    #[test]\n    {attribute}\n    fn a() {{}}\n}}\n");
            assert_eq!(check_code(&code), ["crates/a/src/b.rs:4: an ignored test"], "{attribute}");
        }
        assert_eq!(found(check_unfinished_code, &[("crates/a/tests/b.rs", "#[ignore]\nfn a() {}\n")]).len(), 1);
        assert_eq!(
            check_code("/// Says:\n/// ```ignore\n/// ```\nfn a() {}\n"),
            ["crates/a/src/b.rs:2: an example that is not compiled",]
        );
    }
}
