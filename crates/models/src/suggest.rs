//! Suggests a known name for a misspelled one.

const SIMILARITY_THRESHOLD: f64 = 0.8;

/// Returns the known name that is most similar to `given`, if any is similar enough.
pub(crate) fn find_similar_name<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = given.to_lowercase();
    known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(&given, &name.to_lowercase()), name))
        .filter(|(similarity, _)| *similarity >= SIMILARITY_THRESHOLD)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, name)| name)
}

/// Returns `; did you mean …?`, or an empty string.
pub(crate) fn did_you_mean_suffix<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    find_similar_name(given, known).map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_finds_its_name_and_nonsense_finds_none() {
        let known = ["contains", "pattern", "phase"];
        assert_eq!(find_similar_name("contians", known), Some("contains"));
        assert_eq!(find_similar_name("PHASE", known), Some("phase"));
        assert_eq!(find_similar_name("xylophone", known), None);
        assert_eq!(find_similar_name("", known), None);
    }
}
