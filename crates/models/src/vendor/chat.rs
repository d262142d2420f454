//! OpenAI's chat completions, as OpenAI, llama.cpp, vLLM, Ollama, LM Studio, OpenRouter, Groq, DeepSeek, Mistral and many others
//! speak them: each a little differently, so the reader takes what it can get.

use segue_core::prompt::{Failure, FailureKind, Image, Message, PART_SEPARATOR, Speaker, Stop, ToolCall, Usage};
use serde_json::{Map, Value, json};

use super::pieces::Pieces;
use super::sse::Event;
use super::think::Think;
use super::wire::{Asked, Desk, arguments_back, ended_strangely, finish, malformed, result_text, text, tokens};
use super::{Effort, Json, Limit, Thinking, ThoughtsBack, schema, seal};
use crate::model::Chunk;

/// What ends a stream.
const DONE: &str = "[DONE]";
/// Whose seals these are.
const SEAL: &str = "chat";

pub(super) fn body(asked: &Asked<'_>) -> Value {
    let connection = asked.connection;
    let most = match connection.skills.dialect.limit {
        Limit::MaxTokens => "max_tokens",
        Limit::MaxCompletionTokens => "max_completion_tokens",
    };
    let mut body = json!({ "model": connection.model, "stream": true, most: asked.output_tokens() });
    if asked.asks.figures && !connection.skills.dialect.counts_unasked {
        body["stream_options"] = json!({ "include_usage": true });
    }
    let system = asked.openai_system("text", &mut body);
    body["messages"] = json!(messages(asked, system));
    if !asked.prompt.tools.is_empty() {
        let tools = asked.prompt.tools.iter().map(|tool| {
            json!({ "type": "function", "function": {
                "name": asked.names.sent(&tool.name),
                "description": tool.description,
                "parameters": tool.parameters,
            }})
        });
        body["tools"] = tools.collect();
    }
    match (asked.schema(), asked.json) {
        (Some(schema), Json::Schema) => body["response_format"] = response_format(schema),
        (Some(_), Json::Object) => body["response_format"] = json!({ "type": "json_object" }),
        (Some(_), Json::Told) | (None, _) => {}
    }
    if let Some(temperature) = connection.temperature() {
        body["temperature"] = json!(temperature);
    }
    match (connection.manner.effort, connection.skills.thinking) {
        (None, _) | (Some(_), Thinking::None) => {}
        // Where thoughts are wanted back they can also be switched off, by a key of its own.
        (Some(Effort::None), _) if connection.skills.dialect.thoughts_back == ThoughtsBack::ReasoningContent => {
            body["thinking"] = json!({ "type": "disabled" });
        }
        (Some(effort), thinking) => body["reasoning_effort"] = json!(effort.word_for(thinking)),
    }
    body
}

fn response_format(schema: &Value) -> Value {
    let strict = schema::is_strict(schema);
    json!({ "type": "json_schema", "json_schema": { "name": "answer", "schema": schema, "strict": strict } })
}

fn messages(asked: &Asked<'_>, system: Option<Value>) -> Vec<Value> {
    let mut messages: Vec<Value> = system.into_iter().collect();
    for message in asked.prompt.messages.iter().filter(|message| message.speaker != Speaker::System) {
        let Some(next) = one(asked, message) else { continue };
        // Many a model's template insists that user and assistant take turns.
        match messages.last_mut() {
            Some(last) if is_plain(last) && is_plain(&next) && last["role"] == next["role"] => {
                let joined = format!("{}{PART_SEPARATOR}{}", words(last), words(&next));
                last["content"] = json!(joined);
            }
            _ => messages.push(next),
        }
    }
    messages
}

fn is_plain(message: &Value) -> bool {
    message["content"].is_string() && message["role"] != "tool" && message.get("tool_calls").is_none()
}

fn words(message: &Value) -> &str {
    message["content"].as_str().unwrap_or_default()
}

