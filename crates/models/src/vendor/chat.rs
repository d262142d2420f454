//! OpenAI's chat completions, as implemented by OpenAI, llama.cpp, vLLM, Ollama, LM Studio, OpenRouter, Groq, DeepSeek, Mistral
//! and many others. Servers differ in details, so the reader is tolerant.

use segue_core::prompt::{
    CallFailure, CallFailureKind, ChatRole, PromptImage, PromptMessage, StopReason, TokenUsage, ToolCall,
};
use serde_json::{Map, Value, json};

use super::sse::SseEvent;
use super::think_tags::ThinkTagSplitter;
use super::tool_call_assembler::ToolCallAssembler;
use super::tool_use::OpenAiToolChoiceApi;
use super::wire_format::{
    PART_SEPARATOR, VendorRequestBuilder, VendorStreamReaderContext, finish_chunk, malformed_reply_failure,
    nonempty_str_at, stop_for_unknown_reason, to_arguments_object, token_count_at, tool_result_text,
};
use super::{JsonMode, MaxTokensField, ReasoningEcho, ReasoningEffort, ThinkingSupport, schema_compat, vendor_state};
use crate::model::ReplyChunk;

/// The last event of a stream.
const STREAM_DONE: &str = "[DONE]";
/// Tags vendor state in this format.
const CHAT_STATE: &str = "chat";

pub(super) fn build_chat_body(builder: &VendorRequestBuilder<'_>) -> Value {
    let endpoint = builder.endpoint;
    let max_tokens_field = match endpoint.capabilities.dialect.max_tokens_field {
        MaxTokensField::MaxTokens => "max_tokens",
        MaxTokensField::MaxCompletionTokens => "max_completion_tokens",
    };
    let mut body = json!({ "model": endpoint.model, "stream": true, max_tokens_field: builder.output_token_budget() });
    if builder.features.usage && !endpoint.capabilities.dialect.usage_always_sent {
        body["stream_options"] = json!({ "include_usage": true });
    }
    let system = builder.openai_system_message("text", &mut body);
    body["messages"] = json!(build_chat_messages(builder, system));
    if !builder.prompt.tools.is_empty() {
        let tools = builder.prompt.tools.iter().map(|tool| {
            json!({ "type": "function", "function": {
                "name": builder.tool_names.vendor_name(&tool.name),
                "description": tool.description,
                "parameters": tool.parameters,
            }})
        });
        body["tools"] = tools.collect();
    }
    builder.set_openai_tool_use(&mut body, OpenAiToolChoiceApi::ChatCompletions);
    match (builder.output_schema(), builder.json_mode) {
        (Some(schema), JsonMode::Schema) => body["response_format"] = build_response_format(schema),
        (Some(_), JsonMode::Object) => body["response_format"] = json!({ "type": "json_object" }),
        (Some(_), JsonMode::Prompt) | (None, _) => {}
    }
    if let Some(temperature) = endpoint.effective_temperature() {
        body["temperature"] = json!(temperature);
    }
    match (endpoint.params.effort, endpoint.capabilities.thinking) {
        (None, _) | (Some(_), ThinkingSupport::None) => {}
        // Servers that expect reasoning back have a separate switch to turn it off.
        (Some(ReasoningEffort::None), _)
            if endpoint.capabilities.dialect.reasoning_echo == ReasoningEcho::ReasoningContent =>
        {
            body["thinking"] = json!({ "type": "disabled" });
        }
        (Some(effort), thinking) => body["reasoning_effort"] = json!(effort.as_openai_str(thinking)),
    }
    body
}

fn build_response_format(schema: &Value) -> Value {
    let strict = schema_compat::is_strict_schema(schema);
    json!({ "type": "json_schema", "json_schema": { "name": "answer", "schema": schema, "strict": strict } })
}

fn build_chat_messages(builder: &VendorRequestBuilder<'_>, system: Option<Value>) -> Vec<Value> {
    let mut messages: Vec<Value> = system.into_iter().collect();
    for message in builder.prompt.messages.iter().filter(|message| message.chat_role != ChatRole::System) {
        let Some(next) = build_chat_message(builder, message) else { continue };
        // Many prompt templates require alternating user and assistant messages.
        match messages.last_mut() {
            Some(last)
                if is_plain_text_message(last) && is_plain_text_message(&next) && last["role"] == next["role"] =>
            {
                let joined = format!("{}{PART_SEPARATOR}{}", message_content(last), message_content(&next));
                last["content"] = json!(joined);
            }
            _ => messages.push(next),
        }
    }
    messages
}

fn is_plain_text_message(message: &Value) -> bool {
    message["content"].is_string() && message["role"] != "tool" && message.get("tool_calls").is_none()
}

