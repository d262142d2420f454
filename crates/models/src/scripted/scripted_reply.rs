//! One entry of a scenario: its conditions and its behavior. The order of entries and the number of uses are kept by the
//! model.

use std::ops::RangeInclusive;

use segue_core::ids::ToolName;
use segue_core::prompt::{CallFailureKind, StopReason, TokenUsage};
use serde_json::Value;

use super::glob::ScenarioGlobPattern;
use super::number_range::ScenarioConditionRange;
use crate::template;

/// The names of all placeholders.
pub(super) const REPLY_PLACEHOLDERS: [&str; 12] =
    ["last", "first", "n", "turn", "role", "ask", "phase", "agent", "peer", "model", "attempt", "call"];

/// A scripted reply and its conditions. Without conditions it matches every call, any number of times.
///
/// Names in conditions may contain `*` and `?`; an empty name matches a call without that name. Texts may contain
/// placeholders such as `{{last}}`; unknown ones stay as they are.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptedReply {
    pub(super) line: Option<usize>,
    pub(super) when: ScriptedReplyConditions,
    pub(super) times: Option<u32>,
    pub(super) then: ScriptedReplyBehavior,
}

/// The conditions of an entry; all must be met.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ScriptedReplyConditions {
    pub(super) role: Vec<ScenarioGlobPattern>,
    pub(super) ask: Vec<ScenarioGlobPattern>,
    pub(super) phase: Vec<ScenarioGlobPattern>,
    pub(super) agent: Vec<ScenarioGlobPattern>,
    pub(super) peer: Vec<ScenarioGlobPattern>,
    pub(super) model: Vec<ScenarioGlobPattern>,
    pub(super) turn: Option<ScenarioConditionRange>,
    pub(super) attempt: Option<ScenarioConditionRange>,
    pub(super) call: Option<ScenarioConditionRange>,
    pub(super) contains: Vec<String>,
    pub(super) pattern: Option<ScenarioGlobPattern>,
    pub(super) system_contains: Vec<String>,
}

/// What the model does when the entry matches.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct ScriptedReplyBehavior {
    pub(super) body: ScriptedReplyBody,
    pub(super) raw: bool,
    pub(super) chunk_chars: Option<usize>,
    pub(super) delay_ms: u64,
    pub(super) chunk_delay_ms: u64,
    pub(super) reasoning: Option<String>,
    pub(super) tool_calls: Vec<ScriptedToolCall>,
    pub(super) fail: Option<CallFailureKind>,
    pub(super) fail_after_chunks: Option<usize>,
    pub(super) message: Option<String>,
    pub(super) retry_after_ms: Option<u64>,
    pub(super) hang: bool,
    pub(super) usage: Option<TokenUsage>,
    pub(super) stop: Option<StopReason>,
}

/// The content of a reply.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) enum ScriptedReplyBody {
    #[default]
    Empty,
    Text(String),
    Json(Value),
    Chunks(Vec<String>),
}

/// A tool call of a reply.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ScriptedToolCall {
    pub(super) id: Option<String>,
    pub(super) name: ToolName,
    pub(super) arguments: Value,
}

