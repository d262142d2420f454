//! Suggestions for misspelled names in error messages.

use crate::limits::NAMES_SHOWN_MAX;

const SIMILARITY_THRESHOLD: f64 = 0.8;

/// Returns the known name that is most similar to `given`, if one is similar enough.
pub(crate) fn closest_name<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = given.to_lowercase();
    known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(&given, &name.to_lowercase()), name))
        .filter(|(similarity, _)| *similarity >= SIMILARITY_THRESHOLD)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, name)| name)
}

/// Returns the end of an error about an unknown name: the most similar known name, or else all known names.
pub(crate) fn suggestion_hint<'a>(given: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    if let Some(name) = closest_name(given, known.clone()) {
        return format!("; did you mean `{name}`?");
    }
    match format_name_list(known).as_str() {
        "" => "; there are none".to_owned(),
        names => format!("; there are {names}"),
    }
}

/// Returns the names in backticks, separated by commas, and cut if there are many.
pub(crate) fn format_name_list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let all: Vec<&str> = names.into_iter().collect();
    // "and 1 more" would be no shorter than the name itself.
    let count = if all.len() == NAMES_SHOWN_MAX + 1 { all.len() } else { NAMES_SHOWN_MAX };
    let shown: Vec<String> = all.iter().take(count).map(|name| format!("`{name}`")).collect();
    match all.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_typo_is_corrected_and_other_names_get_the_list() {
        assert_eq!(suggestion_hint("chta", ["chat", "team"]), "; did you mean `chat`?");
        assert_eq!(suggestion_hint("xylophone", ["chat", "team"]), "; there are `chat`, `team`");
        assert_eq!(suggestion_hint("x", []), "; there are none");
    }

    #[test]
    fn a_long_list_is_cut() {
        let names: Vec<String> = (0..20).map(|number| format!("n{number:02}")).collect();
        let listed = |count: usize| format_name_list(names.iter().take(count).map(String::as_str));
        assert!(listed(20).ends_with("`n07` and 12 more"));
        assert!(listed(10).ends_with("`n07` and 2 more"));
        assert!(listed(9).ends_with("`n07`, `n08`"));
    }
}
