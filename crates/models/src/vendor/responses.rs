//! OpenAI's Responses API. Nothing is stored at the vendor: each request contains the whole conversation.

use segue_core::prompt::{CallFailure, ChatRole, PromptMessage, StopReason, TokenUsage};
use serde_json::{Map, Value, json};

use super::chat::image_data_url;
use super::sse::SseEvent;
use super::tool_call_assembler::ToolCallAssembler;
use super::tool_use::OpenAiToolChoiceApi;
use super::wire_format::{
    VendorRequestBuilder, VendorStreamReaderContext, finish_chunk, nonempty_str_at, stop_for_unknown_reason,
    to_arguments_object, token_count_at, tool_result_text,
};
use super::{JsonMode, ThinkingSupport, schema_compat, vendor_state};
use crate::model::ReplyChunk;

/// Tags vendor state in this format.
const RESPONSES_STATE: &str = "responses";

pub(super) fn build_responses_body(builder: &VendorRequestBuilder<'_>) -> Value {
    let endpoint = builder.endpoint;
    let mut body = json!({
        "model": endpoint.model,
        "stream": true,
        "store": false,
        "max_output_tokens": builder.output_token_budget(),
    });
    // Nothing is stored, so encrypted reasoning must be sent back; models without reasoning refuse the option.
    let thinks = matches!(endpoint.capabilities.thinking, ThinkingSupport::Budget | ThinkingSupport::Levels)
        && builder.features.reasoning;
    if thinks {
        body["include"] = json!(["reasoning.encrypted_content"]);
    }
    let system = builder.openai_system_message("input_text", &mut body);
    let messages = builder.prompt.messages.iter().filter(|message| message.chat_role != ChatRole::System);
    let messages = messages.flat_map(|message| build_input_items(builder, message));
    body["input"] = system.into_iter().chain(messages).collect();
    if !builder.prompt.tools.is_empty() {
        let tools = builder.prompt.tools.iter().map(|tool| {
            let name = builder.tool_names.vendor_name(&tool.name);
            let (description, parameters) = (&tool.description, &tool.parameters);
            json!({ "type": "function", "name": name, "description": description, "parameters": parameters, "strict": false })
        });
        body["tools"] = tools.collect();
    }
    builder.set_openai_tool_use(&mut body, OpenAiToolChoiceApi::Responses);
    match (builder.output_schema(), builder.json_mode) {
        (Some(schema), JsonMode::Schema) => {
            let strict = schema_compat::is_strict_schema(schema);
            let format = json!({ "type": "json_schema", "name": "answer", "schema": schema, "strict": strict });
            body["text"] = json!({ "format": format });
        }
        (Some(_), JsonMode::Object) => body["text"] = json!({ "format": { "type": "json_object" } }),
        (Some(_), JsonMode::Prompt) | (None, _) => {}
    }
    if let Some(temperature) = endpoint.effective_temperature() {
        body["temperature"] = json!(temperature);
    }
    let thinking = endpoint.capabilities.thinking;
    if let Some(effort) =
        endpoint.params.effort.filter(|_| thinking != ThinkingSupport::None && builder.features.reasoning)
    {
        body["reasoning"] = json!({ "effort": effort.as_openai_str(thinking) });
        if builder.features.reasoning_summaries {
            body["reasoning"]["summary"] = json!("auto");
        }
    }
    body
}

fn build_input_items(builder: &VendorRequestBuilder<'_>, message: &PromptMessage) -> Vec<Value> {
    let text = message.text();
    match message.chat_role {
        ChatRole::System | ChatRole::User => {
            let text_item = (!text.is_empty()).then(|| json!({ "type": "input_text", "text": text }));
            let images =
                message.images.iter().map(|image| json!({ "type": "input_image", "image_url": image_data_url(image) }));
            vec![json!({ "role": "user", "content": text_item.into_iter().chain(images).collect::<Vec<_>>() })]
        }
        ChatRole::Assistant => {
            if let Some(items) = decode_items(builder, message) {
                return items;
            }
            let text_item = (!text.is_empty())
                .then(|| json!({ "role": "assistant", "content": [{ "type": "output_text", "text": text }] }));
            let calls = message.tool_calls.iter().map(|call| {
                let (name, id) =
                    (builder.tool_names.vendor_name(&call.name), builder.endpoint.vendor_call_id(&call.id));
                let arguments = to_arguments_object(&call.arguments).to_string();
                json!({ "type": "function_call", "call_id": id, "name": name, "arguments": arguments })
            });
            text_item.into_iter().chain(calls).collect()
        }
        ChatRole::Tool => {
            let id = builder.answered_call_id(message);
            vec![json!({ "type": "function_call_output", "call_id": id, "output": tool_result_text(message) })]
        }
    }
}

