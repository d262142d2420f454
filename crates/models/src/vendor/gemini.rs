//! Google's Gemini. Not all of its function calls have ids, so an answer is also matched to a call by the place of both; its thoughts
//! carry signatures that it wants to see again.

use std::collections::BTreeMap;

use segue_core::prompt::{Failure, FailureKind, Message, Speaker, Stop, Usage};
use serde_json::{Map, Value, json};

use super::pieces::Pieces;
use super::sse::Event;
use super::wire::{Asked, Desk, arguments_back, ended_strangely, finish, malformed, text, tokens};
use super::{Effort, Json, Thinking, seal};
use crate::model::Chunk;

/// Whose seals these are.
const SEAL: &str = "gemini";
/// What stands for the signature of a call that another vendor's model made.
const UNSIGNED: &str = "skip_thought_signature_validator";

pub(super) fn body(asked: &Asked<'_>) -> Value {
    let connection = asked.connection;
    let mut contents = contents(asked);
    let mut system = asked.system();
    if contents.is_empty() {
        // Somebody must be spoken to; instructions alone are then what is said.
        let said = system.take().unwrap_or_default();
        contents.push(json!({ "role": "user", "parts": [{ "text": said }] }));
    }
    let mut body = json!({ "contents": contents, "generationConfig": settings(asked) });
    if let Some(system) = system {
        body["systemInstruction"] = json!({ "parts": [{ "text": system }] });
    }
    if !asked.prompt.tools.is_empty() {
        let declared = asked.prompt.tools.iter().map(|tool| {
            let name = asked.names.sent(&tool.name);
            json!({ "name": name, "description": tool.description, "parametersJsonSchema": tool.parameters })
        });
        body["tools"] = json!([{ "functionDeclarations": declared.collect::<Vec<_>>() }]);
    }
    if let Some(temperature) = connection.temperature() {
        body["generationConfig"]["temperature"] = json!(temperature);
    }
    body
}

fn settings(asked: &Asked<'_>) -> Value {
    let connection = asked.connection;
    let mut settings = json!({ "maxOutputTokens": asked.output_tokens() });
    if let Some(schema) = asked.schema() {
        if asked.json != Json::Told {
            settings["responseMimeType"] = json!("application/json");
        }
        if asked.json == Json::Schema {
            settings["responseJsonSchema"] = schema.clone();
        }
    }
    match (connection.manner.effort, connection.skills.thinking) {
        (Some(effort), Thinking::Levels) => {
            // None of them can do without.
            let level = if effort == Effort::None { Effort::Low } else { effort };
            settings["thinkingConfig"] = json!({ "thinkingLevel": level.word(), "includeThoughts": true });
        }
        (None, _) | (Some(_), Thinking::None) => {}
        // Some of them cannot do without.
        (Some(Effort::None), Thinking::Budget | Thinking::Unknown) => {
            settings["thinkingConfig"] = json!({ "thinkingBudget": connection.skills.thought_tokens_min });
        }
        (Some(effort), Thinking::Budget | Thinking::Unknown) => {
            let tokens = effort.tokens().max(connection.skills.thought_tokens_min);
            settings["thinkingConfig"] = json!({ "thinkingBudget": tokens, "includeThoughts": true });
        }
    }
    settings
}

fn contents(asked: &Asked<'_>) -> Vec<Value> {
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    let messages = &asked.prompt.messages;
    for (place, message) in messages.iter().enumerate().filter(|(_, message)| message.speaker != Speaker::System) {
        let role = if message.speaker == Speaker::Assistant { "model" } else { "user" };
        let parts = parts(asked, &messages[..place], message);
        match turns.last_mut() {
            _ if parts.is_empty() => {}
            Some((last, said)) if *last == role => said.extend(parts),
            _ => turns.push((role, parts)),
        }
    }
    turns.into_iter().map(|(role, parts)| json!({ "role": role, "parts": parts })).collect()
}

fn parts(asked: &Asked<'_>, before: &[Message], message: &Message) -> Vec<Value> {
    let connection = asked.connection;
    let said = message.text();
    if message.speaker == Speaker::Tool {
        let called = before.iter().rev().flat_map(|before| before.tool_calls.iter().map(move |call| (before, call)));
        let call = called.into_iter().find(|(_, call)| Some(&call.id) == message.answers.as_ref());
        let name = call.map(|(_, call)| asked.names.sent(&call.name)).unwrap_or_default();
        let said = if message.failed { json!({ "error": said }) } else { json!({ "result": said }) };
        let mut response = json!({ "name": name, "response": said });
        if let Some((before, call)) = call
            && is_named(&seal::opened(SEAL, connection, before).unwrap_or_default(), &call.id)
        {
            response["id"] = json!(call.id);
        }
        return vec![json!({ "functionResponse": response })];
    }
    let words = (!said.is_empty()).then(|| json!({ "text": said }));
    let images = message
        .images
        .iter()
        .map(|image| json!({ "inlineData": { "mimeType": image.media.name(), "data": &*image.data } }));
    let sealed = seal::opened(SEAL, connection, message);
    let calls = message.tool_calls.iter().enumerate().map(|(place, call)| {
        let arguments = arguments_back(&call.arguments);
        let mut part = json!({ "functionCall": { "name": asked.names.sent(&call.name), "args": arguments } });
        if sealed.as_ref().is_some_and(|sealed| is_named(sealed, &call.id)) {
            part["functionCall"]["id"] = json!(call.id);
        }
        let signature = match &sealed {
            Some(sealed) => sealed["signatures"].get(&call.id).cloned(),
            // Only the first call of an answer is signed.
            None => (place == 0).then(|| json!(UNSIGNED)),
        };
        if let Some(signature) = signature {
            part["thoughtSignature"] = signature;
        }
        part
    });
    words.into_iter().chain(images).chain(calls).collect()
}

