//! OpenAI's responses. Nothing is stored there: the whole conversation is sent each time, as everywhere.

use segue_core::prompt::{Failure, Message, Speaker, Stop, Usage};
use serde_json::{Map, Value, json};

use super::chat::data_url;
use super::pieces::Pieces;
use super::sse::Event;
use super::wire::{Asked, Desk, arguments_back, ended_strangely, finish, result_text, text, tokens};
use super::{Json, Thinking, schema, seal};
use crate::model::Chunk;

/// Whose seals these are.
const SEAL: &str = "responses";

pub(super) fn body(asked: &Asked<'_>) -> Value {
    let connection = asked.connection;
    let mut body = json!({
        "model": connection.model,
        "stream": true,
        "store": false,
        "max_output_tokens": asked.output_tokens(),
    });
    // Nothing is stored there, so thoughts must travel with us; a model that has none refuses to give them.
    let thinks = matches!(connection.skills.thinking, Thinking::Budget | Thinking::Levels) && asked.asks.thoughts;
    if thinks {
        body["include"] = json!(["reasoning.encrypted_content"]);
    }
    let system = asked.openai_system("input_text", &mut body);
    let messages = asked.prompt.messages.iter().filter(|message| message.speaker != Speaker::System);
    let messages = messages.flat_map(|message| items(asked, message));
    body["input"] = system.into_iter().chain(messages).collect();
    if !asked.prompt.tools.is_empty() {
        let tools = asked.prompt.tools.iter().map(|tool| {
            let name = asked.names.sent(&tool.name);
            let (description, parameters) = (&tool.description, &tool.parameters);
            json!({ "type": "function", "name": name, "description": description, "parameters": parameters, "strict": false })
        });
        body["tools"] = tools.collect();
    }
    match (asked.schema(), asked.json) {
        (Some(schema), Json::Schema) => {
            let strict = schema::is_strict(schema);
            let format = json!({ "type": "json_schema", "name": "answer", "schema": schema, "strict": strict });
            body["text"] = json!({ "format": format });
        }
        (Some(_), Json::Object) => body["text"] = json!({ "format": { "type": "json_object" } }),
        (Some(_), Json::Told) | (None, _) => {}
    }
    if let Some(temperature) = connection.temperature() {
        body["temperature"] = json!(temperature);
    }
    let thinking = connection.skills.thinking;
    if let Some(effort) = connection.manner.effort.filter(|_| thinking != Thinking::None && asked.asks.thoughts) {
        body["reasoning"] = json!({ "effort": effort.word_for(thinking) });
        if asked.asks.summaries {
            body["reasoning"]["summary"] = json!("auto");
        }
    }
    body
}

fn items(asked: &Asked<'_>, message: &Message) -> Vec<Value> {
    let said = message.text();
    match message.speaker {
        Speaker::System | Speaker::User => {
            let words = (!said.is_empty()).then(|| json!({ "type": "input_text", "text": said }));
            let images =
                message.images.iter().map(|image| json!({ "type": "input_image", "image_url": data_url(image) }));
            vec![json!({ "role": "user", "content": words.into_iter().chain(images).collect::<Vec<_>>() })]
        }
        Speaker::Assistant => {
            if let Some(sealed) = sealed(asked, message) {
                return sealed;
            }
            let words = (!said.is_empty())
                .then(|| json!({ "role": "assistant", "content": [{ "type": "output_text", "text": said }] }));
            let calls = message.tool_calls.iter().map(|call| {
                let (name, id) = (asked.names.sent(&call.name), asked.connection.call_id(&call.id));
                let arguments = arguments_back(&call.arguments).to_string();
                json!({ "type": "function_call", "call_id": id, "name": name, "arguments": arguments })
            });
            words.into_iter().chain(calls).collect()
        }
        Speaker::Tool => {
            let id = asked.answered_id(message);
            vec![json!({ "type": "function_call_output", "call_id": id, "output": result_text(message) })]
        }
    }
}

/// What the model said, thought and called, in its own order.
fn sealed(asked: &Asked<'_>, message: &Message) -> Option<Vec<Value>> {
    let Value::Array(mut items) = seal::opened(SEAL, asked.connection, message)? else { return None };
    items.retain(|item| item["type"] != "function_call" || seal::is_kept(message, text(item, "/call_id")));
    let mut calls = 0;
    for call in items.iter_mut().filter(|item| item["type"] == "function_call") {
        calls += 1;
        call["call_id"] = json!(asked.connection.call_id(text(call, "/call_id").unwrap_or_default()));
    }
    (calls == message.tool_calls.len()).then_some(items)
}

