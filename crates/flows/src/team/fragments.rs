//! Renders the fragments of the prompts. What an agent is told about its story follows from the assignment alone: if the
//! assignment and the story do not fit together, the context says so instead of showing something older.

use segue_core::context::{FragmentSource, RenderedFragment};
use segue_core::flow::FragmentRenderContext;
use segue_core::ids::AgentName;

use super::facts::StoryAssignment;
use super::prompts;
use super::spec::{
    CODER_ROLE, DRAFT_FRAGMENT, HISTORY_FRAGMENT, KNOWLEDGE_FRAGMENT, MESSAGE_FRAGMENT, PRODUCT_MANAGER_AGENT,
    PRODUCT_MANAGER_ROLE, PROJECT_FRAGMENT, REPAIR_FRAGMENT, REQUEST_FRAGMENT, ROLE_FRAGMENT, SPEC_FRAGMENT,
    STATUS_FRAGMENT, STORY_FRAGMENT, TASK_FRAGMENT,
};
use super::state::StoryProgress;
use super::team_context::{TeamFlowContext, request_id};
use crate::chat::render_compaction_fragment;

/// Renders a fragment.
pub(super) fn render_fragment(
    context: &TeamFlowContext<'_>,
    request: &FragmentRenderContext<'_>,
    name: &str,
) -> RenderedFragment {
    let call = request.call_request;
    let agent = call.peer.as_ref().or(call.agent.as_ref());
    let state = context.state();
    match name {
        ROLE_FRAGMENT => render_role(request),
        SPEC_FRAGMENT => match &state.spec {
            Some(spec) if call.peer.as_ref().is_none_or(|peer| *peer != *PRODUCT_MANAGER_AGENT) => {
                state_fragment(prompts::render_spec(spec), "the spec of the whole work")
            }
            _ => omit_fragment("the spec is part of the question"),
        },
        PROJECT_FRAGMENT => match state.repository.as_ref().and_then(|repository| repository.instructions.as_deref()) {
            Some(text) => state_fragment(prompts::render_project_instructions(text), "the project's own instructions"),
            None => omit_fragment("the project has no AGENTS.md"),
        },
        STORY_FRAGMENT => match agent.filter(|agent| **agent != *PRODUCT_MANAGER_AGENT) {
            Some(agent) => render_story(context, agent),
            None => omit_fragment("the product manager has no story"),
        },
        KNOWLEDGE_FRAGMENT => match agent.and_then(|agent| state.assignment(agent)) {
            Some(assignment) if !assignment.pack.is_empty() => {
                let why = format!("the knowledge pack of {}", assignment.work_item());
                state_fragment(prompts::render_knowledge_prompt(assignment.pack.to_lines()), &why)
            }
            Some(_) => omit_fragment("nothing is known about this story"),
            None => omit_fragment("there is no assignment"),
        },
        HISTORY_FRAGMENT => match agent.and_then(|agent| state.story_of(agent)) {
            Some(progress) if !progress.reviews.is_empty() || !progress.reason.is_empty() => {
                state_fragment(prompts::render_story_history(progress), "what was decided about this story so far")
            }
            _ => omit_fragment("nothing was decided about this story yet"),
        },
        TASK_FRAGMENT => match call.agent.as_ref() {
            Some(agent) => state_fragment(prompts::render_coder_task(context, agent), "the coder's task"),
            None => omit_fragment("there is no coder"),
        },
        REQUEST_FRAGMENT => render_request(context, request),
        REPAIR_FRAGMENT => render_repair(context, request),
        DRAFT_FRAGMENT => state_fragment(prompts::render_spec_draft(context), "the spec so far"),
        STATUS_FRAGMENT => state_fragment(prompts::render_team_status(context), "how the work is going"),
        MESSAGE_FRAGMENT => render_message(context),
        name => render_compaction_fragment(request, name),
    }
}

fn state_fragment(text: String, why: &str) -> RenderedFragment {
    RenderedFragment::New { text, source: FragmentSource::State, why: why.to_owned() }
}

fn omit_fragment(why: &str) -> RenderedFragment {
    RenderedFragment::Omitted(why.to_owned())
}

fn render_role(request: &FragmentRenderContext<'_>) -> RenderedFragment {
    let call = request.call_request;
    let (file, text) = match call.role.as_str() {
        PRODUCT_MANAGER_ROLE => ("role_product_manager", prompts::render_product_manager_role()),
        CODER_ROLE => ("role_coder", prompts::render_coder_role(call.agent.as_ref().unwrap_or(&"coder".into()))),
        _ => {
            let peer = call.peer.clone().unwrap_or_else(|| PRODUCT_MANAGER_AGENT.into());
            let is_coder = peer != *PRODUCT_MANAGER_AGENT;
            ("role_architect", prompts::render_architect_role(&peer, is_coder))
        }
    };
    let source = FragmentSource::Template(format!("team/{file}"));
    RenderedFragment::New { text, source, why: "who answers whom, and how".to_owned() }
}

fn render_story(context: &TeamFlowContext<'_>, agent: &AgentName) -> RenderedFragment {
    match load_story(context, agent) {
        Ok((assignment, progress)) => {
            let why = format!("the story of {agent}, assigned as {}", assignment.work_item());
            state_fragment(prompts::render_story_prompt(&progress.story, assignment.attempt), &why)
        }
        Err(why) => {
            let work = context.coder(agent).work_item().unwrap_or_else(|| "none".to_owned());
            let text = prompts::render_unloadable_story(agent, &work, &why);
            state_fragment(text, "a minimal context, because the story could not be loaded")
        }
    }
}