/// Whether the vendor itself gave a call this id.
fn is_named(sealed: &Value, id: &str) -> bool {
    sealed["ids"].as_array().is_some_and(|ids| ids.iter().any(|known| known == id))
}

/// Reads the stream.
pub(super) struct Reader {
    pub desk: Desk,
    pieces: Pieces,
    /// By the place of the call.
    signatures: BTreeMap<usize, String>,
    /// The ids that the vendor gave.
    ids: Vec<String>,
    stop: Option<Stop>,
    pub usage: Option<Usage>,
}

impl Reader {
    pub fn new(desk: Desk) -> Self {
        Self { desk, pieces: Pieces::default(), signatures: BTreeMap::new(), ids: Vec::new(), stop: None, usage: None }
    }

    pub fn event(&mut self, event: &Event, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        let body = self.desk.json(event)?;
        if body.get("error").or_else(|| body.get(0)?.get("error")).is_some() {
            return Err(self.desk.failure(&body));
        }
        self.usage = usage(&body).or(self.usage);
        if let Some(reason) = text(&body, "/promptFeedback/blockReason") {
            let message = format!("{}: the prompt was blocked ({reason})", self.desk.connection.provider);
            return Err(Failure::new(FailureKind::Refused, message));
        }
        for part in body.pointer("/candidates/0/content/parts").and_then(Value::as_array).into_iter().flatten() {
            self.part(part, out)?;
        }
        if let Some(reason) = text(&body, "/candidates/0/finishReason") {
            self.stop = Some(stop(reason, &self.desk)?);
        }
        Ok(())
    }

    /// The stream is over; it was whole if a reason to stop was given. Figures may follow that reason, so only the end is the end.
    pub fn end(&mut self, out: &mut Vec<Chunk>) {
        let Some(stop) = self.stop.take() else { return };
        let stop = if self.pieces.len() > 0 && stop == Stop::Done { Stop::Tools } else { stop };
        let calls = self.pieces.finish(&self.desk.names, &self.desk.ids, stop);
        let signed =
            calls.iter().enumerate().filter_map(|(place, call)| Some((place, call.as_ref()?))).filter_map(
                |(place, call)| Some((call.id.clone(), Value::from(self.signatures.get(&place)?.as_str()))),
            );
        let signed: Map<String, Value> = signed.collect();
        if calls.iter().any(Option::is_some) && (!signed.is_empty() || !self.ids.is_empty()) {
            let content = json!({ "signatures": signed, "ids": self.ids });
            out.push(seal::sealed(SEAL, &self.desk.connection, content));
        }
        out.extend(calls.into_iter().flatten().map(Chunk::ToolCall));
        out.push(finish(stop, self.usage));
    }

    fn part(&mut self, part: &Value, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        if let Some(call) = part.get("functionCall") {
            let place = self.pieces.len();
            if let Some(signature) = text(part, "/thoughtSignature") {
                self.signatures.insert(place, signature.to_owned());
            }
            self.ids.extend(text(call, "/id").map(str::to_owned));
            // It comes whole, and without arguments where there are none.
            let arguments = call.get("args").map_or_else(|| "{}".to_owned(), ToString::to_string);
            return self.pieces.add(place as u64, text(call, "/id"), text(call, "/name"), &arguments);
        }
        let is_thought = part["thought"].as_bool().unwrap_or(false);
        let words = text(part, "/text").map(str::to_owned);
        out.extend(words.map(|words| if is_thought { Chunk::Reasoning(words) } else { Chunk::Text(words) }));
        Ok(())
    }
}

fn stop(reason: &str, desk: &Desk) -> Result<Stop, Failure> {
    match reason {
        "STOP" => Ok(Stop::Done),
        "MAX_TOKENS" => Ok(Stop::Length),
        "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" => {
            let message = format!("{}: the model made a tool call that cannot be read", desk.connection.provider);
            Err(malformed(message))
        }
        "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "IMAGE_SAFETY" | "LANGUAGE" => {
            Ok(Stop::Filtered)
        }
        "OTHER"
        | "FINISH_REASON_UNSPECIFIED"
        | "MALFORMED_RESPONSE"
        | "TOO_MANY_TOOL_CALLS"
        | "MISSING_THOUGHT_SIGNATURE" => {
            Err(malformed(format!("{} broke the answer off ({reason})", desk.connection.provider)))
        }
        _ => Ok(ended_strangely()),
    }
}

fn usage(body: &Value) -> Option<Usage> {
    let usage = body.get("usageMetadata")?;
    let at = |key: &str| tokens(usage, key).unwrap_or(0);
    let input = tokens(usage, "/promptTokenCount")?.saturating_add(at("/toolUsePromptTokenCount"));
    let reasoning = at("/thoughtsTokenCount");
    Some(Usage {
        input,
        output: at("/candidatesTokenCount").saturating_add(reasoning),
        cached: at("/cachedContentTokenCount").min(input),
        written: 0,
        reasoning,
    })
}
