//! The replies of the rehearsal model, so that a whole team can be tried without a real model. Whatever the spec says, the
//! team builds a small tea timer in four stories: one plan and one review are sent back, one coder uses up its rounds, and
//! two stories conflict. No real model is shown any of this.

mod coder;
mod tool_history;

use segue_core::event::CallOpened;
use segue_core::flow::FlowRehearsalReply;
use segue_core::prompt::{ChatRole, Prompt, ToolCall};
use serde::Serialize;
use serde_json::{Value, json};

use super::facts::{CoderRequestKind, StoryStatus};
use super::product_spec::RequiredSpecField;
use super::review::ReviewVerdict;
use super::spec::{
    ARCHITECT_ROLE, CODER_ROLE, KNOWLEDGE_ADD_TOOL, PRODUCT_MANAGER_ROLE, SINGLE_CONTEXT_ARCHITECT_ROLE,
};
use super::state::CoderRequest;
use super::team_context::{TeamFlowContext, request_id};
use crate::template::fill_template;
use crate::workspace_tools::WorkspaceTool;
use tool_history::RehearsalToolHistory;

/// The placeholder that the rehearsal model replaces by its mark.
const MARK: &str = "{{mark}}";
/// The stories of the tea timer.
const TIMER_STORY: &str = "timer";
const MOVE_STORY: &str = "move";
const RING_STORY: &str = "ring";
const GUIDE_STORY: &str = "guide";
/// The file whose first version is sent back, and the line that a reader cannot use.
const GUIDE_PATH: &str = "docs/tea.md";
const GUIDE_LINE: u32 = 3;

/// Returns the rehearsal model's answer to a call. The model itself fills in the mark.
pub(super) fn rehearse_reply(
    context: &TeamFlowContext<'_>,
    call: &CallOpened,
    prompt: &Prompt,
) -> Option<FlowRehearsalReply> {
    match call.role.as_str() {
        PRODUCT_MANAGER_ROLE => Some(rehearse_spec_interview(context).to_string().into()),
        CODER_ROLE => coder::rehearse_coder(context, call, prompt),
        ARCHITECT_ROLE | SINGLE_CONTEXT_ARCHITECT_ROLE if call.metadata.get("stories").is_some() => {
            Some(include_str!("../../prompts/team/rehearsal/stories.json").to_owned().into())
        }
        ARCHITECT_ROLE | SINGLE_CONTEXT_ARCHITECT_ROLE => rehearse_review(context, call, prompt),
        _ => None,
    }
}

/// Writes each message of the user into the first field of the spec that is missing.
fn rehearse_spec_interview(context: &TeamFlowContext<'_>) -> Value {
    #[derive(Serialize)]
    struct RehearsalReplyTemplateFields<'a> {
        state: &'a str,
        merged: usize,
        total: usize,
        mark: &'a str,
    }
    let state = context.state();
    let turn = context.view.session.current_turn.as_ref();
    let messages = turn.into_iter().flat_map(|turn| &turn.messages);
    let texts: Vec<String> = messages.map(|message| context.view.read_text(message.text).to_string()).collect();
    let text = texts.join("\n");
    let (heard, spec) = match (state.has_draft, state.draft.missing_fields().first()) {
        (false, _) if state.spec_is_running => ("running", Value::Null),
        (false, _) => {
            let title: Vec<&str> = text.split_whitespace().take(6).collect();
            ("noted", json!({"title": title.join(" ").trim_end_matches(['.', '!', '?']), "goal": text}))
        }
        (true, None) => ("complete", Value::Null),
        (true, Some(RequiredSpecField::Title)) => ("noted", json!({"title": text})),
        (true, Some(RequiredSpecField::Goal)) => ("noted", json!({"goal": text})),
        (true, Some(RequiredSpecField::Requirements)) => ("noted", json!({"requirements": text})),
        (true, Some(RequiredSpecField::Acceptance)) => ("noted", json!({"acceptance": text})),
    };
    let merged = state.story_ids_with(StoryStatus::Merged).len();
    let arguments = RehearsalReplyTemplateFields { state: heard, merged, total: state.stories.len(), mark: MARK };
    let say = fill_template(include_str!("../../prompts/team/rehearsal/say.md"), &arguments);
    json!({"say": say, "spec": spec, "hot_fix": null})
}

