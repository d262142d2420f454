//! Texts made fit to be shown: harmless, short, wrapped. What a model or a stranger wrote may hold anything.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Columns a text takes.
pub fn display_width(text: &str) -> usize {
    text.width()
}

/// The text without anything a terminal would obey: control characters and invisible marks of direction become visible.
pub fn sanitize_for_terminal(text: &str) -> String {
    let obeyed = |c: char| {
        (c.is_control() && c != '\n' && c != '\t')
            || matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}')
    };
    text.chars().map(|c| if obeyed(c) { '\u{fffd}' } else { c }).collect()
}

/// The text on one line, with runs of space as one.
pub fn to_single_line(text: &str) -> String {
    sanitize_for_terminal(text).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The text cut to so many columns, with a mark where it was cut.
pub fn truncate_to_width(text: &str, columns: usize) -> String {
    if text.width() <= columns {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut taken = 1;
    for c in text.chars() {
        let wide = c.width().unwrap_or(0);
        if taken + wide > columns {
            break;
        }
        taken += wide;
        out.push(c);
    }
    out.push('…');
    out
}

/// The text in lines of at most so many columns; its own line breaks stay.
pub fn wrap_lines(text: &str, columns: usize) -> Vec<String> {
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

/// Bytes of the longest beginning that fits; at least one character.
fn fitting_prefix_len(text: &str, columns: usize) -> usize {
    let mut taken = 0;
    for (at, c) in text.char_indices() {
        taken += c.width().unwrap_or(0);
        if taken > columns && at > 0 {
            return at;
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_cannot_steer_the_terminal() {
        assert_eq!(
            sanitize_for_terminal("a\x1b[2Jb\r\u{9b}c\u{202e}d\te\n"),
            "a\u{fffd}[2Jb\u{fffd}\u{fffd}c\u{fffd}d\te\n"
        );
        assert_eq!(to_single_line("  a\n\n b\t c "), "a b c");
    }

    #[test]
    fn wide_characters_count_twice() {
        assert_eq!(truncate_to_width("日本語です", 10), "日本語です");
        assert_eq!(truncate_to_width("日本語です", 6), "日本…");
        assert_eq!(truncate_to_width("abc", 2), "a…");
    }

    #[test]
    fn lines_are_broken_between_words_or_else_anywhere() {
        assert_eq!(wrap_lines("one two three", 7), ["one two", "three"]);
        assert_eq!(wrap_lines("abcdefgh", 3), ["abc", "def", "gh"]);
        assert_eq!(wrap_lines("a\n\nb", 9), ["a", "", "b"]);
        assert_eq!(wrap_lines("", 9), [""]);
    }
}