/// The behavior of an entry.
impl ScriptedReply {
    /// Replies with a text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self::from_behavior(ScriptedReplyBehavior {
            body: ScriptedReplyBody::Text(text.into()),
            ..ScriptedReplyBehavior::default()
        })
    }

    /// Replies with JSON; placeholders in its strings are filled.
    #[must_use]
    pub fn json(value: Value) -> Self {
        Self::from_behavior(ScriptedReplyBehavior {
            body: ScriptedReplyBody::Json(value),
            ..ScriptedReplyBehavior::default()
        })
    }

    /// Replies in exactly these chunks.
    #[must_use]
    pub fn chunks<S: Into<String>>(chunks: impl IntoIterator<Item = S>) -> Self {
        Self::from_behavior(ScriptedReplyBehavior {
            body: ScriptedReplyBody::Chunks(chunks.into_iter().map(Into::into).collect()),
            ..ScriptedReplyBehavior::default()
        })
    }

    /// Calls a tool, without a text.
    #[must_use]
    pub fn tool_call(name: impl Into<ToolName>, arguments: Value) -> Self {
        Self::from_behavior(ScriptedReplyBehavior::default()).and_tool_call(name, arguments)
    }

    /// A reply that fails with `kind` instead of an answer.
    #[must_use]
    pub fn fail(kind: CallFailureKind, message: impl Into<String>) -> Self {
        Self::from_behavior(ScriptedReplyBehavior {
            fail: Some(kind),
            message: Some(message.into()),
            ..ScriptedReplyBehavior::default()
        })
    }

    /// Never replies.
    #[must_use]
    pub fn hang() -> Self {
        Self::from_behavior(ScriptedReplyBehavior { hang: true, ..ScriptedReplyBehavior::default() })
    }

    /// Also calls a tool, after the text.
    #[must_use]
    pub fn and_tool_call(mut self, name: impl Into<ToolName>, arguments: Value) -> Self {
        self.then.tool_calls.push(ScriptedToolCall { id: None, name: name.into(), arguments });
        self
    }

    /// Fails after this many text chunks, with a network failure unless another kind is given.
    #[must_use]
    pub fn and_fail_after_chunks(mut self, chunks: usize) -> Self {
        self.then.fail_after_chunks = Some(chunks);
        self
    }

    /// Hangs after the text.
    #[must_use]
    pub fn and_hang(mut self) -> Self {
        self.then.hang = true;
        self
    }

    /// Sends this reasoning first.
    #[must_use]
    pub fn reasoning(mut self, text: impl Into<String>) -> Self {
        self.then.reasoning = Some(text.into());
        self
    }

    /// Splits the text every `chars` characters.
    #[must_use]
    pub fn chunk_chars(mut self, chars: usize) -> Self {
        self.then.chunk_chars = Some(chars);
        self
    }

    /// Sets the delay before the first chunk.
    #[must_use]
    pub fn delay_ms(mut self, ms: u64) -> Self {
        self.then.delay_ms = ms;
        self
    }

    /// Sets the delay between chunks.
    #[must_use]
    pub fn chunk_delay_ms(mut self, ms: u64) -> Self {
        self.then.chunk_delay_ms = ms;
        self
    }

    /// Sets the retry delay that a failure asks for.
    #[must_use]
    pub fn retry_after_ms(mut self, ms: u64) -> Self {
        self.then.retry_after_ms = Some(ms);
        self
    }

    /// Sets the reported token usage.
    #[must_use]
    pub fn usage(mut self, usage: TokenUsage) -> Self {
        self.then.usage = Some(usage);
        self
    }

    /// Sets the stop reason.
    #[must_use]
    pub fn stop(mut self, stop: StopReason) -> Self {
        self.then.stop = Some(stop);
        self
    }

    /// Turns placeholders off.
    #[must_use]
    pub fn without_placeholders(mut self) -> Self {
        self.then.raw = true;
        self
    }

    fn from_behavior(then: ScriptedReplyBehavior) -> Self {
        Self { line: None, when: ScriptedReplyConditions::default(), times: None, then }
    }
}

