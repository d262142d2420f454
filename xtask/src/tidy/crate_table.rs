//! Rule: the table of crates in `ARCHITECTURE.md` lists every crate of the workspace and no other, with its purpose, its
//! allowed dependencies, and what it must not know. The allowed dependencies are defined only there.

use std::collections::{BTreeMap, BTreeSet};

use super::source_tree::SourceTree;
use super::{TidyFinding, crate_manifests, new_finding};

const ARCHITECTURE_FILE: &str = "ARCHITECTURE.md";
const TABLE_HEADER: [&str; 4] = ["crate", "what it does", "may depend on", "knows nothing of"];

/// The rows of the table by crate.
pub(crate) type CrateTable = BTreeMap<String, CrateTableRow>;

/// One row of the table.
pub(crate) struct CrateTableRow {
    pub line: usize,
    /// The allowed dependencies, except those of tests.
    pub allowed_dependencies: AllowedCrateDependencies,
    pub audience: AllowedCrateDependents,
    description: String,
    excluded_knowledge: String,
}

/// The crates of this workspace that a crate may depend on.
#[derive(Debug, PartialEq)]
pub(crate) enum AllowedCrateDependencies {
    All,
    /// These crates; may be empty.
    Only(BTreeSet<String>),
}

/// The crates that may depend on a crate.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum AllowedCrateDependents {
    /// All crates that the table allows.
    Everyone,
    /// Only crates that are for development themselves.
    Development,
}

/// Finds crates without a row, rows without a crate, and incomplete rows.
pub(crate) fn check_crate_table(tree: &SourceTree) -> Vec<TidyFinding> {
    let Some(table) = read_crate_table(tree) else {
        let fix = format!("add a table with the columns: {}", TABLE_HEADER.join(" | "));
        return vec![new_finding(ARCHITECTURE_FILE, 1, "there is no table of crates", fix)];
    };
    let manifests = crate_manifests::read_manifests(tree);
    let mut findings = Vec::new();
    for manifest in &manifests {
        if !table.contains_key(&manifest.name) {
            let problem = format!("crate `{}` is missing in the table of crates", manifest.name);
            let fix = format!("add a row to the table in {ARCHITECTURE_FILE}");
            findings.push(crate_manifests::manifest_finding(manifest, 1, problem, fix));
        }
    }
    for (name, row) in &table {
        if !manifests.iter().any(|manifest| manifest.name == *name) {
            let problem = format!("`{name}` is not a crate of this workspace");
            findings.push(new_finding(ARCHITECTURE_FILE, row.line, problem, "remove the row, or correct the name"));
        }
        for (column, cell) in [(TABLE_HEADER[1], &row.description), (TABLE_HEADER[3], &row.excluded_knowledge)] {
            if is_blank_cell(cell) {
                let problem = format!("the cell `{column}` of `{name}` is empty");
                findings.push(new_finding(ARCHITECTURE_FILE, row.line, problem, "fill in the cell"));
            }
        }
        if let AllowedCrateDependencies::Only(allowed) = &row.allowed_dependencies {
            for other in allowed.iter().filter(|other| !table.contains_key(*other)) {
                let problem = format!("`{name}` may depend on `{other}`, which has no row");
                let fix = "write the names of crates with or without `segue-`, `all`, or `–` for none";
                findings.push(new_finding(ARCHITECTURE_FILE, row.line, problem, fix));
            }
        }
    }
    findings
}

/// Reads the table; `None` if there is none.
pub(crate) fn read_crate_table(tree: &SourceTree) -> Option<CrateTable> {
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
            true => AllowedCrateDependents::Development,
            false => AllowedCrateDependents::Everyone,
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

/// Returns the cells of a row; empty if the line is not a row.
fn split_table_row(line: &str) -> Vec<&str> {
    let Some(row) = line.trim().strip_prefix('|') else { return Vec::new() };
    row.strip_suffix('|').unwrap_or(row).split('|').map(str::trim).collect()
}

/// Returns a cell without its backticks; empty if it is missing.
fn cell_text<'a>(cells: &[&'a str], column: usize) -> &'a str {
    cells.get(column).copied().unwrap_or_default().trim_matches('`')
}

fn is_blank_cell(cell: &str) -> bool {
    ["", "-", "–", "—"].contains(&cell)
}

fn parse_allowed_dependencies(cell: &str, names: &BTreeSet<String>) -> AllowedCrateDependencies {
    if cell == "all" {
        return AllowedCrateDependencies::All;
    }
    let written = cell.split(',').map(|name| name.trim().trim_matches('`')).filter(|name| !is_blank_cell(name));
    AllowedCrateDependencies::Only(written.map(|name| full_crate_name(name, names)).collect())
}

/// Returns `segue-core` for `core`, unless there is a crate named `core`.
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

    fn check_table(rows: &str, crates: &[(&str, &str)]) -> Vec<String> {
        let text =
            format!("# A\n\n| crate | what it does | may depend on | knows nothing of |\n|---|---|---|---|\n{rows}\n");
        let mut files = vec![(ARCHITECTURE_FILE, text.as_str())];
        files.extend(crates);
        found(check_crate_table, &files)
    }

    const ROWS: &str = "| `segue-core` | Decides. | – | I/O |\n| `segue-store` | Keeps. | core | flows |";

    #[test]
    fn a_correct_table_is_accepted() {
        assert_eq!(check_table(ROWS, &[CORE, STORE]), [""; 0]);
    }

    #[test]
    fn a_missing_table_is_found() {
        assert_eq!(
            found(check_crate_table, &[(ARCHITECTURE_FILE, "# Nothing here\n")]),
            ["ARCHITECTURE.md:1: there is no table of crates"]
        );
        assert_eq!(found(check_crate_table, &[CORE]), ["ARCHITECTURE.md:1: there is no table of crates"]);
    }

    #[test]
    fn a_crate_without_a_row_is_found() {
        assert_eq!(
            check_table("| `segue-core` | Decides. | – | I/O |", &[CORE, STORE]),
            ["crates/store/Cargo.toml:1: crate `segue-store` is missing in the table of crates",]
        );
    }

    #[test]
    fn a_row_without_a_crate_is_found() {
        assert_eq!(check_table(ROWS, &[CORE]), ["ARCHITECTURE.md:6: `segue-store` is not a crate of this workspace",]);
    }

    #[test]
    fn a_row_must_be_complete_and_its_edges_known() {
        assert_eq!(
            check_table("| `segue-core` | Decides. | tokio | – |", &[CORE]),
            [
                "ARCHITECTURE.md:5: the cell `knows nothing of` of `segue-core` is empty",
                "ARCHITECTURE.md:5: `segue-core` may depend on `tokio`, which has no row",
            ]
        );
    }
}
