//! Compares two texts line by line by their longest common subsequence. The size of the search is bounded.

use crate::limits::DIFF_CELLS_MAX;

/// One line of a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextDiffLine<'t> {
    /// The line is in both texts.
    Unchanged(&'t str),
    /// The line is only in the first text.
    Removed(&'t str),
    /// The line is only in the second text.
    Added(&'t str),
}

/// Compares two texts line by line.
#[must_use]
pub fn diff_lines<'t>(before: &'t str, after: &'t str) -> Vec<TextDiffLine<'t>> {
    let (old, new): (Vec<&str>, Vec<&str>) = (before.lines().collect(), after.lines().collect());
    let head = old.iter().zip(&new).take_while(|(old, new)| old == new).count();
    let rest = (old.len() - head).min(new.len() - head);
    let tail = (0..rest).take_while(|back| old[old.len() - 1 - back] == new[new.len() - 1 - back]).count();
    let mut lines: Vec<TextDiffLine<'t>> = old[..head].iter().map(|line| TextDiffLine::Unchanged(line)).collect();
    diff_lines_by_lcs(&old[head..old.len() - tail], &new[head..new.len() - tail], &mut lines);
    lines.extend(old[old.len() - tail..].iter().map(|line| TextDiffLine::Unchanged(line)));
    lines
}

fn diff_lines_by_lcs<'t>(old: &[&'t str], new: &[&'t str], lines: &mut Vec<TextDiffLine<'t>>) {
    let width = new.len() + 1;
    if (old.len() + 1).saturating_mul(width) > DIFF_CELLS_MAX {
        lines.extend(old.iter().map(|line| TextDiffLine::Removed(line)));
        lines.extend(new.iter().map(|line| TextDiffLine::Added(line)));
        return;
    }
    // common[i][j]: lines that old[i..] and new[j..] have in common.
    let mut common = vec![0u32; (old.len() + 1) * width];
    for i in (0..old.len()).rev() {
        for j in (0..new.len()).rev() {
            common[i * width + j] = if old[i] == new[j] {
                common[(i + 1) * width + j + 1] + 1
            } else {
                common[(i + 1) * width + j].max(common[i * width + j + 1])
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            lines.push(TextDiffLine::Unchanged(old[i]));
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || (i < old.len() && common[(i + 1) * width + j] >= common[i * width + j + 1]) {
            lines.push(TextDiffLine::Removed(old[i]));
            i += 1;
        } else {
            lines.push(TextDiffLine::Added(new[j]));
            j += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format_diff(before: &str, after: &str) -> String {
        let lines = diff_lines(before, after).into_iter().map(|line| match line {
            TextDiffLine::Unchanged(text) => format!(" {text}"),
            TextDiffLine::Removed(text) => format!("-{text}"),
            TextDiffLine::Added(text) => format!("+{text}"),
        });
        lines.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn unchanged_removed_and_added_lines_are_marked() {
        assert_eq!(format_diff("a\nb\nc\nd", "a\nc\nx\nd"), " a\n-b\n c\n+x\n d");
        assert_eq!(format_diff("", "a"), "+a");
        assert_eq!(format_diff("a\na", "a"), " a\n-a");
    }

    /// Both texts can be rebuilt from a comparison.
    #[test]
    fn both_texts_can_be_rebuilt_from_a_comparison() {
        let texts = ["", "a", "a\nb\na\nc", "c\nb\na", "b\nb\nb\na\nc\nc", "x\ny"];
        for before in texts {
            for after in texts {
                let lines = diff_lines(before, after);
                let side = |skip: fn(&TextDiffLine<'_>) -> bool| {
                    let kept = lines.iter().filter(|line| !skip(line));
                    kept.map(|line| match line {
                        TextDiffLine::Unchanged(text) | TextDiffLine::Removed(text) | TextDiffLine::Added(text) => {
                            *text
                        }
                    })
                    .collect::<Vec<_>>()
                };
                assert_eq!(side(|line| matches!(line, TextDiffLine::Added(_))), before.lines().collect::<Vec<_>>());
                assert_eq!(side(|line| matches!(line, TextDiffLine::Removed(_))), after.lines().collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn texts_too_long_to_compare_are_shown_as_replaced() {
        let numbers =
            |from: usize| (from..from + 3_000).map(|number| number.to_string()).collect::<Vec<_>>().join("\n");
        let (before, after) = (numbers(0), numbers(5_000));
        assert_eq!(diff_lines(&before, &after).len(), 6_000);
    }
}
