//! Rule: crates depend only on crates that the table of crates allows. Tests may use more, except those of core, because
//! their dependencies must be built before core can be tested.

use super::crate_manifests::{self, CrateDependency, CrateDependencyKind, CrateManifest};
use super::crate_table::{self, AllowedCrateDependencies, AllowedCrateDependents, CrateTable};
use super::source_tree::SourceTree;
use super::{TidyFinding, crate_manifests::manifest_finding};

const CORE_CRATE: &str = "segue-core";
const TESTKIT_CRATE: &str = "segue-testkit";

/// Finds dependencies between crates of this workspace that the table does not allow.
pub(crate) fn check_dependencies(tree: &SourceTree) -> Vec<TidyFinding> {
    let Some(table) = crate_table::read_crate_table(tree) else { return Vec::new() };
    let manifests = crate_manifests::read_manifests(tree);
    let is_internal = |dependency: &&CrateDependency| manifests.iter().any(|other| other.name == dependency.name);
    let mut findings = Vec::new();
    for manifest in &manifests {
        for dependency in manifest.dependencies.iter().filter(is_internal) {
            findings.extend(check_dependency(manifest, dependency, &table));
        }
    }
    findings
}

fn check_dependency(manifest: &CrateManifest, dependency: &CrateDependency, table: &CrateTable) -> Option<TidyFinding> {
    let (from, to) = (&manifest.name, &dependency.name);
    if dependency.kind == CrateDependencyKind::Dev {
        let problem = format!("the tests of `{from}` depend on `{to}`");
        let fix = format!("they may use `{TESTKIT_CRATE}` only; move the test to the crate that it tests");
        return (from == CORE_CRATE && to != TESTKIT_CRATE)
            .then(|| manifest_finding(manifest, dependency.line, problem, fix));
    }
    let row = table.get(from)?;
    let target = table.get(to)?;
    let fix = match &row.allowed_dependencies {
        AllowedCrateDependencies::Only(allowed) if !allowed.contains(to) => {
            let allowed: Vec<&str> = allowed.iter().map(String::as_str).collect();
            let allowed = if allowed.is_empty() { "none".to_owned() } else { allowed.join(", ") };
            format!("allowed by the table in ARCHITECTURE.md (line {}): {allowed}", row.line)
        }
        _ if target.audience == AllowedCrateDependents::Development
            && row.audience == AllowedCrateDependents::Everyone =>
        {
            format!("`{to}` is for development only; move it to [dev-dependencies]")
        }
        _ => return None,
    };
    Some(manifest_finding(manifest, dependency.line, format!("`{from}` depends on `{to}`"), fix))
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

    fn check_manifest(name: &str, dependencies: &str) -> Vec<String> {
        let text = format!("[package]\nname = \"{name}\"\n{dependencies}");
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
    fn allowed_and_external_dependencies_are_accepted() {
        assert_eq!(check_manifest("segue-store", "[dependencies]\nsegue-core = \"1\"\nserde = \"1\"\n"), [""; 0]);
        assert_eq!(check_manifest("segue", "[dependencies]\nsegue-core = \"1\"\nsegue-store = \"1\"\n"), [""; 0]);
    }

    #[test]
    fn a_dependency_that_is_not_allowed_is_found() {
        assert_eq!(
            check_manifest("segue-core", "[dependencies]\nserde = \"1\"\nsegue-store = \"1\"\n"),
            ["crates/x/Cargo.toml:5: `segue-core` depends on `segue-store`",]
        );
    }

    #[test]
    fn a_development_crate_in_a_program_is_found() {
        let edge = "`segue` depends on `segue-testkit`";
        assert_eq!(
            check_manifest("segue", "[dependencies]\nsegue-testkit = \"1\"\n"),
            [format!("crates/x/Cargo.toml:4: {edge}")]
        );
        assert_eq!(check_manifest("segue", "[dev-dependencies]\nsegue-testkit = \"1\"\n"), [""; 0]);
    }

    #[test]
    fn dependencies_of_tests_are_allowed_except_in_core() {
        assert_eq!(check_manifest("segue-store", "[dev-dependencies]\nsegue = \"1\"\n"), [""; 0]);
        assert_eq!(
            check_manifest("segue-core", "[dev-dependencies]\nsegue-testkit = \"1\"\nproptest = \"1\"\n"),
            [""; 0]
        );
        assert_eq!(
            check_manifest("segue-core", "[dev-dependencies]\nsegue-store = \"1\"\n"),
            ["crates/x/Cargo.toml:4: the tests of `segue-core` depend on `segue-store`",]
        );
    }
}
