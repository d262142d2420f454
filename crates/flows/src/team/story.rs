//! Stories and the graph of their dependencies: how the architect's answer is read, what makes it invalid, and which
//! stories may be worked on at the same time.

use std::collections::{BTreeMap, BTreeSet};

use segue_core::signal::find_json_where;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::path_pattern::{path_matches, pattern_problem, patterns_overlap};
use crate::limits::{
    STORIES_MAX, STORY_CRITERIA_MAX, STORY_FILES_MAX, STORY_ID_CHARS_MAX, STORY_TEXT_CHARS_MAX, STORY_TITLE_CHARS_MAX,
};

/// A piece of work for one coder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Story {
    pub id: String,
    pub title: String,
    #[serde(default)]
    pub description: String,
    /// How to tell that the story is done.
    #[serde(default)]
    pub acceptance: Vec<String>,
    /// Patterns of the files that the story may touch. Empty if it may touch all files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
    /// The stories that must be merged first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub depends_on: Vec<String>,
    #[serde(default)]
    pub kind: StoryWorkflowKind,
    /// Raised whenever the story is changed.
    #[serde(default = "first_revision")]
    pub revision: u32,
}

fn first_revision() -> u32 {
    1
}

/// How a story is worked on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoryWorkflowKind {
    /// It is planned, coded, tested, reviewed and merged.
    #[default]
    Ordinary,
    /// A small urgent change. It is not planned, but tested and reviewed.
    HotFix,
    /// An update of the knowledge file. Code does all of it.
    Knowledge,
}

impl StoryWorkflowKind {
    /// Returns true if the work takes the express channel.
    #[must_use]
    pub fn is_express(self) -> bool {
        self != Self::Ordinary
    }
}

impl Story {
    /// Returns true if the story may change the file at `path`.
    #[must_use]
    pub fn may_touch(&self, path: &str) -> bool {
        self.files.is_empty() || self.files.iter().any(|pattern| path_matches(pattern, path))
    }

    /// Returns true if both stories may touch the same file.
    #[must_use]
    pub fn may_share_files_with(&self, other: &Self) -> bool {
        if self.files.is_empty() || other.files.is_empty() {
            return true;
        }
        self.files.iter().any(|own| other.files.iter().any(|their| patterns_overlap(own, their)))
    }

    /// Returns the text from which the knowledge pack is built.
    #[must_use]
    pub fn knowledge_search_text(&self) -> String {
        format!("{}\n{}\n{}\n{}", self.title, self.description, self.acceptance.join("\n"), self.files.join("\n"))
    }
}

/// Reads the architect's stories. The answer is a JSON object with `stories`, possibly in a code fence.
///
/// # Errors
/// Fails with all reasons if there is no such object or the graph is invalid.
pub fn parse_stories(answer: &str) -> Result<Vec<Story>, Vec<String>> {
    let found = find_json_where(answer, |value| value.get("stories").is_some_and(Value::is_array)).value;
    let Some(found) = found else {
        return Err(vec!["there is no JSON object with a list `stories`".to_owned()]);
    };
    let listed = found["stories"].as_array().cloned().unwrap_or_default();
    let stories: Vec<Story> = listed.iter().enumerate().map(|(index, story)| read_story(index, story)).collect();
    let problems = story_graph_problems(&stories);
    if problems.is_empty() { Ok(stories) } else { Err(problems) }
}

fn read_story(index: usize, value: &Value) -> Story {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default().trim().to_owned();
    let list = |names: &[&str]| -> Vec<String> {
        let found = names.iter().find_map(|name| value.get(*name));
        let items = found.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let as_text = |item: &Value| item.as_str().map_or_else(|| item.to_string(), |text| text.trim().to_owned());
        items.iter().map(as_text).filter(|text| !text.is_empty()).collect()
    };
    let id = match value.get("id") {
        Some(Value::Number(number)) => number.to_string(),
        _ => text("id"),
    };
    Story {
        id: if id.is_empty() { format!("s{}", index + 1) } else { id },
        title: text("title"),
        description: text("description"),
        acceptance: list(&["acceptance", "acceptance_criteria", "criteria"]),
        files: list(&["files"]),
        depends_on: list(&["depends_on", "dependencies"]),
        kind: StoryWorkflowKind::Ordinary,
        revision: first_revision(),
    }
}

