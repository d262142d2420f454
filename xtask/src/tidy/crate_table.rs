//! The table of crates in `ARCHITECTURE.md`: it names every crate there is and no other, and says of each what it does,
//! what it may depend on, and what it knows nothing of. It is the only place where the allowed edges are written.

use std::collections::{BTreeMap, BTreeSet};

use super::source_tree::SourceTree;
use super::{TidyFinding, crate_manifests, new_finding};

const ARCHITECTURE_FILE: &str = "ARCHITECTURE.md";
const TABLE_HEADER: [&str; 4] = ["crate", "what it does", "may depend on", "knows nothing of"];

/// The crates and their rows.
pub type CrateTable = BTreeMap<String, CrateTableRow>;

/// What the map says of one crate.
pub struct CrateTableRow {
    /// Where it says so.
    pub line: usize,
    /// What the crate may depend on, outside its tests.
    pub allowed_dependencies: AllowedDependencies,
    /// Who may depend on it.
    pub audience: CrateAudience,
    description: String,
    excluded_knowledge: String,
}

/// Which crates of this workspace another may depend on.
#[derive(Debug, PartialEq)]
pub enum AllowedDependencies {
    /// All of them.
    All,
    /// These; maybe none.
    Only(BTreeSet<String>),
}

/// Who may depend on a crate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CrateAudience {
    /// Whoever the map allows.
    Everyone,
    /// Only crates that are for development themselves.
    Development,
}

/// Whether map and workspace name the same crates, and whether each row is complete.
pub fn check_crate_table(tree: &SourceTree) -> Vec<TidyFinding> {
    let Some(map) = read_crate_table(tree) else {
        let right = format!("add a table with the columns: {}", TABLE_HEADER.join(" | "));
        return vec![new_finding(ARCHITECTURE_FILE, 1, "there is no map of the crates", right)];
    };
    let manifests = crate_manifests::read_manifests(tree);
    let mut findings = Vec::new();
    for crate_ in &manifests {
        if !map.contains_key(&crate_.name) {
            let wrong = format!("crate `{}` is not on the map", crate_.name);
            findings.push(crate_manifests::manifest_finding(
                crate_,
                1,
                wrong,
                format!("add a row for it to the table in {ARCHITECTURE_FILE}"),
            ));
        }
    }
    for (name, entry) in &map {
        if !manifests.iter().any(|crate_| crate_.name == *name) {
            let wrong = format!("the map names `{name}`, which is no crate of this workspace");
            findings.push(new_finding(ARCHITECTURE_FILE, entry.line, wrong, "remove the row, or correct the name"));
        }
        for (column, cell) in [(TABLE_HEADER[1], &entry.description), (TABLE_HEADER[3], &entry.excluded_knowledge)] {
            if is_blank_cell(cell) {
                let wrong = format!("the map does not say of `{name}`: {column}");
                findings.push(new_finding(ARCHITECTURE_FILE, entry.line, wrong, "fill in the cell"));
            }
        }
        if let AllowedDependencies::Only(allowed) = &entry.allowed_dependencies {
            for other in allowed.iter().filter(|other| !map.contains_key(*other)) {
                let wrong = format!("`{name}` may depend on `{other}`, which has no row");
                let right = "write the names of crates with or without `segue-`, `all`, or `–` for none";
                findings.push(new_finding(ARCHITECTURE_FILE, entry.line, wrong, right));
            }
        }
    }
    findings
}

/// The map, if there is one.
pub fn read_crate_table(tree: &SourceTree) -> Option<CrateTable> {
    let mut lines = tree.file_text(ARCHITECTURE_FILE)?.lines().enumerate();
    lines.find(|(_, line)| is_table_header(&split_table_row(line)))?;
    let rows: Vec<(usize, Vec<&str>)> = lines
        .map(|(index, line)| (index + 1, split_table_row(line)))
        .skip(1)
        .take_while(|(_, cells)| !cells.is_empty())
        .collect();
    let names: BTreeSet<String> = rows.iter().map(|(_, cells)| cell_text(cells, 0).to_owned()).collect();
    let entries = rows.iter().map(|(line, cells)| {
        let sentence = cell_text(cells, 1).to_owned();
        let audience = match sentence.to_lowercase().contains("for development only") {
            true => CrateAudience::Development,
            false => CrateAudience::Everyone,
        };
        let allowed = parse_allowed_dependencies(cell_text(cells, 2), &names);
        (
            cell_text(cells, 0).to_owned(),
            CrateTableRow {
                line: *line,
                allowed_dependencies: allowed,
                audience,
                description: sentence,
                excluded_knowledge: cell_text(cells, 3).to_owned(),
            },
        )
    });
    Some(entries.collect())
}

fn is_table_header(cells: &[&str]) -> bool {
    cells.len() == TABLE_HEADER.len()
        && cells.iter().zip(TABLE_HEADER).all(|(cell, name)| cell.to_lowercase().starts_with(name))
}

/// The cells of a row; none if the line is no row.
fn split_table_row(line: &str) -> Vec<&str> {
    let Some(row) = line.trim().strip_prefix('|') else { return Vec::new() };
    row.strip_suffix('|').unwrap_or(row).split('|').map(str::trim).collect()
}

/// One cell without its backticks; a missing one is empty.
fn cell_text<'a>(cells: &[&'a str], column: usize) -> &'a str {
    cells.get(column).copied().unwrap_or_default().trim_matches('`')
}

fn is_blank_cell(cell: &str) -> bool {
    ["", "-", "–", "—"].contains(&cell)
}

fn parse_allowed_dependencies(cell: &str, names: &BTreeSet<String>) -> AllowedDependencies {
    if cell == "all" {
        return AllowedDependencies::All;
    }
    let written = cell.split(',').map(|name| name.trim().trim_matches('`')).filter(|name| !is_blank_cell(name));
    AllowedDependencies::Only(written.map(|name| full_crate_name(name, names)).collect())
}

/// `core` → `segue-core`, unless there is a crate of just that name.
fn full_crate_name(name: &str, names: &BTreeSet<String>) -> String {
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
        let mut files = vec![(ARCHITECTURE_FILE, text.as_str())];
        files.extend(crates);
        found(check_crate_table, &files)
    }

    const ROWS: &str = "| `segue-core` | Decides. | – | I/O |\n| `segue-store` | Keeps. | core | flows |";

    #[test]
    fn a_true_map_is_accepted() {
        assert_eq!(check_map(ROWS, &[CORE, STORE]), [""; 0]);
    }

    #[test]
    fn a_missing_map_is_found() {
        assert_eq!(
            found(check_crate_table, &[(ARCHITECTURE_FILE, "# Nothing here\n")]),
            ["ARCHITECTURE.md:1: there is no map of the crates"]
        );
        assert_eq!(found(check_crate_table, &[CORE]), ["ARCHITECTURE.md:1: there is no map of the crates"]);
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
