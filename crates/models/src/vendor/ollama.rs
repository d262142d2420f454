//! Ollama's own format: one JSON to a line. It is spoken rather than chat completions since only here the window can be asked for, and a prompt
//! that does not fit can be had refused: otherwise its beginning is cut off without a word.

use segue_core::prompt::{Failure, Message, Speaker, Stop, ToolCall, Usage};
use serde_json::{Value, json};

use super::pieces::Pieces;
use super::sse::Event;
use super::think::Think;
use super::wire::{Asked, Desk, arguments_back, ended_strangely, finish, result_text, text, tokens};
use super::{Effort, Json, Thinking, seal};
use crate::model::Chunk;

/// Whose seals these are.
const SEAL: &str = "ollama";

/// The server without the place where it speaks like OpenAI.
pub(crate) fn root(base_url: &str) -> &str {
    let base_url = base_url.strip_suffix("/api").unwrap_or(base_url);
    base_url.strip_suffix("/v1").unwrap_or(base_url)
}

pub(super) fn body(asked: &Asked<'_>) -> Value {
    let connection = asked.connection;
    let mut options = json!({ "num_ctx": connection.skills.window_tokens, "num_predict": asked.output_tokens() });
    if let Some(temperature) = connection.temperature() {
        options["temperature"] = json!(temperature);
    }
    let system = asked.system().map(|system| json!({ "role": "system", "content": system }));
    let spoken = asked.prompt.messages.iter().enumerate().filter(|(_, message)| message.speaker != Speaker::System);
    let spoken = spoken.filter_map(|(place, message)| one(asked, &asked.prompt.messages[..place], message));
    let mut body = json!({
        "model": connection.model,
        "stream": true,
        "truncate": false,
        "shift": false,
        "options": options,
        "messages": system.into_iter().chain(spoken).collect::<Vec<_>>(),
    });
    if !asked.prompt.tools.is_empty() {
        let tools = asked.prompt.tools.iter().map(|tool| {
            let name = asked.names.sent(&tool.name);
            let function = json!({ "name": name, "description": tool.description, "parameters": tool.parameters });
            json!({ "type": "function", "function": function })
        });
        body["tools"] = tools.collect();
    }
    match (asked.schema(), asked.json) {
        (Some(schema), Json::Schema) => body["format"] = schema.clone(),
        (Some(_), Json::Object) => body["format"] = json!("json"),
        (Some(_), Json::Told) | (None, _) => {}
    }
    match (connection.manner.effort, connection.skills.thinking) {
        (None, _) | (Some(_), Thinking::None) => {}
        (Some(Effort::None), Thinking::Levels) => body["think"] = json!(Effort::Low.word()),
        (Some(effort), Thinking::Levels) => body["think"] = json!(effort.word()),
        (Some(effort), Thinking::Budget | Thinking::Unknown) => body["think"] = json!(effort != Effort::None),
    }
    body
}

/// A message as it is sent, unless the assistant said nothing in it.
fn one(asked: &Asked<'_>, before: &[Message], message: &Message) -> Option<Value> {
    let said = message.text();
    Some(match message.speaker {
        Speaker::System | Speaker::User => {
            let mut sent = json!({ "role": "user", "content": said });
            if !message.images.is_empty() {
                sent["images"] = message.images.iter().map(|image| json!(&*image.data)).collect();
            }
            sent
        }
        Speaker::Assistant if message.tool_calls.is_empty() && said.trim().is_empty() => return None,
        Speaker::Assistant => {
            let mut sent = json!({ "role": "assistant", "content": said });
            if !message.tool_calls.is_empty() {
                sent["tool_calls"] = message.tool_calls.iter().map(|call| called(asked, call)).collect();
                if let Some(thoughts) = seal::opened(SEAL, asked.connection, message) {
                    sent["thinking"] = thoughts;
                }
            }
            sent
        }
        Speaker::Tool => {
            let calls = before.iter().rev().flat_map(|message| &message.tool_calls);
            let call = calls.into_iter().find(|call| Some(&call.id) == message.answers.as_ref());
            let name = call.map(|call| asked.names.sent(&call.name)).unwrap_or_default();
            let content = result_text(message);
            json!({ "role": "tool", "tool_name": name, "tool_call_id": message.answers, "content": content })
        }
    })
}

fn called(asked: &Asked<'_>, call: &ToolCall) -> Value {
    let arguments = arguments_back(&call.arguments);
    json!({ "id": call.id, "function": { "name": asked.names.sent(&call.name), "arguments": arguments } })
}

/// Reads the stream.
pub(super) struct Reader {
    pub desk: Desk,
    pieces: Pieces,
    think: Think,
    thoughts: String,
    pub usage: Option<Usage>,
}

impl Reader {
    pub fn new(desk: Desk) -> Self {
        Self { desk, pieces: Pieces::default(), think: Think::default(), thoughts: String::new(), usage: None }
    }

    pub fn event(&mut self, event: &Event, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        let body = self.desk.json(event)?;
        self.read(&body, out)
    }

    /// An answer in one piece.
    pub fn whole(&mut self, body: &Value, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        if body.get("error").is_none() && body.get("message").is_none() {
            return Err(self.desk.strange());
        }
        self.read(body, out)
    }

    fn read(&mut self, body: &Value, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        if body.get("error").is_some_and(|error| !error.is_null()) {
            return Err(self.desk.failure(body));
        }
        if let Some(thought) = text(body, "/message/thinking") {
            self.thoughts.push_str(thought);
            out.push(Chunk::Reasoning(thought.to_owned()));
        }
        if let Some(words) = text(body, "/message/content") {
            self.think.push(words, out);
        }
        for call in body.pointer("/message/tool_calls").and_then(Value::as_array).into_iter().flatten() {
            // Each comes whole, and their places are not to be relied on.
            let arguments = call.pointer("/function/arguments");
            let arguments = arguments.map(|given| given.as_str().map_or_else(|| given.to_string(), str::to_owned));
            let place = self.pieces.len() as u64;
            self.pieces.add(
                place,
                text(call, "/id"),
                text(call, "/function/name"),
                arguments.as_deref().unwrap_or("{}"),
            )?;
        }
        if body["done"].as_bool().unwrap_or(false) {
            self.end(body, out);
        }
        Ok(())
    }

    fn end(&mut self, body: &Value, out: &mut Vec<Chunk>) {
        self.usage = usage(body);
        self.think.finish(out);
        let stop = match text(body, "/done_reason") {
            Some("length") => Stop::Length,
            Some(other) if other != "stop" => ended_strangely(),
            _ if self.pieces.len() > 0 => Stop::Tools,
            _ => Stop::Done,
        };
        let calls = self.pieces.finish(&self.desk.names, &self.desk.ids, stop);
        if calls.iter().any(Option::is_some) && !self.thoughts.is_empty() {
            let thoughts = std::mem::take(&mut self.thoughts);
            out.push(seal::sealed(SEAL, &self.desk.connection, json!(thoughts)));
        }
        out.extend(calls.into_iter().flatten().map(Chunk::ToolCall));
        out.push(finish(stop, self.usage));
    }
}

/// What was cached is not told.
fn usage(body: &Value) -> Option<Usage> {
    let output = tokens(body, "/eval_count").unwrap_or(0);
    let input = tokens(body, "/prompt_eval_count")?;
    Some(Usage { input, output, ..Usage::default() })
}
