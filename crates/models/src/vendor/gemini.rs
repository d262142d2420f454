//! Google's Gemini. Its function calls have no ids, so an answer is matched to a call by the place of both; its thoughts carry
//! signatures that it wants to see again.

use segue_core::prompt::{Failure, FailureKind, Message, Speaker, Stop, Usage};
use serde_json::{Map, Value, json};

use super::pieces::Pieces;
use super::sse::Event;
use super::wire::{Asked, Desk, finish, text, tokens};
use super::{Effort, Json, Thinking};
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
    let mut settings = json!({ "maxOutputTokens": connection.output_tokens(asked.prompt) });
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
        (Some(Effort::None), _) => settings["thinkingConfig"] = json!({ "thinkingBudget": 0 }),
        (Some(effort), _) => {
            settings["thinkingConfig"] = json!({ "thinkingBudget": effort.tokens(), "includeThoughts": true });
        }
        (None, _) => {}
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
    let said = message.text();
    if message.speaker == Speaker::Tool {
        let called = before.iter().rev().flat_map(|message| &message.tool_calls);
        let call = called.clone().find(|call| Some(&call.id) == message.answers.as_ref());
        let name = call.map(|call| asked.names.sent(&call.name)).unwrap_or_default();
        return vec![json!({ "functionResponse": { "name": name, "response": { "result": said } } })];
    }
    let words = (!said.is_empty()).then(|| json!({ "text": said }));
    let images = message
        .images
        .iter()
        .map(|image| json!({ "inlineData": { "mimeType": image.media.name(), "data": &*image.data } }));
    let signatures = message.seal.as_deref().and_then(opened);
    let calls = message.tool_calls.iter().enumerate().map(|(place, call)| {
        let arguments =
            if call.arguments.is_object() { call.arguments.clone() } else { json!({ "input": call.arguments }) };
        let mut part = json!({ "functionCall": { "name": asked.names.sent(&call.name), "args": arguments } });
        let signature = match &signatures {
            Some(signatures) => signatures.get(&place.to_string()).cloned(),
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

fn opened(seal: &str) -> Option<Map<String, Value>> {
    let mut seal: Value = serde_json::from_str(seal).ok()?;
    serde_json::from_value(seal.get_mut(SEAL)?.take()).ok()
}

/// Reads the stream.
pub(super) struct Reader {
    pub desk: Desk,
    pieces: Pieces,
    signatures: Map<String, Value>,
    stop: Option<Stop>,
    usage: Option<Usage>,
}

impl Reader {
    pub fn new(desk: Desk) -> Self {
        Self { desk, pieces: Pieces::default(), signatures: Map::new(), stop: None, usage: None }
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
        out.extend(self.pieces.finish(&self.desk.names));
        if !self.signatures.is_empty() {
            out.push(Chunk::Seal(json!({ SEAL: self.signatures }).to_string()));
        }
        out.push(finish(stop, self.usage));
    }

    fn part(&mut self, part: &Value, out: &mut Vec<Chunk>) -> Result<(), Failure> {
        if let Some(call) = part.get("functionCall") {
            let place = self.pieces.len() as u64;
            if let Some(signature) = text(part, "/thoughtSignature") {
                self.signatures.insert(place.to_string(), json!(signature));
            }
            let arguments = call.get("args").map(ToString::to_string).unwrap_or_default();
            return self.pieces.add(place, text(call, "/id"), text(call, "/name"), &arguments);
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
            Err(super::wire::malformed(message))
        }
        _ => Ok(Stop::Filtered),
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
