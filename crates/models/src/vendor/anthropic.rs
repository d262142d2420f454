//! Anthropic's messages. What is cached there is marked by us: the instructions, the end of the last prompt, and the end of this one if
//! another will begin with it.

use std::collections::BTreeMap;

use segue_core::prompt::{Failure, Message, Speaker, Stop, ToolCall, Usage};
use serde_json::{Value, json};

use super::names::Names;
use super::pieces::Pieces;
use super::sse::Event;
use super::wire::{Asked, Desk, arguments_back, ended_strangely, finish, text, tokens};
use super::{Effort, Json, Thinking, schema, seal};
use crate::model::{Chunk, Growth};

/// The version of the format.
pub(super) const VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");
/// Whose seals these are.
const SEAL: &str = "anthropic";

pub(super) fn body(asked: &Asked<'_>) -> Value {
    let connection = asked.connection;
    let mut messages = messages(asked);
    let mut system: Vec<Value> =
        asked.system().map(|text| json!({ "type": "text", "text": text })).into_iter().collect();
    let mut tools: Vec<Value> = asked
        .prompt
        .tools
        .iter()
        .map(|tool| {
            let name = asked.names.sent(&tool.name);
            json!({ "name": name, "description": tool.description, "input_schema": tool.parameters })
        })
        .collect();
    if messages.is_empty() {
        // Somebody must be spoken to; instructions alone are then what is said.
        let said = std::mem::take(&mut system);
        messages.push(json!({ "role": "user", "content": said }));
    }
    mark(&mut tools, &mut system, &mut messages, asked.growth);
    let mut body = json!({
        "model": connection.model,
        "max_tokens": asked.output_tokens(),
        "stream": true,
        "messages": messages,
    });
    if !system.is_empty() {
        body["system"] = json!(system);
    }
    if !tools.is_empty() {
        body["tools"] = json!(tools);
    }
    if let (Some(schema), Json::Schema) = (asked.schema(), asked.json)
        && let Some(schema) = schema::for_anthropic(schema)
    {
        body["output_config"]["format"] = json!({ "type": "json_schema", "schema": schema });
    }
    match (connection.manner.effort, connection.skills.thinking) {
        (Some(effort), Thinking::Levels) => {
            // Most of them cannot do without.
            let level = if effort == Effort::None { Effort::Low } else { effort };
            body["output_config"]["effort"] = json!(level.word());
            body["thinking"] = json!({ "type": "adaptive", "display": "summarized" });
        }
        (None | Some(Effort::None), _) | (Some(_), Thinking::None) => {}
        (Some(effort), Thinking::Budget | Thinking::Unknown) => {
            let tokens = connection.thought_tokens(effort, asked.output_tokens(), asked.prompt.reply_tokens_max);
            if let Some(tokens) = tokens.filter(|_| may_think(asked)) {
                body["thinking"] = json!({ "type": "enabled", "budget_tokens": tokens });
            }
        }
    }
    if let Some(temperature) = connection.temperature() {
        body["temperature"] = json!(temperature);
    }
    body
}

/// Sets the marks up to which the vendor keeps what it has read. At most four are allowed; three are of use.
fn mark(tools: &mut [Value], system: &mut [Value], messages: &mut [Value], growth: Growth) {
    if let Some(last) = system.last_mut().or(tools.last_mut()) {
        breakpoint(last);
    }
    if growth == Growth::Ends {
        return;
    }
    let last_user = messages.len().checked_sub(1);
    // Where the prompt before this one ended: the user's message before the last.
    let before = messages.len().checked_sub(3).filter(|place| messages[*place]["role"] == "user");
    for place in [before, last_user].into_iter().flatten() {
        if let Some(last) = messages[place]["content"].as_array_mut().and_then(|blocks| blocks.last_mut()) {
            breakpoint(last);
        }
    }
}

fn breakpoint(block: &mut Value) {
    block["cache_control"] = json!({ "type": "ephemeral" });
}

/// User and assistant in turn; what a tool returned is the user's.
fn messages(asked: &Asked<'_>) -> Vec<Value> {
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    let last_asked = asked.prompt.messages.iter().rposition(|message| message.speaker == Speaker::User);
    let messages = asked.prompt.messages.iter().enumerate();
    for (place, message) in messages.filter(|(_, message)| message.speaker != Speaker::System) {
        let role = if message.speaker == Speaker::Assistant { "assistant" } else { "user" };
        // Thoughts are bound to the tools and the words before them, so they go back only while the round they began is open.
        let is_open = last_asked.is_none_or(|asked| place > asked);
        let blocks = blocks(asked, message, is_open);
        match turns.last_mut() {
            _ if blocks.is_empty() => {}
            Some((last, said)) if *last == role => said.extend(blocks),
            _ => turns.push((role, blocks)),
        }
    }
    turns.into_iter().map(|(role, content)| json!({ "role": role, "content": content })).collect()
}

