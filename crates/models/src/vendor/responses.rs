//! OpenAI's responses. Nothing is stored there: the whole conversation is sent each time, as everywhere.

use segue_core::prompt::{Failure, Message, Speaker, Stop, Usage};
use serde_json::{Value, json};

use super::chat::data_url;
use super::pieces::Pieces;
use super::sse::Event;
use super::wire::{Asked, Desk, finish, text, tokens};
use super::{Json, schema};
use crate::model::Chunk;

pub(super) fn body(asked: &Asked<'_>) -> Value {
    let connection = asked.connection;
    let mut body = json!({
        "model": connection.model,
        "stream": true,
        "store": false,
        "max_output_tokens": connection.output_tokens(asked.prompt),
    });
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
    if let Some(effort) = connection.manner.effort {
        let effort = effort.word_for(connection.skills.thinking);
        body["reasoning"] = json!({ "effort": effort, "summary": "auto" });
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
            let words = (!said.is_empty())
                .then(|| json!({ "role": "assistant", "content": [{ "type": "output_text", "text": said }] }));
            let calls = message.tool_calls.iter().map(|call| {
                let (name, arguments) = (asked.names.sent(&call.name), call.arguments.to_string());
                json!({ "type": "function_call", "call_id": call.id, "name": name, "arguments": arguments })
            });
            words.into_iter().chain(calls).collect()
        }
        Speaker::Tool => {
            vec![json!({ "type": "function_call_output", "call_id": message.answers, "output": said })]
        }
    }
}

/// Reads the stream.
pub(super) struct Reader {
    pub desk: Desk,
    pieces: Pieces,
    refused: bool,
}

impl Reader {
    pub fn new(desk: Desk) -> Self {
        Self { desk, pieces: Pieces::default(), refused: false }
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
            "response.failed" => return Err(self.desk.failure(&body["response"])),
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
            Some(_) => Stop::Length,
            None if self.refused => Stop::Filtered,
            None if self.pieces.len() > 0 => Stop::Tools,
            None => Stop::Done,
        };
        out.extend(self.pieces.finish(&self.desk.names));
        out.push(finish(stop, usage(response)));
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
