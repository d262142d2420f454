//! Finds the name somebody probably meant.

use crate::limits::NAMES_SHOWN_MAX;

const SIMILARITY_THRESHOLD: f64 = 0.8;

/// The known name most like `given`, if any is like it at all.
pub fn closest_name<'a>(given: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let given = given.to_lowercase();
    known
        .into_iter()
        .map(|name| (strsim::jaro_winkler(&given, &name.to_lowercase()), name))
        .filter(|(likeness, _)| *likeness >= SIMILARITY_THRESHOLD)
        .max_by(|left, right| left.0.total_cmp(&right.0))
        .map(|(_, name)| name)
}

/// What to add to an error about an unknown name: the one probably meant; failing that, those there are.
pub fn suggestion_hint<'a>(given: &str, known: impl IntoIterator<Item = &'a str> + Clone) -> String {
    if let Some(name) = closest_name(given, known.clone()) {
        return format!("; did you mean `{name}`?");
    }
    match format_name_list(known).as_str() {
        "" => "; there are none".to_owned(),
        names => format!("; there are {names}"),
    }
}

/// Names as an enumeration for people, shortened if there are many.
pub fn format_name_list<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let all: Vec<&str> = names.into_iter().collect();
    // The last one is as short as the word that there is one more.
    let most = if all.len() == NAMES_SHOWN_MAX + 1 { all.len() } else { NAMES_SHOWN_MAX };
    let shown: Vec<String> = all.iter().take(most).map(|name| format!("`{name}`")).collect();
    match all.len() - shown.len() {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_finds_its_name_and_nonsense_finds_the_list() {
        assert_eq!(suggestion_hint("chta", ["chat", "team"]), "; did you mean `chat`?");
        assert_eq!(suggestion_hint("xylophone", ["chat", "team"]), "; there are `chat`, `team`");
        assert_eq!(suggestion_hint("x", []), "; there are none");
    }

    #[test]
    fn a_long_list_is_shortened() {
        let names: Vec<String> = (0..20).map(|number| format!("n{number:02}")).collect();
        let listed = |count: usize| format_name_list(names.iter().take(count).map(String::as_str));
        assert!(listed(20).ends_with("`n07` and 12 more"));
        assert!(listed(10).ends_with("`n07` and 2 more"));
        assert!(listed(9).ends_with("`n07`, `n08`"));
    }
}
