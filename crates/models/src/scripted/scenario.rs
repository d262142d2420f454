//! A scenario: what the model answers, and optionally what the user says and what should come of it. This module reads
//! the file; the user's side is only carried along for whoever plays it.

use std::str::FromStr;

use segue_core::ids::{FlowName, PhaseName, ToolName};
use segue_core::prompt::{FailureKind, Usage};
use toml::de::DeTable;

use super::entry::{Body, Entry, ScriptedTool, Then, When};
use super::reader::{Fields, Lines, ScenarioError};
use crate::limits::{SCENARIO_BYTES_MAX, SCENARIO_ENTRIES_MAX};

const TOP_KEYS: [&str; 4] = ["scenario", "say", "reply", "default"];
const SCENARIO_KEYS: [&str; 3] = ["name", "flow", "description"];
const SAY_KEYS: [&str; 7] =
    ["text", "expect_reply", "expect_contains", "expect_lacks", "expect_phase", "expect_calls", "expect_failure"];
const WHEN_KEYS: [&str; 13] = [
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
const THEN_KEYS: [&str; 16] = [
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
const STOP_WORDS: [&str; 4] = ["done", "length", "tools", "filtered"];

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
    pub says: Vec<Say>,
    /// The scripted answers, in order.
    pub replies: Vec<Entry>,
    /// The answer to calls no other entry is for.
    pub default: Option<Entry>,
}

/// Something the user says, and what should come of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Say {
    /// Where in the file; 0 if it does not come from one.
    pub line: usize,
    /// The user's words.
    pub text: String,
    /// What should come of it; nothing is expected unless it is written down.
    pub expect: Expect,
}

/// What should come of a message.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Expect {
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
        let lines = Lines::of(text);
        let table = DeTable::parse(text).map_err(|error| ScenarioError {
            line: lines.at(error.span().map_or(0, |span| span.start)),
            place: None,
            message: error.message().to_owned(),
        })?;
        let top = Fields::new(&lines, None, 0, table.get_ref(), &TOP_KEYS)?;
        let mut scenario = Self { says: says(&top)?, replies: replies(&top)?, ..Self::default() };
        if let Some(about) = top.table("scenario", &SCENARIO_KEYS)? {
            scenario.name = about.string("name")?;
            scenario.flow = about.string("flow")?.map(FlowName::from);
            scenario.description = about.string("description")?;
        }
        let keys: Vec<_> = THEN_KEYS.into_iter().chain(WHEN_KEYS).collect();
        if let Some(fields) = top.table("default", &keys)? {
            if let Some(key) = WHEN_KEYS.into_iter().find(|key| fields.has(key)) {
                return Err(fields.wrong_value(key, "the default takes no conditions; make it a `[[reply]]`"));
            }
            scenario.default =
                Some(Entry { line: Some(fields.line()), when: When::default(), times: None, then: then(&fields)? });
        }
        Ok(scenario)
    }
}