/// Returns the story of an agent's assignment.
fn load_story<'c>(
    context: &'c TeamFlowContext<'_>,
    agent: &AgentName,
) -> Result<(&'c StoryAssignment, &'c StoryProgress), String> {
    let state = context.state();
    let assignment = state.assignment(agent).ok_or("there is no assignment")?;
    let work = context.view.session.work_assignments.get(agent);
    if work.is_none_or(|work| *work != *assignment.work_item()) {
        return Err("the assignment changed while the prompt was built".to_owned());
    }
    let progress = state.stories.get(&assignment.story).ok_or("the story does not exist")?;
    if progress.story.revision != assignment.revision {
        return Err(format!("the story is at revision {}", progress.story.revision));
    }
    Ok((assignment, progress))
}

fn render_request(context: &TeamFlowContext<'_>, request: &FragmentRenderContext<'_>) -> RenderedFragment {
    let metadata = &request.call_request.metadata;
    if metadata.get("stories").is_some() {
        return state_fragment(prompts::render_stories_request(context), "the question for stories");
    }
    let id = request_id(metadata);
    match context.state().requests.get(&id) {
        Some(open) => RenderedFragment::New {
            text: prompts::render_coder_request(context, open),
            source: FragmentSource::Message(id),
            why: prompts::describe_request_kind(open.kind),
        },
        None => omit_fragment("the request is no longer open"),
    }
}

fn render_repair(context: &TeamFlowContext<'_>, request: &FragmentRenderContext<'_>) -> RenderedFragment {
    let reasons = context.state().last_refusal.clone();
    if request.call_request.metadata.get("stories").is_some() {
        return state_fragment(prompts::render_stories_repair(&reasons), "what is wrong with the stories");
    }
    state_fragment(prompts::render_review_repair(&reasons.join("; ")), "what is wrong with the answer")
}

fn render_message(context: &TeamFlowContext<'_>) -> RenderedFragment {
    let Some(turn) = &context.view.session.current_turn else { return omit_fragment("no turn is running") };
    match turn.messages.as_slice() {
        [] => omit_fragment("the turn has no message"),
        [message] => RenderedFragment::Stored {
            text: message.text,
            source: FragmentSource::Message(message.message),
            why: "what the user said".to_owned(),
        },
        several => {
            let texts: Vec<String> =
                several.iter().map(|message| context.view.read_text(message.text).to_string()).collect();
            RenderedFragment::New {
                text: texts.join("\n\n"),
                source: FragmentSource::Message(several[several.len() - 1].message),
                why: format!("the {} messages of this turn", several.len()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use segue_core::body::BodyId;
    use segue_core::event::CallRequest;
    use segue_core::flow::{BodyTextLookup, DecisionTextResolver, EventSubject, FlowContext};
    use segue_core::ids::CallId;
    use segue_core::session::Session;
    use segue_core::signal::SignalForm;
    use serde_json::json;

    use super::*;
    use crate::team::settings::TeamSettings;
    use crate::team::spec::{ARCHITECT_ROLE, REQUEST_ASK};
    use crate::team::state::{CoderWork, TeamState};

    struct NoTexts;

    impl BodyTextLookup for NoTexts {
        fn find_text(&self, _: BodyId) -> Option<Arc<str>> {
            None
        }
    }

    /// Renders the story of `coder-1`, which is assigned to revision 2 of a story.
    fn render_assigned_story(state: &mut TeamState) -> String {
        let assignment = StoryAssignment {
            agent: "coder-1".into(),
            story: "a".to_owned(),
            attempt: 1,
            revision: 2,
            pack: crate::team::knowledge::KnowledgeForStory::default(),
        };
        let mut session = Session::default();
        session.work_assignments.insert("coder-1".into(), assignment.work_item().as_str().into());
        state.coders.insert("coder-1".into(), CoderWork { assignment: Some(assignment), ..CoderWork::default() });
        let (texts, subject) = (DecisionTextResolver::new(&NoTexts), EventSubject::default());
        let view = FlowContext { session: &session, state, texts: &texts, subject: &subject };
        let (settings, _) = TeamSettings::parse(&json!({}));
        let mut call_request = CallRequest::new(ARCHITECT_ROLE, REQUEST_ASK);
        call_request.peer = Some("coder-1".into());
        let request = FragmentRenderContext {
            call_request: &call_request,
            call: CallId(1),
            turn: None,
            opens_thread: true,
            signal_form: SignalForm::Inline,
            compacted: None,
        };
        let context = TeamFlowContext { view: &view, settings: &settings };
        match render_fragment(&context, &request, STORY_FRAGMENT) {
            RenderedFragment::New { text, .. } => text,
            other => panic!("a text was expected, not {other:?}"),
        }
    }

    fn story(revision: u32) -> StoryProgress {
        let story = json!({"id": "a", "title": "A", "description": "the-old-text", "revision": revision});
        serde_json::from_value(json!({
            "story": story, "status": "in_progress", "reason": "", "attempts": 1, "requeues": 0, "conflicts": 0,
            "reviews": [], "commit": null, "cost_microusd": 0, "calls": 0,
        }))
        .expect("it is a story")
    }

    #[test]
    fn m14_story_that_cannot_be_loaded_gives_a_minimal_context_and_nothing_stale() {
        let missing = render_assigned_story(&mut TeamState::default());
        assert!(missing.contains("`a#1.2`") && missing.contains("the story does not exist"), "{missing}");
        let mut state = TeamState::default();
        state.stories.insert("a".to_owned(), story(1));
        let outdated = render_assigned_story(&mut state);
        assert!(outdated.contains("the story is at revision 1") && !outdated.contains("the-old-text"), "{outdated}");
        state.stories.insert("a".to_owned(), story(2));
        assert!(render_assigned_story(&mut state).contains("the-old-text"));
    }
}
