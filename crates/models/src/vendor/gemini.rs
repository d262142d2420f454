//! Google's Gemini. Not all of its function calls have ids, so an answer is also matched to a call by the place of both; its thoughts
//! carry signatures that it wants to see again.

use std::collections::BTreeMap;

use segue_core::prompt::{CallFailure, ChatRole, FailureKind, PromptMessage, StopReason, TokenUsage};
use serde_json::{Map, Value, json};

use super::sse::SseEvent;
use super::tool_call_assembler::ToolCallAssembler;
use super::wire_format::{
    ReaderContext, VendorRequestBuilder, finish_chunk, malformed_reply_failure, nonempty_str_at,
    stop_for_unknown_reason, to_arguments_object, token_count_at,
};
use super::{JsonMode, ReasoningEffort, ThinkingSupport, vendor_state};
use crate::model::ReplyChunk;

/// Whose seals these are.
const GEMINI_STATE: &str = "gemini";
/// What stands for the signature of a call that another vendor's model made.
const PLACEHOLDER_SIGNATURE: &str = "skip_thought_signature_validator";

pub(super) fn build_gemini_body(builder: &VendorRequestBuilder<'_>) -> Value {
    let connection = builder.endpoint;
    let mut contents = build_gemini_contents(builder);
    let mut system = builder.system_text();
    if contents.is_empty() {
        // Somebody must be spoken to; instructions alone are then what is said.
        let said = system.take().unwrap_or_default();
        contents.push(json!({ "role": "user", "parts": [{ "text": said }] }));
    }
    let mut body = json!({ "contents": contents, "generationConfig": build_generation_config(builder) });
    if let Some(system) = system {
        body["systemInstruction"] = json!({ "parts": [{ "text": system }] });
    }
    if !builder.prompt.tools.is_empty() {
        let declared = builder.prompt.tools.iter().map(|tool| {
            let name = builder.tool_names.vendor_name(&tool.name);
            json!({ "name": name, "description": tool.description, "parametersJsonSchema": tool.parameters })
        });
        body["tools"] = json!([{ "functionDeclarations": declared.collect::<Vec<_>>() }]);
    }
    if let Some(temperature) = connection.effective_temperature() {
        body["generationConfig"]["temperature"] = json!(temperature);
    }
    body
}

fn build_generation_config(builder: &VendorRequestBuilder<'_>) -> Value {
    let connection = builder.endpoint;
    let mut settings = json!({ "maxOutputTokens": builder.output_token_budget() });
    if let Some(schema) = builder.output_schema() {
        if builder.json_mode != JsonMode::Prompt {
            settings["responseMimeType"] = json!("application/json");
        }
        if builder.json_mode == JsonMode::Schema {
            settings["responseJsonSchema"] = schema.clone();
        }
    }
    match (connection.params.effort, connection.capabilities.thinking) {
        (Some(effort), ThinkingSupport::Levels) => {
            // None of them can do without.
            let level = if effort == ReasoningEffort::None { ReasoningEffort::Low } else { effort };
            settings["thinkingConfig"] = json!({ "thinkingLevel": level.as_str(), "includeThoughts": true });
        }
        (None, _) | (Some(_), ThinkingSupport::None) => {}
        // Some of them cannot do without.
        (Some(ReasoningEffort::None), ThinkingSupport::Budget | ThinkingSupport::Unknown) => {
            settings["thinkingConfig"] = json!({ "thinkingBudget": connection.capabilities.thinking_tokens_min });
        }
        (Some(effort), ThinkingSupport::Budget | ThinkingSupport::Unknown) => {
            let tokens = effort.thinking_budget_tokens().max(connection.capabilities.thinking_tokens_min);
            settings["thinkingConfig"] = json!({ "thinkingBudget": tokens, "includeThoughts": true });
        }
    }
    settings
}

fn build_gemini_contents(builder: &VendorRequestBuilder<'_>) -> Vec<Value> {
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    let messages = &builder.prompt.messages;
    for (place, message) in messages.iter().enumerate().filter(|(_, message)| message.chat_role != ChatRole::System) {
        let role = if message.chat_role == ChatRole::Assistant { "model" } else { "user" };
        let parts = build_gemini_parts(builder, &messages[..place], message);
        match turns.last_mut() {
            _ if parts.is_empty() => {}
            Some((last, said)) if *last == role => said.extend(parts),
            _ => turns.push((role, parts)),
        }
    }
    turns.into_iter().map(|(role, parts)| json!({ "role": role, "parts": parts })).collect()
}

