//! The table of crates in `ARCHITECTURE.md`: it names every crate there is and no other, and says of each what it does,
//! what it may depend on, and what it knows nothing of. It is the only place where the allowed edges are written.

use std::collections::{BTreeMap, BTreeSet};

use super::tree::Tree;
use super::{Finding, finding, manifest};

const PATH: &str = "ARCHITECTURE.md";
const HEADER: [&str; 4] = ["crate", "what it does", "may depend on", "knows nothing of"];

/// The crates and their rows.
pub type Map = BTreeMap<String, Entry>;

/// What the map says of one crate.
pub struct Entry {
    /// Where it says so.
    pub line: usize,
    /// What the crate may depend on, outside its tests.
    pub allowed: Allowed,
    /// Who may depend on it.
    pub audience: Audience,
    sentence: String,
    ignorance: String,
}

/// Which crates of this workspace another may depend on.
#[derive(Debug, PartialEq)]
pub enum Allowed {
    /// All of them.
    All,
    /// These; maybe none.
    Only(BTreeSet<String>),
}

/// Who may depend on a crate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Audience {
    /// Whoever the map allows.
    Everyone,
    /// Only crates that are for development themselves.
    Development,
}

/// Whether map and workspace name the same crates, and whether each row is complete.
pub fn check(tree: &Tree) -> Vec<Finding> {
    let Some(map) = read(tree) else {
        let right = format!("add a table with the columns: {}", HEADER.join(" | "));
        return vec![finding(PATH, 1, "there is no map of the crates", right)];
    };
    let manifests = manifest::all(tree);
    let mut findings = Vec::new();
    for crate_ in &manifests {
        if !map.contains_key(&crate_.name) {
            let wrong = format!("crate `{}` is not on the map", crate_.name);
            findings.push(manifest::complaint(crate_, 1, wrong, format!("add a row for it to the table in {PATH}")));
        }
    }
    for (name, entry) in &map {
        if !manifests.iter().any(|crate_| crate_.name == *name) {
            let wrong = format!("the map names `{name}`, which is no crate of this workspace");
            findings.push(finding(PATH, entry.line, wrong, "remove the row, or correct the name"));
        }
        for (column, cell) in [(HEADER[1], &entry.sentence), (HEADER[3], &entry.ignorance)] {
            if is_empty(cell) {
                let wrong = format!("the map does not say of `{name}`: {column}");
                findings.push(finding(PATH, entry.line, wrong, "fill in the cell"));
            }
        }
        if let Allowed::Only(allowed) = &entry.allowed {
            for other in allowed.iter().filter(|other| !map.contains_key(*other)) {
                let wrong = format!("`{name}` may depend on `{other}`, which has no row");
                let right = "write the names of crates with or without `segue-`, `all`, or `–` for none";
                findings.push(finding(PATH, entry.line, wrong, right));
            }
        }
    }
    findings
}

/// The map, if there is one.
pub fn read(tree: &Tree) -> Option<Map> {
    let mut lines = tree.text(PATH)?.lines().enumerate();
    lines.find(|(_, line)| is_header(&cells(line)))?;
    let rows: Vec<(usize, Vec<&str>)> = lines
        .map(|(index, line)| (index + 1, cells(line)))
        .skip(1)
        .take_while(|(_, cells)| !cells.is_empty())
        .collect();
    let names: BTreeSet<String> = rows.iter().map(|(_, cells)| cell(cells, 0).to_owned()).collect();
    let entries = rows.iter().map(|(line, cells)| {
        let sentence = cell(cells, 1).to_owned();
        let audience = match sentence.to_lowercase().contains("for development only") {
            true => Audience::Development,
            false => Audience::Everyone,
        };
        let allowed = allowed(cell(cells, 2), &names);
        (
            cell(cells, 0).to_owned(),
            Entry { line: *line, allowed, audience, sentence, ignorance: cell(cells, 3).to_owned() },
        )
    });
    Some(entries.collect())
}

fn is_header(cells: &[&str]) -> bool {
    cells.len() == HEADER.len() && cells.iter().zip(HEADER).all(|(cell, name)| cell.to_lowercase().starts_with(name))
}

/// The cells of a row; none if the line is no row.
fn cells(line: &str) -> Vec<&str> {
    let Some(row) = line.trim().strip_prefix('|') else { return Vec::new() };
    row.strip_suffix('|').unwrap_or(row).split('|').map(str::trim).collect()
}

/// One cell without its backticks; a missing one is empty.
fn cell<'a>(cells: &[&'a str], column: usize) -> &'a str {
    cells.get(column).copied().unwrap_or_default().trim_matches('`')
}

fn is_empty(cell: &str) -> bool {
    ["", "-", "–", "—"].contains(&cell)
}

fn allowed(cell: &str, names: &BTreeSet<String>) -> Allowed {
    if cell == "all" {
        return Allowed::All;
    }
    let written = cell.split(',').map(|name| name.trim().trim_matches('`')).filter(|name| !is_empty(name));
    Allowed::Only(written.map(|name| full_name(name, names)).collect())
}

/// `core` → `segue-core`, unless there is a crate of just that name.
fn full_name(name: &str, names: &BTreeSet<String>) -> String {
    let long = format!("segue-{name}");
    if !names.contains(name) && names.contains(&long) { long } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::super::found;
    use super::*;

    const CORE: (&str, &str) = ("crates/core/Cargo.toml", "[package]\nname = \"segue-core\"\n");
    const STORE: (&str, &str) = ("crates/store/Cargo.toml", "[package]\nname = \"segue-store\"\n");

    fn check_map(rows: &str, crates: &[(&str, &str)]) -> Vec<String> {
        let text =
            format!("# A\n\n| crate | what it does | may depend on | knows nothing of |\n|---|---|---|---|\n{rows}\n");
        let mut files = vec![(PATH, text.as_str())];
        files.extend(crates);
        found(check, &files)
    }

    const ROWS: &str = "| `segue-core` | Decides. | – | I/O |\n| `segue-store` | Keeps. | core | flows |";

    #[test]
    fn a_true_map_is_accepted() {
        assert_eq!(check_map(ROWS, &[CORE, STORE]), [""; 0]);
    }

    #[test]
    fn a_missing_map_is_found() {
        assert_eq!(found(check, &[(PATH, "# Nothing here\n")]), ["ARCHITECTURE.md:1: there is no map of the crates"]);
        assert_eq!(found(check, &[CORE]), ["ARCHITECTURE.md:1: there is no map of the crates"]);
    }

    #[test]
    fn a_crate_without_a_row_is_found() {
        assert_eq!(
            check_map("| `segue-core` | Decides. | – | I/O |", &[CORE, STORE]),
            ["crates/store/Cargo.toml:1: crate `segue-store` is not on the map",]
        );
    }

    #[test]
    fn a_row_without_a_crate_is_found() {
        assert_eq!(
            check_map(ROWS, &[CORE]),
            ["ARCHITECTURE.md:6: the map names `segue-store`, which is no crate of this workspace",]
        );
    }

    #[test]
    fn a_row_must_be_complete_and_its_edges_known() {
        assert_eq!(
            check_map("| `segue-core` | Decides. | tokio | – |", &[CORE]),
            [
                "ARCHITECTURE.md:5: the map does not say of `segue-core`: knows nothing of",
                "ARCHITECTURE.md:5: `segue-core` may depend on `tokio`, which has no row",
            ]
        );
    }
}