fn message_content(message: &Value) -> &str {
    message["content"].as_str().unwrap_or_default()
}

/// Builds a message; `None` for an assistant message without content, which some servers refuse.
fn build_chat_message(builder: &VendorRequestBuilder<'_>, message: &PromptMessage) -> Option<Value> {
    let text = message.text();
    Some(match message.chat_role {
        ChatRole::System | ChatRole::User if message.images.is_empty() => json!({ "role": "user", "content": text }),
        ChatRole::System | ChatRole::User => {
            let text_part = (!text.is_empty()).then(|| json!({ "type": "text", "text": text }));
            let images = message
                .images
                .iter()
                .map(|image| json!({ "type": "image_url", "image_url": { "url": image_data_url(image) } }));
            json!({ "role": "user", "content": text_part.into_iter().chain(images).collect::<Vec<_>>() })
        }
        ChatRole::Assistant if message.tool_calls.is_empty() && text.trim().is_empty() => return None,
        ChatRole::Assistant if message.tool_calls.is_empty() => json!({ "role": "assistant", "content": text }),
        ChatRole::Assistant => {
            let state = vendor_state::decode_vendor_state(CHAT_STATE, builder.endpoint, message).unwrap_or_default();
            let calls = message.tool_calls.iter().map(|call| {
                let arguments = to_arguments_object(&call.arguments).to_string();
                let function = json!({ "name": builder.tool_names.vendor_name(&call.name), "arguments": arguments });
                let id = builder.endpoint.vendor_call_id(&call.id);
                let mut sent_call = json!({ "id": id, "type": "function", "function": function });
                if let Some(extra) = state["calls"].get(&call.id) {
                    sent_call["extra_content"] = extra.clone();
                }
                sent_call
            });
            let content = if text.is_empty() { Value::Null } else { json!(text) };
            let mut sent = json!({ "role": "assistant", "content": content, "tool_calls": calls.collect::<Vec<_>>() });
            for key in [REASONING_CONTENT_KEY, REASONING_DETAILS_KEY] {
                if let Some(reasoning) = state.get(key) {
                    sent[key] = reasoning.clone();
                }
            }
            sent
        }
        ChatRole::Tool => {
            json!({ "role": "tool", "tool_call_id": builder.answered_call_id(message), "content": tool_result_text(message) })
        }
    })
}

/// Encodes an image as a data URL.
pub(super) fn image_data_url(image: &PromptImage) -> String {
    format!("data:{};base64,{}", image.media_type, image.data)
}

/// The message fields for reasoning that is sent back.
const REASONING_CONTENT_KEY: &str = "reasoning_content";
const REASONING_DETAILS_KEY: &str = "reasoning_details";

/// Reads the response stream.
pub(super) struct ChatCompletionsStreamReader {
    pub context: VendorStreamReaderContext,
    tool_calls: ToolCallAssembler,
    think_splitter: ThinkTagSplitter,
    stop: Option<StopReason>,
    pub usage: Option<TokenUsage>,
    /// Reasoning text, sent back as vendor state if the server expects it.
    reasoning: String,
    reasoning_details: Vec<Value>,
    /// Extra content of tool calls, by the index of the call.
    call_extras: Vec<(u64, Value)>,
    is_finished: bool,
}

impl ChatCompletionsStreamReader {
    pub(super) fn new(context: VendorStreamReaderContext) -> Self {
        let starts_in_thinking = context.endpoint.capabilities.dialect.starts_in_thinking;
        Self {
            context,
            tool_calls: ToolCallAssembler::default(),
            think_splitter: ThinkTagSplitter::new(starts_in_thinking),
            stop: None,
            usage: None,
            reasoning: String::new(),
            reasoning_details: Vec::new(),
            call_extras: Vec::new(),
            is_finished: false,
        }
    }

    pub(super) fn read_event(&mut self, event: &SseEvent, out: &mut Vec<ReplyChunk>) -> Result<(), CallFailure> {
        if event.data.trim() == STREAM_DONE {
            // The stream is complete, even without a finish reason.
            self.stop.get_or_insert(StopReason::Done);
            self.finish_stream(out);
            return Ok(());
        }
        if event.name == "error" {
            // The data may be JSON or plain text.
            let body = serde_json::from_str(&event.data).unwrap_or_else(|_| Value::String(event.data.clone()));
            return Err(self.context.classify_error(&body));
        }
        let body = self.context.parse_event_json(event)?;
        self.read_body(&body, "/choices/0/delta", out)
    }