fn build_gemini_parts(
    builder: &VendorRequestBuilder<'_>,
    earlier: &[PromptMessage],
    message: &PromptMessage,
) -> Vec<Value> {
    let connection = builder.endpoint;
    let said = message.text();
    if message.chat_role == ChatRole::Tool {
        let called = earlier.iter().rev().flat_map(|before| before.tool_calls.iter().map(move |call| (before, call)));
        let call = called.into_iter().find(|(_, call)| Some(&call.id) == message.tool_call_id.as_ref());
        let name = call.map(|(_, call)| builder.tool_names.vendor_name(&call.name)).unwrap_or_default();
        let said = if message.failed { json!({ "error": said }) } else { json!({ "result": said }) };
        let mut response = json!({ "name": name, "response": said });
        if let Some((before, call)) = call
            && is_vendor_assigned_id(
                &vendor_state::decode_vendor_state(GEMINI_STATE, connection, before).unwrap_or_default(),
                &call.id,
            )
        {
            response["id"] = json!(call.id);
        }
        return vec![json!({ "functionResponse": response })];
    }
    let words = (!said.is_empty()).then(|| json!({ "text": said }));
    let images = message
        .images
        .iter()
        .map(|image| json!({ "inlineData": { "mimeType": image.media_type.mime_type(), "data": &*image.data } }));
    let sealed = vendor_state::decode_vendor_state(GEMINI_STATE, connection, message);
    let calls = message.tool_calls.iter().enumerate().map(|(place, call)| {
        let arguments = to_arguments_object(&call.arguments);
        let mut part =
            json!({ "functionCall": { "name": builder.tool_names.vendor_name(&call.name), "args": arguments } });
        if sealed.as_ref().is_some_and(|sealed| is_vendor_assigned_id(sealed, &call.id)) {
            part["functionCall"]["id"] = json!(call.id);
        }
        let signature = match &sealed {
            Some(sealed) => sealed["signatures"].get(&call.id).cloned(),
            // Only the first call of an answer is signed.
            None => (place == 0).then(|| json!(PLACEHOLDER_SIGNATURE)),
        };
        if let Some(signature) = signature {
            part["thoughtSignature"] = signature;
        }
        part
    });
    words.into_iter().chain(images).chain(calls).collect()
}

/// Whether the vendor itself gave a call this id.
fn is_vendor_assigned_id(state: &Value, id: &str) -> bool {
    state["ids"].as_array().is_some_and(|ids| ids.iter().any(|known| known == id))
}

/// Reads the stream.
pub(super) struct GeminiStreamReader {
    pub context: ReaderContext,
    tool_calls: ToolCallAssembler,
    /// By the place of the call.
    signatures: BTreeMap<usize, String>,
    /// The ids that the vendor gave.
    vendor_call_ids: Vec<String>,
    stop: Option<StopReason>,
    pub usage: Option<TokenUsage>,
}

impl GeminiStreamReader {
    pub fn new(context: ReaderContext) -> Self {
        Self {
            context,
            tool_calls: ToolCallAssembler::default(),
            signatures: BTreeMap::new(),
            vendor_call_ids: Vec::new(),
            stop: None,
            usage: None,
        }
    }

    pub fn read_event(&mut self, event: &SseEvent, out: &mut Vec<ReplyChunk>) -> Result<(), CallFailure> {
        let body = self.context.parse_event_json(event)?;
        if body.get("error").or_else(|| body.get(0)?.get("error")).is_some() {
            return Err(self.context.classify_error(&body));
        }
        self.usage = parse_gemini_usage(&body).or(self.usage);
        if let Some(reason) = nonempty_str_at(&body, "/promptFeedback/blockReason") {
            let message = format!("{}: the prompt was blocked ({reason})", self.context.endpoint.provider);
            return Err(CallFailure::new(FailureKind::Refused, message));
        }
        for part in body.pointer("/candidates/0/content/parts").and_then(Value::as_array).into_iter().flatten() {
            self.read_part(part, out)?;
        }
        if let Some(reason) = nonempty_str_at(&body, "/candidates/0/finishReason") {
            self.stop = Some(parse_gemini_stop(reason, &self.context)?);
        }
        Ok(())
    }

