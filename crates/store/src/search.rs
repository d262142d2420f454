//! Finds words in texts whatever the case of letters, and cuts the words around a hit. Knows no store.

const EXCERPT_CONTEXT_CHARS: usize = 40;

/// Something to look for, prepared once.
#[derive(Debug, Clone)]
pub(crate) struct SearchTerm(String);

impl SearchTerm {
    pub(crate) fn new(text: &str) -> Self {
        Self(lowercase(text))
    }

    /// The words around the first hit in `text`, on one line.
    pub(crate) fn find_excerpt(&self, text: &str) -> Option<String> {
        let hit = lowercase(text).find(&self.0)?;
        let (start, end) = (
            char_index_of_lowercase_byte(text, hit),
            char_index_of_lowercase_byte(text, hit + self.0.len().saturating_sub(1)) + 1,
        );
        let from = start.saturating_sub(EXCERPT_CONTEXT_CHARS);
        let mut out = String::new();
        if from > 0 {
            out.push('…');
        }
        let mut rest = text.chars().skip(from);
        let wanted = end + EXCERPT_CONTEXT_CHARS - from;
        out.extend(rest.by_ref().take(wanted).map(|c| if c.is_control() { ' ' } else { c }));
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

/// Which character of `text` the byte `at` of its lowered form comes from.
fn char_index_of_lowercase_byte(text: &str, at: usize) -> usize {
    let mut seen = 0;
    for (place, c) in text.chars().enumerate() {
        seen += c.to_lowercase().map(char::len_utf8).sum::<usize>();
        if seen > at {
            return place;
        }
    }
    text.chars().count().saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_hit_is_shown_with_the_words_around_it() {
        let text = format!("{} the NEEDLE is here {}", "before ".repeat(20), "after ".repeat(20));
        let excerpt = SearchTerm::new("needle").find_excerpt(&text).expect("it is there");
        assert!(excerpt.contains("the NEEDLE is here"), "{excerpt}");
        assert!(excerpt.starts_with('…') && excerpt.ends_with('…'), "{excerpt}");
        assert!(excerpt.chars().count() < 100, "{excerpt}");
        assert_eq!(SearchTerm::new("absent").find_excerpt(&text), None);
    }

    #[test]
    fn letters_beyond_ascii_match_in_any_case() {
        assert_eq!(SearchTerm::new("ŻÓŁĆ").find_excerpt("zażółć gęślą").as_deref(), Some("zażółć gęślą"));
        assert_eq!(
            SearchTerm::new("i̇").find_excerpt("aİb").as_deref(),
            Some("aİb"),
            "a letter that grows when lowered"
        );
    }

    proptest! {
        #[test]
        fn every_part_of_a_text_is_found_in_it(text in "\\PC{0,200}", from in 0usize..200, len in 0usize..20) {
            let part: String = text.chars().skip(from).take(len).collect();
            prop_assert!(SearchTerm::new(&part).find_excerpt(&text).is_some());
        }
    }
}
