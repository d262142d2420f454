//! Tables that fit the line. A column that may shrink gives way; the others keep their width.

use super::paint::Paint;
use super::text::{display_width, to_single_line, truncate_to_width, wrap_lines};

const COLUMN_GAP: usize = 2;

/// How a column stands and what becomes of it when there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColumnLayout {
    /// To the left, as wide as it is.
    Left,
    /// To the right, as wide as it is.
    Right,
    /// To the left; cut when there is no room.
    Truncate,
    /// To the left; on several lines when there is no room.
    Wrap,
}

/// A table.
#[derive(Debug, Clone)]
pub struct TextTable {
    columns: Vec<(String, ColumnLayout)>,
    rows: Vec<Vec<String>>,
}

impl TextTable {
    /// A table with these headings.
    pub fn new<H: Into<String>>(columns: impl IntoIterator<Item = (H, ColumnLayout)>) -> Self {
        let columns = columns.into_iter().map(|(heading, column)| (heading.into(), column));
        Self { columns: columns.collect(), rows: Vec::new() }
    }

    /// Adds a row; cells that are missing are empty.
    pub fn add_row(&mut self, cells: impl IntoIterator<Item = String>) {
        let mut cells: Vec<String> = cells.into_iter().map(|cell| to_single_line(&cell)).collect();
        cells.resize(self.columns.len(), String::new());
        self.rows.push(cells);
    }

    /// The table in lines of at most `columns` columns, if that can be had.
    pub fn render(&self, columns: usize, paint: Paint) -> String {
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
            .map(|((cell, (_, column)), wide)| match column {
                ColumnLayout::Wrap => wrap_lines(cell, *wide),
                ColumnLayout::Truncate => vec![truncate_to_width(cell, *wide)],
                ColumnLayout::Left | ColumnLayout::Right => vec![cell.clone()],
            })
            .collect();
        let height = cells.iter().map(Vec::len).max().unwrap_or(1);
        (0..height)
            .map(|place| {
                let mut line = String::new();
                for ((cell, (_, column)), wide) in cells.iter().zip(&self.columns).zip(widths) {
                    let text = cell.get(place).map_or("", String::as_str);
                    let space = " ".repeat(wide.saturating_sub(display_width(text)));
                    match column {
                        ColumnLayout::Right => line.extend([space.as_str(), text]),
                        ColumnLayout::Left | ColumnLayout::Truncate | ColumnLayout::Wrap => {
                            line.extend([text, space.as_str()])
                        }
                    }
                    line.push_str(&" ".repeat(COLUMN_GAP));
                }
                line.trim_end().to_owned()
            })
            .collect()
    }

    /// Each column as wide as its widest cell; then those that may shrink share what is left, the widest giving most.
    fn column_widths(&self, columns: usize) -> Vec<usize> {
        let mut widths: Vec<usize> = self
            .columns
            .iter()
            .enumerate()
            .map(|(place, (heading, _))| {
                let cells = self.rows.iter().filter_map(|row| row.get(place)).map(|cell| display_width(cell));
                cells.chain([display_width(heading)]).max().unwrap_or(0)
            })
            .collect();
        let mut over =
            (widths.iter().sum::<usize>() + COLUMN_GAP * widths.len().saturating_sub(1)).saturating_sub(columns);
        while over > 0 {
            let may_shrink =
                |place: &usize| matches!(self.columns[*place].1, ColumnLayout::Truncate | ColumnLayout::Wrap);
            let narrowest = |place: &usize| display_width(&self.columns[*place].0).max(8);
            let widest = (0..widths.len())
                .filter(may_shrink)
                .filter(|place| widths[*place] > narrowest(place))
                .max_by_key(|place| widths[*place]);
            let Some(widest) = widest else { break };
            widths[widest] -= 1;
            over -= 1;
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
    fn columns_line_up_whatever_is_in_them() {
        let expected = "NAME       N  WHY\nshort      7  because\n日本   1,234  one two three four\n";
        assert_eq!(table().render(80, Paint::new(false)), expected);
    }

    #[test]
    fn a_column_that_may_shrink_gives_way() {
        let expected = "NAME       N  WHY\nshort      7  because\n日本   1,234  one two\n              three four\n";
        assert_eq!(table().render(24, Paint::new(false)), expected);
        for line in table().render(24, Paint::new(false)).lines() {
            assert!(display_width(line) <= 24, "{line}");
        }
    }

    #[test]
    fn a_cell_is_one_line_and_harmless() {
        let mut table = TextTable::new([("", ColumnLayout::Truncate)]);
        table.add_row(["a\nb\x1b[0m".into()]);
        assert_eq!(table.render(80, Paint::new(false)), "a b\u{fffd}[0m\n");
    }
}
