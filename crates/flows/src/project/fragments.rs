//! Renders the fragments of the prompts. Texts of the user, of agents, of tools and of files are data: they are fenced or
//! marked as what they are.

use segue_core::context::{COMPACTION_FRAGMENT, FragmentSource, RenderedFragment};
use segue_core::flow::FragmentRenderContext;
use segue_core::ids::AgentName;
use segue_core::signal::wrap_in_code_fence;
use serde::Serialize;
use serde_json::{Value, json};

use super::actions;
use super::agents::render_mid_work_notice;
use super::definition::{CheckMoment, PhaseDefinition};
use super::mcp_servers::unavailable_mcp_tools;
use super::project_context::ProjectFlowContext;
use super::routing::{NextPhaseOption, offered_options};
use super::spec::*;
use super::state::{ProjectLogEntry, ProjectLogSpeaker, ProjectLogText, RoutingTurn};
use super::text::{last_chars, truncate_chars};
use super::tools::{ROUTER_ROLE, phase_tools};
use crate::fragment_specs::MESSAGE_FRAGMENT;
use crate::limits::{CHECK_OUTPUT_CHARS_MAX, HANDOFF_WINDOW_MS, LOG_ENTRY_CHARS_MAX, PROMPT_FILES_MAX};
use crate::template::fill_template;

/// The name and text of a template, by its path under `prompts/project`.
macro_rules! prompt {
    ($name:literal) => {
        ($name, include_str!(concat!("../../prompts/project/", $name, ".md")))
    };
}

/// Renders a fragment of a prompt.
pub(super) fn render_fragment(
    context: &ProjectFlowContext<'_>,
    request: &FragmentRenderContext<'_>,
    name: &str,
) -> RenderedFragment {
    let agent = request.call_request.agent.as_ref();
    match (agent, name) {
        (None, INSTRUCTION_FRAGMENT) => render_router_instruction(context),
        (None, ROUTING_HISTORY_FRAGMENT) => render_routing_history(context),
        (None, FEEDBACK_FRAGMENT) => render_routing_feedback(context),
        (None, OPTIONS_FRAGMENT) => render_options(context),
        (None, UNSEEN_FRAGMENT) => render_recent_log(context),
        (_, EVIDENCE_FRAGMENT) => render_checks_and_issues(context),
        (_, MESSAGE_FRAGMENT) => render_message(context),
        (Some(agent), INSTRUCTION_FRAGMENT) => render_agent_instruction(context, agent),
        (Some(_), GUIDE_FRAGMENT) => render_workspace_guide(context),
        (Some(agent), LESSONS_FRAGMENT) => render_lessons(context, agent),
        (Some(agent), PHASE_FRAGMENT) => render_phase(context, agent),
        (Some(_), HANDOFF_FRAGMENT) => render_transition_summary(context),
        (Some(agent), UNSEEN_FRAGMENT) => render_unseen(context, agent),
        (Some(_), PLAN_FRAGMENT) => render_plan(context),
        (Some(_), FILES_FRAGMENT) => render_files(context),
        (Some(agent), TASK_FRAGMENT) => render_task(context, agent),
        (Some(agent), NOTICE_FRAGMENT) => render_notice_fragment(context, request, agent),
        (Some(agent), RESULT_FRAGMENT) => actions::render_text_run_result(context, agent),
        (Some(agent), SITUATION_FRAGMENT) => actions::render_workspace_status(context, request, agent),
        (Some(agent), ACTION_FRAGMENT) => actions::render_available_actions(context, request, agent),
        (Some(agent), CONTENT_FRAGMENT) => actions::render_content_request(context, request, agent),
        (Some(_), COMPACTION_FRAGMENT) => render_compacted(context),
        _ => omit_fragment("the flow has no such fragment"),
    }
}

/// What replaces the oldest messages of an agent's thread when they no longer fit: an account from the state.
fn render_compacted(context: &ProjectFlowContext<'_>) -> RenderedFragment {
    let turns: Vec<Value> = context.state().turns.iter().map(routing_turn_template_data).collect();
    let files: Vec<&String> = context.state().changed_files.keys().take(PROMPT_FILES_MAX).collect();
    render_from_state(
        prompt!("compacted"),
        &json!({"turns": turns, "files": files}),
        "what the removed messages were about",
    )
}

fn render_notice_fragment(
    context: &ProjectFlowContext<'_>,
    request: &FragmentRenderContext<'_>,
    agent: &AgentName,
) -> RenderedFragment {
    let (ask, metadata) = (request.call_request.ask.as_str(), &request.call_request.metadata);
    match render_mid_work_notice(context, ask, metadata, agent) {
        Some(text) => RenderedFragment::New {
            text,
            source: FragmentSource::Template("project/notice".to_owned()),
            why: "what the agent must know before it continues".to_owned(),
        },
        None => omit_fragment("there is nothing to point out"),
    }
}

