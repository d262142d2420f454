//! Ollama's own API, with one JSON value per line. It is used instead of chat completions because only here a request can set
//! the window and have a prompt that does not fit refused; otherwise Ollama silently cuts off its beginning.

use segue_core::prompt::{CallFailure, ChatRole, PromptMessage, StopReason, TokenUsage, ToolCall, ToolChoice};
use serde_json::{Value, json};

use super::sse::SseEvent;
use super::think_tags::ThinkTagSplitter;
use super::tool_call_assembler::ToolCallAssembler;
use super::wire_format::{
    VendorRequestBuilder, VendorStreamReaderContext, finish_chunk, nonempty_str_at, stop_for_unknown_reason,
    to_arguments_object, token_count_at, tool_result_text,
};
use super::{JsonMode, ReasoningEffort, ThinkingSupport, vendor_state};
use crate::model::ReplyChunk;

/// Tags vendor state in this format.
const OLLAMA_STATE: &str = "ollama";

/// Returns the server's URL without the suffix of its OpenAI-compatible API.
pub(crate) fn ollama_server_url(base_url: &str) -> &str {
    let base_url = base_url.strip_suffix("/api").unwrap_or(base_url);
    base_url.strip_suffix("/v1").unwrap_or(base_url)
}

pub(super) fn build_ollama_body(builder: &VendorRequestBuilder<'_>) -> Value {
    let endpoint = builder.endpoint;
    let mut options =
        json!({ "num_ctx": endpoint.capabilities.window_tokens, "num_predict": builder.output_token_budget() });
    if let Some(temperature) = endpoint.effective_temperature() {
        options["temperature"] = json!(temperature);
    }
    let system = builder.system_text().map(|system| json!({ "role": "system", "content": system }));
    let messages =
        builder.prompt.messages.iter().enumerate().filter(|(_, message)| message.chat_role != ChatRole::System);
    let messages = messages
        .filter_map(|(index, message)| build_ollama_message(builder, &builder.prompt.messages[..index], message));
    let mut body = json!({
        "model": endpoint.model,
        "stream": true,
        "truncate": false,
        "shift": false,
        "options": options,
        "messages": system.into_iter().chain(messages).collect::<Vec<_>>(),
    });
    // The API has no rules about tool use; without tools, none is called.
    if !builder.prompt.tools.is_empty() && builder.prompt.tool_use.choice != ToolChoice::None {
        let tools = builder.prompt.tools.iter().map(|tool| {
            let name = builder.tool_names.vendor_name(&tool.name);
            let function = json!({ "name": name, "description": tool.description, "parameters": tool.parameters });
            json!({ "type": "function", "function": function })
        });
        body["tools"] = tools.collect();
    }
    match (builder.output_schema(), builder.json_mode) {
        (Some(schema), JsonMode::Schema) => body["format"] = schema.clone(),
        (Some(_), JsonMode::Object) => body["format"] = json!("json"),
        (Some(_), JsonMode::Prompt) | (None, _) => {}
    }
    match (endpoint.params.effort, endpoint.capabilities.thinking) {
        (None, _) | (Some(_), ThinkingSupport::None) => {}
        (Some(ReasoningEffort::None), ThinkingSupport::Levels) => body["think"] = json!(ReasoningEffort::Low.as_str()),
        (Some(effort), ThinkingSupport::Levels) => body["think"] = json!(effort.as_str()),
        (Some(effort), ThinkingSupport::Budget | ThinkingSupport::Unknown) => {
            body["think"] = json!(effort != ReasoningEffort::None)
        }
    }
    body
}

/// Builds a message; `None` for an assistant message without content.
fn build_ollama_message(
    builder: &VendorRequestBuilder<'_>,
    earlier: &[PromptMessage],
    message: &PromptMessage,
) -> Option<Value> {
    let text = message.text();
    Some(match message.chat_role {
        ChatRole::System | ChatRole::User => {
            let mut sent = json!({ "role": "user", "content": text });
            if !message.images.is_empty() {
                sent["images"] = message.images.iter().map(|image| json!(&*image.data)).collect();
            }
            sent
        }
        ChatRole::Assistant if message.tool_calls.is_empty() && text.trim().is_empty() => return None,
        ChatRole::Assistant => {
            let mut sent = json!({ "role": "assistant", "content": text });
            if !message.tool_calls.is_empty() {
                sent["tool_calls"] =
                    message.tool_calls.iter().map(|call| build_ollama_tool_call(builder, call)).collect();
                if let Some(thinking) = vendor_state::decode_vendor_state(OLLAMA_STATE, builder.endpoint, message) {
                    sent["thinking"] = thinking;
                }
            }
            sent
        }
        ChatRole::Tool => {
            let calls = earlier.iter().rev().flat_map(|message| &message.tool_calls);
            let call = calls.into_iter().find(|call| Some(&call.id) == message.tool_call_id.as_ref());
            let name = call.map(|call| builder.tool_names.vendor_name(&call.name)).unwrap_or_default();
            let content = tool_result_text(message);
            json!({ "role": "tool", "tool_name": name, "tool_call_id": message.tool_call_id, "content": content })
        }
    })
}

