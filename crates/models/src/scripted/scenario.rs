//! A scenario: what the model answers, and optionally what the user says and what should come of it. This module reads
//! the file; the user's side is only carried along for whoever plays it.

use std::str::FromStr;

use segue_core::ids::{FlowName, PhaseName, ToolName};
use segue_core::prompt::{FailureKind, TokenUsage};
use toml::de::DeTable;

use super::scenario_reader::{LineIndex, ScenarioError, ScenarioTable};
use super::scripted_reply::{ReplyBehavior, ReplyBody, ReplyConditions, ScriptedReply, ScriptedToolCall};
use crate::limits::{SCENARIO_BYTES_MAX, SCENARIO_ENTRIES_MAX};

const TOP_KEYS: [&str; 4] = ["scenario", "say", "reply", "default"];
const SCENARIO_KEYS: [&str; 3] = ["name", "flow", "description"];
const MESSAGE_KEYS: [&str; 7] =
    ["text", "expect_reply", "expect_contains", "expect_lacks", "expect_phase", "expect_calls", "expect_failure"];
const CONDITION_KEYS: [&str; 13] = [
    "role",
    "ask",
    "phase",
    "agent",
    "peer",
    "model",
    "turn",
    "attempt",
    "call",
    "contains",
    "pattern",
    "system_contains",
    "times",
];
const BEHAVIOR_KEYS: [&str; 16] = [
    "text",
    "json",
    "chunks",
    "chunk_chars",
    "delay_ms",
    "chunk_delay_ms",
    "reasoning",
    "tool_calls",
    "fail",
    "message",
    "retry_after_ms",
    "fail_after_chunks",
    "hang",
    "usage",
    "stop",
    "raw",
];
const TOOL_KEYS: [&str; 3] = ["name", "arguments", "id"];
const USAGE_KEYS: [&str; 5] = ["input", "output", "cached", "written", "reasoning"];
const STOP_REASON_WORDS: [&str; 4] = ["done", "length", "tools", "filtered"];

/// A scenario file, read and checked.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scenario {
    /// What it is called.
    pub name: Option<String>,
    /// The flow it is for.
    pub flow: Option<FlowName>,
    /// What it shows.
    pub description: Option<String>,
    /// What the user says, in order.
    pub user_messages: Vec<ScenarioMessage>,
    /// The scripted answers, in order.
    pub replies: Vec<ScriptedReply>,
    /// The answer to calls no other entry is for.
    pub default: Option<ScriptedReply>,
}

/// Something the user says, and what should come of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScenarioMessage {
    /// Where in the file; 0 if it does not come from one.
    pub line: usize,
    /// The user's words.
    pub text: String,
    /// What should come of it; nothing is expected unless it is written down.
    pub expect: TurnExpectation,
}

/// What should come of a message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TurnExpectation {
    /// The whole text shown to the user.
    pub reply: Option<String>,
    /// Each of these occurs in the text shown to the user.
    pub contains: Vec<String>,
    /// None of these occurs in it.
    pub lacks: Vec<String>,
    /// The phase after the turn.
    pub phase: Option<PhaseName>,
    /// How many model calls the turn took.
    pub calls: Option<u32>,
    /// How the turn failed.
    pub failure: Option<FailureKind>,
}

impl FromStr for Scenario {
    type Err = ScenarioError;

    fn from_str(text: &str) -> Result<Self, ScenarioError> {
        if text.len() > SCENARIO_BYTES_MAX {
            let message = format!("a scenario of {} bytes is too long; at most {SCENARIO_BYTES_MAX}", text.len());
            return Err(ScenarioError { line: 1, place: None, message });
        }
        let lines = LineIndex::new(text);
        let table = DeTable::parse(text).map_err(|error| ScenarioError {
            line: lines.line_of_byte(error.span().map_or(0, |span| span.start)),
            place: None,
            message: error.message().to_owned(),
        })?;
        let top = ScenarioTable::new(&lines, None, 0, table.get_ref(), &TOP_KEYS)?;
        let mut scenario = Self {
            user_messages: parse_user_messages(&top)?,
            replies: parse_scripted_replies(&top)?,
            ..Self::default()
        };
        if let Some(about) = top.table("scenario", &SCENARIO_KEYS)? {
            scenario.name = about.string("name")?;
            scenario.flow = about.string("flow")?.map(FlowName::from);
            scenario.description = about.string("description")?;
        }
        let keys: Vec<_> = BEHAVIOR_KEYS.into_iter().chain(CONDITION_KEYS).collect();
        if let Some(fields) = top.table("default", &keys)? {
            if let Some(key) = CONDITION_KEYS.into_iter().find(|key| fields.contains_key(key)) {
                return Err(fields.key_error(key, "the default takes no conditions; make it a `[[reply]]`"));
            }
            scenario.default = Some(ScriptedReply {
                line: Some(fields.line()),
                when: ReplyConditions::default(),
                times: None,
                then: parse_behavior(&fields)?,
            });
        }
        Ok(scenario)
    }
}

fn parse_user_messages(top: &ScenarioTable<'_>) -> Result<Vec<ScenarioMessage>, ScenarioError> {
    let says = top.tables("say", &MESSAGE_KEYS, |number| Some(format!("[[say]] {number}")))?;
    check_entry_count(top, "say", says.len())?;
    let read = |fields: &ScenarioTable<'_>| {
        Ok(ScenarioMessage {
            line: fields.line(),
            text: fields.string("text")?.ok_or_else(|| fields.table_error("`text` is missing"))?,
            expect: TurnExpectation {
                reply: fields.string("expect_reply")?,
                contains: fields.strings("expect_contains")?,
                lacks: fields.strings("expect_lacks")?,
                phase: fields.string("expect_phase")?.map(PhaseName::from),
                calls: fields.number("expect_calls")?,
                failure: fields.failure_kind("expect_failure")?,
            },
        })
    };
    says.iter().map(read).collect()
}

