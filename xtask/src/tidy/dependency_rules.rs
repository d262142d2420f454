//! Crates depend only on what the map allows them. Tests may use more than the code they test, except those of core:
//! what only core's tests pull in would still have to be built before core can be tested.

use super::crate_manifests::{self, CrateDependency, CrateManifest, DependencyKind};
use super::crate_table::{self, AllowedDependencies, CrateAudience, CrateTable};
use super::source_tree::SourceTree;
use super::{TidyFinding, crate_manifests::manifest_finding};

const CORE_CRATE: &str = "segue-core";
const TESTKIT_CRATE: &str = "segue-testkit";

/// Whether every edge between crates of this workspace is allowed. Without a map there is nothing to hold them to.
pub fn check_dependencies(tree: &SourceTree) -> Vec<TidyFinding> {
    let Some(map) = crate_table::read_crate_table(tree) else { return Vec::new() };
    let manifests = crate_manifests::read_manifests(tree);
    let is_ours = |need: &&CrateDependency| manifests.iter().any(|other| other.name == need.name);
    let mut findings = Vec::new();
    for crate_ in &manifests {
        for need in crate_.dependencies.iter().filter(is_ours) {
            findings.extend(check_dependency(crate_, need, &map));
        }
    }
    findings
}

fn check_dependency(crate_: &CrateManifest, dependency: &CrateDependency, table: &CrateTable) -> Option<TidyFinding> {
    let (from, to) = (&crate_.name, &dependency.name);
    if dependency.kind == DependencyKind::Dev {
        let wrong = format!("the tests of `{from}` depend on `{to}`");
        let right = format!("they may use `{TESTKIT_CRATE}` only; move the test to the crate it is about");
        return (from == CORE_CRATE && to != TESTKIT_CRATE)
            .then(|| manifest_finding(crate_, dependency.line, wrong, right));
    }
    let entry = table.get(from)?;
    let target = table.get(to)?;
    let right = match &entry.allowed_dependencies {
        AllowedDependencies::Only(allowed) if !allowed.contains(to) => {
            let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
            let allowed = if allowed.is_empty() { "no crate of ours".to_owned() } else { allowed.join(", ") };
            format!("the map in ARCHITECTURE.md (line {}) allows it: {allowed}", entry.line)
        }
        _ if target.audience == CrateAudience::Development && entry.audience == CrateAudience::Everyone => {
            format!("`{to}` is for development only; move it to [dev-dependencies]")
        }
        _ => return None,
    };
    Some(manifest_finding(crate_, dependency.line, format!("`{from}` depends on `{to}`"), right))
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    const MAP: &str = "\
| crate | what it does | may depend on | knows nothing of |
|---|---|---|---|
| `segue-core` | Decides. | – | I/O |
| `segue-store` | Keeps. | core | flows |
| `segue` | The program. | all | nothing |
| `segue-testkit` | For development only: scenarios. | core | the program |
";

    fn check_needs(name: &str, needs: &str) -> Vec<String> {
        let text = format!("[package]\nname = \"{name}\"\n{needs}");
        let package = |name: &str| format!("[package]\nname = \"{name}\"\n");
        let (core, store, testkit) = (package("segue-core"), package("segue-store"), package("segue-testkit"));
        found(
            check_dependencies,
            &[
                ("ARCHITECTURE.md", MAP),
                ("crates/a-core/Cargo.toml", &core),
                ("crates/a-store/Cargo.toml", &store),
                ("crates/a-testkit/Cargo.toml", &testkit),
                ("crates/x/Cargo.toml", &text),
            ],
        )
    }

    #[test]
    fn allowed_edges_and_strangers_are_accepted() {
        assert_eq!(check_needs("segue-store", "[dependencies]\nsegue-core = \"1\"\nserde = \"1\"\n"), [""; 0]);
        assert_eq!(check_needs("segue", "[dependencies]\nsegue-core = \"1\"\nsegue-store = \"1\"\n"), [""; 0]);
    }

    #[test]
    fn an_edge_the_map_does_not_allow_is_found() {
        assert_eq!(
            check_needs("segue-core", "[dependencies]\nserde = \"1\"\nsegue-store = \"1\"\n"),
            ["crates/x/Cargo.toml:5: `segue-core` depends on `segue-store`",]
        );
    }

    #[test]
    fn what_is_for_development_stays_out_of_programs() {
        let edge = "`segue` depends on `segue-testkit`";
        assert_eq!(
            check_needs("segue", "[dependencies]\nsegue-testkit = \"1\"\n"),
            [format!("crates/x/Cargo.toml:4: {edge}")]
        );
        assert_eq!(check_needs("segue", "[dev-dependencies]\nsegue-testkit = \"1\"\n"), [""; 0]);
    }

    #[test]
    fn tests_are_free_except_those_of_core() {
        assert_eq!(check_needs("segue-store", "[dev-dependencies]\nsegue = \"1\"\n"), [""; 0]);
        assert_eq!(check_needs("segue-core", "[dev-dependencies]\nsegue-testkit = \"1\"\nproptest = \"1\"\n"), [""; 0]);
        assert_eq!(
            check_needs("segue-core", "[dev-dependencies]\nsegue-store = \"1\"\n"),
            ["crates/x/Cargo.toml:4: the tests of `segue-core` depend on `segue-store`",]
        );
    }
}
