//! The exact replacement of a passage in a text, with errors that show what is there instead.

use crate::limits::{EDIT_HINT_CONTEXT_LINES, EDIT_NEAREST_CELLS_MAX, EDIT_PLACES_MAX};

/// Replaces the only occurrence of `old`, or all of them.
///
/// # Errors
/// Returns why the passage cannot be replaced: where it occurs if it occurs several times, or the nearest passage if it does not occur.
pub(crate) fn replace_exactly(text: &str, old: &str, new: &str, replace_all: bool) -> Result<String, String> {
    if old.is_empty() {
        return Err(
            "`old_text` is empty; give the passage to replace, or use `write_file` for the whole content".to_owned()
        );
    }
    if old == new {
        return Err("`old_text` and `new_text` are equal, so nothing would change".to_owned());
    }
    let places: Vec<usize> = text.match_indices(old).map(|(offset, _)| offset).collect();
    match places.len() {
        0 => Err(describe_missing_passage(text, old)),
        1 => Ok(text.replacen(old, new, 1)),
        _ if replace_all => Ok(text.replace(old, new)),
        count => {
            let lines: Vec<String> =
                places.iter().take(EDIT_PLACES_MAX).map(|offset| line_number(text, *offset).to_string()).collect();
            let more = if count > EDIT_PLACES_MAX { ", …" } else { "" };
            Err(format!(
                "`old_text` occurs {count} times, beginning at lines {}{more}; add lines around it so that it is unique, or set `replace_all`",
                lines.join(", ")
            ))
        }
    }
}

/// Returns the number of the line at a byte offset, beginning with 1.
fn line_number(text: &str, offset: usize) -> usize {
    text[..offset].matches('\n').count() + 1
}

fn describe_missing_passage(text: &str, old: &str) -> String {
    let wanted: Vec<&str> = old.trim_matches('\n').lines().collect();
    let lines: Vec<&str> = text.lines().collect();
    let refused = "`old_text` does not occur in the file";
    if lines.is_empty() {
        return format!("{refused}, which is empty");
    }
    let Some((start, score)) = nearest_passage(&lines, &wanted) else {
        return format!("{refused}; read the file and copy the passage exactly");
    };
    let end = (start + wanted.len().max(1)).min(lines.len());
    let hint = if wanted.iter().map(|line| line.trim()).eq(lines[start..end].iter().map(|line| line.trim())) {
        "only the spaces at the start or end of lines differ"
    } else if score < 0.3 {
        return format!("{refused}, and nothing in it is similar; read the file and copy the passage exactly");
    } else {
        "the nearest passage is"
    };
    let from = start.saturating_sub(EDIT_HINT_CONTEXT_LINES);
    let to = (end + EDIT_HINT_CONTEXT_LINES).min(lines.len());
    let shown: Vec<String> =
        lines[from..to].iter().enumerate().map(|(index, line)| format!("{}\t{line}", from + index + 1)).collect();
    format!("{refused}; {hint} (lines {} to {end}):\n{}", start + 1, shown.join("\n"))
}

/// Returns the first line of the passage that is most similar to the wanted one, and the similarity from 0 to 1.
fn nearest_passage(lines: &[&str], wanted: &[&str]) -> Option<(usize, f64)> {
    if wanted.is_empty() || lines.len().saturating_mul(wanted.len()) > EDIT_NEAREST_CELLS_MAX {
        return None;
    }
    let similarity = |a: &str, b: &str| match (a.trim(), b.trim()) {
        (a, b) if a == b => 1.0,
        (a, b) => strsim::sorensen_dice(a, b),
    };
    let starts = 0..=lines.len().saturating_sub(wanted.len());
    let score = |start: usize| {
        let pairs = wanted.iter().zip(&lines[start..]);
        pairs.map(|(wanted, line)| similarity(wanted, line)).sum::<f64>() / wanted.len() as f64
    };
    // Of equal scores the first one counts.
    starts.map(|start| (start, score(start))).reduce(|best, next| if next.1 > best.1 { next } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "fn main() {\n    let a = 1;\n    print(a);\n}\n\nfn other() {\n    print(a);\n}\n";

    #[test]
    fn the_only_occurrence_is_replaced() {
        let edited = replace_exactly(TEXT, "let a = 1;", "let a = 2;", false).expect("it occurs once");
        assert_eq!(edited, TEXT.replace("= 1", "= 2"));
    }

    #[test]
    fn several_occurrences_are_counted_with_their_lines() {
        let error = replace_exactly(TEXT, "print(a);", "print(b);", false).expect_err("it is refused");
        assert!(error.starts_with("`old_text` occurs 2 times, beginning at lines 3, 7;"), "{error}");
        let edited = replace_exactly(TEXT, "print(a);", "print(b);", true).expect("all are replaced");
        assert_eq!(edited.matches("print(b);").count(), 2);
    }

    #[test]
    fn the_nearest_passage_is_shown_with_line_numbers() {
        let error = replace_exactly(TEXT, "    let a = 3;\n    print(a);", "", false).expect_err("it is refused");
        assert!(error.contains("the nearest passage is (lines 2 to 3):\n1\tfn main() {\n2\t    let a = 1;"), "{error}");
        let error = replace_exactly(TEXT, "  let a = 1;\n  print(a);", "", false).expect_err("it is refused");
        assert!(error.contains("only the spaces at the start or end of lines differ (lines 2 to 3)"), "{error}");
        let error = replace_exactly(TEXT, "zzzzqqqq", "", false).expect_err("it is refused");
        assert!(error.contains("nothing in it is similar"), "{error}");
    }

    #[test]
    fn pointless_edits_are_refused() {
        assert!(replace_exactly(TEXT, "", "a", false).is_err());
        assert!(replace_exactly(TEXT, "fn", "fn", true).is_err());
    }
}
