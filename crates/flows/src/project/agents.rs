//! The agents' part in a routing turn: their calls, answers, completions, reminders and failures.

use segue_core::event::{CallAnswered, CallOpened, ToolRunOpened, ToolRunOutcome, TurnOutcome};
use segue_core::flow::{FlowStep, NewOrStoredReplyText};
use segue_core::ids::{AgentName, CallId};
use segue_core::prompt::TEXT_TOOL_CALL_ID;
use serde_json::{Value, json};

use super::actions::{self, TextToolCall};
use super::completion::{self, AgentCompletionDecision};
use super::definition::CompletionMode;
use super::facts::{
    AgentCompletionReport, AgentLesson, AgentTurnEndKind, MidWorkNoticeToAgentReason, NextPhaseAndAgents, ProjectFact,
};
use super::lessons;
use super::project_context::ProjectFlowContext;
use super::spec::{ASK_CONTENT, ASK_REFLECT, ASK_REMIND, ASK_STEER, ASK_TALK, ASK_WORK};
use super::text::{truncate_chars, words_of};
use super::tools::{COMPLETE_TOOL, LEARN_TOOL};
use crate::limits::{
    COMPLETION_SUMMARY_CHARS_MAX, PROJECT_LESSON_TEXT_CHARS_MAX, PROJECT_LESSON_TITLE_CHARS_MAX, REPEATED_CALLS_MAX,
    REPEATED_CALLS_WARN,
};
use crate::template::fill_template;

/// Opens a routing turn and calls its agents, all at the same time.
pub(super) fn start_routing_turn(context: &ProjectFlowContext<'_>, decision: &NextPhaseAndAgents) -> Vec<FlowStep> {
    let turn = context.state().turns_total + 1;
    let ask_of = |agent: &AgentName| match context.phase().completion {
        CompletionMode::Answer if actions::chooses_before_answer(context, agent) => ASK_WORK,
        CompletionMode::Answer => ASK_TALK,
        CompletionMode::Complete => ASK_WORK,
        CompletionMode::Reflection => ASK_REFLECT,
    };
    let opened = ProjectFact::TurnOpened { turn, decision: decision.clone() }.into_step();
    let calls = decision.agents.iter().map(|agent| context.agent_call(agent, ask_of(agent), json!({"turn": turn})));
    std::iter::once(opened).chain(calls).collect()
}

/// Returns the routing turn in which a call was made, if it still waits for the agent.
fn routing_turn_awaiting_agent(context: &ProjectFlowContext<'_>, call: &CallOpened, agent: &AgentName) -> Option<u32> {
    let turn = call.metadata.get("turn").and_then(Value::as_u64).and_then(|turn| u32::try_from(turn).ok())?;
    let open = context.state().open_turn().filter(|open| open.id == turn && open.is_waiting_for(agent))?;
    context.is_event_of_current_turn().then_some(open.id)
}

/// Handles an agent's answer. An answer with tool calls is continued by the engine when the tools have ended.
pub(super) fn handle_agent_answer(
    context: &ProjectFlowContext<'_>,
    call: &CallOpened,
    answered: &CallAnswered,
) -> Vec<FlowStep> {
    let Some(agent) = &call.agent else { return Vec::new() };
    let Some(turn) = routing_turn_awaiting_agent(context, call, agent) else { return Vec::new() };
    if !answered.tool_calls.is_empty() {
        return Vec::new();
    }
    let text = context.view.read_text(answered.text);
    if call.ask.as_str() == ASK_CONTENT {
        return actions::handle_content(context, (turn, agent), call, (answered, &text));
    }
    if call.output_schema.is_some() {
        return actions::handle_action(context, (turn, agent), call, &text);
    }
    let complaint = match actions::find_text_call(context, agent, &text) {
        Some(TextToolCall::Valid { tool, arguments }) => return actions::run_text_call(call, &tool, arguments),
        Some(TextToolCall::Invalid { why }) => Some(why),
        None => find_echo(context, &text),
    };
    // A tool call that was not run is not shown to anyone. An answer that repeats itself after the complaint is kept.
    let shown = if complaint.is_some() { actions::text_before_tool_call(&text) } else { text.trim() };
    let was_reminded = context.state().current_work(agent).reminded;
    let is_talk = context.phase().completion == CompletionMode::Answer;
    if was_reminded && !is_talk {
        let summary = truncate_chars(shown, COMPLETION_SUMMARY_CHARS_MAX);
        return vec![done_step(turn, agent, AgentTurnEndKind::AutoCompleted, summary)];
    }
    if is_talk && (complaint.is_none() || was_reminded) {
        let source = match complaint {
            None => NewOrStoredReplyText::Stored(answered.text),
            Some(_) if shown.is_empty() => NewOrStoredReplyText::New(actions::unusable_answer_text()),
            Some(_) => NewOrStoredReplyText::New(shown.to_owned()),
        };
        return handle_talk_answer(context, (turn, agent), call, (source, text.trim()));
    }
    let ask = if is_talk { ASK_TALK } else { ASK_REMIND };
    vec![
        ProjectFact::AgentReminded { turn, agent: agent.clone() }.into_step(),
        context.agent_call(agent, ask, json!({"turn": turn, "complaint": complaint})),
    ]
}

