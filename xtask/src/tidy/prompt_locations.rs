//! Rule: prompts are in the `prompts/` folders of the flows only. A text that contains "you are" is taken for a prompt,
//! because nearly every prompt begins like that and few other texts do. The rehearsal model and the test kit simulate
//! models, so they may quote prompts.

use super::limits::NON_PROMPT_CHARS_MAX;
use super::source_tree::{SourceTree, parent_folders};
use super::{TidyFinding, new_finding};

const FLOWS_FOLDER: &str = "crates/flows/";
const PROMPT_QUOTING_PATHS: [&str; 2] = ["crates/testkit/", "crates/models/src/rehearsal"];

/// Folders with texts for tests, which are not sent to a model.
const TEST_FOLDERS: [&str; 3] = ["tests", "scenarios", "fixtures"];

/// Finds prompts in code, and templates outside of `prompts/`.
pub(crate) fn check_prompt_locations(tree: &SourceTree) -> Vec<TidyFinding> {
    let mut findings = Vec::new();
    for file in tree.production_files().filter(|file| is_checked_for_prompts(&file.path)) {
        for literal in file.source.literals.iter().filter(|literal| reads_like_prompt(&literal.text)) {
            let start: String = literal.text.trim_start().chars().take(40).collect();
            let problem = format!("this text looks like a prompt: \"{}…\"", start.escape_debug());
            let fix = "move it to a template in a folder `prompts/` of crates/flows; \
                       if it is for users, do not begin with \"You are\"";
            findings.push(new_finding(&file.path, literal.line, problem, fix));
        }
    }
    for path in tree.paths().filter(|path| is_checked_for_prompts(path) && is_template_file(path)) {
        let fix = "move templates to a folder `prompts/` of crates/flows, and documents to docs/";
        findings.push(new_finding(path, 1, "a template or document among the sources", fix));
    }
    findings
}

fn is_checked_for_prompts(path: &str) -> bool {
    let in_prompts = path.starts_with(FLOWS_FOLDER) && parent_folders(path).any(|folder| folder == "prompts");
    path.starts_with("crates/") && !in_prompts && !PROMPT_QUOTING_PATHS.iter().any(|exempt| path.starts_with(exempt))
}

fn is_template_file(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    [".md", ".txt", ".j2"].iter().any(|ending| name.ends_with(ending))
        && name != "README.md"
        && !parent_folders(path).any(|folder| TEST_FOLDERS.contains(&folder))
}

fn reads_like_prompt(text: &str) -> bool {
    let is_long = || text.chars().count() > NON_PROMPT_CHARS_MAX;
    text.lines().any(|line| line.trim_start().starts_with("You are "))
        || (text.contains("You are ") || text.contains(" you are ")) && is_long()
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    fn check_literal(path: &str, literal: &str) -> usize {
        let code = format!("fn a() -> &'static str {{\n    {literal}\n}}\n");
        found(check_prompt_locations, &[(path, &code)]).len()
    }

    const SHORT: &str = "\"You are a mapper.\"";

    #[test]
    fn a_text_that_begins_with_you_are_is_found() {
        assert_eq!(
            found(
                check_prompt_locations,
                &[("crates/engine/src/a.rs", "const A: &str =\n    \"You are a mapper.\\n\";\n")]
            ),
            ["crates/engine/src/a.rs:2: this text looks like a prompt: \"You are a mapper.\\n…\"",]
        );
        assert_eq!(check_literal("crates/flows/src/a.rs", "r#\"# Task\n  You are a \"mapper\".\"#"), 1);
        assert_eq!(check_literal("crates/flows/src/a.rs", "\"Listen.\\nYou are a mapper.\""), 1);
    }

    #[test]
    fn a_long_text_that_contains_you_are_is_found() {
        let long = format!("\"When {}you are done, stop.\"", "this and that, ".repeat(20));
        assert_eq!(check_literal("crates/flows/src/a.rs", &long), 1);
        assert_eq!(check_literal("crates/flows/src/a.rs", "\"When you are done, stop.\""), 0);
    }

    #[test]
    fn comments_tests_and_simulated_models_may_contain_prompts() {
        assert_eq!(
            found(check_prompt_locations, &[("crates/core/src/a.rs", "/// \"You are a mapper.\"\nfn a() {}\n")]),
            [""; 0]
        );
        let test = format!("#[cfg(test)]\nmod tests {{ const A: &str = {SHORT}; }}\n");
        assert_eq!(found(check_prompt_locations, &[("crates/core/src/a.rs", &test)]), [""; 0]);
        for path in ["crates/testkit/src/a.rs", "crates/models/src/rehearsal/a.rs", "crates/flows/src/x/prompts/a.rs"] {
            assert_eq!(check_literal(path, SHORT), 0, "{path}");
        }
        assert_eq!(check_literal("crates/models/src/prompts/a.rs", SHORT), 1);
    }

    #[test]
    fn a_template_outside_prompts_is_found() {
        for path in ["crates/core/src/a.md", "crates/flows/src/x/a.j2", "crates/engine/prompts/a.txt"] {
            assert_eq!(found(check_prompt_locations, &[(path, "")]).len(), 1, "{path}");
        }
        for path in
            ["crates/flows/src/x/prompts/a.md", "crates/store/README.md", "crates/segue/tests/a.txt", "docs/a.md"]
        {
            assert_eq!(found(check_prompt_locations, &[(path, "")]), [""; 0], "{path}");
        }
    }
}