/// Restores the items of an earlier reply, in their original order, from the message's vendor state.
fn decode_items(builder: &VendorRequestBuilder<'_>, message: &PromptMessage) -> Option<Vec<Value>> {
    let Value::Array(mut items) = vendor_state::decode_vendor_state(RESPONSES_STATE, builder.endpoint, message)? else {
        return None;
    };
    items.retain(|item| {
        item["type"] != "function_call" || vendor_state::has_tool_call(message, nonempty_str_at(item, "/call_id"))
    });
    let mut calls = 0;
    for call in items.iter_mut().filter(|item| item["type"] == "function_call") {
        calls += 1;
        call["call_id"] = json!(builder.endpoint.vendor_call_id(nonempty_str_at(call, "/call_id").unwrap_or_default()));
    }
    (calls == message.tool_calls.len()).then_some(items)
}

/// Reduces an output item to the fields that may be sent back; `None` for other item types.
fn replayable_item(item: &Value) -> Option<Value> {
    let with_keys = |keys: &[&str]| -> Value {
        keys.iter().filter_map(|key| Some(((*key).to_owned(), item.get(key)?.clone()))).collect::<Map<_, _>>().into()
    };
    match nonempty_str_at(item, "/type")? {
        "reasoning" if nonempty_str_at(item, "/encrypted_content").is_some() => {
            let mut reasoning = with_keys(&["type", "id", "summary", "encrypted_content"]);
            if reasoning.get("summary").is_none() {
                reasoning["summary"] = json!([]);
            }
            Some(reasoning)
        }
        "function_call" => Some(with_keys(&["type", "call_id", "name", "arguments"])),
        "message" => {
            let parts = item["content"].as_array().into_iter().flatten();
            let texts = parts
                .filter_map(|part| nonempty_str_at(part, "/text"))
                .map(|text| json!({ "type": "output_text", "text": text }));
            Some(json!({ "role": "assistant", "content": texts.collect::<Vec<_>>() }))
        }
        _ => None,
    }
}

/// Reads the response stream.
pub(super) struct OpenAiResponsesStreamReader {
    pub context: VendorStreamReaderContext,
    tool_calls: ToolCallAssembler,
    /// Sent back as vendor state.
    output_items: Vec<Value>,
    is_refused: bool,
    pub usage: Option<TokenUsage>,
}

impl OpenAiResponsesStreamReader {
    pub(super) fn new(context: VendorStreamReaderContext) -> Self {
        Self {
            context,
            tool_calls: ToolCallAssembler::default(),
            output_items: Vec::new(),
            is_refused: false,
            usage: None,
        }
    }

