//! Patterns of paths in a repository, as stories name the files that they will touch: a file, a folder, or a pattern with
//! `*` (within a name), `**` (any number of folders) and `?`.

/// Returns true if a path of the repository matches a pattern. A pattern without wildcards also matches everything below
/// the folder that it names.
#[must_use]
pub fn path_matches(pattern: &str, path: &str) -> bool {
    let pattern = normalize(pattern);
    if pattern.is_empty() || pattern == "**" {
        return true;
    }
    let parts: Vec<&str> = pattern.split('/').collect();
    let path_parts: Vec<&str> = path.split('/').collect();
    if has_wildcard(&pattern) {
        return match_parts(&parts, &path_parts);
    }
    path_parts.len() >= parts.len() && path_parts[..parts.len()] == parts[..]
}

/// Returns true if two patterns may match the same path. It errs on the side of true.
#[must_use]
pub fn patterns_overlap(first: &str, second: &str) -> bool {
    let (first, second) = (normalize(first), normalize(second));
    let mut first_parts = first.split('/').filter(|part| !part.is_empty());
    let mut second_parts = second.split('/').filter(|part| !part.is_empty());
    loop {
        match (first_parts.next(), second_parts.next()) {
            // One is a folder that contains the other, or both are equal.
            (None, _) | (_, None) => return true,
            (Some("**"), _) | (_, Some("**")) => return true,
            (Some(first), Some(second)) => {
                let differ = match (has_wildcard(first), has_wildcard(second)) {
                    (false, false) => first != second,
                    (true, false) => !match_name(first, second),
                    (false, true) => !match_name(second, first),
                    (true, true) => false,
                };
                if differ {
                    return false;
                }
            }
        }
    }
}

/// Returns what is wrong with a pattern, if it could lead out of the repository or into its metadata.
#[must_use]
pub fn pattern_problem(pattern: &str) -> Option<String> {
    let normal = normalize(pattern);
    let leads_out =
        pattern.starts_with(['/', '~']) || pattern.contains('\\') || normal.split('/').any(|part| part == "..");
    if leads_out {
        return Some(format!("`{pattern}` is not a path within the repository; write it relative to its root"));
    }
    let is_metadata = normal.split('/').next() == Some(".git");
    is_metadata.then(|| format!("`{pattern}` is in the metadata of the repository, which nobody may change"))
}

fn normalize(pattern: &str) -> String {
    let parts = pattern.trim().split('/').filter(|part| !part.is_empty() && *part != ".");
    parts.collect::<Vec<_>>().join("/")
}

fn has_wildcard(text: &str) -> bool {
    text.contains(['*', '?'])
}

fn match_parts(pattern: &[&str], path: &[&str]) -> bool {
    match (pattern, path) {
        ([], []) => true,
        (["**", rest @ ..], _) => (0..=path.len()).any(|skipped| match_parts(rest, &path[skipped..])),
        ([first, rest @ ..], [name, below @ ..]) => match_name(first, name) && match_parts(rest, below),
        _ => false,
    }
}

/// Matches one name against a pattern with `*` and `?`, without backtracking over more than the last `*`.
fn match_name(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) = (pattern.chars().collect(), name.chars().collect());
    let (mut at, mut matched) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while matched < name.len() {
        match pattern.get(at) {
            Some('*') => {
                last_star = Some((at, matched));
                at += 1;
            }
            Some(letter) if *letter == '?' || *letter == name[matched] => {
                at += 1;
                matched += 1;
            }
            _ => match last_star {
                Some((star, from)) => {
                    last_star = Some((star, from + 1));
                    (at, matched) = (star + 1, from + 1);
                }
                None => return false,
            },
        }
    }
    pattern[at..].iter().all(|letter| *letter == '*')
}
