//! Two texts side by side, or one below the other where there is no room.

use super::text::{display_width, sanitize_for_terminal, wrap_lines};
use crate::limits::COLUMN_WIDTH_MIN;

const COLUMN_SEPARATOR: &str = "  │ ";

/// Two texts with a heading each, in lines of at most so many columns.
pub fn render_side_by_side(left: (&str, &str), right: (&str, &str), columns: usize) -> String {
    let wide = columns.saturating_sub(display_width(COLUMN_SEPARATOR)) / 2;
    if wide < COLUMN_WIDTH_MIN {
        return format!(
            "{}\n\n{}\n\n{}\n\n{}\n",
            left.0,
            sanitize_for_terminal(left.1),
            right.0,
            sanitize_for_terminal(right.1)
        );
    }
    let lines = |(heading, text): (&str, &str)| {
        let mut lines = wrap_lines(&sanitize_for_terminal(heading), wide);
        lines.push("─".repeat(wide));
        lines.extend(wrap_lines(&sanitize_for_terminal(text).replace('\t', "    "), wide));
        lines
    };
    let (left, right) = (lines(left), lines(right));
    let mut out = String::new();
    for place in 0..left.len().max(right.len()) {
        let cell = |lines: &[String]| lines.get(place).cloned().unwrap_or_default();
        let (one, other) = (cell(&left), cell(&right));
        let space = " ".repeat(wide.saturating_sub(display_width(&one)));
        out.push_str(format!("{one}{space}{COLUMN_SEPARATOR}{other}").trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stand_beside_each_other_where_there_is_room() {
        let text = render_side_by_side(("then", "one two"), ("now", "three\n\nfour"), 80);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5);
        assert_eq!(lines[0], format!("then{}  │ now", " ".repeat(34)));
        assert_eq!(lines[2], format!("one two{}  │ three", " ".repeat(31)));
        assert!(lines.iter().all(|line| display_width(line) <= 80));
    }

    #[test]
    fn and_below_each_other_where_there_is_not() {
        assert_eq!(render_side_by_side(("then", "one"), ("now", "two"), 60), "then\n\none\n\nnow\n\ntwo\n");
    }
}
