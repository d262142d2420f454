//! Lessons that outlive the session: they are kept by the session of the workspace.

use segue_core::flow::FlowStep;
use segue_core::ids::AgentName;

use super::facts::ProjectLesson;
use super::project_context::ProjectContext;

/// Sends a lesson to the workspace, if the session has one.
pub(super) fn store_lesson(
    _context: &ProjectContext<'_>,
    _agent: &AgentName,
    _lesson: &ProjectLesson,
) -> Option<FlowStep> {
    None
}

/// Handles the end of a question to the workspace.
pub(super) fn handle_ask_ended(context: &ProjectContext<'_>, _event: &segue_core::event::Event) -> Vec<FlowStep> {
    super::turn::advance(context)
}
