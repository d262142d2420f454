//! `cargo xtask tidy`: rules about the checkout that no compiler checks, such as the table of crates, file lengths, the
//! locations of prompts, and links. A rule is a function in [`TIDY_RULES`] that returns findings.

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
mod vocabulary;

type TidyRule = fn(&SourceTree) -> Vec<TidyFinding>;

const TIDY_RULES: &[TidyRule] = &[
    crate_table::check_crate_table,
    dependency_rules::check_dependencies,
    file_shape::check_file_shape,
    prompt_locations::check_prompt_locations,
    unfinished_code::check_unfinished_code,
    core_purity::check_core_purity,
    core_purity::check_flows_do_not_log,
    limit_names::check_limit_names,
    links::check_links,
    machine_paths::check_machine_paths,
    vocabulary::check_type_names,
    vocabulary::check_doc_comments,
    vocabulary::check_phrases,
    vocabulary::check_public_surface,
];

/// A violation of a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct TidyFinding {
    /// The path of the file, relative to the root of the checkout.
    path: String,
    /// The line number, starting at 1.
    line: usize,
    problem: String,
    /// How to fix it.
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

/// Checks the checkout and prints all findings.
pub(crate) fn run_tidy() -> Result<ExitCode> {
    let report = tidy_report()?;
    if report.is_empty() {
        println!("tidy");
        return Ok(ExitCode::SUCCESS);
    }
    print!("{report}");
    Ok(ExitCode::FAILURE)
}

/// Returns all findings as text, sorted by file and line; empty if there are none.
pub(crate) fn tidy_report() -> Result<String> {
    let root = checkout::checkout_root();
    let tree = SourceTree::load(&root).with_context(|| format!("{} cannot be checked", root.display()))?;
    let mut findings: Vec<TidyFinding> = TIDY_RULES.iter().flat_map(|rule| rule(&tree)).collect();
    findings.sort();
    Ok(findings.iter().map(|finding| format!("{finding}\n")).collect())
}

/// Returns the findings of a rule in a small checkout, one line each, without the fixes.
#[cfg(test)]
fn found(rule: TidyRule, files: &[(&str, &str)]) -> Vec<String> {
    let findings = rule(&SourceTree::from_files(files));
    assert!(findings.iter().all(|finding| !finding.fix.is_empty()), "a fix is missing");
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
    fn a_finding_has_a_location_and_a_fix() {
        let text = new_finding("a.rs", 3, "this is wrong", "do it so").to_string();
        assert_eq!(text, "a.rs:3: this is wrong\n    do it so");
    }
}
