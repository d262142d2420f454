//! Renders two texts side by side, or one below the other if the line is too narrow.

use super::text::{display_width, sanitize_for_terminal, wrap_lines};
use crate::limits::COLUMN_WIDTH_MIN;

const COLUMN_SEPARATOR: &str = "  │ ";

/// Renders two pairs of heading and text in lines of at most `columns` columns.
pub(crate) fn render_side_by_side(left: (&str, &str), right: (&str, &str), columns: usize) -> String {
    let width = columns.saturating_sub(display_width(COLUMN_SEPARATOR)) / 2;
    if width < COLUMN_WIDTH_MIN {
        return format!(
            "{}\n\n{}\n\n{}\n\n{}\n",
            left.0,
            sanitize_for_terminal(left.1),
            right.0,
            sanitize_for_terminal(right.1)
        );
    }
    let lines = |(heading, text): (&str, &str)| {
        let mut lines = wrap_lines(&sanitize_for_terminal(heading), width);
        lines.push("─".repeat(width));
        lines.extend(wrap_lines(&sanitize_for_terminal(text).replace('\t', "    "), width));
        lines
    };
    let (left, right) = (lines(left), lines(right));
    let mut out = String::new();
    for row in 0..left.len().max(right.len()) {
        let cell = |lines: &[String]| lines.get(row).cloned().unwrap_or_default();
        let (left, right) = (cell(&left), cell(&right));
        let padding = " ".repeat(width.saturating_sub(display_width(&left)));
        out.push_str(format!("{left}{padding}{COLUMN_SEPARATOR}{right}").trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_side_by_side_on_a_wide_line() {
        let text = render_side_by_side(("then", "one two"), ("now", "three\n\nfour"), 80);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5);
        assert_eq!(lines[0], format!("then{}  │ now", " ".repeat(34)));
        assert_eq!(lines[2], format!("one two{}  │ three", " ".repeat(31)));
        assert!(lines.iter().all(|line| display_width(line) <= 80));
    }

    #[test]
    fn texts_are_below_each_other_on_a_narrow_line() {
        assert_eq!(render_side_by_side(("then", "one"), ("now", "two"), 60), "then\n\none\n\nnow\n\ntwo\n");
    }
}
