//! Two texts side by side, or one below the other where there is no room.

use super::text::{harmless, width, wrapped};
use crate::limits::COLUMN_WIDTH_MIN;

const GAP: &str = "  │ ";

/// Two texts with a heading each, in lines of at most so many columns.
pub fn side_by_side(left: (&str, &str), right: (&str, &str), columns: usize) -> String {
    let wide = columns.saturating_sub(width(GAP)) / 2;
    if wide < COLUMN_WIDTH_MIN {
        return format!("{}\n\n{}\n\n{}\n\n{}\n", left.0, harmless(left.1), right.0, harmless(right.1));
    }
    let lines = |(heading, text): (&str, &str)| {
        let mut lines = wrapped(&harmless(heading), wide);
        lines.push("─".repeat(wide));
        lines.extend(wrapped(&harmless(text).replace('\t', "    "), wide));
        lines
    };
    let (left, right) = (lines(left), lines(right));
    let mut out = String::new();
    for place in 0..left.len().max(right.len()) {
        let cell = |lines: &[String]| lines.get(place).cloned().unwrap_or_default();
        let (one, other) = (cell(&left), cell(&right));
        let space = " ".repeat(wide.saturating_sub(width(&one)));
        out.push_str(format!("{one}{space}{GAP}{other}").trim_end());
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_stand_beside_each_other_where_there_is_room() {
        let text = side_by_side(("then", "one two"), ("now", "three\n\nfour"), 80);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 5);
        assert_eq!(lines[0], format!("then{}  │ now", " ".repeat(34)));
        assert_eq!(lines[2], format!("one two{}  │ three", " ".repeat(31)));
        assert!(lines.iter().all(|line| width(line) <= 80));
    }

    #[test]
    fn and_below_each_other_where_there_is_not() {
        assert_eq!(side_by_side(("then", "one"), ("now", "two"), 60), "then\n\none\n\nnow\n\ntwo\n");
    }
}
