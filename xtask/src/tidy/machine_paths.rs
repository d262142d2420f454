//! No path that exists on one machine only. Whoever clones the project has neither our home nor our scratch folders.

use super::tree::Tree;
use super::{Finding, finding};

/// Where people and containers keep checkouts, without the leading slash, so that this list does not find itself.
const PLACES: [&str; 3] = ["root/", "work/", "tmp/wt"];

/// Whether no file names such a path.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts() {
        for (index, line) in text.lines().enumerate() {
            if let Some(place) = PLACES.iter().find(|place| names(line, place)) {
                let wrong = format!("a path of one machine: /{place}…");
                findings.push(finding(path, index + 1, wrong, "use a path from the root of the checkout"));
            }
        }
    }
    findings
}

/// Whether the line has this place at the beginning of a path, not somewhere inside one.
fn names(line: &str, place: &str) -> bool {
    line.match_indices(place).any(|(offset, _)| {
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
        for place in PLACES {
            let text = format!("one\nsee `/{place}a`\n");
            assert_eq!(found(check, &[("a.md", &text)]), [format!("a.md:2: a path of one machine: /{place}…")]);
            assert_eq!(found(check, &[("a.rs", &format!("\"/{place}a\""))]).len(), 1);
            assert_eq!(found(check, &[("a.sh", &format!("/{place}a"))]).len(), 1);
        }
    }

    #[test]
    fn the_same_words_inside_a_path_are_free() {
        for place in PLACES {
            for before in ["docs/", "../", "https://example.org/", "~/", "${HOME}/", "**/", ""] {
                let text = format!("see {before}{place}a");
                assert_eq!(found(check, &[("a.md", &text)]), [""; 0], "{text}");
            }
        }
    }
}