macro_rules! for_name {
    ($($(#[$doc:meta])* $key:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[must_use]
        pub fn $key(mut self, name: &str) -> Self {
            self.when.$key.push(ScenarioGlobPattern::new(name));
            self
        }
    )*};
}

/// The conditions of an entry. A name that is given twice matches either value.
impl ScriptedReply {
    for_name! {
        /// Matches calls of this role.
        role,
        /// Matches this ask.
        ask,
        /// Matches calls in this phase.
        phase,
        /// Matches calls of this agent.
        agent,
        /// Matches calls with this peer.
        peer,
        /// Matches calls to this model.
        model,
    }

    /// Matches this turn, counted from 1.
    #[must_use]
    pub fn turn(mut self, turn: u32) -> Self {
        self.when.turn = Some(turn.into());
        self
    }

    /// Matches these turns.
    #[must_use]
    pub fn turns(mut self, turns: RangeInclusive<u32>) -> Self {
        self.when.turn = Some(turns.into());
        self
    }

    /// Matches this attempt, counted from 1.
    #[must_use]
    pub fn attempt(mut self, attempt: u32) -> Self {
        self.when.attempt = Some(attempt.into());
        self
    }

    /// Matches this call of the session.
    #[must_use]
    pub fn call(mut self, call: u32) -> Self {
        self.when.call = Some(call.into());
        self
    }

    /// Matches if the last user message contains this text.
    #[must_use]
    pub fn contains(mut self, text: impl Into<String>) -> Self {
        self.when.contains.push(text.into());
        self
    }

    /// Matches if the whole last user message matches this pattern of `*` and `?`.
    #[must_use]
    pub fn pattern(mut self, pattern: &str) -> Self {
        self.when.pattern = Some(ScenarioGlobPattern::new(pattern));
        self
    }

    /// Matches if the system prompt contains this text.
    #[must_use]
    pub fn system_contains(mut self, text: impl Into<String>) -> Self {
        self.when.system_contains.push(text.into());
        self
    }

    /// Limits how often the entry is used.
    #[must_use]
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }
}

impl ScriptedReplyBehavior {
    /// Returns an error if fields contradict each other or a placeholder is unknown.
    pub(super) fn validate(&self) -> Result<(), String> {
        let fails = self.fail.is_some() || self.fail_after_chunks.is_some();
        let has_body = self.body != ScriptedReplyBody::Empty;
        let is_single_text = matches!(self.body, ScriptedReplyBody::Text(_) | ScriptedReplyBody::Json(_));
        let problems = [
            (
                !has_body && self.tool_calls.is_empty() && !fails && !self.hang,
                "the entry does nothing; give one of `text`, `json`, `chunks`, `tool_calls`, `fail`, `hang`",
            ),
            (self.message.is_some() && !fails, "`message` is only allowed with `fail`"),
            (self.retry_after_ms.is_some() && !fails, "`retry_after_ms` is only allowed with `fail`"),
            (self.fail_after_chunks.is_some() && !has_body, "`fail_after_chunks` needs `text`, `json` or `chunks`"),
            (
                self.fail.is_some() && self.fail_after_chunks.is_none() && has_body,
                "with `fail`, text needs `fail_after_chunks` to say how much of it is sent",
            ),
            (fails && self.hang, "`fail` and `hang` exclude each other"),
            (
                (fails || self.hang) && (self.usage.is_some() || self.stop.is_some()),
                "a reply that fails or hangs has no `usage` and no `stop`",
            ),
            (fails && !self.tool_calls.is_empty(), "`fail` and `tool_calls` exclude each other"),
            (self.chunk_chars.is_some() && !is_single_text, "`chunk_chars` needs `text` or `json`"),
            (self.chunk_chars == Some(0), "`chunk_chars` must be at least 1"),
        ];
        match problems.into_iter().find(|(is_wrong, _)| *is_wrong) {
            Some((_, problem)) => Err(problem.to_owned()),
            None => self.check_placeholders(),
        }
    }

    fn check_placeholders(&self) -> Result<(), String> {
        if self.raw {
            return Ok(());
        }
        let check = |text: &String| template::check_template(text, &REPLY_PLACEHOLDERS);
        match &self.body {
            ScriptedReplyBody::Empty => {}
            ScriptedReplyBody::Text(text) => check(text)?,
            ScriptedReplyBody::Json(value) => template::check_json_template(value, &REPLY_PLACEHOLDERS)?,
            ScriptedReplyBody::Chunks(chunks) => chunks.iter().try_for_each(check)?,
        }
        self.reasoning.iter().chain(&self.message).try_for_each(check)?;
        self.tool_calls.iter().try_for_each(|tool| template::check_json_template(&tool.arguments, &REPLY_PLACEHOLDERS))
    }
}
