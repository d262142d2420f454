//! Rule: no file contains an absolute path that exists on one machine only, such as a home or scratch folder.

use super::source_tree::SourceTree;
use super::{TidyFinding, new_finding};

/// Usual folders of checkouts. The leading slash is missing, so that the rule does not find this list.
const LOCAL_PATH_PREFIXES: [&str; 3] = ["root/", "work/", "tmp/wt"];

/// Finds paths of one machine.
pub(crate) fn check_machine_paths(tree: &SourceTree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts() {
        for (index, line) in text.lines().enumerate() {
            if let Some(prefix) = LOCAL_PATH_PREFIXES.iter().find(|prefix| contains_path_prefix(line, prefix)) {
                let problem = format!("a path of one machine: /{prefix}…");
                findings.push(new_finding(path, index + 1, problem, "use a path relative to the root of the checkout"));
            }
        }
    }
    findings
}

/// Whether the line contains a path that begins with the prefix.
fn contains_path_prefix(line: &str, prefix: &str) -> bool {
    line.match_indices(prefix).any(|(offset, _)| {
        line[..offset].strip_suffix('/').is_some_and(|before| {
            !before.ends_with(|c: char| c.is_alphanumeric() || ['.', '_', '-', '~', '}', '*', '/'].contains(&c))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    #[test]
    fn a_path_of_one_machine_is_found() {
        for prefix in LOCAL_PATH_PREFIXES {
            let text = format!("one\nsee `/{prefix}a`\n");
            assert_eq!(
                found(check_machine_paths, &[("a.md", &text)]),
                [format!("a.md:2: a path of one machine: /{prefix}…")]
            );
            assert_eq!(found(check_machine_paths, &[("a.rs", &format!("\"/{prefix}a\""))]).len(), 1);
            assert_eq!(found(check_machine_paths, &[("a.sh", &format!("/{prefix}a"))]).len(), 1);
        }
    }

    #[test]
    fn the_same_folder_names_inside_a_path_are_allowed() {
        for prefix in LOCAL_PATH_PREFIXES {
            for before in ["docs/", "../", "https://example.org/", "~/", "${HOME}/", "**/", ""] {
                let text = format!("see {before}{prefix}a");
                assert_eq!(found(check_machine_paths, &[("a.md", &text)]), [""; 0], "{text}");
            }
        }
    }
}