/// A message as it is sent, unless the assistant said nothing in it: some servers refuse that.
fn one(asked: &Asked<'_>, message: &Message) -> Option<Value> {
    let said = message.text();
    Some(match message.speaker {
        Speaker::System | Speaker::User if message.images.is_empty() => json!({ "role": "user", "content": said }),
        Speaker::System | Speaker::User => {
            let words = (!said.is_empty()).then(|| json!({ "type": "text", "text": said }));
            let images = message
                .images
                .iter()
                .map(|image| json!({ "type": "image_url", "image_url": { "url": data_url(image) } }));
            json!({ "role": "user", "content": words.into_iter().chain(images).collect::<Vec<_>>() })
        }
        Speaker::Assistant if message.tool_calls.is_empty() && said.trim().is_empty() => return None,
        Speaker::Assistant if message.tool_calls.is_empty() => json!({ "role": "assistant", "content": said }),
        Speaker::Assistant => {
            let seal = seal::opened(SEAL, asked.connection, message).unwrap_or_default();
            let calls = message.tool_calls.iter().map(|call| {
                let arguments = arguments_back(&call.arguments).to_string();
                let function = json!({ "name": asked.names.sent(&call.name), "arguments": arguments });
                let id = asked.connection.call_id(&call.id);
                let mut sent = json!({ "id": id, "type": "function", "function": function });
                if let Some(extra) = seal["calls"].get(&call.id) {
                    sent["extra_content"] = extra.clone();
                }
                sent
            });
            let content = if said.is_empty() { Value::Null } else { json!(said) };
            let mut sent = json!({ "role": "assistant", "content": content, "tool_calls": calls.collect::<Vec<_>>() });
            for key in [CONTENT, DETAILS] {
                if let Some(thoughts) = seal.get(key) {
                    sent[key] = thoughts.clone();
                }
            }
            sent
        }
        Speaker::Tool => {
            json!({ "role": "tool", "tool_call_id": asked.answered_id(message), "content": result_text(message) })
        }
    })
}

/// An image within an address.
pub(super) fn data_url(image: &Image) -> String {
    format!("data:{};base64,{}", image.media.name(), image.data)
}

/// What a server wants back of its thoughts, under these names.
const CONTENT: &str = "reasoning_content";
const DETAILS: &str = "reasoning_details";

/// Reads the stream.
pub(super) struct Reader {
    pub desk: Desk,
    pieces: Pieces,
    think: Think,
    stop: Option<Stop>,
    pub usage: Option<Usage>,
    /// What is sealed: the thoughts, their details, and what hangs on each call, by its place.
    thoughts: String,
    details: Vec<Value>,
    extras: Vec<(u64, Value)>,
    is_over: bool,
}

impl Reader {
    pub fn new(desk: Desk) -> Self {
        let opens_thoughts = desk.connection.skills.dialect.opens_thoughts;
        Self {
            desk,
            pieces: Pieces::default(),
            think: Think::opened(opens_thoughts),
            stop: None,
            usage: None,
            thoughts: String::new(),
            details: Vec::new(),
            extras: Vec::new(),
            is_over: false,
        }
    }

    pub fn event(&mut self, event: &Event, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        if event.data.trim() == DONE {
            // Whoever says so is done, even without a reason.
            self.stop.get_or_insert(Stop::Done);
            self.end(out);
            return Ok(());
        }
        if event.name == "error" {
            // Whatever it holds, and be it a sentence.
            let body = serde_json::from_str(&event.data).unwrap_or_else(|_| Value::String(event.data.clone()));
            return Err(self.desk.failure(&body));
        }
        let body = self.desk.json(event)?;
        self.read(&body, "/choices/0/delta", out)
    }