/// Returns a complaint if an answer to the user only repeats why the agent was called.
fn find_echo(context: &ProjectFlowContext<'_>, text: &str) -> Option<String> {
    let reason = context.state().open_turn().map(|turn| words_of(&turn.decision.reason))?;
    let repeats = !reason.is_empty() && words_of(text) == reason;
    (repeats && context.phase().completion == CompletionMode::Answer)
        .then(|| "it only repeats why you were called".to_owned())
}

/// An answer to the user completes the agent's part.
fn handle_talk_answer(
    context: &ProjectFlowContext<'_>,
    (turn, agent): (u32, &AgentName),
    call: &CallOpened,
    (source, text): (NewOrStoredReplyText, &str),
) -> Vec<FlowStep> {
    if text.is_empty() {
        if context.state().current_work(agent).reminded {
            return vec![done_step(turn, agent, AgentTurnEndKind::AutoCompleted, String::new())];
        }
        let reminded = ProjectFact::AgentReminded { turn, agent: agent.clone() }.into_step();
        return vec![reminded, context.agent_call(agent, ASK_TALK, json!({"turn": turn}))];
    }
    let reply = FlowStep::Reply {
        text: source,
        // Replies are listed under the agent, whatever role it has in the phase.
        role: Some(agent.as_str().into()),
        call: Some(call.call),
    };
    vec![reply, done_step(turn, agent, AgentTurnEndKind::Answered, String::new())]
}

pub(super) fn done_step(turn: u32, agent: &AgentName, how: AgentTurnEndKind, summary: String) -> FlowStep {
    let completion = AgentCompletionReport { summary, ..AgentCompletionReport::default() };
    ProjectFact::AgentTurnEnd { turn, agent: agent.clone(), how, completion }.into_step()
}

/// Handles an agent's call that failed for good. The routing turn continues without the agent.
pub(super) fn handle_agent_failure(context: &ProjectFlowContext<'_>, call: &CallOpened, why: &str) -> Vec<FlowStep> {
    let Some(agent) = &call.agent else { return Vec::new() };
    let Some(turn) = routing_turn_awaiting_agent(context, call, agent) else { return Vec::new() };
    let others_work = context.state().open_turn().is_some_and(|open| open.decision.agents.len() > 1);
    let failed = done_step(turn, agent, AgentTurnEndKind::Failed, format!("failed: {why}"));
    if others_work {
        return vec![failed];
    }
    // Nobody else works, so the turn fails with the agent and can be retried.
    let reason = format!("{} failed: {why}", context.display_name(agent));
    vec![failed, FlowStep::EndTurn(TurnOutcome::Failed { reason })]
}

