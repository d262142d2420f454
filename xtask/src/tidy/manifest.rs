//! The crates of the workspace and which of them each one needs, as their manifests say.

use toml::{Table, Value};

use super::tree::Tree;
use super::{Finding, finding};

/// The manifest at the root of the checkout.
const ROOT: &str = "Cargo.toml";

/// One crate.
pub struct Manifest {
    /// Where it is written.
    pub path: String,
    /// The package's name.
    pub name: String,
    /// What it needs, of this workspace and of others, in the order of its tables.
    pub needs: Vec<Need>,
}

/// One dependency.
pub struct Need {
    /// The package's name, whatever the crate calls it.
    pub name: String,
    /// The line that asks for it.
    pub line: usize,
    /// When it is needed.
    pub when: When,
}

/// When a dependency is needed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum When {
    /// For building or running the crate.
    Always,
    /// For its tests only.
    Testing,
}

const TABLES: [(&str, When); 3] =
    [("dependencies", When::Always), ("build-dependencies", When::Always), ("dev-dependencies", When::Testing)];

/// All crates of the checkout. What cannot be read is left to cargo to complain about.
pub fn all(tree: &Tree) -> Vec<Manifest> {
    let renamed = tree.text(ROOT).and_then(parse).and_then(|root| table(&root, "workspace").cloned());
    let shared = renamed.as_ref().and_then(|workspace| table(workspace, "dependencies"));
    tree.texts()
        .filter(|(path, _)| path.ends_with("/Cargo.toml"))
        .filter_map(|(path, text)| {
            let manifest = parse(text)?;
            let name = table(&manifest, "package")?.get("name")?.as_str()?.to_owned();
            Some(Manifest { path: path.to_owned(), name, needs: needs(&manifest, text, shared) })
        })
        .collect()
}

/// A finding about a crate's manifest.
pub fn complaint(manifest: &Manifest, line: usize, wrong: String, right: String) -> Finding {
    finding(&manifest.path, line, wrong, right)
}

fn parse(text: &str) -> Option<Table> {
    text.parse().ok()
}

fn table<'a>(parent: &'a Table, key: &str) -> Option<&'a Table> {
    parent.get(key)?.as_table()
}

fn needs(manifest: &Table, text: &str, shared: Option<&Table>) -> Vec<Need> {
    let targets = table(manifest, "target").into_iter().flat_map(Table::values).filter_map(Value::as_table);
    let mut needs = Vec::new();
    for place in std::iter::once(manifest).chain(targets) {
        for (key, when) in TABLES {
            for (alias, value) in table(place, key).into_iter().flatten() {
                let name = package(value)
                    .or_else(|| shared.and_then(|shared| package(shared.get(alias)?)))
                    .unwrap_or(alias)
                    .to_owned();
                needs.push(Need { line: line_of(text, key, alias), name, when });
            }
        }
    }
    needs
}

/// The real name behind `{ package = "name" }`.
fn package(value: &Value) -> Option<&str> {
    value.get("package")?.as_str()
}

/// The line that gives `alias` in a table whose name ends in `key`; the first if it is written in some unusual way.
fn line_of(text: &str, key: &str, alias: &str) -> usize {
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

    fn told(files: &[(&str, &str)]) -> Vec<(String, usize, When)> {
        let manifests = all(&Tree::of(files));
        manifests
            .into_iter()
            .flat_map(|manifest| manifest.needs)
            .map(|need| (need.name, need.line, need.when))
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
            ("b", 6, When::Always),
            ("c", 7, When::Always),
            ("d", 8, When::Always),
            ("g", 13, When::Always),
            ("b", 4, When::Testing),
            ("e", 11, When::Always),
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
        assert_eq!(found, [("long".to_owned(), 4, When::Always)]);
    }

    #[test]
    fn what_is_no_manifest_is_passed_over() {
        assert!(told(&[("crates/a/Cargo.toml", "not = = toml"), ("crates/b/Cargo.toml", "[lib]\n")]).is_empty());
    }
}
