//! Reads the crates of the workspace and their dependencies from the manifests.

use toml::{Table, Value};

use super::source_tree::SourceTree;
use super::{TidyFinding, new_finding};

/// The manifest at the root of the checkout.
const ROOT_MANIFEST: &str = "Cargo.toml";

/// The manifest of one crate.
pub(crate) struct CrateManifest {
    pub path: String,
    /// The name of the package.
    pub name: String,
    /// All dependencies, in the order of the tables.
    pub dependencies: Vec<CrateDependency>,
}

/// One dependency of a crate.
pub(crate) struct CrateDependency {
    /// The name of the package, even if the crate renames it.
    pub name: String,
    pub line: usize,
    pub kind: CrateDependencyKind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum CrateDependencyKind {
    /// A dependency or build dependency.
    Normal,
    /// A dependency of tests only.
    Dev,
}

const DEPENDENCY_TABLES: [(&str, CrateDependencyKind); 3] = [
    ("dependencies", CrateDependencyKind::Normal),
    ("build-dependencies", CrateDependencyKind::Normal),
    ("dev-dependencies", CrateDependencyKind::Dev),
];

/// Returns the manifests of all crates. Invalid manifests are skipped, because cargo reports them.
pub(crate) fn read_manifests(tree: &SourceTree) -> Vec<CrateManifest> {
    let workspace =
        tree.file_text(ROOT_MANIFEST).and_then(parse_toml).and_then(|root| toml_table(&root, "workspace").cloned());
    let shared = workspace.as_ref().and_then(|workspace| toml_table(workspace, "dependencies"));
    tree.texts()
        .filter(|(path, _)| path.ends_with("/Cargo.toml"))
        .filter_map(|(path, text)| {
            let manifest = parse_toml(text)?;
            let name = toml_table(&manifest, "package")?.get("name")?.as_str()?.to_owned();
            Some(CrateManifest {
                path: path.to_owned(),
                name,
                dependencies: read_dependencies(&manifest, text, shared),
            })
        })
        .collect()
}

/// Returns a finding about a manifest.
pub(crate) fn manifest_finding(manifest: &CrateManifest, line: usize, problem: String, fix: String) -> TidyFinding {
    new_finding(&manifest.path, line, problem, fix)
}

fn parse_toml(text: &str) -> Option<Table> {
    text.parse().ok()
}

fn toml_table<'a>(parent: &'a Table, key: &str) -> Option<&'a Table> {
    parent.get(key)?.as_table()
}

fn read_dependencies(manifest: &Table, text: &str, shared: Option<&Table>) -> Vec<CrateDependency> {
    let targets = toml_table(manifest, "target").into_iter().flat_map(Table::values).filter_map(Value::as_table);
    let mut dependencies = Vec::new();
    for table in std::iter::once(manifest).chain(targets) {
        for (key, kind) in DEPENDENCY_TABLES {
            for (alias, value) in toml_table(table, key).into_iter().flatten() {
                let name = package_name(value)
                    .or_else(|| shared.and_then(|shared| package_name(shared.get(alias)?)))
                    .unwrap_or(alias)
                    .to_owned();
                dependencies.push(CrateDependency { line: dependency_line(text, key, alias), name, kind });
            }
        }
    }
    dependencies
}

/// Returns the name in `{ package = "name" }`.
fn package_name(value: &Value) -> Option<&str> {
    value.get("package")?.as_str()
}

/// Returns the line of `alias` in a table whose name ends with `key`, or 1 if it is not found.
fn dependency_line(text: &str, key: &str, alias: &str) -> usize {
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if let Some(header) = line.strip_prefix('[') {
            let header = header.trim_end_matches(']').rsplit('.').map(|part| part.trim_matches('"'));
            let last: Vec<&str> = header.take(2).collect();
            inside = last.first() == Some(&key);
            if last == [alias, key] {
                return index + 1;
            }
        } else if inside && line.split(['=', '.', ' ']).next().is_some_and(|name| name.trim_matches('"') == alias) {
            return index + 1;
        }
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dependencies(files: &[(&str, &str)]) -> Vec<(String, usize, CrateDependencyKind)> {
        let manifests = read_manifests(&SourceTree::from_files(files));
        manifests
            .into_iter()
            .flat_map(|manifest| manifest.dependencies)
            .map(|dependency| (dependency.name, dependency.line, dependency.kind))
            .collect()
    }

    #[test]
    fn every_way_to_write_a_dependency_is_read() {
        let text = "\
[package]
name = \"a\"
[dev-dependencies]
b = \"1\"
[dependencies]
b = { workspace = true }
c.workspace = true
[dependencies.d]
version = \"1\"
[target.'cfg(unix)'.dependencies]
e = \"1\"
[build-dependencies]
f = { package = \"g\", version = \"1\" }
";
        let expected = [
            ("b", 6, CrateDependencyKind::Normal),
            ("c", 7, CrateDependencyKind::Normal),
            ("d", 8, CrateDependencyKind::Normal),
            ("g", 13, CrateDependencyKind::Normal),
            ("b", 4, CrateDependencyKind::Dev),
            ("e", 11, CrateDependencyKind::Normal),
        ];
        let found = dependencies(&[("crates/a/Cargo.toml", text)]);
        assert_eq!(found, expected.map(|(name, line, kind)| (name.to_owned(), line, kind)));
    }

    #[test]
    fn a_package_renamed_by_the_workspace_has_its_real_name() {
        let found = dependencies(&[
            ("Cargo.toml", "[workspace.dependencies]\nshort = { package = \"long\", version = \"1\" }\n"),
            ("crates/a/Cargo.toml", "[package]\nname = \"a\"\n[dependencies]\nshort.workspace = true\n"),
        ]);
        assert_eq!(found, [("long".to_owned(), 4, CrateDependencyKind::Normal)]);
    }

    #[test]
    fn invalid_manifests_are_skipped() {
        assert!(
            dependencies(&[("crates/a/Cargo.toml", "not = = toml"), ("crates/b/Cargo.toml", "[lib]\n")]).is_empty()
        );
    }
}