fn blocks(asked: &Asked<'_>, message: &Message, is_open: bool) -> Vec<Value> {
    let said = message.text();
    if message.speaker == Speaker::Tool {
        let mut result = json!({ "type": "tool_result", "tool_use_id": asked.answered_id(message), "content": said });
        if message.failed {
            result["is_error"] = json!(true);
        }
        return vec![result];
    }
    let images = message.images.iter().map(|image| {
        let source = json!({ "type": "base64", "media_type": image.media.name(), "data": &*image.data });
        json!({ "type": "image", "source": source })
    });
    if let Some(sealed) = sealed(asked, message, is_open) {
        return sealed;
    }
    // A text of blanks only is refused.
    let words = (!said.trim().is_empty()).then(|| json!({ "type": "text", "text": said }));
    let calls = message.tool_calls.iter().map(|call| allowed(asked, tool_use(asked.names, call)));
    images.chain(words).chain(calls).collect()
}

fn tool_use(names: &Names, call: &ToolCall) -> Value {
    let input = arguments_back(&call.arguments);
    json!({ "type": "tool_use", "id": call.id, "name": names.sent(&call.name), "input": input })
}

/// A call with an id that the vendor takes.
fn allowed(asked: &Asked<'_>, mut call: Value) -> Value {
    call["id"] = json!(asked.connection.call_id(text(&call, "/id").unwrap_or_default()));
    call
}

/// Whether the round that is open, if one is, began with a thought of this model: thinking cannot be switched on in the middle of one.
fn may_think(asked: &Asked<'_>) -> bool {
    let open = asked.prompt.messages.iter().rev().take_while(|message| message.speaker != Speaker::User);
    let mut is_first_thought_through = true;
    for message in open.filter(|message| !message.tool_calls.is_empty()) {
        let Some(blocks) = sealed(asked, message, true) else { return false };
        let is_thought = |block: &Value| matches!(text(block, "/type"), Some("thinking" | "redacted_thinking"));
        is_first_thought_through = blocks.first().is_some_and(is_thought);
    }
    is_first_thought_through
}

/// What the model thought, said and called, in its own order.
fn sealed(asked: &Asked<'_>, message: &Message, is_open: bool) -> Option<Vec<Value>> {
    let Value::Array(mut blocks) = seal::opened(SEAL, asked.connection, message)? else { return None };
    blocks.retain(|block| match text(block, "/type") {
        Some("tool_use") => seal::is_kept(message, text(block, "/id")),
        Some("text") => true,
        _ => is_open,
    });
    let calls = blocks.iter().filter(|block| block["type"] == "tool_use").count();
    let is_whole = calls > 0 && calls == message.tool_calls.len();
    let sent = |block: Value| if block["type"] == "tool_use" { allowed(asked, block) } else { block };
    is_whole.then(|| blocks.into_iter().map(sent).collect())
}

/// Reads the stream.
pub(super) struct Reader {
    pub desk: Desk,
    pieces: Pieces,
    /// By their places.
    blocks: BTreeMap<u64, Block>,
    stop: Option<Stop>,
    usage: Usage,
}

/// A piece of the answer on its way.
enum Block {
    Thought(Thought),
    Words(String),
    /// The next of the calls.
    Call,
}

/// A thought on its way.
struct Thought {
    block: Value,
    thinking: String,
    signature: String,
}

impl Thought {
    fn begun(block: &Value) -> Self {
        let at = |key: &str| text(block, key).unwrap_or_default().to_owned();
        Self { block: block.clone(), thinking: at("/thinking"), signature: at("/signature") }
    }

    /// The thought as it must be sent back.
    fn whole(&self) -> Value {
        let mut block = self.block.clone();
        // One that nobody may read has neither.
        if block["type"] == "thinking" {
            block["thinking"] = json!(self.thinking);
            block["signature"] = json!(self.signature);
        }
        block
    }
}

impl Reader {
    pub fn new(desk: Desk) -> Self {
        Self { desk, pieces: Pieces::default(), blocks: BTreeMap::new(), stop: None, usage: Usage::default() }
    }

    /// The figures so far.
    pub fn usage(&self) -> Option<Usage> {
        (self.usage != Usage::default()).then_some(self.usage)
    }

