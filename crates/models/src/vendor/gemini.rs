//! Google's Gemini API. Not all of its function calls have ids, so results are also matched to calls by position. Calls may
//! carry thought signatures that must be sent back.

use std::collections::BTreeMap;

use segue_core::prompt::{CallFailure, CallFailureKind, ChatRole, PromptMessage, StopReason, TokenUsage};
use serde_json::{Map, Value, json};

use super::sse::SseEvent;
use super::tool_call_assembler::ToolCallAssembler;
use super::wire_format::{
    VendorRequestBuilder, VendorStreamReaderContext, finish_chunk, malformed_reply_failure, nonempty_str_at,
    stop_for_unknown_reason, to_arguments_object, token_count_at,
};
use super::{JsonMode, ReasoningEffort, ThinkingSupport, vendor_state};
use crate::model::ReplyChunk;

/// Tags vendor state in this format.
const GEMINI_STATE: &str = "gemini";
/// Replaces the signature of a call that another vendor's model made.
const PLACEHOLDER_SIGNATURE: &str = "skip_thought_signature_validator";

pub(super) fn build_gemini_body(builder: &VendorRequestBuilder<'_>) -> Value {
    let endpoint = builder.endpoint;
    let mut contents = build_gemini_contents(builder);
    let mut system = builder.system_text();
    if contents.is_empty() {
        // The API requires at least one message, so instructions without messages are sent as the user's.
        let text = system.take().unwrap_or_default();
        contents.push(json!({ "role": "user", "parts": [{ "text": text }] }));
    }
    let mut body = json!({ "contents": contents, "generationConfig": build_generation_config(builder) });
    if let Some(system) = system {
        body["systemInstruction"] = json!({ "parts": [{ "text": system }] });
    }
    if !builder.prompt.tools.is_empty() {
        let declarations = builder.prompt.tools.iter().map(|tool| {
            let name = builder.tool_names.vendor_name(&tool.name);
            json!({ "name": name, "description": tool.description, "parametersJsonSchema": tool.parameters })
        });
        body["tools"] = json!([{ "functionDeclarations": declarations.collect::<Vec<_>>() }]);
    }
    if let Some(config) = builder.gemini_tool_config() {
        body["toolConfig"] = config;
    }
    if let Some(temperature) = endpoint.effective_temperature() {
        body["generationConfig"]["temperature"] = json!(temperature);
    }
    body
}

fn build_generation_config(builder: &VendorRequestBuilder<'_>) -> Value {
    let endpoint = builder.endpoint;
    let mut config = json!({ "maxOutputTokens": builder.output_token_budget() });
    if let Some(schema) = builder.output_schema() {
        if builder.json_mode != JsonMode::Prompt {
            config["responseMimeType"] = json!("application/json");
        }
        if builder.json_mode == JsonMode::Schema {
            config["responseJsonSchema"] = schema.clone();
        }
    }
    match (endpoint.params.effort, endpoint.capabilities.thinking) {
        (Some(effort), ThinkingSupport::Levels) => {
            // None of these models can turn thinking off.
            let level = if effort == ReasoningEffort::None { ReasoningEffort::Low } else { effort };
            config["thinkingConfig"] = json!({ "thinkingLevel": level.as_str(), "includeThoughts": true });
        }
        (None, _) | (Some(_), ThinkingSupport::None) => {}
        // Some of these models cannot turn thinking off.
        (Some(ReasoningEffort::None), ThinkingSupport::Budget | ThinkingSupport::Unknown) => {
            config["thinkingConfig"] = json!({ "thinkingBudget": endpoint.capabilities.thinking_tokens_min });
        }
        (Some(effort), ThinkingSupport::Budget | ThinkingSupport::Unknown) => {
            let tokens = effort.thinking_budget_tokens().max(endpoint.capabilities.thinking_tokens_min);
            config["thinkingConfig"] = json!({ "thinkingBudget": tokens, "includeThoughts": true });
        }
    }
    config
}

