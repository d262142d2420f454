//! Parses scenario files: the replies of the model, and optionally the user's messages with the expected results. The user's
//! side is only parsed here; test runners play it.

use std::str::FromStr;

use segue_core::ids::{FlowName, PhaseName, ToolName};
use segue_core::prompt::{CallFailureKind, TokenUsage};
use toml::de::DeTable;

use super::scenario_reader::{LineIndex, ScenarioError, ScenarioTable};
use super::scripted_reply::{
    ScriptedReply, ScriptedReplyBehavior, ScriptedReplyBody, ScriptedReplyConditions, ScriptedToolCall,
};
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
const STOP_REASON_WORDS: [&str; 4] = ["done", "length", "tool_calls", "content_filter"];

/// A parsed and validated scenario file.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scenario {
    pub name: Option<String>,
    /// The flow it is written for.
    pub flow: Option<FlowName>,
    pub description: Option<String>,
    /// The user's messages, in order.
    pub user_messages: Vec<ScenarioUserTurn>,
    /// The scripted replies, in order.
    pub replies: Vec<ScriptedReply>,
    /// The reply to calls that no entry matches.
    pub default: Option<ScriptedReply>,
}

/// A user message and the expected result of its turn.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScenarioUserTurn {
    /// Line in the file; 0 if it does not come from one.
    pub line: usize,
    pub text: String,
    /// Nothing is expected unless it is given.
    pub expect: ScenarioTurnExpectation,
}

/// The expected result of a turn.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScenarioTurnExpectation {
    /// The exact text shown to the user.
    pub reply: Option<String>,
    /// Texts that must occur in the text shown to the user.
    pub contains: Vec<String>,
    /// Texts that must not occur in it.
    pub lacks: Vec<String>,
    /// The phase after the turn.
    pub phase: Option<PhaseName>,
    /// The number of model calls in the turn.
    pub calls: Option<u32>,
    /// The failure of the turn.
    pub failure: Option<CallFailureKind>,
}

impl FromStr for Scenario {
    type Err = ScenarioError;

    fn from_str(text: &str) -> Result<Self, ScenarioError> {
        if text.len() > SCENARIO_BYTES_MAX {
            let message = format!("the scenario is too long: {} bytes (limit {SCENARIO_BYTES_MAX})", text.len());
            return Err(ScenarioError { line: 1, table: None, message });
        }
        let lines = LineIndex::new(text);
        let table = DeTable::parse(text).map_err(|error| ScenarioError {
            line: lines.line_of_byte(error.span().map_or(0, |span| span.start)),
            table: None,
            message: error.message().to_owned(),
        })?;
        let top = ScenarioTable::new(&lines, None, 0, table.get_ref(), &TOP_KEYS)?;
        let mut scenario = Self {
            user_messages: parse_user_messages(&top)?,
            replies: parse_scripted_replies(&top)?,
            ..Self::default()
        };
        if let Some(info) = top.table("scenario", &SCENARIO_KEYS)? {
            scenario.name = info.string("name")?;
            scenario.flow = info.string("flow")?.map(FlowName::from);
            scenario.description = info.string("description")?;
        }
        let keys: Vec<_> = BEHAVIOR_KEYS.into_iter().chain(CONDITION_KEYS).collect();
        if let Some(fields) = top.table("default", &keys)? {
            if let Some(key) = CONDITION_KEYS.into_iter().find(|key| fields.contains_key(key)) {
                return Err(fields.key_error(key, "the default takes no conditions; use a `[[reply]]` instead"));
            }
            scenario.default = Some(ScriptedReply {
                line: Some(fields.line()),
                when: ScriptedReplyConditions::default(),
                times: None,
                then: parse_behavior(&fields)?,
            });
        }
        Ok(scenario)
    }
}