    pub fn event(&mut self, event: &Event, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        let body = self.desk.json(event)?;
        match text(&body, "/type").unwrap_or(&event.name) {
            "message_start" => self.count(body.pointer("/message/usage")),
            "content_block_start" => self.begin(&body, out)?,
            "content_block_delta" => self.go_on(&body, out)?,
            "message_delta" => {
                self.count(body.get("usage"));
                self.stop = text(&body, "/delta/stop_reason").map(stop).or(self.stop);
            }
            "message_stop" => self.finish(out),
            "error" => return Err(self.desk.failure(&body)),
            _ => {}
        }
        Ok(())
    }

    fn begin(&mut self, body: &Value, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        let block = &body["content_block"];
        let place = body["index"].as_u64().unwrap_or(0);
        match text(block, "/type") {
            Some("text") => {
                self.blocks.insert(place, Block::Words(String::new()));
                self.say(place, text(block, "/text"), out);
            }
            Some("tool_use") => {
                self.blocks.insert(place, Block::Call);
                self.pieces.add(place, text(block, "/id"), text(block, "/name"), "")?;
            }
            Some("thinking" | "redacted_thinking") => {
                self.blocks.insert(place, Block::Thought(Thought::begun(block)));
            }
            _ => {}
        }
        Ok(())
    }

    fn say(&mut self, place: u64, words: Option<&str>, out: &mut Vec<Chunk>) {
        let Some(words) = words else { return };
        if let Some(Block::Words(said)) = self.blocks.get_mut(&place) {
            said.push_str(words);
        }
        out.push(Chunk::Text(words.to_owned()));
    }

    fn go_on(&mut self, body: &Value, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        let delta = &body["delta"];
        let place = body["index"].as_u64().unwrap_or(0);
        match text(delta, "/type") {
            Some("text_delta") => self.say(place, text(delta, "/text"), out),
            Some("input_json_delta") => {
                self.pieces.add(place, None, None, text(delta, "/partial_json").unwrap_or_default())?;
            }
            Some("thinking_delta") => {
                let thought = text(delta, "/thinking").unwrap_or_default();
                if let Some(Block::Thought(current)) = self.blocks.get_mut(&place) {
                    current.thinking.push_str(thought);
                }
                out.push(Chunk::Reasoning(thought.to_owned()));
            }
            Some("signature_delta") => {
                if let Some(Block::Thought(current)) = self.blocks.get_mut(&place) {
                    current.signature.push_str(text(delta, "/signature").unwrap_or_default());
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The figures come in two parts; what comes later is the total, and what does not come again holds.
    fn count(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage else { return };
        let at = |key: &str| tokens(usage, key);
        if let Some(fresh) = at("/input_tokens") {
            let read = at("/cache_read_input_tokens").unwrap_or(self.usage.cached);
            let written = at("/cache_creation_input_tokens").unwrap_or(self.usage.written);
            self.usage.input = fresh.saturating_add(read).saturating_add(written);
            (self.usage.cached, self.usage.written) = (read, written);
        }
        self.usage.output = at("/output_tokens").unwrap_or(self.usage.output);
    }

    fn finish(&mut self, out: &mut Vec<Chunk>) {
        let stop = self.stop.unwrap_or(if self.pieces.len() > 0 { Stop::Tools } else { Stop::Done });
        let calls = self.pieces.finish(&self.desk.names, &self.desk.ids, stop);
        if calls.iter().any(Option::is_some) {
            out.push(self.seal(&calls));
        }
        out.extend(calls.into_iter().flatten().map(Chunk::ToolCall));
        out.push(finish(stop, self.usage()));
    }

    /// The whole answer, in its order.
    fn seal(&self, calls: &[Option<ToolCall>]) -> Chunk {
        let mut calls = calls.iter();
        let blocks = self.blocks.values().filter_map(|block| match block {
            Block::Thought(thought) => Some(thought.whole()),
            // A text of blanks only is refused.
            Block::Words(words) => (!words.trim().is_empty()).then(|| json!({ "type": "text", "text": words })),
            Block::Call => calls.next()?.as_ref().map(|call| tool_use(&self.desk.names, call)),
        });
        seal::sealed(SEAL, &self.desk.connection, blocks.collect())
    }
}

fn stop(reason: &str) -> Stop {
    match reason {
        "max_tokens" | "model_context_window_exceeded" => Stop::Length,
        "tool_use" => Stop::Tools,
        "refusal" => Stop::Filtered,
        "end_turn" | "stop_sequence" => Stop::Done,
        _ => ended_strangely(),
    }
}
