//! Rule: a constant that is named a maximum, a minimum or a limit is in the `limits.rs` of its crate, so that all limits
//! of a crate are in one file.

use super::rust_source::split_words;
use super::source_tree::SourceTree;
use super::{TidyFinding, new_finding};

/// Finds limits outside of `limits.rs`.
pub(crate) fn check_limit_names(tree: &SourceTree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for file in tree.production_files().filter(|file| !file.path.ends_with("/limits.rs")) {
        let code = &file.source.production;
        for pair in split_words(code).windows(2) {
            let [keyword, name] = pair else { continue };
            let is_parameter = code[..keyword.offset].trim_end().ends_with(['<', ',']);
            if ["const", "static"].contains(&keyword.text) && is_limit_name(name.text) && !is_parameter {
                let problem = format!("`{}` is a limit", name.text);
                let fix = format!("move it to {}", limits_file_path(&file.path));
                findings.push(new_finding(&file.path, name.line, problem, fix));
            }
        }
    }
    findings
}

fn is_limit_name(name: &str) -> bool {
    let is_limit_word = |word: &str| ["MAX", "MIN", "LIMIT"].contains(&word);
    name.split('_').next().is_some_and(is_limit_word) || name.split('_').next_back().is_some_and(is_limit_word)
}

/// Returns `crates/core/src/limits.rs` for `crates/core/src/signal/block.rs`.
fn limits_file_path(path: &str) -> String {
    let source = path.split_inclusive('/').take_while(|folder| *folder != "src/").collect::<String>();
    format!("{source}src/limits.rs")
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    fn check_code(code: &str) -> Vec<String> {
        found(check_limit_names, &[("crates/a/src/b.rs", code)])
    }

    #[test]
    fn a_limit_outside_its_file_is_found() {
        for name in ["TURNS_MAX", "TURNS_MIN", "TURN_LIMIT", "MAX_TURNS", "MAX"] {
            let code = format!("fn a() {{}}\npub const {name}: usize = 3;\n");
            assert_eq!(check_code(&code), [format!("crates/a/src/b.rs:2: `{name}` is a limit")]);
            assert_eq!(found(check_limit_names, &[("crates/a/src/limits.rs", &code)]), [""; 0]);
        }
        let findings = check_limit_names(&SourceTree::from_files(&[("crates/a/src/b/c.rs", "static A_MAX: u8 = 1;")]));
        assert_eq!(findings[0].fix, "move it to crates/a/src/limits.rs");
    }

    #[test]
    fn other_constants_and_tests_are_allowed() {
        let code =
            "const MAXIMAL: u8 = 1;\nconst fn a_MAX() {}\nconst A: u32 = u32::MAX;\nstruct B<const B_MAX: usize>;\n";
        assert_eq!(check_code(code), [""; 0]);
        assert_eq!(check_code("#[cfg(test)]\nmod tests { const A_MAX: u8 = 1; }\n"), [""; 0]);
    }
}