    /// Ends the stream; the reply is complete if there was a finish reason.
    pub(super) fn finish_stream(&mut self, out: &mut Vec<ReplyChunk>) {
        let Some(stop) = self.stop.filter(|_| !self.is_finished) else { return };
        self.is_finished = true;
        self.think_splitter.finish(out);
        let stop = if self.tool_calls.len() > 0 && stop == StopReason::Done { StopReason::ToolCalls } else { stop };
        let calls = self.tool_calls.finish_calls(&self.context.tool_names, &self.context.known_call_ids, stop);
        out.extend(self.encode_reply_state(&calls));
        out.extend(calls.into_iter().flatten().map(ReplyChunk::ToolCall));
        out.push(finish_chunk(stop, self.usage));
    }

    /// Encodes the reasoning and extra content that the server expects back with these calls.
    fn encode_reply_state(&mut self, calls: &[Option<ToolCall>]) -> Option<ReplyChunk> {
        let mut content = Map::new();
        match self.context.endpoint.capabilities.dialect.reasoning_echo {
            // DeepSeek requires the field even if it is empty.
            ReasoningEcho::ReasoningContent => {
                content.insert(REASONING_CONTENT_KEY.to_owned(), json!(std::mem::take(&mut self.reasoning)));
            }
            ReasoningEcho::ReasoningDetails if !self.reasoning_details.is_empty() => {
                content.insert(REASONING_DETAILS_KEY.to_owned(), json!(std::mem::take(&mut self.reasoning_details)));
            }
            ReasoningEcho::ReasoningDetails | ReasoningEcho::None => {}
        }
        let extras: Map<String, Value> = std::mem::take(&mut self.call_extras)
            .into_iter()
            .filter_map(|(index, extra)| Some((calls.get(usize::try_from(index).ok()?)?.as_ref()?.id.clone(), extra)))
            .collect();
        if !extras.is_empty() {
            content.insert("calls".to_owned(), json!(extras));
        }
        let is_needed = calls.iter().any(Option::is_some) && !content.is_empty();
        is_needed.then(|| vendor_state::encode_vendor_state(CHAT_STATE, &self.context.endpoint, json!(content)))
    }

    pub(super) fn read_whole_reply(&mut self, body: &Value, out: &mut Vec<ReplyChunk>) -> Result<(), CallFailure> {
        if body.get("error").is_none_or(Value::is_null) && body.pointer("/choices/0/message").is_none() {
            return Err(self.context.unknown_reply_format_failure());
        }
        self.read_body(body, "/choices/0/message", out)?;
        self.stop.get_or_insert(StopReason::Done);
        self.finish_stream(out);
        Ok(())
    }

    fn read_body(&mut self, body: &Value, pointer: &str, out: &mut Vec<ReplyChunk>) -> Result<(), CallFailure> {
        if body.get("error").is_some_and(|error| !error.is_null()) {
            return Err(self.context.classify_error(body));
        }
        self.usage = parse_chat_usage(body).or(self.usage);
        if let Some(delta) = body.pointer(pointer) {
            self.read_delta(delta, out)?;
        }
        if let Some(reason) = nonempty_str_at(body, "/choices/0/finish_reason") {
            let refused = self.stop == Some(StopReason::ContentFilter);
            let reason = parse_chat_stop(reason, &self.context)?;
            self.stop = Some(if refused { StopReason::ContentFilter } else { reason });
        }
        Ok(())
    }

    fn read_delta(&mut self, delta: &Value, out: &mut Vec<ReplyChunk>) -> Result<(), CallFailure> {
        for key in ["/reasoning_content", "/reasoning"] {
            if let Some(reasoning) = nonempty_str_at(delta, key) {
                self.think_splitter.treat_start_as_answer();
                out.push(ReplyChunk::Reasoning(reasoning.to_owned()));
                self.reasoning.push_str(reasoning);
                break;
            }
        }
        for detail in delta.get(REASONING_DETAILS_KEY).and_then(Value::as_array).into_iter().flatten() {
            merge_reasoning_detail(&mut self.reasoning_details, detail);
        }
        match delta.get("content") {
            Some(Value::String(text)) => self.think_splitter.push(text, out),
            // Mistral separates reasoning from text in this way.
            Some(Value::Array(parts)) => parts.iter().for_each(|part| self.read_content_part(part, out)),
            _ => {}
        }
        if let Some(refusal) = nonempty_str_at(delta, "/refusal") {
            self.think_splitter.push(refusal, out);
            self.stop = Some(StopReason::ContentFilter);
        }
        let calls = delta.get("tool_calls").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
        for (index, call) in calls.iter().enumerate() {
            let index = call.get("index").and_then(Value::as_u64).unwrap_or(index as u64);
            // Some servers send the arguments as an object.
            let object_arguments = call.pointer("/function/arguments").filter(|arguments| arguments.is_object());
            let object_arguments = object_arguments.map(ToString::to_string);
            let arguments = object_arguments
                .as_deref()
                .or_else(|| nonempty_str_at(call, "/function/arguments"))
                .unwrap_or_default();
            self.tool_calls.add_fragment(
                index,
                nonempty_str_at(call, "/id"),
                nonempty_str_at(call, "/function/name"),
                arguments,
            )?;
            if let Some(extra) = call.get("extra_content").filter(|extra| extra.is_object()) {
                self.call_extras.push((self.tool_calls.len() as u64 - 1, extra.clone()));
            }
        }
        Ok(())
    }