/// Ends the part of agents that can do nothing more, because a limit of the engine was reached.
pub(super) fn end_stranded_agents(context: &ProjectFlowContext<'_>, why: &str) -> Vec<FlowStep> {
    let is_running = context.view.session.current_turn.is_some();
    let Some(open) = context.state().open_turn().filter(|_| is_running) else { return Vec::new() };
    let session = context.view.session;
    let has_work = |agent: &AgentName| {
        if context.state().current_work(agent).is_steered {
            return true;
        }
        let is_agent = |other: &Option<AgentName>| other.as_ref() == Some(agent);
        session.open_calls.values().any(|call| is_agent(&call.opened.agent))
            || session.deferred_calls.values().any(|wait| is_agent(&wait.request.agent))
            || session.tool_rounds.values().any(|round| is_agent(&round.request.agent))
            || session.open_tool_runs.values().any(|run| is_agent(&run.agent))
    };
    let stranded = open.decision.agents.iter().filter(|agent| open.is_waiting_for(agent) && !has_work(agent));
    stranded.map(|agent| done_step(open.id, agent, AgentTurnEndKind::Failed, format!("stopped: {why}"))).collect()
}

/// Answers the tools that the flow runs itself.
pub(super) fn handle_flow_tool(context: &ProjectFlowContext<'_>, opened: &ToolRunOpened) -> Vec<FlowStep> {
    let Some(agent) = &opened.agent else { return Vec::new() };
    match opened.tool.as_str() {
        COMPLETE_TOOL => handle_complete(context, opened, agent),
        LEARN_TOOL => handle_learn(context, opened, agent),
        _ => Vec::new(),
    }
}

fn handle_complete(context: &ProjectFlowContext<'_>, opened: &ToolRunOpened, agent: &AgentName) -> Vec<FlowStep> {
    let answer = |outcome: ToolRunOutcome, text: String| FlowStep::AnswerTool { run: opened.run, outcome, text };
    let Some(turn) = context.state().turn_waiting_for(agent).map(|turn| turn.id) else {
        let summary = opened.arguments.get("summary").and_then(Value::as_str).unwrap_or_default();
        let late = ProjectFact::LateCompletion {
            agent: agent.clone(),
            summary: truncate_chars(summary, COMPLETION_SUMMARY_CHARS_MAX),
        };
        return vec![late.into_step(), answer(ToolRunOutcome::Refused, "your turn is already over".to_owned())];
    };
    match completion::check_completion(context, agent, &opened.arguments) {
        AgentCompletionDecision::Accepted { completion, plan, message } => {
            let plan = plan.map(|plan| ProjectFact::PlanSubmitted(plan).into_step());
            let accepted = ProjectFact::CompletionAccepted { turn, agent: agent.clone(), completion }.into_step();
            plan.into_iter().chain([accepted, answer(ToolRunOutcome::Done, message)]).collect()
        }
        AgentCompletionDecision::Refused { why } => {
            let refused = ProjectFact::CompletionRefused { turn, agent: agent.clone(), why: why.clone() }.into_step();
            vec![refused, answer(ToolRunOutcome::Refused, why)]
        }
    }
}

fn handle_learn(context: &ProjectFlowContext<'_>, opened: &ToolRunOpened, agent: &AgentName) -> Vec<FlowStep> {
    let answer =
        |outcome: ToolRunOutcome, text: &str| FlowStep::AnswerTool { run: opened.run, outcome, text: text.to_owned() };
    let text = |name: &str, chars_max: usize| {
        let text = opened.arguments.get(name).and_then(Value::as_str).map(str::trim).filter(|text| !text.is_empty());
        text.map(|text| truncate_chars(text, chars_max))
    };
    match (text("title", PROJECT_LESSON_TITLE_CHARS_MAX), text("lesson", PROJECT_LESSON_TEXT_CHARS_MAX)) {
        (Some(title), Some(text)) => {
            let lesson = AgentLesson { title, text };
            let kept = lessons::send_lesson_to_workspace(context, agent, &lesson);
            let learned = ProjectFact::LessonLearned { agent: agent.clone(), lesson }.into_step();
            let noted =
                answer(ToolRunOutcome::Done, "noted; call `complete` when you have recorded what is worth keeping");
            [learned].into_iter().chain(kept).chain([noted]).collect()
        }
        _ => vec![answer(ToolRunOutcome::Failed, "`title` and `lesson` must both be texts")],
    }
}

