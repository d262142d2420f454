//! Rule: files are short, and named after their module.

use super::limits::FILE_LINES_MAX;
use super::source_tree::SourceTree;
use super::{TidyFinding, new_finding};

/// Finds long files of production code, and files named `mod.rs`.
pub(crate) fn check_file_shape(tree: &SourceTree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for file in tree.production_files() {
        let lines = file.source.production_lines;
        if lines > FILE_LINES_MAX {
            let problem = format!("{lines} lines, without tests");
            let fix = format!("the limit is {FILE_LINES_MAX}; move a part with its own purpose to another file");
            findings.push(new_finding(&file.path, lines, problem, fix));
        }
    }
    for path in tree.paths().filter(|path| path.ends_with("/mod.rs")) {
        let folder = path.trim_end_matches("/mod.rs");
        let fix = format!("rename it to {folder}.rs");
        findings.push(new_finding(path, 1, "a file named mod.rs", fix));
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
            ["crates/a/src/b.rs:601: 601 lines, without tests",]
        );
        assert_eq!(found(check_file_shape, &[("crates/a/tests/b.rs", &file(601, 0))]), [""; 0]);
    }

    #[test]
    fn mod_rs_is_found_in_all_folders() {
        let problem = "a file named mod.rs";
        assert_eq!(
            found(check_file_shape, &[("crates/a/src/b/mod.rs", "")]),
            [format!("crates/a/src/b/mod.rs:1: {problem}")]
        );
        assert_eq!(
            found(check_file_shape, &[("crates/a/tests/b/mod.rs", "")]),
            [format!("crates/a/tests/b/mod.rs:1: {problem}")]
        );
        assert_eq!(found(check_file_shape, &[("crates/a/src/b.rs", "")]), [""; 0]);
    }
}
