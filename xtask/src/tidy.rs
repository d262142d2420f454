//! What no compiler checks, as an ordinary test: the map of crates is true, files are short, words to models are where
//! they belong, links lead somewhere. A rule is a function from the checkout to findings and a line in [`RULES`].

use std::fmt;
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::checkout;
use source_tree::SourceTree;

mod core_purity;
mod crate_manifests;
mod crate_table;
mod dependency_rules;
mod file_shape;
mod limit_names;
mod limits;
mod links;
mod machine_paths;
mod prompt_locations;
mod rust_source;
mod source_tree;
mod unfinished_code;

type TidyRule = fn(&SourceTree) -> Vec<TidyFinding>;

const TIDY_RULES: &[TidyRule] = &[
    crate_table::check_crate_table,
    dependency_rules::check_dependencies,
    file_shape::check_file_shape,
    prompt_locations::check_prompt_locations,
    unfinished_code::check_unfinished_code,
    core_purity::check_core_purity,
    limit_names::check_limit_names,
    links::check_links,
    machine_paths::check_machine_paths,
];

/// Something that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TidyFinding {
    /// The file, from the root of the checkout.
    path: String,
    /// The first is 1.
    line: usize,
    /// What is the matter.
    problem: String,
    /// What would be right.
    fix: String,
}

impl fmt::Display for TidyFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}\n    {}", self.path, self.line, self.problem, self.fix)
    }
}

fn new_finding(path: &str, line: usize, problem: impl Into<String>, fix: impl Into<String>) -> TidyFinding {
    TidyFinding { path: path.to_owned(), line, problem: problem.into(), fix: fix.into() }
}

/// Checks the checkout and prints what was found.
pub fn run_tidy() -> Result<ExitCode> {
    let report = tidy_report()?;
    if report.is_empty() {
        println!("tidy");
        return Ok(ExitCode::SUCCESS);
    }
    print!("{report}");
    Ok(ExitCode::FAILURE)
}

/// All findings in the checkout as text, by file and line; empty if there are none.
pub fn tidy_report() -> Result<String> {
    let root = checkout::checkout_root();
    let tree = SourceTree::load(&root).with_context(|| format!("{} cannot be checked", root.display()))?;
    let mut findings: Vec<TidyFinding> = TIDY_RULES.iter().flat_map(|rule| rule(&tree)).collect();
    findings.sort();
    Ok(findings.iter().map(|finding| format!("{finding}\n")).collect())
}

/// For the tests of rules: what a rule finds in a small checkout, a line each, without the advice.
#[cfg(test)]
fn found(rule: TidyRule, files: &[(&str, &str)]) -> Vec<String> {
    let findings = rule(&SourceTree::of(files));
    assert!(findings.iter().all(|finding| !finding.fix.is_empty()), "advice is missing");
    findings.iter().map(|finding| format!("{}:{}: {}", finding.path, finding.line, finding.problem)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checkout_is_tidy() {
        let report = tidy_report().expect("the checkout can be read");
        assert!(report.is_empty(), "\n{report}");
    }

    #[test]
    fn a_finding_says_where_and_what_would_be_right() {
        let text = new_finding("a.rs", 3, "this is wrong", "do it so").to_string();
        assert_eq!(text, "a.rs:3: this is wrong\n    do it so");
    }
}