    fn read_content_part(&mut self, part: &Value, out: &mut Vec<ReplyChunk>) {
        if let Some(text) = nonempty_str_at(part, "/text") {
            self.think_splitter.push(text, out);
        }
        for thinking in part.get("thinking").and_then(Value::as_array).into_iter().flatten() {
            out.extend(nonempty_str_at(thinking, "/text").map(|text| ReplyChunk::Reasoning(text.to_owned())));
        }
    }
}

/// Appends a reasoning detail, or merges it with the previous one if it continues it.
fn merge_reasoning_detail(details: &mut Vec<Value>, more: &Value) {
    let continues = |last: &Value| {
        ["type", "index", "id"].iter().all(|key| more.get(key).is_none() || last.get(key) == more.get(key))
    };
    let Some(last) = details.last_mut().filter(|last| more.get("index").is_some() && continues(last)) else {
        return details.push(more.clone());
    };
    for (key, value) in more.as_object().into_iter().flatten() {
        match (last.get(key).and_then(Value::as_str), value.as_str()) {
            (Some(so_far), Some(text)) if ["text", "summary", "data"].contains(&key.as_str()) => {
                last[key] = json!(format!("{so_far}{text}"));
            }
            _ if value.is_null() => {}
            _ => last[key] = value.clone(),
        }
    }
}

/// Maps the finish reasons of the many servers.
fn parse_chat_stop(reason: &str, context: &VendorStreamReaderContext) -> Result<StopReason, CallFailure> {
    let provider = &context.endpoint.provider;
    match reason.to_ascii_lowercase().as_str() {
        "stop" | "eos" | "eos_token" | "end_turn" | "end_of_turn" | "stop_sequence" | "complete" | "completed"
        | "done" => Ok(StopReason::Done),
        "tool_calls" | "tool_call" | "tool_use" | "function_call" => Ok(StopReason::ToolCalls),
        "length" | "max_tokens" | "model_length" | "max_length" => Ok(StopReason::Length),
        "content_filter" | "safety" | "refusal" => Ok(StopReason::ContentFilter),
        "insufficient_system_resource" => {
            let message = format!("{provider} ran out of capacity and stopped the reply ({reason})");
            Err(CallFailure::new(CallFailureKind::Overload, message))
        }
        "error" | "abort" | "aborted" | "cancelled" => {
            Err(malformed_reply_failure(format!("{provider} aborted the reply ({reason})")))
        }
        _ => Ok(stop_for_unknown_reason()),
    }
}

/// Finds the token usage in a body, wherever the server puts it.
fn parse_chat_usage(body: &Value) -> Option<TokenUsage> {
    let usage =
        [body.get("usage"), body.pointer("/x_groq/usage")].into_iter().flatten().find(|usage| usage.is_object())?;
    let input = token_count_at(usage, "/prompt_tokens")?;
    let first_count =
        |pointers: &[&str]| pointers.iter().find_map(|pointer| token_count_at(usage, pointer)).unwrap_or(0);
    let output = first_count(&["/completion_tokens"]);
    let cached = first_count(&["/prompt_tokens_details/cached_tokens", "/prompt_cache_hit_tokens", "/cached_tokens"]);
    // llama.cpp reports cached tokens among its timings.
    let cached = cached.max(token_count_at(body, "/timings/cache_n").unwrap_or(0)).min(input);
    let reasoning = first_count(&["/completion_tokens_details/reasoning_tokens"]);
    // Some servers do not count reasoning as output; the total shows it.
    let is_separate =
        token_count_at(usage, "/total_tokens") == Some(input.saturating_add(output).saturating_add(reasoning));
    let output = if is_separate { output.saturating_add(reasoning) } else { output };
    let written = first_count(&["/prompt_tokens_details/cache_write_tokens"]).min(input - cached);
    Some(TokenUsage {
        input_tokens: input,
        output_tokens: output,
        cached_tokens: cached,
        cache_write_tokens: written,
        reasoning_tokens: reasoning,
    })
}