fn parse_user_messages(top: &ScenarioTable<'_>) -> Result<Vec<ScenarioUserTurn>, ScenarioError> {
    let messages = top.tables("say", &MESSAGE_KEYS, |number| Some(format!("[[say]] {number}")))?;
    check_entry_count(top, "say", messages.len())?;
    let parse = |fields: &ScenarioTable<'_>| {
        Ok(ScenarioUserTurn {
            line: fields.line(),
            text: fields.string("text")?.ok_or_else(|| fields.table_error("`text` is missing"))?,
            expect: ScenarioTurnExpectation {
                reply: fields.string("expect_reply")?,
                contains: fields.strings("expect_contains")?,
                lacks: fields.strings("expect_lacks")?,
                phase: fields.string("expect_phase")?.map(PhaseName::from),
                calls: fields.number("expect_calls")?,
                failure: fields.failure_kind("expect_failure")?,
            },
        })
    };
    messages.iter().map(parse).collect()
}

fn parse_scripted_replies(top: &ScenarioTable<'_>) -> Result<Vec<ScriptedReply>, ScenarioError> {
    let keys: Vec<_> = BEHAVIOR_KEYS.into_iter().chain(CONDITION_KEYS).collect();
    let replies = top.tables("reply", &keys, |number| Some(format!("[[reply]] {number}")))?;
    check_entry_count(top, "reply", replies.len())?;
    let parse = |fields: &ScenarioTable<'_>| {
        let times = fields.number("times")?;
        if times == Some(0) {
            return Err(fields.key_error("times", "must be at least 1; remove the entry instead"));
        }
        Ok(ScriptedReply {
            line: Some(fields.line()),
            when: parse_conditions(fields)?,
            times,
            then: parse_behavior(fields)?,
        })
    };
    replies.iter().map(parse).collect()
}

fn check_entry_count(top: &ScenarioTable<'_>, key: &str, count: usize) -> Result<(), ScenarioError> {
    if count > SCENARIO_ENTRIES_MAX {
        return Err(top.table_error(format!("too many `[[{key}]]` entries: {count} (limit {SCENARIO_ENTRIES_MAX})")));
    }
    Ok(())
}

fn parse_conditions(fields: &ScenarioTable<'_>) -> Result<ScriptedReplyConditions, ScenarioError> {
    Ok(ScriptedReplyConditions {
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

fn parse_behavior(fields: &ScenarioTable<'_>) -> Result<ScriptedReplyBehavior, ScenarioError> {
    let behavior = ScriptedReplyBehavior {
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
    behavior.validate().map_err(|message| fields.table_error(message))?;
    Ok(behavior)
}

fn parse_reply_body(fields: &ScenarioTable<'_>) -> Result<ScriptedReplyBody, ScenarioError> {
    let given: Vec<_> = ["text", "json", "chunks"].into_iter().filter(|key| fields.contains_key(key)).collect();
    if let [first, second, ..] = given[..] {
        return Err(fields.key_error(
            second,
            format!("`{first}` is already given; an entry can have only one of `text`, `json` and `chunks`"),
        ));
    }
    if let Some(text) = fields.string("text")? {
        return Ok(ScriptedReplyBody::Text(text));
    }
    if let Some(json) = fields.json("json")? {
        return Ok(ScriptedReplyBody::Json(json));
    }
    let chunks = fields.strings("chunks")?;
    Ok(if fields.contains_key("chunks") { ScriptedReplyBody::Chunks(chunks) } else { ScriptedReplyBody::Empty })
}

fn parse_tool_calls(fields: &ScenarioTable<'_>) -> Result<Vec<ScriptedToolCall>, ScenarioError> {
    let table_name = fields.table_name().map(str::to_owned);
    let tools = fields.tables("tool_calls", &TOOL_KEYS, |_| table_name.clone())?;
    let parse = |tool: &ScenarioTable<'_>| {
        let name = tool.string("name")?.ok_or_else(|| tool.table_error("a tool call needs a `name`"))?;
        let arguments = tool.json("arguments")?.unwrap_or_else(|| serde_json::json!({}));
        Ok(ScriptedToolCall { id: tool.string("id")?, name: ToolName::from(name), arguments })
    };
    tools.iter().map(parse).collect()
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