fn says(top: &Fields<'_>) -> Result<Vec<Say>, ScenarioError> {
    let says = top.tables("say", &SAY_KEYS, |number| Some(format!("[[say]] {number}")))?;
    bounded(top, "say", says.len())?;
    let read = |fields: &Fields<'_>| {
        Ok(Say {
            line: fields.line(),
            text: fields.string("text")?.ok_or_else(|| fields.complain("`text` is missing"))?,
            expect: Expect {
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

fn replies(top: &Fields<'_>) -> Result<Vec<Entry>, ScenarioError> {
    let keys: Vec<_> = THEN_KEYS.into_iter().chain(WHEN_KEYS).collect();
    let replies = top.tables("reply", &keys, |number| Some(format!("[[reply]] {number}")))?;
    bounded(top, "reply", replies.len())?;
    let read = |fields: &Fields<'_>| {
        let times = fields.number("times")?;
        if times == Some(0) {
            return Err(fields.wrong_value("times", "an entry that may never be used; leave it out"));
        }
        Ok(Entry { line: Some(fields.line()), when: when(fields)?, times, then: then(fields)? })
    };
    replies.iter().map(read).collect()
}

fn bounded(top: &Fields<'_>, key: &str, count: usize) -> Result<(), ScenarioError> {
    if count > SCENARIO_ENTRIES_MAX {
        return Err(
            top.complain(format!("{count} entries of `[[{key}]]` are too many; at most {SCENARIO_ENTRIES_MAX}"))
        );
    }
    Ok(())
}

fn when(fields: &Fields<'_>) -> Result<When, ScenarioError> {
    Ok(When {
        role: fields.names("role")?,
        ask: fields.names("ask")?,
        phase: fields.names("phase")?,
        agent: fields.names("agent")?,
        peer: fields.names("peer")?,
        model: fields.names("model")?,
        turn: fields.span("turn")?,
        attempt: fields.span("attempt")?,
        call: fields.span("call")?,
        contains: fields.strings("contains")?,
        pattern: fields.pattern("pattern")?,
        system_contains: fields.strings("system_contains")?,
    })
}

fn then(fields: &Fields<'_>) -> Result<Then, ScenarioError> {
    let then = Then {
        body: body(fields)?,
        raw: fields.bool("raw")?.unwrap_or_default(),
        chunk_chars: fields.number("chunk_chars")?,
        delay_ms: fields.number("delay_ms")?.unwrap_or_default(),
        chunk_delay_ms: fields.number("chunk_delay_ms")?.unwrap_or_default(),
        reasoning: fields.string("reasoning")?,
        tool_calls: tool_calls(fields)?,
        fail: fields.failure_kind("fail")?,
        fail_after_chunks: fields.number("fail_after_chunks")?,
        message: fields.string("message")?,
        retry_after_ms: fields.number("retry_after_ms")?,
        hang: fields.bool("hang")?.unwrap_or_default(),
        usage: usage(fields)?,
        stop: fields.word("stop", &STOP_WORDS)?,
    };
    then.check().map_err(|message| fields.complain(message))?;
    Ok(then)
}

fn body(fields: &Fields<'_>) -> Result<Body, ScenarioError> {
    let given: Vec<_> = ["text", "json", "chunks"].into_iter().filter(|key| fields.has(key)).collect();
    if let [first, second, ..] = given[..] {
        return Err(fields.wrong_value(second, format!("`{first}` is given already; an entry says one thing")));
    }
    if let Some(text) = fields.string("text")? {
        return Ok(Body::Text(text));
    }
    if let Some(json) = fields.json("json")? {
        return Ok(Body::Json(json));
    }
    let chunks = fields.strings("chunks")?;
    Ok(if fields.has("chunks") { Body::Chunks(chunks) } else { Body::Nothing })
}

fn tool_calls(fields: &Fields<'_>) -> Result<Vec<ScriptedTool>, ScenarioError> {
    let place = fields.place().map(str::to_owned);
    let tools = fields.tables("tool_calls", &TOOL_KEYS, |_| place.clone())?;
    let read = |tool: &Fields<'_>| {
        let name = tool.string("name")?.ok_or_else(|| tool.complain("a tool call needs a `name`"))?;
        let arguments = tool.json("arguments")?.unwrap_or_else(|| serde_json::json!({}));
        Ok(ScriptedTool { id: tool.string("id")?, name: ToolName::from(name), arguments })
    };
    tools.iter().map(read).collect()
}

fn usage(fields: &Fields<'_>) -> Result<Option<Usage>, ScenarioError> {
    let Some(usage) = fields.table("usage", &USAGE_KEYS)? else { return Ok(None) };
    Ok(Some(Usage {
        input: usage.number("input")?.unwrap_or_default(),
        output: usage.number("output")?.unwrap_or_default(),
        cached: usage.number("cached")?.unwrap_or_default(),
        written: usage.number("written")?.unwrap_or_default(),
        reasoning: usage.number("reasoning")?.unwrap_or_default(),
    }))
}
