//! Rule: every relative link in a document leads to a file of the checkout. External links are not checked, nor are
//! prompts.

use super::source_tree::SourceTree;
use super::{TidyFinding, new_finding};

/// Finds relative links to files that do not exist.
pub(crate) fn check_links(tree: &SourceTree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for (path, text) in tree.texts().filter(|(path, _)| path.ends_with(".md") && !path.contains("/prompts/")) {
        for (line, target) in find_links(text) {
            let file = target.split(['#', '?']).next().unwrap_or_default().replace("%20", " ");
            if file.is_empty() || is_external_link(&file) {
                continue;
            }
            let problem = match resolve_link(path, &file) {
                Some(found) if tree.exists(&found) => continue,
                Some(missing) => format!("this link leads to {missing}, which does not exist"),
                None => format!("this link leads out of the checkout: {file}"),
            };
            findings.push(new_finding(path, line, problem, "correct the link, or add the file"));
        }
    }
    findings
}

fn is_external_link(target: &str) -> bool {
    let scheme = target.split_once(':').map(|(scheme, _)| scheme).unwrap_or_default();
    target.starts_with("//") || !scheme.is_empty() && scheme.chars().all(|c| c.is_ascii_alphanumeric())
}

/// Returns the target of a link in `from`, relative to the root; `None` if it is outside of the checkout.
fn resolve_link(from: &str, target: &str) -> Option<String> {
    let start = if target.starts_with('/') { "" } else { from.rsplit_once('/').map_or("", |(folder, _)| folder) };
    let mut parts: Vec<&str> = start.split('/').filter(|part| !part.is_empty()).collect();
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            name => parts.push(name),
        }
    }
    Some(parts.join("/"))
}

/// Returns the lines and targets of all links and images.
fn find_links(text: &str) -> Vec<(usize, String)> {
    let mut links = Vec::new();
    let mut fence = None;
    for (index, line) in text.lines().enumerate() {
        let trimmed = line.trim_start();
        let marker = ["```", "~~~"].into_iter().find(|marker| trimmed.starts_with(marker));
        match (fence, marker) {
            (None, Some(_)) => fence = marker,
            (Some(open), Some(close)) if open == close => fence = None,
            (None, None) => {
                links.extend(link_targets(&strip_inline_code(line)).into_iter().map(|target| (index + 1, target)))
            }
            _ => {}
        }
    }
    links
}

/// Returns the line without the text between backticks.
fn strip_inline_code(line: &str) -> String {
    let mut pieces: Vec<&str> = line.split('`').collect();
    // A single backtick at the end opens no code.
    let closed = if pieces.len().is_multiple_of(2) { pieces.len() - 1 } else { pieces.len() };
    for piece in pieces[..closed].iter_mut().skip(1).step_by(2) {
        *piece = "";
    }
    pieces.join("`")
}

fn link_targets(line: &str) -> Vec<String> {
    let mut targets = Vec::new();
    for (opening, closing) in [("](", ')'), ("href=\"", '"'), ("src=\"", '"')] {
        for piece in line.split(opening).skip(1) {
            let target = match piece.strip_prefix('<') {
                Some(bracketed) => bracketed.split('>').next(),
                None => piece.split([closing, ' ']).next(),
            };
            targets.extend(target.map(str::to_owned));
        }
    }
    if let Some((_, definition)) = line.strip_prefix('[').and_then(|rest| rest.split_once("]:")) {
        targets.extend(definition.split_whitespace().next().map(|target| target.trim_matches(['<', '>']).to_owned()));
    }
    targets
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    fn check_text(text: &str) -> Vec<String> {
        found(
            check_links,
            &[("docs/guide/a.md", text), ("docs/b.md", ""), ("README.md", ""), ("docs/guide/a b.md", "")],
        )
    }

    #[test]
    fn a_broken_link_is_found() {
        for link in
            ["[x](c.md)", "![x](c.md \"Title\")", "[x]: c.md", "[x](<c.md>)", "<img src=\"c.md\">", "[x](c.md#y)"]
        {
            let problem = "docs/guide/a.md:2: this link leads to docs/guide/c.md, which does not exist";
            assert_eq!(check_text(&format!("# A\n{link}\n")), [problem], "{link}");
        }
        assert_eq!(
            check_text("[x](../b.md) [y](../c.md)\n"),
            ["docs/guide/a.md:1: this link leads to docs/c.md, which does not exist",]
        );
        assert_eq!(
            check_text("[x](../../../b.md)"),
            ["docs/guide/a.md:1: this link leads out of the checkout: ../../../b.md",]
        );
    }

    #[test]
    fn valid_and_external_links_are_accepted() {
        for link in ["../b.md", "../../README.md#top", "/docs/b.md", "..", "./", "a%20b.md", "#here"] {
            assert_eq!(check_text(&format!("[x]({link})")), [""; 0], "{link}");
        }
        for link in ["https://example.org/c.md", "mailto:a@example.org", "//example.org/c"] {
            assert_eq!(check_text(&format!("[x]({link})")), [""; 0], "{link}");
        }
    }

    #[test]
    fn code_has_no_links() {
        assert_eq!(check_text("```\n[x](c.md)\n```\n`[x](c.md)` and `a` [y](../b.md)\n"), [""; 0]);
        assert_eq!(check_text("it's ` odd [x](c.md)\n").len(), 1);
        assert_eq!(found(check_links, &[("crates/flows/src/x/prompts/a.md", "[x](c.md)")]), [""; 0]);
    }
}
