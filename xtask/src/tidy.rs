//! What no compiler checks, as an ordinary test: the map of crates is true, files are short, words to models are where
//! they belong, links lead somewhere. A rule is a function from the checkout to findings and a line in [`RULES`].

use std::fmt;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::checkout;
use tree::Tree;

mod banned;
mod edges;
mod limit_names;
mod limits;
mod links;
mod machine_paths;
mod manifest;
mod map;
mod prompts;
mod purity;
mod rust;
mod shape;
mod tree;

type Rule = fn(&Tree) -> Vec<Finding>;

const RULES: &[Rule] = &[
    map::check,
    edges::check,
    shape::check,
    prompts::check,
    banned::check,
    purity::check,
    limit_names::check,
    links::check,
    machine_paths::check,
];

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    /// The file, from the root of the checkout.
    path: String,
    /// The first is 1.
    line: usize,
    /// What is the matter.
    wrong: String,
    /// What would be right.
    right: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}\n    {}", self.path, self.line, self.wrong, self.right)
    }
}

fn finding(path: &str, line: usize, wrong: impl Into<String>, right: impl Into<String>) -> Finding {
    Finding { path: path.to_owned(), line, wrong: wrong.into(), right: right.into() }
}

/// Checks the checkout and prints what was found.
pub fn run() -> Result<ExitCode> {
    let report = report()?;
    if report.is_empty() {
        println!("tidy");
        return Ok(ExitCode::SUCCESS);
    }
    print!("{report}");
    Ok(ExitCode::FAILURE)
}

/// All findings in the checkout as text, by file and line; empty if there are none.
pub fn report() -> Result<String> {
    let root = checkout::root();
    let tree = Tree::load(&root).with_context(|| format!("{} cannot be checked", root.display()))?;
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| rule(&tree)).collect();
    findings.sort();
    Ok(findings.iter().map(|finding| format!("{finding}\n")).collect())
}

/// For the tests of rules: what a rule finds in a small checkout, a line each, without the advice.
#[cfg(test)]
fn found(rule: Rule, files: &[(&str, &str)]) -> Vec<String> {
    let findings = rule(&Tree::of(files));
    assert!(findings.iter().all(|finding| !finding.right.is_empty()), "advice is missing");
    findings.iter().map(|finding| format!("{}:{}: {}", finding.path, finding.line, finding.wrong)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checkout_is_tidy() {
        let report = report().expect("the checkout can be read");
        assert!(report.is_empty(), "\n{report}");
    }

    #[test]
    fn a_finding_says_where_and_what_would_be_right() {
        let text = finding("a.rs", 3, "this is wrong", "do it so").to_string();
        assert_eq!(text, "a.rs:3: this is wrong\n    do it so");
    }
}