    /// The stream is over; it was whole if a reason to stop was given.
    pub fn end(&mut self, out: &mut Vec<Chunk>) {
        let Some(stop) = self.stop.filter(|_| !self.is_over) else { return };
        self.is_over = true;
        self.think.finish(out);
        let stop = if self.pieces.len() > 0 && stop == Stop::Done { Stop::Tools } else { stop };
        let calls = self.pieces.finish(&self.desk.names, &self.desk.ids, stop);
        out.extend(self.seal(&calls));
        out.extend(calls.into_iter().flatten().map(Chunk::ToolCall));
        out.push(finish(stop, self.usage));
    }

    /// What the server wants to see again with these calls.
    fn seal(&mut self, calls: &[Option<ToolCall>]) -> Option<Chunk> {
        let mut content = Map::new();
        match self.desk.connection.skills.dialect.thoughts_back {
            // It misses them even where there were none.
            ThoughtsBack::ReasoningContent => {
                content.insert(CONTENT.to_owned(), json!(std::mem::take(&mut self.thoughts)));
            }
            ThoughtsBack::ReasoningDetails if !self.details.is_empty() => {
                content.insert(DETAILS.to_owned(), json!(std::mem::take(&mut self.details)));
            }
            ThoughtsBack::ReasoningDetails | ThoughtsBack::None => {}
        }
        let extras: Map<String, Value> = std::mem::take(&mut self.extras)
            .into_iter()
            .filter_map(|(place, extra)| Some((calls.get(usize::try_from(place).ok()?)?.as_ref()?.id.clone(), extra)))
            .collect();
        if !extras.is_empty() {
            content.insert("calls".to_owned(), json!(extras));
        }
        let is_wanted = calls.iter().any(Option::is_some) && !content.is_empty();
        is_wanted.then(|| seal::sealed(SEAL, &self.desk.connection, json!(content)))
    }

    pub fn whole(&mut self, body: &Value, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        if body.get("error").is_none_or(Value::is_null) && body.pointer("/choices/0/message").is_none() {
            return Err(self.desk.strange());
        }
        self.read(body, "/choices/0/message", out)?;
        self.stop.get_or_insert(Stop::Done);
        self.end(out);
        Ok(())
    }

    fn read(&mut self, body: &Value, place: &str, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        if body.get("error").is_some_and(|error| !error.is_null()) {
            return Err(self.desk.failure(body));
        }
        self.usage = usage(body).or(self.usage);
        if let Some(said) = body.pointer(place) {
            self.said(said, out)?;
        }
        if let Some(reason) = text(body, "/choices/0/finish_reason") {
            let refused = self.stop == Some(Stop::Filtered);
            let reason = stop(reason, &self.desk)?;
            self.stop = Some(if refused { Stop::Filtered } else { reason });
        }
        Ok(())
    }

    fn said(&mut self, said: &Value, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        for key in ["/reasoning_content", "/reasoning"] {
            if let Some(thought) = text(said, key) {
                self.think.are_told_apart();
                out.push(Chunk::Reasoning(thought.to_owned()));
                self.thoughts.push_str(thought);
                break;
            }
        }
        for detail in said.get(DETAILS).and_then(Value::as_array).into_iter().flatten() {
            add_detail(&mut self.details, detail);
        }
        match said.get("content") {
            Some(Value::String(words)) => self.think.push(words, out),
            // Mistral's way of telling thoughts from words.
            Some(Value::Array(parts)) => parts.iter().for_each(|part| self.part(part, out)),
            _ => {}
        }
        if let Some(refusal) = text(said, "/refusal") {
            self.think.push(refusal, out);
            self.stop = Some(Stop::Filtered);
        }
        let calls = said.get("tool_calls").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for (place, call) in calls.iter().enumerate() {
            let place = call.get("index").and_then(Value::as_u64).unwrap_or(place as u64);
            // Some servers send the arguments as an object after all.
            let whole = call.pointer("/function/arguments").filter(|arguments| arguments.is_object());
            let whole = whole.map(ToString::to_string);
            let arguments = whole.as_deref().or_else(|| text(call, "/function/arguments")).unwrap_or_default();
            self.pieces.add(place, text(call, "/id"), text(call, "/function/name"), arguments)?;
            if let Some(extra) = call.get("extra_content").filter(|extra| extra.is_object()) {
                self.extras.push((self.pieces.len() as u64 - 1, extra.clone()));
            }
        }
        Ok(())
    }