    pub(super) fn read_event(&mut self, event: &SseEvent, out: &mut Vec<ReplyChunk>) -> Result<(), CallFailure> {
        let body = self.context.parse_event_json(event)?;
        let kind = nonempty_str_at(&body, "/type").unwrap_or(&event.name);
        let delta = || nonempty_str_at(&body, "/delta").map(str::to_owned);
        match kind {
            "response.output_text.delta" => out.extend(delta().map(ReplyChunk::Text)),
            "response.refusal.delta" => {
                self.is_refused = true;
                out.extend(delta().map(ReplyChunk::Text));
            }
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                out.extend(delta().map(ReplyChunk::Reasoning));
            }
            // A separator between the parts of a summary.
            "response.reasoning_summary_part.added" if body["summary_index"].as_u64().unwrap_or(0) > 0 => {
                out.push(ReplyChunk::Reasoning("\n\n".to_owned()));
            }
            "response.output_item.done" => self.read_output_item(&body["item"])?,
            "response.completed" | "response.incomplete" | "response.done" => {
                self.finish_stream(&body["response"], out)
            }
            "response.failed" => {
                self.usage = parse_responses_usage(&body["response"]);
                return Err(self.context.classify_error(&body["response"]));
            }
            "error" => return Err(self.context.classify_error(&body)),
            _ => {}
        }
        Ok(())
    }

    /// Reads a reply that was not streamed.
    pub(super) fn read_whole_reply(&mut self, body: &Value, out: &mut Vec<ReplyChunk>) -> Result<(), CallFailure> {
        if body.get("error").is_some_and(|error| !error.is_null()) {
            return Err(self.context.classify_error(body));
        }
        let Some(items) = body.get("output").and_then(Value::as_array) else {
            return Err(self.context.unknown_reply_format_failure());
        };
        for item in items {
            if item["type"] == "reasoning" {
                let parts = ["summary", "content"].iter().filter_map(|key| item[key].as_array()).flatten();
                let reasoning =
                    parts.filter_map(|part| nonempty_str_at(part, "/text")).collect::<Vec<_>>().join("\n\n");
                out.extend((!reasoning.is_empty()).then_some(ReplyChunk::Reasoning(reasoning)));
                self.read_output_item(item)?;
                continue;
            }
            for part in item["content"].as_array().into_iter().flatten() {
                self.is_refused |= part["type"] == "refusal";
                let text = nonempty_str_at(part, "/text").or_else(|| nonempty_str_at(part, "/refusal"));
                out.extend(text.map(|text| ReplyChunk::Text(text.to_owned())));
            }
            self.read_output_item(item)?;
        }
        self.finish_stream(body, out);
        Ok(())
    }

    fn read_output_item(&mut self, item: &Value) -> Result<(), CallFailure> {
        self.output_items.extend(replayable_item(item));
        if item["type"] != "function_call" {
            return Ok(());
        }
        let index = self.tool_calls.len() as u64;
        let arguments = nonempty_str_at(item, "/arguments").unwrap_or_default();
        self.tool_calls.add_fragment(
            index,
            nonempty_str_at(item, "/call_id"),
            nonempty_str_at(item, "/name"),
            arguments,
        )
    }

    fn finish_stream(&mut self, response: &Value, out: &mut Vec<ReplyChunk>) {
        let stop = match nonempty_str_at(response, "/incomplete_details/reason") {
            Some("content_filter") => StopReason::ContentFilter,
            Some("max_output_tokens") => StopReason::Length,
            Some(_) => stop_for_unknown_reason(),
            None if nonempty_str_at(response, "/status").is_some_and(|status| status != "completed") => {
                stop_for_unknown_reason()
            }
            None if self.is_refused => StopReason::ContentFilter,
            None if self.tool_calls.len() > 0 => StopReason::ToolCalls,
            None => StopReason::Done,
        };
        self.usage = parse_responses_usage(response);
        let mut calls = self.tool_calls.finish_calls(&self.context.tool_names, &self.context.known_call_ids, stop);
        calls.retain(Option::is_some);
        let has_reasoning = self.output_items.iter().any(|item| item["type"] == "reasoning");
        if !calls.is_empty() && has_reasoning {
            out.push(vendor_state::encode_vendor_state(
                RESPONSES_STATE,
                &self.context.endpoint,
                json!(std::mem::take(&mut self.output_items)),
            ));
        }
        out.extend(calls.into_iter().flatten().map(ReplyChunk::ToolCall));
        out.push(finish_chunk(stop, self.usage));
    }
}

fn parse_responses_usage(response: &Value) -> Option<TokenUsage> {
    let usage = response.get("usage")?;
    let input = token_count_at(usage, "/input_tokens")?;
    let at = |pointer: &str| token_count_at(usage, pointer).unwrap_or(0);
    let cached = at("/input_tokens_details/cached_tokens").min(input);
    Some(TokenUsage {
        input_tokens: input,
        output_tokens: at("/output_tokens"),
        cached_tokens: cached,
        cache_write_tokens: at("/input_tokens_details/cache_write_tokens").min(input - cached),
        reasoning_tokens: at("/output_tokens_details/reasoning_tokens"),
    })
}
