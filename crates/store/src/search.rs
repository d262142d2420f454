//! Case-insensitive search in texts, and excerpts around a match. Knows no store.

const EXCERPT_CONTEXT_CHARS: usize = 40;

/// A search term, prepared once.
#[derive(Debug, Clone)]
pub(crate) struct PreparedSearchTerm(String);

impl PreparedSearchTerm {
    pub(crate) fn new(text: &str) -> Self {
        Self(lowercase(text))
    }

    /// Returns the text around the first match, on one line.
    pub(crate) fn find_excerpt(&self, text: &str) -> Option<String> {
        let match_at = lowercase(text).find(&self.0)?;
        let (start, end) = (
            char_index_of_lowercase_byte(text, match_at),
            char_index_of_lowercase_byte(text, match_at + self.0.len().saturating_sub(1)) + 1,
        );
        let from = start.saturating_sub(EXCERPT_CONTEXT_CHARS);
        let mut out = String::new();
        if from > 0 {
            out.push('…');
        }
        let mut rest = text.chars().skip(from);
        let length = end + EXCERPT_CONTEXT_CHARS - from;
        out.extend(rest.by_ref().take(length).map(|c| if c.is_control() { ' ' } else { c }));
        if rest.next().is_some() {
            out.push('…');
        }
        Some(out)
    }
}

fn lowercase(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    text.chars().flat_map(char::to_lowercase).collect()
}

/// Returns the index of the character of `text` that byte `at` of its lowercase form comes from.
fn char_index_of_lowercase_byte(text: &str, at: usize) -> usize {
    let mut seen = 0;
    for (index, c) in text.chars().enumerate() {
        seen += c.to_lowercase().map(char::len_utf8).sum::<usize>();
        if seen > at {
            return index;
        }
    }
    text.chars().count().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_match_is_shown_with_the_text_around_it() {
        let text = format!("{} the NEEDLE is here {}", "before ".repeat(20), "after ".repeat(20));
        let excerpt = PreparedSearchTerm::new("needle").find_excerpt(&text).expect("the text contains it");
        assert!(excerpt.contains("the NEEDLE is here"), "{excerpt}");
        assert!(excerpt.starts_with('…') && excerpt.ends_with('…'), "{excerpt}");
        assert!(excerpt.chars().count() < 100, "{excerpt}");
        assert_eq!(PreparedSearchTerm::new("absent").find_excerpt(&text), None);
    }

    #[test]
    fn letters_beyond_ascii_match_in_any_case() {
        assert_eq!(PreparedSearchTerm::new("ŻÓŁĆ").find_excerpt("zażółć gęślą").as_deref(), Some("zażółć gęślą"));
        assert_eq!(
            PreparedSearchTerm::new("i̇").find_excerpt("aİb").as_deref(),
            Some("aİb"),
            "a letter whose lowercase form is longer"
        );
    }

    proptest! {
        #[test]
        fn every_part_of_a_text_is_found_in_it(text in "\\PC{0,200}", from in 0usize..200, len in 0usize..20) {
            let part: String = text.chars().skip(from).take(len).collect();
            prop_assert!(PreparedSearchTerm::new(&part).find_excerpt(&text).is_some());
        }
    }
}
