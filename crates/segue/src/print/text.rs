//! Makes untrusted text safe to print, and cuts or wraps it to a width. Texts of models and users may contain anything.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Returns the number of columns that a text takes.
pub(crate) fn display_width(text: &str) -> usize {
    text.width()
}

/// Replaces control characters and bidirectional marks, which a terminal would interpret, by a visible character.
pub(crate) fn sanitize_for_terminal(text: &str) -> String {
    let is_interpreted = |c: char| {
        (c.is_control() && c != '\n' && c != '\t')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
    };
    text.chars().map(|c| if is_interpreted(c) { '\u{fffd}' } else { c }).collect()
}

/// Returns the sanitized text on one line, with each run of white space as one space.
pub(crate) fn to_single_line(text: &str) -> String {
    sanitize_for_terminal(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Cuts a text to a number of columns; the last one is `…` if it was cut.
pub(crate) fn truncate_to_width(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut used = 1;
    for c in text.chars() {
        let width = c.width().unwrap_or(0);
        if used + width > columns {
            break;
        }
        used += width;
        out.push(c);
    }
    out.push('…');
    out
}

/// Wraps a text to lines of at most `columns` columns. Line breaks in the text stay.
pub(crate) fn wrap_lines(text: &str, columns: usize) -> Vec<String> {
    let columns = columns.max(1);
    let mut lines = Vec::new();
    for paragraph in text.lines() {
        let mut line = String::new();
        for word in paragraph.split(' ') {
            let gap = usize::from(!line.is_empty());
            if !line.is_empty() && line.width() + gap + word.width() > columns {
                lines.push(std::mem::take(&mut line));
            } else if gap == 1 {
                line.push(' ');
            }
            line.push_str(word);
            while line.width() > columns {
                let kept = fitting_prefix_len(&line, columns);
                let rest = line.split_off(kept);
                lines.push(std::mem::replace(&mut line, rest));
            }
        }
        lines.push(line);
    }
    if lines.is_empty() {
        lines.push(String::new());
    }
    lines
}

/// Returns the length in bytes of the longest prefix that fits, but of at least one character.
fn fitting_prefix_len(text: &str, columns: usize) -> usize {
    let mut used = 0;
    for (offset, c) in text.char_indices() {
        used += c.width().unwrap_or(0);
        if used > columns && offset > 0 {
            return offset;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_are_replaced() {
        assert_eq!(
            sanitize_for_terminal("a\x1b[2Jb\r\u{9b}c\u{202e}d\te\n"),
            "a\u{fffd}[2Jb\u{fffd}\u{fffd}c\u{fffd}d\te\n"
        );
        assert_eq!(to_single_line("  a\n\n b\t c "), "a b c");
    }

    #[test]
    fn wide_characters_take_two_columns() {
        assert_eq!(truncate_to_width("日本語です", 10), "日本語です");
        assert_eq!(truncate_to_width("日本語です", 6), "日本…");
        assert_eq!(truncate_to_width("abc", 2), "a…");
    }

    #[test]
    fn lines_break_between_words_or_inside_long_words() {
        assert_eq!(wrap_lines("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap_lines("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(wrap_lines("a\n\nb", 9), ["a", "", "b"]);
        assert_eq!(wrap_lines("", 9), [""]);
    }
}