    fn part(&mut self, part: &Value, out: &mut Vec<Chunk>) {
        if let Some(words) = text(part, "/text") {
            self.think.push(words, out);
        }
        for thought in part.get("thinking").and_then(Value::as_array).into_iter().flatten() {
            out.extend(text(thought, "/text").map(|thought| Chunk::Reasoning(thought.to_owned())));
        }
    }
}

/// Adds a piece of what is known of a thought to the piece before it, if both belong together.
fn add_detail(details: &mut Vec<Value>, more: &Value) {
    let same = |last: &Value| {
        ["type", "index", "id"].iter().all(|key| more.get(key).is_none() || last.get(key) == more.get(key))
    };
    let Some(last) = details.last_mut().filter(|last| more.get("index").is_some() && same(last)) else {
        return details.push(more.clone());
    };
    for (key, value) in more.as_object().into_iter().flatten() {
        match (last.get(key).and_then(Value::as_str), value.as_str()) {
            (Some(so_far), Some(words)) if ["text", "summary", "data"].contains(&key.as_str()) => {
                last[key] = json!(format!("{so_far}{words}"));
            }
            _ if value.is_null() => {}
            _ => last[key] = value.clone(),
        }
    }
}

/// What the many servers call the ends of their answers.
fn stop(reason: &str, desk: &Desk) -> Result<Stop, Failure> {
    let provider = &desk.connection.provider;
    match reason.to_ascii_lowercase().as_str() {
        "stop" | "eos" | "eos_token" | "end_turn" | "end_of_turn" | "stop_sequence" | "complete" | "completed"
        | "done" => Ok(Stop::Done),
        "tool_calls" | "tool_call" | "tool_use" | "function_call" => Ok(Stop::Tools),
        "length" | "max_tokens" | "model_length" | "max_length" => Ok(Stop::Length),
        "content_filter" | "safety" | "refusal" => Ok(Stop::Filtered),
        "insufficient_system_resource" => {
            let message = format!("{provider} ran out of room and broke the answer off ({reason})");
            Err(Failure::new(FailureKind::Overload, message))
        }
        "error" | "abort" | "aborted" | "cancelled" => {
            Err(malformed(format!("{provider} broke the answer off ({reason})")))
        }
        _ => Ok(ended_strangely()),
    }
}

/// The figures of a body, wherever this server puts them.
fn usage(body: &Value) -> Option<Usage> {
    let usage =
        [body.get("usage"), body.pointer("/x_groq/usage")].into_iter().flatten().find(|usage| usage.is_object())?;
    let input = tokens(usage, "/prompt_tokens")?;
    let first = |places: &[&str]| places.iter().find_map(|place| tokens(usage, place)).unwrap_or(0);
    let output = first(&["/completion_tokens"]);
    let cached = first(&["/prompt_tokens_details/cached_tokens", "/prompt_cache_hit_tokens", "/cached_tokens"]);
    // llama.cpp tells it among its timings.
    let cached = cached.max(tokens(body, "/timings/cache_n").unwrap_or(0)).min(input);
    let reasoning = first(&["/completion_tokens_details/reasoning_tokens"]);
    // Where thoughts are not counted as part of the answer, only the sum tells.
    let apart = tokens(usage, "/total_tokens") == Some(input.saturating_add(output).saturating_add(reasoning));
    let output = if apart { output.saturating_add(reasoning) } else { output };
    let written = first(&["/prompt_tokens_details/cache_write_tokens"]).min(input - cached);
    Some(Usage { input, output, cached, written, reasoning })
}