/// Reviews like an architect that relies on its own memory: what it sees of its earlier reviews decides.
fn rehearse_review(context: &TeamFlowContext<'_>, call: &CallOpened, prompt: &Prompt) -> Option<FlowRehearsalReply> {
    let request = context.state().requests.get(&request_id(&call.metadata))?;
    let story = context.state().story_of(&request.agent)?.story.id.clone();
    let history = RehearsalToolHistory::from_prompt(prompt);
    let calls = review_tools(request, &story, &history);
    if !calls.is_empty() {
        return Some(call_tools(call, calls));
    }
    if request.kind == CoderRequestKind::Question {
        return Some(render_review_feedback("answer").into());
    }
    Some(decide_review(request, &story, prompt).to_string().into())
}

/// Before it approves code, the architect reads a file of the coder's worktree. In the first story it records a rule.
fn review_tools(request: &CoderRequest, story: &str, history: &RehearsalToolHistory) -> Vec<(&'static str, Value)> {
    let path = match story {
        TIMER_STORY => "tea/steep.sh",
        GUIDE_STORY => GUIDE_PATH,
        _ => return Vec::new(),
    };
    if request.kind != CoderRequestKind::CodeReview || !history.is_empty() {
        return Vec::new();
    }
    let mut calls = vec![(WorkspaceTool::ReadFile.name(), json!({"path": path}))];
    if story == TIMER_STORY {
        let rule = json!({"id": "tests-in-tests", "type": "rule", "level": "implementation", "priority": "high",
            "description": "Every script has a test in tests; sh test.sh runs all of them."});
        calls.push((KNOWLEDGE_ADD_TOOL, json!({"knowledge": rule})));
    }
    calls
}

fn decide_review(request: &CoderRequest, story: &str, prompt: &Prompt) -> Value {
    let needs_changes = ReviewVerdict::NeedsChanges.as_str();
    // Only its own words count as memory.
    let own = prompt.messages.iter().filter(|message| message.chat_role == ChatRole::Assistant);
    let reviews = own.filter(|message| message.text().contains(needs_changes)).count();
    let asked = prompt.messages.iter().rev().find(|message| message.chat_role == ChatRole::User);
    let asked = asked.map(|message| message.text()).unwrap_or_default();
    let verdict = |verdict: ReviewVerdict, decision: &str, findings: Value| json!({"verdict": verdict.as_str(), "feedback": render_review_feedback(decision), "findings": findings});
    match (request.kind, story) {
        (CoderRequestKind::BudgetReview, _) => verdict(ReviewVerdict::Approved, "go_on", json!([])),
        (CoderRequestKind::PlanReview, TIMER_STORY) if reviews == 0 => {
            let decision = if asked.contains("`case`") { "use_file" } else { "use_case" };
            verdict(ReviewVerdict::NeedsChanges, decision, json!([]))
        }
        (CoderRequestKind::CodeReview, GUIDE_STORY) if reviews == 0 && request.refused_answers == 0 => {
            let text = include_str!("../../prompts/team/rehearsal/finding.md").trim();
            let finding = json!({"file": GUIDE_PATH, "line": GUIDE_LINE, "text": text});
            verdict(ReviewVerdict::NeedsChanges, "no_command", json!([finding]))
        }
        _ if reviews > 0 => verdict(ReviewVerdict::Approved, "as_asked", json!([])),
        _ => verdict(ReviewVerdict::Approved, "fine", json!([])),
    }
}

fn render_review_feedback(decision: &str) -> String {
    let arguments = json!({"decision": decision, "mark": MARK});
    fill_template(include_str!("../../prompts/team/rehearsal/feedback.md"), &arguments)
}

fn call_tools(call: &CallOpened, calls: Vec<(&str, Value)>) -> FlowRehearsalReply {
    let calls = calls.into_iter().enumerate().map(|(index, (tool, arguments))| ToolCall {
        id: format!("rehearsal-{}-{index}", call.call.0),
        name: tool.into(),
        arguments,
    });
    FlowRehearsalReply { text: String::new(), tool_calls: calls.collect() }
}