    /// The stream is over; it was whole if a reason to stop was given. Figures may follow that reason, so only the end is the end.
    pub fn finish_stream(&mut self, out: &mut Vec<ReplyChunk>) {
        let Some(stop) = self.stop.take() else { return };
        let stop = if self.tool_calls.len() > 0 && stop == StopReason::Done { StopReason::ToolCalls } else { stop };
        let calls = self.tool_calls.finish_calls(&self.context.tool_names, &self.context.known_call_ids, stop);
        let signed =
            calls.iter().enumerate().filter_map(|(place, call)| Some((place, call.as_ref()?))).filter_map(
                |(place, call)| Some((call.id.clone(), Value::from(self.signatures.get(&place)?.as_str()))),
            );
        let signed: Map<String, Value> = signed.collect();
        if calls.iter().any(Option::is_some) && (!signed.is_empty() || !self.vendor_call_ids.is_empty()) {
            let content = json!({ "signatures": signed, "ids": self.vendor_call_ids });
            out.push(vendor_state::encode_vendor_state(GEMINI_STATE, &self.context.endpoint, content));
        }
        out.extend(calls.into_iter().flatten().map(ReplyChunk::ToolCall));
        out.push(finish_chunk(stop, self.usage));
    }

    fn read_part(&mut self, part: &Value, out: &mut Vec<ReplyChunk>) -> Result<(), CallFailure> {
        if let Some(call) = part.get("functionCall") {
            let place = self.tool_calls.len();
            if let Some(signature) = nonempty_str_at(part, "/thoughtSignature") {
                self.signatures.insert(place, signature.to_owned());
            }
            self.vendor_call_ids.extend(nonempty_str_at(call, "/id").map(str::to_owned));
            // It comes whole, and without arguments where there are none.
            let arguments = call.get("args").map_or_else(|| "{}".to_owned(), ToString::to_string);
            return self.tool_calls.add_fragment(
                place as u64,
                nonempty_str_at(call, "/id"),
                nonempty_str_at(call, "/name"),
                &arguments,
            );
        }
        let is_thought = part["thought"].as_bool().unwrap_or(false);
        let words = nonempty_str_at(part, "/text").map(str::to_owned);
        out.extend(words.map(|words| if is_thought { ReplyChunk::Reasoning(words) } else { ReplyChunk::Text(words) }));
        Ok(())
    }
}

fn parse_gemini_stop(reason: &str, context: &ReaderContext) -> Result<StopReason, CallFailure> {
    match reason {
        "STOP" => Ok(StopReason::Done),
        "MAX_TOKENS" => Ok(StopReason::Length),
        "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" => {
            let message = format!("{}: the model made a tool call that cannot be read", context.endpoint.provider);
            Err(malformed_reply_failure(message))
        }
        "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "IMAGE_SAFETY" | "LANGUAGE" => {
            Ok(StopReason::ContentFilter)
        }
        "OTHER"
        | "FINISH_REASON_UNSPECIFIED"
        | "MALFORMED_RESPONSE"
        | "TOO_MANY_TOOL_CALLS"
        | "MISSING_THOUGHT_SIGNATURE" => {
            Err(malformed_reply_failure(format!("{} broke the answer off ({reason})", context.endpoint.provider)))
        }
        _ => Ok(stop_for_unknown_reason()),
    }
}

fn parse_gemini_usage(body: &Value) -> Option<TokenUsage> {
    let usage = body.get("usageMetadata")?;
    let at = |key: &str| token_count_at(usage, key).unwrap_or(0);
    let input = token_count_at(usage, "/promptTokenCount")?.saturating_add(at("/toolUsePromptTokenCount"));
    let reasoning = at("/thoughtsTokenCount");
    Some(TokenUsage {
        input_tokens: input,
        output_tokens: at("/candidatesTokenCount").saturating_add(reasoning),
        cached_tokens: at("/cachedContentTokenCount").min(input),
        cache_write_tokens: 0,
        reasoning_tokens: reasoning,
    })
}