fn build_gemini_contents(builder: &VendorRequestBuilder<'_>) -> Vec<Value> {
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    let messages = &builder.prompt.messages;
    for (index, message) in messages.iter().enumerate().filter(|(_, message)| message.chat_role != ChatRole::System) {
        let role = if message.chat_role == ChatRole::Assistant { "model" } else { "user" };
        let parts = build_gemini_parts(builder, &messages[..index], message);
        match turns.last_mut() {
            _ if parts.is_empty() => {}
            Some((last, content)) if *last == role => content.extend(parts),
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
    let endpoint = builder.endpoint;
    let text = message.text();
    if message.chat_role == ChatRole::Tool {
        let calls = earlier.iter().rev().flat_map(|caller| caller.tool_calls.iter().map(move |call| (caller, call)));
        let call = calls.into_iter().find(|(_, call)| Some(&call.id) == message.tool_call_id.as_ref());
        let name = call.map(|(_, call)| builder.tool_names.vendor_name(&call.name)).unwrap_or_default();
        let result = if message.failed { json!({ "error": text }) } else { json!({ "result": text }) };
        let mut response = json!({ "name": name, "response": result });
        if let Some((caller, call)) = call
            && is_vendor_assigned_id(
                &vendor_state::decode_vendor_state(GEMINI_STATE, endpoint, caller).unwrap_or_default(),
                &call.id,
            )
        {
            response["id"] = json!(call.id);
        }
        return vec![json!({ "functionResponse": response })];
    }
    let text_part = (!text.is_empty()).then(|| json!({ "text": text }));
    let images = message
        .images
        .iter()
        .map(|image| json!({ "inlineData": { "mimeType": image.media_type, "data": &*image.data } }));
    let state = vendor_state::decode_vendor_state(GEMINI_STATE, endpoint, message);
    let calls = message.tool_calls.iter().enumerate().map(|(index, call)| {
        let arguments = to_arguments_object(&call.arguments);
        let mut part =
            json!({ "functionCall": { "name": builder.tool_names.vendor_name(&call.name), "args": arguments } });
        if state.as_ref().is_some_and(|state| is_vendor_assigned_id(state, &call.id)) {
            part["functionCall"]["id"] = json!(call.id);
        }
        let signature = match &state {
            Some(state) => state["signatures"].get(&call.id).cloned(),
            // Only the first call of a reply is signed.
            None => (index == 0).then(|| json!(PLACEHOLDER_SIGNATURE)),
        };
        if let Some(signature) = signature {
            part["thoughtSignature"] = signature;
        }
        part
    });
    text_part.into_iter().chain(images).chain(calls).collect()
}

/// Returns whether the vendor itself assigned this id to a call.
fn is_vendor_assigned_id(state: &Value, id: &str) -> bool {
    state["ids"].as_array().is_some_and(|ids| ids.iter().any(|known| known == id))
}

/// Reads the response stream.
pub(super) struct GeminiStreamReader {
    pub context: VendorStreamReaderContext,
    tool_calls: ToolCallAssembler,
    /// By the index of the call.
    signatures: BTreeMap<usize, String>,
    /// The ids that the vendor assigned.
    vendor_call_ids: Vec<String>,
    stop: Option<StopReason>,
    pub usage: Option<TokenUsage>,
}

impl GeminiStreamReader {
    pub(super) fn new(context: VendorStreamReaderContext) -> Self {
        Self {
            context,
            tool_calls: ToolCallAssembler::default(),
            signatures: BTreeMap::new(),
            vendor_call_ids: Vec::new(),
            stop: None,
            usage: None,
        }
    }

    pub(super) fn read_event(&mut self, event: &SseEvent, out: &mut Vec<ReplyChunk>) -> Result<(), CallFailure> {
        let body = self.context.parse_event_json(event)?;
        if body.get("error").or_else(|| body.get(0)?.get("error")).is_some() {
            return Err(self.context.classify_error(&body));
        }
        self.usage = parse_gemini_usage(&body).or(self.usage);
        if let Some(reason) = nonempty_str_at(&body, "/promptFeedback/blockReason") {
            let message = format!("{}: the prompt was blocked ({reason})", self.context.endpoint.provider);
            return Err(CallFailure::new(CallFailureKind::Refused, message));
        }
        for part in body.pointer("/candidates/0/content/parts").and_then(Value::as_array).into_iter().flatten() {
            self.read_part(part, out)?;
        }
        if let Some(reason) = nonempty_str_at(&body, "/candidates/0/finishReason") {
            self.stop = Some(parse_gemini_stop(reason, &self.context)?);
        }
        Ok(())
    }

    /// Ends the stream; the reply is complete if there was a finish reason. Usage may follow that reason.
    pub(super) fn finish_stream(&mut self, out: &mut Vec<ReplyChunk>) {
        let Some(stop) = self.stop.take() else { return };
        let stop = if self.tool_calls.len() > 0 && stop == StopReason::Done { StopReason::ToolCalls } else { stop };
        let calls = self.tool_calls.finish_calls(&self.context.tool_names, &self.context.known_call_ids, stop);
        let signatures: Map<String, Value> = calls
            .iter()
            .enumerate()
            .filter_map(|(index, call)| {
                Some((call.as_ref()?.id.clone(), Value::from(self.signatures.get(&index)?.as_str())))
            })
            .collect();
        if calls.iter().any(Option::is_some) && (!signatures.is_empty() || !self.vendor_call_ids.is_empty()) {
            let content = json!({ "signatures": signatures, "ids": self.vendor_call_ids });
            out.push(vendor_state::encode_vendor_state(GEMINI_STATE, &self.context.endpoint, content));
        }
        out.extend(calls.into_iter().flatten().map(ReplyChunk::ToolCall));
        out.push(finish_chunk(stop, self.usage));
    }

    fn read_part(&mut self, part: &Value, out: &mut Vec<ReplyChunk>) -> Result<(), CallFailure> {
        if let Some(call) = part.get("functionCall") {
            let index = self.tool_calls.len();
            if let Some(signature) = nonempty_str_at(part, "/thoughtSignature") {
                self.signatures.insert(index, signature.to_owned());
            }
            self.vendor_call_ids.extend(nonempty_str_at(call, "/id").map(str::to_owned));
            // A call is always complete; its arguments may be missing.
            let arguments = call.get("args").map_or_else(|| "{}".to_owned(), ToString::to_string);
            return self.tool_calls.add_fragment(
                index as u64,
                nonempty_str_at(call, "/id"),
                nonempty_str_at(call, "/name"),
                &arguments,
            );
        }
        let is_reasoning = part["thought"].as_bool().unwrap_or(false);
        let text = nonempty_str_at(part, "/text").map(str::to_owned);
        out.extend(text.map(|text| if is_reasoning { ReplyChunk::Reasoning(text) } else { ReplyChunk::Text(text) }));
        Ok(())
    }
}

fn parse_gemini_stop(reason: &str, context: &VendorStreamReaderContext) -> Result<StopReason, CallFailure> {
    match reason {
        "STOP" => Ok(StopReason::Done),
        "MAX_TOKENS" => Ok(StopReason::Length),
        "MALFORMED_FUNCTION_CALL" | "UNEXPECTED_TOOL_CALL" => {
            let message = format!("{}: the model made a tool call that cannot be parsed", context.endpoint.provider);
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
            Err(malformed_reply_failure(format!("{} aborted the reply ({reason})", context.endpoint.provider)))
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