fn parse_scripted_replies(top: &ScenarioTable<'_>) -> Result<Vec<ScriptedReply>, ScenarioError> {
    let keys: Vec<_> = BEHAVIOR_KEYS.into_iter().chain(CONDITION_KEYS).collect();
    let replies = top.tables("reply", &keys, |number| Some(format!("[[reply]] {number}")))?;
    check_entry_count(top, "reply", replies.len())?;
    let read = |fields: &ScenarioTable<'_>| {
        let times = fields.number("times")?;
        if times == Some(0) {
            return Err(fields.key_error("times", "an entry that may never be used; leave it out"));
        }
        Ok(ScriptedReply {
            line: Some(fields.line()),
            when: parse_conditions(fields)?,
            times,
            then: parse_behavior(fields)?,
        })
    };
    replies.iter().map(read).collect()
}

fn check_entry_count(top: &ScenarioTable<'_>, key: &str, count: usize) -> Result<(), ScenarioError> {
    if count > SCENARIO_ENTRIES_MAX {
        return Err(
            top.table_error(format!("{count} entries of `[[{key}]]` are too many; at most {SCENARIO_ENTRIES_MAX}"))
        );
    }
    Ok(())
}

fn parse_conditions(fields: &ScenarioTable<'_>) -> Result<ReplyConditions, ScenarioError> {
    Ok(ReplyConditions {
        role: fields.globs("role")?,
        ask: fields.globs("ask")?,
        phase: fields.globs("phase")?,
        agent: fields.globs("agent")?,
        peer: fields.globs("peer")?,
        model: fields.globs("model")?,
        turn: fields.number_range("turn")?,
        attempt: fields.number_range("attempt")?,
        call: fields.number_range("call")?,
        contains: fields.strings("contains")?,
        pattern: fields.glob("pattern")?,
        system_contains: fields.strings("system_contains")?,
    })
}

fn parse_behavior(fields: &ScenarioTable<'_>) -> Result<ReplyBehavior, ScenarioError> {
    let then = ReplyBehavior {
        body: parse_reply_body(fields)?,
        raw: fields.bool("raw")?.unwrap_or_default(),
        chunk_chars: fields.number("chunk_chars")?,
        delay_ms: fields.number("delay_ms")?.unwrap_or_default(),
        chunk_delay_ms: fields.number("chunk_delay_ms")?.unwrap_or_default(),
        reasoning: fields.string("reasoning")?,
        tool_calls: parse_tool_calls(fields)?,
        fail: fields.failure_kind("fail")?,
        fail_after_chunks: fields.number("fail_after_chunks")?,
        message: fields.string("message")?,
        retry_after_ms: fields.number("retry_after_ms")?,
        hang: fields.bool("hang")?.unwrap_or_default(),
        usage: parse_usage(fields)?,
        stop: fields.enum_word("stop", &STOP_REASON_WORDS)?,
    };
    then.validate().map_err(|message| fields.table_error(message))?;
    Ok(then)
}

fn parse_reply_body(fields: &ScenarioTable<'_>) -> Result<ReplyBody, ScenarioError> {
    let given: Vec<_> = ["text", "json", "chunks"].into_iter().filter(|key| fields.contains_key(key)).collect();
    if let [first, second, ..] = given[..] {
        return Err(fields.key_error(second, format!("`{first}` is given already; an entry says one thing")));
    }
    if let Some(text) = fields.string("text")? {
        return Ok(ReplyBody::Text(text));
    }
    if let Some(json) = fields.json("json")? {
        return Ok(ReplyBody::Json(json));
    }
    let chunks = fields.strings("chunks")?;
    Ok(if fields.contains_key("chunks") { ReplyBody::Chunks(chunks) } else { ReplyBody::Empty })
}

fn parse_tool_calls(fields: &ScenarioTable<'_>) -> Result<Vec<ScriptedToolCall>, ScenarioError> {
    let place = fields.table_name().map(str::to_owned);
    let tools = fields.tables("tool_calls", &TOOL_KEYS, |_| place.clone())?;
    let read = |tool: &ScenarioTable<'_>| {
        let name = tool.string("name")?.ok_or_else(|| tool.table_error("a tool call needs a `name`"))?;
        let arguments = tool.json("arguments")?.unwrap_or_else(|| serde_json::json!({}));
        Ok(ScriptedToolCall { id: tool.string("id")?, name: ToolName::from(name), arguments })
    };
    tools.iter().map(read).collect()
}

fn parse_usage(fields: &ScenarioTable<'_>) -> Result<Option<TokenUsage>, ScenarioError> {
    let Some(usage) = fields.table("usage", &USAGE_KEYS)? else { return Ok(None) };
    Ok(Some(TokenUsage {
        input_tokens: usage.number("input")?.unwrap_or_default(),
        output_tokens: usage.number("output")?.unwrap_or_default(),
        cached_tokens: usage.number("cached")?.unwrap_or_default(),
        cache_write_tokens: usage.number("written")?.unwrap_or_default(),
        reasoning_tokens: usage.number("reasoning")?.unwrap_or_default(),
    }))
}
