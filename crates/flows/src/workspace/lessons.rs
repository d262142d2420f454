//! Lessons of agents: stored once, newest first, at most 50 for each agent.

use segue_core::ids::SessionId;

use super::WorkspaceFactAndReply;
use super::requests::{Lesson, LessonAddReply, LessonList, LessonQuery, LessonToAdd};
use super::state::{WorkspaceFlowFact, WorkspaceFlowState};
use crate::limits::{
    AGENT_NAME_CHARS_MAX, LESSON_AGENTS_MAX, LESSON_TEXT_CHARS_MAX, LESSON_TITLE_CHARS_MAX, LESSONS_PER_AGENT_MAX,
    WORKSPACE_REPLY_BYTES_MAX,
};

pub(super) fn store_lesson(
    state: &WorkspaceFlowState,
    lesson: LessonToAdd,
    from: &SessionId,
) -> Result<WorkspaceFactAndReply, String> {
    let LessonToAdd { agent, title, text } = lesson;
    let [agent, title, text] = [agent, title, text].map(|text| text.trim().to_owned());
    check_length("the agent of a lesson", &agent, AGENT_NAME_CHARS_MAX)?;
    check_length("the title of a lesson", &title, LESSON_TITLE_CHARS_MAX)?;
    check_length("the text of a lesson", &text, LESSON_TEXT_CHARS_MAX)?;
    let known = state.lessons.get(&agent);
    if known.is_none() && state.lessons.len() >= LESSON_AGENTS_MAX {
        return Err(format!("{LESSON_AGENTS_MAX} agents have lessons, which is the maximum"));
    }
    let count = known.map_or(0, std::collections::VecDeque::len);
    let is_new = !known.into_iter().flatten().any(|known| known.title == title && known.text == text);
    let lessons = if is_new { (count + 1).min(LESSONS_PER_AGENT_MAX) } else { count };
    let fact = is_new.then(|| WorkspaceFlowFact::LessonStored { agent, title, text, session: from.clone() });
    Ok(WorkspaceFactAndReply::new(fact, &LessonAddReply { is_new, lessons }))
}

pub(super) fn list_lessons(state: &WorkspaceFlowState, query: &LessonQuery) -> Result<WorkspaceFactAndReply, String> {
    let agents = state.lessons.iter().filter(|(agent, _)| query.agent.as_ref().is_none_or(|wanted| wanted == *agent));
    let mut lessons: Vec<&Lesson> = agents.flat_map(|(_, lessons)| lessons.iter().map(|lesson| &**lesson)).collect();
    // The sort is stable, so lessons of the same time stay in the order of agents.
    lessons.reverse();
    lessons.sort_by_key(|lesson| std::cmp::Reverse(lesson.at));
    let mut bytes = 0;
    let fits = |lesson: &&&Lesson| {
        bytes += serde_json::to_string(lesson).map_or(0, |json| json.len());
        bytes <= WORKSPACE_REPLY_BYTES_MAX
    };
    let shown: Vec<Lesson> = lessons.iter().take_while(fits).map(|lesson| Lesson::clone(lesson)).collect();
    let omitted = lessons.len() - shown.len();
    Ok(WorkspaceFactAndReply::new(None, &LessonList { lessons: shown, omitted }))
}

/// Checks that a text is neither empty nor too long.
pub(super) fn check_length(what: &str, text: &str, chars_max: usize) -> Result<(), String> {
    let chars = text.chars().count();
    if chars == 0 || chars > chars_max {
        return Err(format!("{what} must have 1 to {chars_max} characters, not {chars}"));
    }
    Ok(())
}
