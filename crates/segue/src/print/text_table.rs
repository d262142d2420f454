//! Tables of text that fit the line: columns that may shrink do, the others keep their width.

use super::paint::Paint;
use super::text::{display_width, to_single_line, truncate_to_width, wrap_lines};

const COLUMN_GAP: usize = 2;

/// The alignment of a column, and how it shrinks if the table is too wide.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ColumnLayout {
    /// Left-aligned, never shrinks.
    Left,
    /// Right-aligned, never shrinks.
    Right,
    /// Left-aligned; long cells are cut.
    Truncate,
    /// Left-aligned; long cells are wrapped.
    Wrap,
}

/// A table with a heading for each column.
#[derive(Debug, Clone)]
pub(crate) struct TextTable {
    columns: Vec<(String, ColumnLayout)>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// Returns an empty table with these headings.
    pub(crate) fn new<H: Into<String>>(columns: impl IntoIterator<Item = (H, ColumnLayout)>) -> Self {
        let columns = columns.into_iter().map(|(heading, column)| (heading.into(), column));
        Self { columns: columns.collect(), rows: Vec::new() }
    }

    /// Adds a row; missing cells are empty.
    pub(crate) fn add_row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut cells: Vec<String> = cells.into_iter().map(|cell| to_single_line(&cell)).collect();
        cells.resize(self.columns.len(), String::new());
        self.rows.push(cells);
    }

    /// Renders the table in lines of at most `columns` columns, if its columns can shrink enough.
    pub(crate) fn render(&self, columns: usize, paint: Paint) -> String {
        let widths = self.column_widths(columns);
        let headings: Vec<String> = self.columns.iter().map(|(heading, _)| heading.to_uppercase()).collect();
        let mut out = String::new();
        if headings.iter().any(|heading| !heading.is_empty()) {
            for line in self.layout_row(&headings, &widths) {
                out.push_str(&paint.dim(line));
                out.push('\n');
            }
        }
        for row in &self.rows {
            for line in self.layout_row(row, &widths) {
                out.push_str(&line);
                out.push('\n');
            }
        }
        out
    }

    fn layout_row(&self, row: &[String], widths: &[usize]) -> Vec<String> {
        let cells: Vec<Vec<String>> = row
            .iter()
            .zip(&self.columns)
            .zip(widths)
            .map(|((cell, (_, layout)), width)| match layout {
                ColumnLayout::Wrap => wrap_lines(cell, *width),
                ColumnLayout::Truncate => vec![truncate_to_width(cell, *width)],
                ColumnLayout::Left | ColumnLayout::Right => vec![cell.clone()],
            })
            .collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(1);
        (0..height)
            .map(|index| {
                let mut line = String::new();
                for ((cell, (_, layout)), width) in cells.iter().zip(&self.columns).zip(widths) {
                    let text = cell.get(index).map_or("", String::as_str);
                    let padding = " ".repeat(width.saturating_sub(display_width(text)));
                    match layout {
                        ColumnLayout::Right => line.extend([padding.as_str(), text]),
                        ColumnLayout::Left | ColumnLayout::Truncate | ColumnLayout::Wrap => {
                            line.extend([text, padding.as_str()])
                        }
                    }
                    line.push_str(&" ".repeat(COLUMN_GAP));
                }
                line.trim_end().to_owned()
            })
            .collect()
    }

    /// Starts with the width of each column's widest cell, then shrinks the widest column that may shrink until the
    /// table fits.
    fn column_widths(&self, columns: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(index, (heading, _))| {
                let cells = self.rows.iter().filter_map(|row| row.get(index)).map(|cell| display_width(cell));
                cells.chain([display_width(heading)]).max().unwrap_or(0)
            })
            .collect();
        let mut excess =
            (widths.iter().sum::<usize>() + COLUMN_GAP * widths.len().saturating_sub(1)).saturating_sub(columns);
        while excess > 0 {
            let may_shrink =
                |index: &usize| matches!(self.columns[*index].1, ColumnLayout::Truncate | ColumnLayout::Wrap);
            let narrowest = |index: &usize| display_width(&self.columns[*index].0).max(8);
            let widest = (0..widths.len())
                .filter(may_shrink)
                .filter(|index| widths[*index] > narrowest(index))
                .max_by_key(|index| widths[*index]);
            let Some(widest) = widest else { break };
            widths[widest] -= 1;
            excess -= 1;
        }
        widths
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> TextTable {
        let mut table =
            TextTable::new([("name", ColumnLayout::Left), ("n", ColumnLayout::Right), ("why", ColumnLayout::Wrap)]);
        table.add_row(["short".into(), "7".into(), "because".into()]);
        table.add_row(["日本".into(), "1,234".into(), "one two three four".into()]);
        table
    }

    #[test]
    fn columns_are_aligned() {
        let expected = "NAME       N  WHY\nshort      7  because\n日本   1,234  one two three four\n";
        assert_eq!(table().render(80, Paint::new(false)), expected);
    }

    #[test]
    fn a_wide_table_shrinks_to_the_line() {
        let expected = "NAME       N  WHY\nshort      7  because\n日本   1,234  one two\n              three four\n";
        assert_eq!(table().render(24, Paint::new(false)), expected);
        for line in table().render(24, Paint::new(false)).lines() {
            assert!(display_width(line) <= 24, "{line}");
        }
    }

    #[test]
    fn a_cell_is_one_sanitized_line() {
        let mut table = TextTable::new([("", ColumnLayout::Truncate)]);
        table.add_row(["a\nb\x1b[0m".into()]);
        assert_eq!(table.render(80, Paint::new(false)), "a b\u{fffd}[0m\n");
    }
}
