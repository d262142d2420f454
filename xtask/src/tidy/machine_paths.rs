//! No path that exists on one machine only. Whoever clones the project has neither our home nor our scratch folders.

use super::source_tree::SourceTree;
use super::{TidyFinding, new_finding};

/// Where people and containers keep checkouts, without the leading slash, so that this list does not find itself.
const LOCAL_PATH_PREFIXES: [&str; 3] = ["root/", "work/", "tmp/wt"];

/// Whether no file names such a path.
pub fn check_machine_paths(tree: &SourceTree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts() {
        for (index, line) in text.lines().enumerate() {
            if let Some(place) = LOCAL_PATH_PREFIXES.iter().find(|place| contains_path_prefix(line, place)) {
                let wrong = format!("a path of one machine: /{place}…");
                findings.push(new_finding(path, index + 1, wrong, "use a path from the root of the checkout"));
            }
        }
    }
    findings
}

/// Whether the line has this place at the beginning of a path, not somewhere inside one.
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
        for place in LOCAL_PATH_PREFIXES {
            let text = format!("one\nsee `/{place}a`\n");
            assert_eq!(
                found(check_machine_paths, &[("a.md", &text)]),
                [format!("a.md:2: a path of one machine: /{place}…")]
            );
            assert_eq!(found(check_machine_paths, &[("a.rs", &format!("\"/{place}a\""))]).len(), 1);
            assert_eq!(found(check_machine_paths, &[("a.sh", &format!("/{place}a"))]).len(), 1);
        }
    }

    #[test]
    fn the_same_words_inside_a_path_are_free() {
        for place in LOCAL_PATH_PREFIXES {
            for before in ["docs/", "../", "https://example.org/", "~/", "${HOME}/", "**/", ""] {
                let text = format!("see {before}{place}a");
                assert_eq!(found(check_machine_paths, &[("a.md", &text)]), [""; 0], "{text}");
            }
        }
    }
}
