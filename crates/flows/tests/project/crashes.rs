//! A crash in every phase, at every event: the session continues, and no finished call is made twice.

use segue_core::event::Event;

use crate::support::Project;

const PHASES: [&str; 7] = ["chat", "brainstorm", "plan", "execute", "verification", "chores", "reflection"];

#[test]
fn crash_in_every_phase_repeats_only_the_call_that_was_in_flight() {
    for phase in PHASES {
        let mut project = Project::in_phase(phase);
        let roles = project.roles();
        let answered = count_answers(&project);
        project.session.crash_and_recover();
        project.settle();
        assert_eq!((project.phase().as_str(), project.roles()), (phase, roles), "{phase}");
        assert_eq!(count_answers(&project), answered, "{phase}");
    }
}

#[test]
fn crash_after_every_tool_result_leaves_something_to_do_or_waits_for_the_user() {
    let whole = Project::in_phase("end");
    for events in 1..whole.session.journal().len() {
        let fork = whole.session.fork_at(events);
        let session = fork.session();
        let has_work = !session.open_calls.is_empty() || !session.open_tool_runs.is_empty();
        assert!(session.current_turn.is_none() || has_work, "after {events} events");
    }
}

fn count_answers(project: &Project) -> usize {
    project.session.journal().iter().filter(|recorded| matches!(recorded.event, Event::CallAnswered(_))).count()
}