fn omit_fragment(why: &str) -> RenderedFragment {
    RenderedFragment::Omitted(why.to_owned())
}

fn render_template(prompt: (&str, &'static str), arguments: &impl Serialize, why: &str) -> RenderedFragment {
    let (name, text) = prompt;
    let source = FragmentSource::Template(format!("project/{name}"));
    RenderedFragment::New { text: fill_template(text, arguments), source, why: why.to_owned() }
}

/// Like [`render_template`], for a fragment whose content comes from the state.
fn render_from_state(prompt: (&str, &'static str), arguments: &impl Serialize, why: &str) -> RenderedFragment {
    RenderedFragment::New {
        text: fill_template(prompt.1, arguments),
        source: FragmentSource::State,
        why: why.to_owned(),
    }
}

/// The definitions of all phases, which every participant is shown.
fn phases_template_data(context: &ProjectFlowContext<'_>) -> Vec<Value> {
    let phases = context.definition.phases.iter().map(|phase| {
        json!({
            "name": phase.name, "purpose": phase.purpose, "entry": phase.entry, "criteria": phase.criteria,
            "agents": phase.agents, "ends": phase.kind != super::definition::PhaseKindDefinition::Work,
        })
    });
    phases.collect()
}

fn team_template_data(context: &ProjectFlowContext<'_>) -> Vec<Value> {
    let agents = context.definition.agents.iter();
    agents.map(|agent| json!({"name": agent.name, "title": agent.display_name(), "skills": agent.skills})).collect()
}

fn render_router_instruction(context: &ProjectFlowContext<'_>) -> RenderedFragment {
    let arguments = json!({
        "description": context.definition.description,
        "instruction": context.definition.router.instruction.trim(),
        "phases": phases_template_data(context),
        "team": team_template_data(context),
    });
    render_template(prompt!("router"), &arguments, "the router's instruction")
}

fn routing_turn_template_data(turn: &RoutingTurn) -> Value {
    let agents = turn.decision.agents.iter().map(|agent| {
        let done = turn.completions.get(agent);
        json!({
            "name": agent,
            "how": done.map(|done| done.how),
            "summary": done.map(|done| truncate_chars(&done.completion.summary, LOG_ENTRY_CHARS_MAX)).unwrap_or_default(),
            "empty": done.is_some_and(|done| done.completion.empty),
            "issues": done.map(|done| done.completion.issues.len()).unwrap_or_default(),
        })
    });
    json!({
        "id": turn.id, "phase": turn.decision.phase, "reason": turn.decision.reason, "by": turn.decision.by,
        "agents": agents.collect::<Vec<_>>(),
    })
}

fn render_routing_history(context: &ProjectFlowContext<'_>) -> RenderedFragment {
    let state = context.state();
    if state.turns.is_empty() {
        return omit_fragment("nothing was routed yet");
    }
    let turns: Vec<Value> = state.turns.iter().map(routing_turn_template_data).collect();
    let arguments = json!({"turns": turns, "older": state.older_turns});
    render_from_state(prompt!("routing_history"), &arguments, "the last routing turns, and how often others occurred")
}

fn render_routing_feedback(context: &ProjectFlowContext<'_>) -> RenderedFragment {
    let state = context.state();
    if state.feedback.is_empty() && state.router_lessons.is_empty() {
        return omit_fragment("nothing was refused");
    }
    let lessons: Vec<&String> = state.router_lessons.iter().filter(|line| !state.feedback.contains(line)).collect();
    render_from_state(
        prompt!("feedback"),
        &json!({"feedback": state.feedback, "lessons": lessons}),
        "what was wrong with earlier decisions",
    )
}

fn render_options(context: &ProjectFlowContext<'_>) -> RenderedFragment {
    let current = context.phase_name();
    let options = offered_options(context);
    let data = |option: &NextPhaseOption| {
        let phase = context.definition.find_phase(option.phase.as_str());
        json!({
            "phase": option.phase, "agents": option.agents, "is_current": option.phase == current,
            "needs_request": needs_user_request(context, option),
            "ends": phase.is_some_and(|phase| phase.kind != super::definition::PhaseKindDefinition::Work),
        })
    };
    let arguments = json!({
        "phase": current,
        "options": options.iter().map(data).collect::<Vec<_>>(),
        // Small models follow a rule best if they have just read it.
        "reminder": context.definition.router.instruction.trim().lines().next(),
    });
    render_from_state(prompt!("options"), &arguments, "the possible phases and agents")
}

/// Returns whether a phase can only be entered at the user's request.
fn needs_user_request(context: &ProjectFlowContext<'_>, option: &NextPhaseOption) -> bool {
    let current = context.phase_name();
    let edges = context.definition.edges.iter().filter(|edge| edge.from == current.as_str());
    edges
        .filter(|edge| edge.leads_to(option.phase.as_str()))
        .any(|edge| edge.conditions().any(|condition| condition == super::definition::FlowCondition::UserAsked))
}

fn render_message(context: &ProjectFlowContext<'_>) -> RenderedFragment {
    let turn = context.view.session.current_turn.as_ref();
    let Some(last) = turn.and_then(|turn| turn.messages.last()) else {
        return omit_fragment("the turn has no message");
    };
    let text = fill_template(prompt!("message").1, &json!({"text": wrap_in_code_fence(&context.user_text())}));
    RenderedFragment::New { text, source: FragmentSource::Message(last.message), why: "the user's message".to_owned() }
}

fn log_entry_template_data(context: &ProjectFlowContext<'_>, entry: &ProjectLogEntry) -> Value {
    let text = match &entry.text {
        ProjectLogText::Stored(text) => context.view.read_text(*text).to_string(),
        ProjectLogText::Inline(text) => text.clone(),
    };
    let speaker = match &entry.speaker {
        ProjectLogSpeaker::User { .. } => "the user".to_owned(),
        ProjectLogSpeaker::Agent(agent) => context.display_name(agent),
        ProjectLogSpeaker::Workspace => "the workspace".to_owned(),
    };
    json!({"speaker": speaker, "text": wrap_in_code_fence(&truncate_chars(text.trim(), LOG_ENTRY_CHARS_MAX))})
}

/// Returns whether an entry is one of the messages that the current turn answers, which has a fragment of its own.
fn is_current_message(context: &ProjectFlowContext<'_>, entry: &ProjectLogEntry) -> bool {
    let turn = context.view.session.current_turn.as_ref();
    let ProjectLogSpeaker::User { message } = &entry.speaker else { return false };
    turn.is_some_and(|turn| turn.messages.iter().any(|current| current.message == *message))
}

fn render_recent_log(context: &ProjectFlowContext<'_>) -> RenderedFragment {
    let entries = context.state().log.entries_after(0).filter(|entry| !is_current_message(context, entry));
    let lines: Vec<Value> = entries.map(|entry| log_entry_template_data(context, entry)).collect();
    if lines.is_empty() {
        return omit_fragment("nothing was said before");
    }
    render_from_state(prompt!("log"), &json!({"lines": lines}), "what was said before")
}

/// What happened since the agent's last call, each entry once, with its author.
fn render_unseen(context: &ProjectFlowContext<'_>, agent: &AgentName) -> RenderedFragment {
    let seen = context.state().agents.get(agent).map_or(0, |progress| progress.seen_entries);
    let is_own = |entry: &ProjectLogEntry| entry.speaker == ProjectLogSpeaker::Agent(agent.clone());
    let entries =
        context.state().log.entries_after(seen).filter(|entry| !is_own(entry) && !is_current_message(context, entry));
    let lines: Vec<Value> = entries.map(|entry| log_entry_template_data(context, entry)).collect();
    if lines.is_empty() {
        return omit_fragment("nothing happened that the agent has not seen");
    }
    render_from_state(prompt!("unseen"), &json!({"lines": lines}), "what happened while the agent was away")
}

fn render_agent_instruction(context: &ProjectFlowContext<'_>, agent: &AgentName) -> RenderedFragment {
    let Some(agent) = context.definition.find_agent(agent.as_str()) else {
        return omit_fragment("the agent is not declared");
    };
    let arguments = json!({
        "name": agent.name,
        "title": agent.display_name(),
        "role": agent.role.trim(),
        "phases": phases_template_data(context),
        "team": team_template_data(context),
    });
    render_template(prompt!("agent"), &arguments, "the agent's role")
}

fn render_workspace_guide(context: &ProjectFlowContext<'_>) -> RenderedFragment {
    match context.state().guide.as_deref().map(str::trim).filter(|guide| !guide.is_empty()) {
        Some(guide) => render_from_state(
            prompt!("guide"),
            &json!({"text": wrap_in_code_fence(guide)}),
            "the workspace's AGENTS.md",
        ),
        None => omit_fragment("the workspace has no AGENTS.md"),
    }
}

fn render_lessons(context: &ProjectFlowContext<'_>, agent: &AgentName) -> RenderedFragment {
    match context.state().lessons.get(agent).filter(|lessons| !lessons.is_empty()) {
        Some(lessons) => {
            render_from_state(prompt!("lessons"), &json!({"lessons": lessons}), "what the agent has learned here")
        }
        None => omit_fragment("the agent has no lessons yet"),
    }
}

fn render_phase(context: &ProjectFlowContext<'_>, agent: &AgentName) -> RenderedFragment {
    let phase = context.phase();
    let definition = context.definition.find_agent(agent.as_str());
    let instruction = definition.and_then(|agent| agent.instructions.get(&phase.name)).map(|text| text.trim());
    let arguments = json!({
        "name": phase.name,
        "purpose": phase.purpose,
        "activities": phase.activities,
        "criteria": phase.criteria,
        "constraints": phase.constraints,
        "instruction": instruction,
        "previous": context.phase_state().and_then(|state| state.came_from.clone()),
        "completion": phase.completion,
        "plan": phase.plan,
        "verifies": phase.checks == CheckMoment::Before,
        "tools": phase_tools(phase),
        "has_workspace": context.has_workspace(),
        "unavailable": unavailable_mcp_tools(context, agent),
    });
    RenderedFragment::New {
        text: fill_template(prompt!("phase").1, &arguments),
        source: FragmentSource::Phase,
        why: "the phase and its rules".to_owned(),
    }
}

/// The summary of the newest transition, if it is recent.
fn render_transition_summary(context: &ProjectFlowContext<'_>) -> RenderedFragment {
    let Some(transition) = &context.state().last_transition else { return omit_fragment("there was no transition") };
    let opened_at = context.state().open_turn().map_or_else(|| context.now(), |turn| turn.opened_at);
    if opened_at.ms_since(transition.at) >= HANDOFF_WINDOW_MS {
        return omit_fragment("the last transition is not recent");
    }
    let Some(summary) = &transition.summary else { return omit_fragment("the last transition has no summary") };
    let arguments = json!({
        "from": transition.from, "to": transition.to, "by": transition.by, "summary": wrap_in_code_fence(summary),
    });
    render_from_state(prompt!("handoff"), &arguments, "the work that is handed over")
}

fn render_plan(context: &ProjectFlowContext<'_>) -> RenderedFragment {
    match &context.state().plan {
        Some(status) => {
            let arguments = json!({"plan": status.plan, "approved": status.approved_by.is_some()});
            render_from_state(prompt!("plan"), &arguments, "the plan")
        }
        None => omit_fragment("there is no plan"),
    }
}

fn render_files(context: &ProjectFlowContext<'_>) -> RenderedFragment {
    let state = context.state();
    let uses_files = phase_uses_files(context.phase());
    if !uses_files || !context.has_workspace() {
        return omit_fragment("the phase does not use files");
    }
    let changed: Vec<Value> =
        state.changed_files.values().map(|change| json!({"path": change.path, "kind": change.kind})).collect();
    let files: Vec<&String> = state.files.iter().take(PROMPT_FILES_MAX).collect();
    let left_out = state.files_total.saturating_sub(files.len() as u64);
    let arguments =
        json!({"files": files, "left_out": left_out, "changed": changed, "checks": context.known_check_commands()});
    render_from_state(prompt!("files"), &arguments, "the files of the workspace and what changed")
}

fn phase_uses_files(phase: &PhaseDefinition) -> bool {
    !phase.tools.is_empty()
}

/// The results of the checks and the reported issues.
fn render_checks_and_issues(context: &ProjectFlowContext<'_>) -> RenderedFragment {
    let state = context.state();
    let Some(checks) = &state.last_checks else {
        return match state.verdict.as_ref().filter(|verdict| !verdict.issues.is_empty()) {
            Some(verdict) => render_from_state(
                prompt!("evidence"),
                &json!({"commands": [], "issues": verdict.issues, "is_current": false}),
                "the reported issues",
            ),
            None => omit_fragment("no check ran yet"),
        };
    };
    let commands = checks.commands.iter().map(|command| {
        json!({
            "command": command.command,
            "passed": command.has_passed(),
            "end": command.end,
            "output": if command.has_passed() { String::new() } else { last_chars(&command.output_tail, CHECK_OUTPUT_CHARS_MAX) },
        })
    });
    let issues = state.verdict.as_ref().map(|verdict| verdict.issues.clone()).unwrap_or_default();
    let arguments = json!({
        "commands": commands.collect::<Vec<_>>(),
        "issues": issues,
        "is_current": state.content.digest() == Some(checks.content_digest_after.as_str()),
    });
    render_from_state(prompt!("evidence"), &arguments, "the results of the checks")
}

fn render_task(context: &ProjectFlowContext<'_>, agent: &AgentName) -> RenderedFragment {
    let Some(turn) = context.state().open_turn() else { return omit_fragment("no routing turn is open") };
    let others: Vec<String> =
        turn.decision.agents.iter().filter(|other| *other != agent).map(|other| context.display_name(other)).collect();
    let arguments = json!({"reason": turn.decision.reason, "others": others, "phase": turn.decision.phase});
    render_from_state(prompt!("task"), &arguments, "why the agent was called")
}

/// Returns whether a role belongs to the router.
pub(super) fn is_router(role: &str) -> bool {
    role == ROUTER_ROLE
}