/// Returns everything that is wrong with a graph of stories.
#[must_use]
pub fn story_graph_problems(stories: &[Story]) -> Vec<String> {
    let mut problems = Vec::new();
    if stories.is_empty() {
        problems.push("there is no story".to_owned());
    }
    if stories.len() > STORIES_MAX {
        problems.push(format!("there are {} stories, but at most {STORIES_MAX} are allowed", stories.len()));
    }
    let ids: BTreeSet<&str> = stories.iter().map(|story| story.id.as_str()).collect();
    if ids.len() < stories.len() {
        problems.push("two stories have the same `id`".to_owned());
    }
    for story in stories {
        let problem = |text: String| format!("story `{}`: {text}", story.id);
        problems.extend(single_story_problems(story).into_iter().map(problem));
        for dependency in &story.depends_on {
            if !ids.contains(dependency.as_str()) {
                problems.push(problem(format!("it depends on `{dependency}`, which is not a story")));
            }
        }
    }
    if problems.is_empty()
        && let Some(cycle) = find_dependency_cycle(stories)
    {
        problems.push(format!("these stories depend on each other in a circle: {}", cycle.join(", ")));
    }
    problems
}

fn single_story_problems(story: &Story) -> Vec<String> {
    let mut problems = Vec::new();
    let is_id_character = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
    if story.id.is_empty() || story.id.len() > STORY_ID_CHARS_MAX || !story.id.chars().all(is_id_character) {
        problems.push(format!("`id` must have 1 to {STORY_ID_CHARS_MAX} letters, digits, `-` or `_`"));
    }
    if story.title.is_empty() || story.title.chars().count() > STORY_TITLE_CHARS_MAX {
        problems.push(format!("`title` must have 1 to {STORY_TITLE_CHARS_MAX} characters"));
    }
    if story.knowledge_search_text().chars().count() > STORY_TEXT_CHARS_MAX {
        problems.push(format!("the story has more than {STORY_TEXT_CHARS_MAX} characters"));
    }
    if story.acceptance.is_empty() || story.acceptance.len() > STORY_CRITERIA_MAX {
        problems.push(format!("`acceptance` must list 1 to {STORY_CRITERIA_MAX} criteria"));
    }
    if story.files.is_empty() || story.files.len() > STORY_FILES_MAX {
        problems.push(format!("`files` must list 1 to {STORY_FILES_MAX} files or folders that the story will touch"));
    }
    problems.extend(story.files.iter().filter_map(|pattern| pattern_problem(pattern)));
    if story.depends_on.contains(&story.id) {
        problems.push("it depends on itself".to_owned());
    }
    problems
}

/// Returns the stories of a dependency cycle, if there is one.
fn find_dependency_cycle(stories: &[Story]) -> Option<Vec<String>> {
    let mut left: BTreeMap<&str, BTreeSet<&str>> = stories
        .iter()
        .map(|story| (story.id.as_str(), story.depends_on.iter().map(String::as_str).collect()))
        .collect();
    loop {
        let free: Vec<&str> = left.iter().filter(|(_, needs)| needs.is_empty()).map(|(id, _)| *id).collect();
        if free.is_empty() {
            break;
        }
        for id in free {
            left.remove(id);
            left.values_mut().for_each(|needs| {
                needs.remove(id);
            });
        }
    }
    (!left.is_empty()).then(|| left.keys().map(|id| (*id).to_owned()).collect())
}

/// Returns the stories that can be started now, in order: their dependencies are merged, and they share no file with a
/// story in progress or with an earlier one of the result.
#[must_use]
pub fn startable_stories<'s>(
    waiting: &[&'s Story],
    merged: &BTreeSet<String>,
    in_progress: &[&'s Story],
) -> Vec<&'s Story> {
    let mut started: Vec<&Story> = Vec::new();
    for story in waiting {
        let is_free = story.depends_on.iter().all(|dependency| merged.contains(dependency));
        let overlaps = in_progress.iter().chain(&started).any(|other| other.may_share_files_with(story));
        if is_free && !overlaps {
            started.push(story);
        }
    }
    started
}

/// Returns the stories that need one of these stories, directly or through others.
#[must_use]
pub fn dependent_stories(stories: &[&Story], failed: &BTreeSet<String>) -> BTreeSet<String> {
    let mut affected = failed.clone();
    loop {
        let needs_affected = |story: &&&Story| story.depends_on.iter().any(|dependency| affected.contains(dependency));
        let found: Vec<String> = stories
            .iter()
            .filter(needs_affected)
            .map(|story| story.id.clone())
            .filter(|id| !affected.contains(id))
            .collect();
        if found.is_empty() {
            return affected.difference(failed).cloned().collect();
        }
        affected.extend(found);
    }
}
