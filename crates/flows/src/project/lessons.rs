//! Lessons that outlive the session: the workspace's own session keeps them. They are requested once, before the first agent
//! works, and each new lesson is sent to the workspace when it is learned.

use segue_core::event::{AskOutcome, Event};
use segue_core::flow::FlowStep;
use segue_core::ids::{AgentName, AskId};

use super::facts::{AgentLesson, ProjectFact};
use super::project_context::ProjectFlowContext;
use super::state::ProjectState;
use crate::limits::WORKSPACE_WAIT_MS;
use crate::workspace::requests::{
    LessonList, LessonQuery, LessonToAdd, WorkspaceSessionRequest, parse_workspace_reply,
};

/// The topics of the questions to the workspace.
pub(super) const LESSONS_TOPIC: &str = "lessons";
const LESSON_ADD_TOPIC: &str = "lesson_add";

/// Asks the workspace for its lessons, unless they are known or were requested in this turn.
pub(super) fn request_lessons(context: &ProjectFlowContext<'_>) -> Option<FlowStep> {
    let state = context.state();
    if state.lessons_loaded || state.lessons_asked_in == state.turn {
        return None;
    }
    let workspace = context.workspace_session()?;
    Some(WorkspaceSessionRequest::Lessons(LessonQuery::default()).into_step(workspace, WORKSPACE_WAIT_MS))
}

/// Sends a lesson to the workspace, if the session has one.
pub(super) fn send_lesson_to_workspace(
    context: &ProjectFlowContext<'_>,
    agent: &AgentName,
    lesson: &AgentLesson,
) -> Option<FlowStep> {
    let workspace = context.workspace_session()?;
    let lesson = LessonToAdd { agent: agent.to_string(), title: lesson.title.clone(), text: lesson.text.clone() };
    Some(WorkspaceSessionRequest::LessonAdd(lesson).into_step(workspace, WORKSPACE_WAIT_MS))
}

/// Records that the workspace did not take a lesson. The session itself still has it.
pub(super) fn report_lost_lesson(
    context: &ProjectFlowContext<'_>,
    ask: AskId,
    outcome: &AskOutcome,
) -> Option<FlowStep> {
    let topic = context.state().workspace_asks.get(&ask)?;
    let why = match outcome {
        AskOutcome::Answered { .. } | AskOutcome::Cancelled { .. } => return None,
        AskOutcome::Refused { reason } => reason.clone(),
        AskOutcome::Expired => "the workspace did not answer".to_owned(),
    };
    (topic == LESSON_ADD_TOPIC).then(|| ProjectFact::LessonNotKept { why }.into_step())
}

impl ProjectState {
    /// Applies a question to the workspace or its end.
    pub(super) fn apply_workspace_ask_event(&mut self, event: &Event) {
        match event {
            Event::AskSent(sent) => {
                if sent.topic == LESSONS_TOPIC {
                    self.lessons_asked_in = self.turn;
                }
                self.workspace_asks.insert(sent.ask, sent.topic.clone());
            }
            Event::AskEnded { ask, outcome: AskOutcome::Answered { body } } => {
                let is_lessons = self.workspace_asks.get(ask).is_some_and(|topic| topic == LESSONS_TOPIC);
                let Some(list) = parse_workspace_reply::<LessonList>(body).ok().filter(|_| is_lessons) else { return };
                self.lessons_loaded = true;
                // The newest is first in the list and last in the state.
                for lesson in list.lessons.into_iter().rev() {
                    let agent = AgentName::from(lesson.agent);
                    self.add_lesson(agent, AgentLesson { title: lesson.title, text: lesson.text });
                }
            }
            _ => {}
        }
    }
}
