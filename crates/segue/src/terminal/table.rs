//! Aligned columns of text.

use unicode_width::UnicodeWidthStr;

/// How a column is aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Column {
    /// To the left.
    Text,
    /// To the right.
    Number,
}

const GAP: &str = "  ";

/// The rows, one a line, each column as wide as its widest cell. No spaces at the ends of lines.
#[must_use]
pub fn table(columns: &[Column], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let rows: Vec<Vec<String>> = rows.into_iter().collect();
    let widths: Vec<usize> = (0..columns.len())
        .map(|place| rows.iter().filter_map(|row| row.get(place)).map(|cell| cell.width()).max().unwrap_or(0))
        .collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for ((cell, width), column) in row.iter().zip(&widths).zip(columns) {
            let space = " ".repeat(width.saturating_sub(cell.width()));
            match column {
                Column::Text => line.extend([cell.as_str(), &space, GAP]),
                Column::Number => line.extend([&space, cell.as_str(), GAP]),
            }
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// A number with its thousands apart.
#[must_use]
pub fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The first line of a text, shortened to so many characters.
#[must_use]
pub fn shortened(text: &str, chars_max: usize) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let line = words.join(" ");
    if line.chars().count() <= chars_max {
        return line;
    }
    let mut short: String = line.chars().take(chars_max.saturating_sub(1)).collect();
    short.truncate(short.trim_end().len());
    short.push('…');
    short
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_whatever_letters_they_hold() {
        let rows = [["a", "10", "żółć"], ["日本", "9", ""]];
        let rows = rows.map(|row| row.map(ToOwned::to_owned).to_vec());
        assert_eq!(table(&[Column::Text, Column::Number, Column::Text], rows), "a     10  żółć\n日本   9\n");
    }

    #[test]
    fn thousands_are_set_apart() {
        assert_eq!([0, 999, 1_000, 1_234_567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn a_text_is_shortened_to_one_line() {
        assert_eq!(shortened("one\n two  three", 20), "one two three");
        assert_eq!(shortened("one two three", 8), "one two…");
        assert_eq!(shortened("", 8), "");
    }
}
