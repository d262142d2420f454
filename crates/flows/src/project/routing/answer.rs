//! Reads the router's answer: JSON, possibly in a fence, with agents (`who`), a reason (`because`) and an optional phase.

use segue_core::ids::{AgentName, PhaseName};
use segue_core::signal::find_json_where;
use serde_json::Value;

use super::NextPhaseOption;
use crate::limits::{ROUTED_AGENTS_MAX, ROUTING_REASON_CHARS_MAX};
use crate::project::text::truncate_chars;

/// Names with which a router ends the flow instead of naming an agent.
const END_AGENT: &str = "end";

/// What is wrong with a router's answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::project) enum RoutingAnswerError {
    #[error("the answer contains no JSON object; write only {{\"because\": …, \"phase\": …, \"who\": […]}}")]
    NotJson,
    #[error("`who` is missing or empty; name at least one agent")]
    MissingAgents,
    #[error("`because` is missing or empty; say in one sentence why")]
    MissingReason,
    #[error("none of the named agents may work in `{phase}`; choose from the listed agents")]
    UnknownAgents { phase: PhaseName },
}

/// A router's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::project) struct ParsedRouting {
    pub(in crate::project) phase: PhaseName,
    /// The agents that may work in the phase.
    pub(in crate::project) agents: Vec<AgentName>,
    /// Names that are not agents of the phase.
    pub(in crate::project) unknown_agents: Vec<String>,
    pub(in crate::project) reason: String,
    /// The user's words that the answer quotes, if the user really said them.
    pub(in crate::project) user_words: Option<String>,
}

/// Reads an answer. Without a phase, the current one continues.
///
/// # Errors
/// Returns everything that is missing.
pub(in crate::project) fn parse_routing_answer(
    text: &str,
    options: &[NextPhaseOption],
    current: &PhaseName,
    user_text: &str,
) -> Result<ParsedRouting, Vec<RoutingAnswerError>> {
    let is_decision = |value: &Value| ["who", "agents", "phase"].iter().any(|name| value.get(name).is_some());
    let Some(answer) = find_json_where(text, is_decision).value else { return Err(vec![RoutingAnswerError::NotJson]) };
    // Models that are not held to the schema use the obvious names.
    let member = |name: &str, obvious: &str| answer.get(name).or_else(|| answer.get(obvious)).unwrap_or(&Value::Null);
    let mut named = read_agent_names(member("who", "agents"));
    let ends = |name: &str| name.eq_ignore_ascii_case(END_AGENT);
    let end_option = options.iter().find(|option| option.ends);
    let named_end = named.iter().any(|name| ends(name));
    // The end together with agents is a contradiction: the agents work.
    named.retain(|name| !ends(name));
    let phase: PhaseName = match answer["phase"].as_str().map(str::trim).filter(|phase| !phase.is_empty()) {
        Some(phase) => phase.to_lowercase().into(),
        None if named_end && named.is_empty() => {
            end_option.map_or_else(|| END_AGENT.into(), |option| option.phase.clone())
        }
        None => current.clone(),
    };
    let phase =
        if named_end && named.is_empty() { end_option.map_or(phase, |option| option.phase.clone()) } else { phase };
    let option = options.iter().find(|option| option.phase == phase);
    let reason = member("because", "reason").as_str().map(str::trim).unwrap_or_default();
    let mut errors = Vec::new();
    // A phase that is not offered will be refused, with or without agents.
    let needs_agents = option.is_some_and(|option| !option.all_agents);
    if named.is_empty() && needs_agents && !named_end {
        errors.push(RoutingAnswerError::MissingAgents);
    }
    if reason.is_empty() {
        errors.push(RoutingAnswerError::MissingReason);
    }
    if !errors.is_empty() {
        return Err(errors);
    }
    let (agents, unknown_agents) = match option {
        Some(option) if option.all_agents => (option.agents.clone(), Vec::new()),
        Some(option) => {
            let (known, unknown): (Vec<String>, Vec<String>) =
                named.into_iter().partition(|name| option.agents.iter().any(|agent| agent.as_str() == name));
            (known.into_iter().map(AgentName::from).collect(), unknown)
        }
        // The phase will be refused, so its agents do not matter.
        None => (named.into_iter().map(AgentName::from).collect(), Vec::new()),
    };
    let user_words = answer["user_words"].as_str().filter(|words| is_quoted(words, user_text)).map(str::to_owned);
    Ok(ParsedRouting {
        phase,
        agents,
        unknown_agents,
        reason: truncate_chars(reason, ROUTING_REASON_CHARS_MAX),
        user_words,
    })
}

fn read_agent_names(value: &Value) -> Vec<String> {
    let one = value.as_str().into_iter();
    let many = value.as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut names: Vec<String> = Vec::new();
    for name in one.chain(many).map(|name| name.trim().to_lowercase()) {
        if !name.is_empty() && !names.contains(&name) {
            names.push(name);
        }
    }
    names.truncate(ROUTED_AGENTS_MAX);
    names
}

/// Returns whether the user said these words. Case and spaces do not matter.
fn is_quoted(words: &str, user_text: &str) -> bool {
    let normalize = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").to_lowercase();
    let words = normalize(words.trim_matches(|c: char| c == '"' || c == '“' || c == '”'));
    words.chars().count() > 1 && normalize(user_text).contains(&words)
}