/// An item as it is sent back: without what only its maker knows how to read, but for the thoughts.
fn kept(item: &Value) -> Option<Value> {
    let only = |keys: &[&str]| -> Value {
        keys.iter().filter_map(|key| Some(((*key).to_owned(), item.get(key)?.clone()))).collect::<Map<_, _>>().into()
    };
    match text(item, "/type")? {
        "reasoning" if text(item, "/encrypted_content").is_some() => {
            let mut thought = only(&["type", "id", "summary", "encrypted_content"]);
            if thought.get("summary").is_none() {
                thought["summary"] = json!([]);
            }
            Some(thought)
        }
        "function_call" => Some(only(&["type", "call_id", "name", "arguments"])),
        "message" => {
            let parts = item["content"].as_array().into_iter().flatten();
            let words = parts
                .filter_map(|part| text(part, "/text"))
                .map(|words| json!({ "type": "output_text", "text": words }));
            Some(json!({ "role": "assistant", "content": words.collect::<Vec<_>>() }))
        }
        _ => None,
    }
}

/// Reads the stream.
pub(super) struct Reader {
    pub desk: Desk,
    pieces: Pieces,
    /// What is sealed.
    items: Vec<Value>,
    refused: bool,
    pub usage: Option<Usage>,
}

impl Reader {
    pub fn new(desk: Desk) -> Self {
        Self { desk, pieces: Pieces::default(), items: Vec::new(), refused: false, usage: None }
    }

    pub fn event(&mut self, event: &Event, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        let body = self.desk.json(event)?;
        let kind = text(&body, "/type").unwrap_or(&event.name);
        let delta = || text(&body, "/delta").map(str::to_owned);
        match kind {
            "response.output_text.delta" => out.extend(delta().map(Chunk::Text)),
            "response.refusal.delta" => {
                self.refused = true;
                out.extend(delta().map(Chunk::Text));
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                out.extend(delta().map(Chunk::Reasoning));
            }
            // Parts of a summary come without anything between them.
            "response.reasoning_summary_part.added" if body["summary_index"].as_u64().unwrap_or(0) > 0 => {
                out.push(Chunk::Reasoning("\n\n".to_owned()));
            }
            "response.output_item.done" => self.item(&body["item"])?,
            "response.completed" | "response.incomplete" | "response.done" => self.finish(&body["response"], out),
            "response.failed" => {
                self.usage = usage(&body["response"]);
                return Err(self.desk.failure(&body["response"]));
            }
            "error" => return Err(self.desk.failure(&body)),
            _ => {}
        }
        Ok(())
    }

    /// An answer in one piece.
    pub fn whole(&mut self, body: &Value, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        if body.get("error").is_some_and(|error| !error.is_null()) {
            return Err(self.desk.failure(body));
        }
        let Some(items) = body.get("output").and_then(Value::as_array) else { return Err(self.desk.strange()) };
        for item in items {
            if item["type"] == "reasoning" {
                let parts = ["summary", "content"].iter().filter_map(|key| item[key].as_array()).flatten();
                let thoughts = parts.filter_map(|part| text(part, "/text")).collect::<Vec<_>>().join("\n\n");
                out.extend((!thoughts.is_empty()).then_some(Chunk::Reasoning(thoughts)));
                self.item(item)?;
                continue;
            }
            for part in item["content"].as_array().into_iter().flatten() {
                self.refused |= part["type"] == "refusal";
                let words = text(part, "/text").or_else(|| text(part, "/refusal"));
                out.extend(words.map(|words| Chunk::Text(words.to_owned())));
            }
            self.item(item)?;
        }
        self.finish(body, out);
        Ok(())
    }

    fn item(&mut self, item: &Value) -> Result<(), Failure> {
        self.items.extend(kept(item));
        if item["type"] != "function_call" {
            return Ok(());
        }
        let place = self.pieces.len() as u64;
        let arguments = text(item, "/arguments").unwrap_or_default();
        self.pieces.add(place, text(item, "/call_id"), text(item, "/name"), arguments)
    }

    fn finish(&mut self, response: &Value, out: &mut Vec<Chunk>) {
        let stop = match text(response, "/incomplete_details/reason") {
            Some("content_filter") => Stop::Filtered,
            Some("max_output_tokens") => Stop::Length,
            Some(_) => ended_strangely(),
            None if text(response, "/status").is_some_and(|status| status != "completed") => ended_strangely(),
            None if self.refused => Stop::Filtered,
            None if self.pieces.len() > 0 => Stop::Tools,
            None => Stop::Done,
        };
        self.usage = usage(response);
        let mut calls = self.pieces.finish(&self.desk.names, &self.desk.ids, stop);
        calls.retain(Option::is_some);
        let thought = self.items.iter().any(|item| item["type"] == "reasoning");
        if !calls.is_empty() && thought {
            out.push(seal::sealed(SEAL, &self.desk.connection, json!(std::mem::take(&mut self.items))));
        }
        out.extend(calls.into_iter().flatten().map(Chunk::ToolCall));
        out.push(finish(stop, self.usage));
    }
}

fn usage(response: &Value) -> Option<Usage> {
    let usage = response.get("usage")?;
    let input = tokens(usage, "/input_tokens")?;
    let at = |place: &str| tokens(usage, place).unwrap_or(0);
    let cached = at("/input_tokens_details/cached_tokens").min(input);
    Some(Usage {
        input,
        output: at("/output_tokens"),
        cached,
        written: at("/input_tokens_details/cache_write_tokens").min(input - cached),
        reasoning: at("/output_tokens_details/reasoning_tokens"),
    })
}
