//! The crates of the workspace and which of them each one needs, as their manifests say.

use toml::{Table, Value};

use super::source_tree::SourceTree;
use super::{TidyFinding, new_finding};

/// The manifest at the root of the checkout.
const ROOT_MANIFEST: &str = "Cargo.toml";

/// One crate.
pub struct CrateManifest {
    /// Where it is written.
    pub path: String,
    /// The package's name.
    pub name: String,
    /// What it needs, of this workspace and of others, in the order of its tables.
    pub dependencies: Vec<CrateDependency>,
}

/// One dependency.
pub struct CrateDependency {
    /// The package's name, whatever the crate calls it.
    pub name: String,
    /// The line that asks for it.
    pub line: usize,
    /// When it is needed.
    pub kind: DependencyKind,
}

/// When a dependency is needed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum DependencyKind {
    /// For building or running the crate.
    Normal,
    /// For its tests only.
    Dev,
}

const DEPENDENCY_TABLES: [(&str, DependencyKind); 3] = [
    ("dependencies", DependencyKind::Normal),
    ("build-dependencies", DependencyKind::Normal),
    ("dev-dependencies", DependencyKind::Dev),
];

/// All crates of the checkout. What cannot be read is left to cargo to complain about.
pub fn read_manifests(tree: &SourceTree) -> Vec<CrateManifest> {
    let renamed =
        tree.file_text(ROOT_MANIFEST).and_then(parse_toml).and_then(|root| toml_table(&root, "workspace").cloned());
    let shared = renamed.as_ref().and_then(|workspace| toml_table(workspace, "dependencies"));
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

/// A finding about a crate's manifest.
pub fn manifest_finding(manifest: &CrateManifest, line: usize, problem: String, fix: String) -> TidyFinding {
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
    let mut needs = Vec::new();
    for place in std::iter::once(manifest).chain(targets) {
        for (key, when) in DEPENDENCY_TABLES {
            for (alias, value) in toml_table(place, key).into_iter().flatten() {
                let name = package_name(value)
                    .or_else(|| shared.and_then(|shared| package_name(shared.get(alias)?)))
                    .unwrap_or(alias)
                    .to_owned();
                needs.push(CrateDependency { line: dependency_line(text, key, alias), name, kind: when });
            }
        }
    }
    needs
}

/// The real name behind `{ package = "name" }`.
fn package_name(value: &Value) -> Option<&str> {
    value.get("package")?.as_str()
}

/// The line that gives `alias` in a table whose name ends in `key`; the first if it is written in some unusual way.
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

    fn told(files: &[(&str, &str)]) -> Vec<(String, usize, DependencyKind)> {
        let manifests = read_manifests(&SourceTree::of(files));
        manifests
            .into_iter()
            .flat_map(|manifest| manifest.dependencies)
            .map(|need| (need.name, need.line, need.kind))
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
            ("b", 6, DependencyKind::Normal),
            ("c", 7, DependencyKind::Normal),
            ("d", 8, DependencyKind::Normal),
            ("g", 13, DependencyKind::Normal),
            ("b", 4, DependencyKind::Dev),
            ("e", 11, DependencyKind::Normal),
        ];
        let found = told(&[("crates/a/Cargo.toml", text)]);
        assert_eq!(found, expected.map(|(name, line, when)| (name.to_owned(), line, when)));
    }

    #[test]
    fn a_name_given_by_the_workspace_is_seen_through() {
        let found = told(&[
            ("Cargo.toml", "[workspace.dependencies]\nshort = { package = \"long\", version = \"1\" }\n"),
            ("crates/a/Cargo.toml", "[package]\nname = \"a\"\n[dependencies]\nshort.workspace = true\n"),
        ]);
        assert_eq!(found, [("long".to_owned(), 4, DependencyKind::Normal)]);
    }

    #[test]
    fn what_is_no_manifest_is_passed_over() {
        assert!(told(&[("crates/a/Cargo.toml", "not = = toml"), ("crates/b/Cargo.toml", "[lib]\n")]).is_empty());
    }
}