/// Looks at an agent after one of its tools has ended. If all tools of its answer have, it may be done, be stopped, or be
/// told something before it continues.
pub(super) fn handle_agent_tool_ended(context: &ProjectFlowContext<'_>, opened: &ToolRunOpened) -> Vec<FlowStep> {
    let (Some(agent), Some((call, id))) = (&opened.agent, &opened.requested_by) else { return Vec::new() };
    let Some(turn) = context.state().turn_waiting_for(agent).map(|turn| turn.id) else { return Vec::new() };
    let session = context.view.session;
    let of_same_answer = |call: &CallId| {
        let is_same = |run: &&ToolRunOpened| run.requested_by.as_ref().is_some_and(|(of, _)| of == call);
        session.open_tool_runs.values().find(is_same).is_some()
    };
    let is_from_text = id == TEXT_TOOL_CALL_ID;
    if of_same_answer(call) || (!is_from_text && !session.tool_rounds.contains_key(call)) {
        return Vec::new();
    }
    let work = context.state().current_work(agent);
    let end_round =
        |reason: &str| (!is_from_text).then(|| FlowStep::EndToolRound { call: *call, reason: reason.to_owned() });
    if let Some(completion) = work.accepted {
        let how = AgentTurnEndKind::Completed;
        let done = ProjectFact::AgentTurnEnd { turn, agent: agent.clone(), how, completion };
        return [done.into_step()].into_iter().chain(end_round("the agent has completed its work")).collect();
    }
    if let Some(repeated) = work.last_tool_call.as_ref().filter(|repeated| repeated.times >= REPEATED_CALLS_WARN) {
        if repeated.times >= REPEATED_CALLS_MAX {
            let summary =
                format!("stopped: `{}` was called {} times with the same result", repeated.tool, repeated.times);
            let done = done_step(turn, agent, AgentTurnEndKind::Stopped, summary);
            return [done].into_iter().chain(end_round("the same tool call was repeated")).collect();
        }
        if !work.warned_of_repetition {
            return steer_agent(
                context,
                (turn, agent),
                MidWorkNoticeToAgentReason::RepeatedCall,
                end_round("the agent is warned"),
            );
        }
    }
    let seen = context.state().agents.get(agent).map_or(0, |progress| progress.seen_entries);
    if context.state().log.has_user_message_after(seen) {
        return steer_agent(
            context,
            (turn, agent),
            MidWorkNoticeToAgentReason::UserMessage,
            end_round("the user sent a message"),
        );
    }
    if is_from_text { actions::continue_after_run(context, (turn, agent), opened) } else { Vec::new() }
}

fn steer_agent(
    context: &ProjectFlowContext<'_>,
    (turn, agent): (u32, &AgentName),
    why: MidWorkNoticeToAgentReason,
    end_round: Option<FlowStep>,
) -> Vec<FlowStep> {
    let steered = ProjectFact::AgentSteered { turn, agent: agent.clone(), why }.into_step();
    let call = context.agent_call(agent, ASK_STEER, json!({"turn": turn, "why": why}));
    [steered].into_iter().chain(end_round).chain([call]).collect()
}

/// Renders what an agent is told in the middle of its work, if there is something.
pub(super) fn render_mid_work_notice(
    context: &ProjectFlowContext<'_>,
    ask: &str,
    metadata: &Value,
    agent: &AgentName,
) -> Option<String> {
    let complaint = metadata.get("complaint").and_then(Value::as_str);
    let why: Option<MidWorkNoticeToAgentReason> =
        metadata.get("why").and_then(|why| serde_json::from_value(why.clone()).ok());
    let work = context.state().current_work(agent);
    let tool = work.last_tool_call.map(|call| call.tool).unwrap_or_default();
    let arguments = json!({"phase": context.phase_name(), "tool": tool, "complaint": complaint});
    let template = match (ask, why) {
        (ASK_STEER, Some(MidWorkNoticeToAgentReason::RepeatedCall)) => {
            include_str!("../../prompts/project/repeated_call.md")
        }
        (ASK_STEER, _) => include_str!("../../prompts/project/steered.md"),
        (ASK_REMIND, _) => include_str!("../../prompts/project/reminder.md"),
        _ if complaint.is_some() => include_str!("../../prompts/project/complaint.md"),
        _ => return None,
    };
    Some(fill_template(template, &arguments))
}