fn build_ollama_tool_call(builder: &VendorRequestBuilder<'_>, call: &ToolCall) -> Value {
    let arguments = to_arguments_object(&call.arguments);
    json!({ "id": call.id, "function": { "name": builder.tool_names.vendor_name(&call.name), "arguments": arguments } })
}

/// Reads the response stream.
pub(super) struct OllamaStreamReader {
    pub context: VendorStreamReaderContext,
    tool_calls: ToolCallAssembler,
    think_splitter: ThinkTagSplitter,
    reasoning: String,
    pub usage: Option<TokenUsage>,
}

impl OllamaStreamReader {
    pub(super) fn new(context: VendorStreamReaderContext) -> Self {
        Self {
            context,
            tool_calls: ToolCallAssembler::default(),
            think_splitter: ThinkTagSplitter::default(),
            reasoning: String::new(),
            usage: None,
        }
    }

    pub(super) fn read_event(&mut self, event: &SseEvent, out: &mut Vec<ReplyChunk>) -> Result<(), CallFailure> {
        let body = self.context.parse_event_json(event)?;
        self.read_body(&body, out)
    }

    /// Reads a reply that was not streamed.
    pub(super) fn read_whole_reply(&mut self, body: &Value, out: &mut Vec<ReplyChunk>) -> Result<(), CallFailure> {
        if body.get("error").is_none() && body.get("message").is_none() {
            return Err(self.context.unknown_reply_format_failure());
        }
        self.read_body(body, out)
    }

    fn read_body(&mut self, body: &Value, out: &mut Vec<ReplyChunk>) -> Result<(), CallFailure> {
        if body.get("error").is_some_and(|error| !error.is_null()) {
            return Err(self.context.classify_error(body));
        }
        if let Some(thinking) = nonempty_str_at(body, "/message/thinking") {
            self.reasoning.push_str(thinking);
            out.push(ReplyChunk::Reasoning(thinking.to_owned()));
        }
        if let Some(text) = nonempty_str_at(body, "/message/content") {
            self.think_splitter.push(text, out);
        }
        for call in body.pointer("/message/tool_calls").and_then(Value::as_array).into_iter().flatten() {
            // Calls are always complete, and their index is not reliable.
            let arguments = call.pointer("/function/arguments");
            let arguments = arguments.map(|given| given.as_str().map_or_else(|| given.to_string(), str::to_owned));
            let index = self.tool_calls.len() as u64;
            self.tool_calls.add_fragment(
                index,
                nonempty_str_at(call, "/id"),
                nonempty_str_at(call, "/function/name"),
                arguments.as_deref().unwrap_or("{}"),
            )?;
        }
        if body["done"].as_bool().unwrap_or(false) {
            self.finish_stream(body, out);
        }
        Ok(())
    }

    fn finish_stream(&mut self, body: &Value, out: &mut Vec<ReplyChunk>) {
        self.usage = parse_ollama_usage(body);
        self.think_splitter.finish(out);
        let stop = match nonempty_str_at(body, "/done_reason") {
            Some("length") => StopReason::Length,
            Some(other) if other != "stop" => stop_for_unknown_reason(),
            _ if self.tool_calls.len() > 0 => StopReason::ToolCalls,
            _ => StopReason::Done,
        };
        let calls = self.tool_calls.finish_calls(&self.context.tool_names, &self.context.known_call_ids, stop);
        if calls.iter().any(Option::is_some) && !self.reasoning.is_empty() {
            let thinking = std::mem::take(&mut self.reasoning);
            out.push(vendor_state::encode_vendor_state(OLLAMA_STATE, &self.context.endpoint, json!(thinking)));
        }
        out.extend(calls.into_iter().flatten().map(ReplyChunk::ToolCall));
        out.push(finish_chunk(stop, self.usage));
    }
}

/// Parses token usage; Ollama does not report cached tokens.
fn parse_ollama_usage(body: &Value) -> Option<TokenUsage> {
    let output = token_count_at(body, "/eval_count").unwrap_or(0);
    let input = token_count_at(body, "/prompt_eval_count")?;
    Some(TokenUsage { input_tokens: input, output_tokens: output, ..TokenUsage::default() })
}
