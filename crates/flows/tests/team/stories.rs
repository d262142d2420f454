//! Stories: reading the architect's answer, and which stories may run at the same time.

use std::collections::BTreeSet;

use proptest::prelude::*;
use segue_flows::team::path_pattern::{path_matches, pattern_problem, patterns_overlap};
use segue_flows::team::story::{Story, StoryWorkflowKind, dependent_stories, parse_stories, startable_stories};

pub(crate) fn story(id: &str, files: &[&str], depends_on: &[&str]) -> Story {
    let owned = |items: &[&str]| items.iter().map(|item| (*item).to_owned()).collect::<Vec<_>>();
    Story {
        id: id.to_owned(),
        title: format!("Story {id}"),
        description: String::new(),
        acceptance: vec!["it works".to_owned()],
        files: owned(files),
        depends_on: owned(depends_on),
        kind: StoryWorkflowKind::Ordinary,
        revision: 1,
    }
}

#[test]
fn stories_are_read_from_fenced_json() {
    let answer = "Here they are:\n```json\n{\"stories\": [\
        {\"id\": \"a\", \"title\": \"A\", \"acceptance_criteria\": [\"x\"], \"files\": [\"src/a.rs\"]},\
        {\"id\": \"b\", \"title\": \"B\", \"acceptance\": [\"y\"], \"files\": [\"src/b.rs\"], \"depends_on\": [\"a\"]}]}\n```";
    let stories = parse_stories(answer).expect("they are valid");
    assert_eq!(stories[1].depends_on, ["a"]);
    assert_eq!(stories[0].acceptance, ["x"]);
}

#[test]
fn invalid_graph_is_refused_with_every_reason() {
    let refusal =
        |stories: &str| parse_stories(&format!("{{\"stories\": [{stories}]}}")).expect_err("it is invalid").join("\n");
    let problems = refusal(
        r#"{"id": "a", "title": "A", "acceptance": [], "files": ["../etc"], "depends_on": ["z"]}, {"id": "a", "title": ""}"#,
    );
    for expected in [
        "two stories have the same `id`",
        "`acceptance` must list",
        "`../etc` is not a path within the repository",
        "depends on `z`, which is not a story",
        "`title` must have",
        "`files` must list",
    ] {
        assert!(problems.contains(expected), "{expected} is missing in:\n{problems}");
    }
    let cycle = refusal(
        r#"{"id": "a", "title": "A", "acceptance": ["x"], "files": ["a"], "depends_on": ["b"]},
           {"id": "b", "title": "B", "acceptance": ["x"], "files": ["b"], "depends_on": ["a"]}"#,
    );
    assert!(cycle.contains("in a circle: a, b"), "{cycle}");
    assert!(refusal("").contains("there is no story"));
    assert!(parse_stories("no json").is_err());
    assert!(
        refusal(r#"{"id": "g", "title": "G", "acceptance": ["x"], "files": [".git/config"]}"#).contains("metadata")
    );
}

#[test]
fn stories_with_the_same_files_never_start_together() {
    let (a, b, c) = (story("a", &["src/x/"], &[]), story("b", &["src/x/y.rs"], &[]), story("c", &["docs"], &[]));
    let started = startable_stories(&[&a, &b, &c], &BTreeSet::new(), &[]);
    assert_eq!(started.iter().map(|story| story.id.as_str()).collect::<Vec<_>>(), ["a", "c"]);
    let started = startable_stories(&[&b, &c], &BTreeSet::new(), &[&a]);
    assert_eq!(started.iter().map(|story| story.id.as_str()).collect::<Vec<_>>(), ["c"]);
}

#[test]
fn dependencies_come_first_and_failures_block_their_dependants_only() {
    let (a, b, c) = (story("a", &["a"], &[]), story("b", &["b"], &["a"]), story("c", &["c"], &["b"]));
    let other = story("other", &["d"], &[]);
    assert!(startable_stories(&[&b], &BTreeSet::new(), &[]).is_empty());
    assert_eq!(startable_stories(&[&b], &BTreeSet::from(["a".to_owned()]), &[]).len(), 1);
    let blocked = dependent_stories(&[&a, &b, &c, &other], &BTreeSet::from(["a".to_owned()]));
    assert_eq!(blocked, BTreeSet::from(["b".to_owned(), "c".to_owned()]));
}

#[test]
fn patterns_match_files_folders_and_wildcards() {
    for (pattern, path, expected) in [
        ("src/a.rs", "src/a.rs", true),
        ("src/a.rs", "src/a.rs.bak", false),
        ("src", "src/deep/b.rs", true),
        ("src/", "src/b.rs", true),
        ("src", "srcs/b.rs", false),
        ("src/*.rs", "src/b.rs", true),
        ("src/*.rs", "src/deep/b.rs", false),
        ("src/**/*.rs", "src/deep/er/b.rs", true),
        ("**/test_?.py", "a/b/test_1.py", true),
        ("**", "anything", true),
    ] {
        assert_eq!(path_matches(pattern, path), expected, "{pattern} {path}");
    }
    for outside in ["/etc/passwd", "a/../../b", "~/x", "..\\x", ".git/hooks"] {
        assert!(pattern_problem(outside).is_some(), "{outside}");
    }
}

proptest! {
    #[test]
    fn patterns_that_match_a_common_path_overlap(
        first in "(\\*\\*|[ab]\\*?|\\?)(/(\\*\\*|[ab]\\*?|\\*)){0,2}",
        second in "(\\*\\*|[ab]\\*?|\\?)(/(\\*\\*|[ab]\\*?|\\*)){0,2}",
        path in "[ab]{1,2}(/[ab]{1,2}){0,3}",
    ) {
        prop_assert_eq!(patterns_overlap(&first, &second), patterns_overlap(&second, &first));
        if path_matches(&first, &path) && path_matches(&second, &path) {
            prop_assert!(patterns_overlap(&first, &second), "{} {} {}", first, second, path);
        }
    }

    #[test]
    fn started_stories_never_share_a_file_and_never_wait(
        files in proptest::collection::vec("[ab](/[ab]){0,2}", 1..8),
        dependencies in proptest::collection::vec((0..8usize, 0..8usize), 0..8),
        merged in proptest::collection::btree_set(0..8usize, 0..4),
    ) {
        let mut stories: Vec<Story> =
            files.iter().enumerate().map(|(index, file)| story(&format!("s{index}"), &[file], &[])).collect();
        for (from, to) in dependencies {
            if from > to && from < stories.len() {
                let needed = format!("s{to}");
                stories[from].depends_on.push(needed);
            }
        }
        let merged: BTreeSet<String> = merged.into_iter().map(|index| format!("s{index}")).collect();
        let waiting: Vec<&Story> = stories.iter().filter(|story| !merged.contains(&story.id)).collect();
        let started = startable_stories(&waiting, &merged, &[]);
        for (index, story) in started.iter().enumerate() {
            prop_assert!(story.depends_on.iter().all(|dependency| merged.contains(dependency)));
            prop_assert!(started[..index].iter().all(|other| !other.may_share_files_with(story)));
        }
    }
}
