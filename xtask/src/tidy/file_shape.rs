//! The shape of files: short enough to be read in one go, and named after what is in them.

use super::limits::FILE_LINES_MAX;
use super::source_tree::SourceTree;
use super::{TidyFinding, new_finding};

/// Whether files of production code are short, and no module is called `mod.rs`.
pub fn check_file_shape(tree: &SourceTree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for file in tree.production_files() {
        let lines = file.source.production_lines;
        if lines > FILE_LINES_MAX {
            let wrong = format!("{lines} lines, without those for tests");
            let right =
                format!("at most {FILE_LINES_MAX}; find the second idea in this file and give it one of its own");
            findings.push(new_finding(&file.path, lines, wrong, right));
        }
    }
    for path in tree.paths().filter(|path| path.ends_with("/mod.rs")) {
        let folder = path.trim_end_matches("/mod.rs");
        let right = format!("call it {folder}.rs");
        findings.push(new_finding(path, 1, "a module's file is named after the module", right));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    fn file(production: usize, tests: usize) -> String {
        format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", "// line\n".repeat(production), "// line\n".repeat(tests))
    }

    #[test]
    fn tests_do_not_count_towards_the_length() {
        assert_eq!(found(check_file_shape, &[("crates/a/src/b.rs", &file(600, 500))]), [""; 0]);
        assert_eq!(
            found(check_file_shape, &[("crates/a/src/b.rs", &file(601, 0))]),
            ["crates/a/src/b.rs:601: 601 lines, without those for tests",]
        );
        assert_eq!(found(check_file_shape, &[("crates/a/tests/b.rs", &file(601, 0))]), [""; 0]);
    }

    #[test]
    fn mod_rs_is_found_wherever_it_is() {
        let wrong = "a module's file is named after the module";
        assert_eq!(
            found(check_file_shape, &[("crates/a/src/b/mod.rs", "")]),
            [format!("crates/a/src/b/mod.rs:1: {wrong}")]
        );
        assert_eq!(
            found(check_file_shape, &[("crates/a/tests/b/mod.rs", "")]),
            [format!("crates/a/tests/b/mod.rs:1: {wrong}")]
        );
        assert_eq!(found(check_file_shape, &[("crates/a/src/b.rs", "")]), [""; 0]);
    }
}
