//! Anthropic's Messages API. Cache breakpoints are explicit: after the instructions, at the end of the previous prompt, and at
//! the end of this one if later prompts will begin with it.

use std::collections::BTreeMap;

use segue_core::prompt::{CallFailure, ChatRole, PromptMessage, StopReason, TokenUsage, ToolCall};
use serde_json::{Value, json};

use super::sse::SseEvent;
use super::tool_call_assembler::ToolCallAssembler;
use super::tool_names::VendorToolNameMap;
use super::wire_format::{
    VendorRequestBuilder, VendorStreamReaderContext, finish_chunk, nonempty_str_at, stop_for_unknown_reason,
    to_arguments_object, token_count_at,
};
use super::{JsonMode, ReasoningEffort, ThinkingSupport, schema_compat, vendor_state};
use crate::model::{CacheablePromptPart, ReplyChunk};

/// The API version.
pub(super) const ANTHROPIC_VERSION_HEADER: (&str, &str) = ("anthropic-version", "2023-06-01");
/// Tags vendor state in this format.
const ANTHROPIC_STATE: &str = "anthropic";

pub(super) fn build_anthropic_body(builder: &VendorRequestBuilder<'_>) -> Value {
    let endpoint = builder.endpoint;
    let mut messages = build_anthropic_messages(builder);
    let mut system: Vec<Value> =
        builder.system_text().map(|text| json!({ "type": "text", "text": text })).into_iter().collect();
    let mut tools: Vec<Value> = builder
        .prompt
        .tools
        .iter()
        .map(|tool| {
            let name = builder.tool_names.vendor_name(&tool.name);
            json!({ "name": name, "description": tool.description, "input_schema": tool.parameters })
        })
        .collect();
    if messages.is_empty() {
        // The API requires at least one message, so instructions without messages are sent as the user's.
        let content = std::mem::take(&mut system);
        messages.push(json!({ "role": "user", "content": content }));
    }
    mark_cache_breakpoints(&mut tools, &mut system, &mut messages, builder.caching);
    let mut body = json!({
        "model": endpoint.model,
        "max_tokens": builder.output_token_budget(),
        "stream": true,
        "messages": messages,
    });
    if !system.is_empty() {
        body["system"] = json!(system);
    }
    if !tools.is_empty() {
        body["tools"] = json!(tools);
    }
    if let (Some(schema), JsonMode::Schema) = (builder.output_schema(), builder.json_mode)
        && let Some(schema) = schema_compat::to_anthropic_schema(schema)
    {
        body["output_config"]["format"] = json!({ "type": "json_schema", "schema": schema });
    }
    match (endpoint.params.effort, endpoint.capabilities.thinking) {
        (Some(effort), ThinkingSupport::Levels) => {
            // Most of these models cannot turn thinking off.
            let level = if effort == ReasoningEffort::None { ReasoningEffort::Low } else { effort };
            body["output_config"]["effort"] = json!(level.as_str());
            body["thinking"] = json!({ "type": "adaptive", "display": "summarized" });
        }
        (None | Some(ReasoningEffort::None), _) | (Some(_), ThinkingSupport::None) => {}
        (Some(effort), ThinkingSupport::Budget | ThinkingSupport::Unknown) => {
            let tokens =
                endpoint.thinking_token_budget(effort, builder.output_token_budget(), builder.prompt.reply_tokens_max);
            if let Some(tokens) = tokens.filter(|_| can_enable_thinking(builder)) {
                body["thinking"] = json!({ "type": "enabled", "budget_tokens": tokens });
            }
        }
    }
    if let Some(choice) = builder.anthropic_tool_choice(body.get("thinking").is_some()) {
        body["tool_choice"] = choice;
    }
    if let Some(temperature) = endpoint.effective_temperature() {
        body["temperature"] = json!(temperature);
    }
    body
}

/// Sets the cache breakpoints. The API allows four; three are useful here.
fn mark_cache_breakpoints(
    tools: &mut [Value],
    system: &mut [Value],
    messages: &mut [Value],
    caching: CacheablePromptPart,
) {
    if let Some(last) = system.last_mut().or(tools.last_mut()) {
        set_cache_control(last);
    }
    if caching == CacheablePromptPart::SystemOnly {
        return;
    }
    let last_user = messages.len().checked_sub(1);
    // The previous prompt ended with the user message before the last.
    let before = messages.len().checked_sub(3).filter(|index| messages[*index]["role"] == "user");
    for index in [before, last_user].into_iter().flatten() {
        if let Some(last) = messages[index]["content"].as_array_mut().and_then(|blocks| blocks.last_mut()) {
            set_cache_control(last);
        }
    }
}

fn set_cache_control(block: &mut Value) {
    block["cache_control"] = json!({ "type": "ephemeral" });
}

/// Builds alternating user and assistant messages; tool results belong to the user.
fn build_anthropic_messages(builder: &VendorRequestBuilder<'_>) -> Vec<Value> {
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    let last_user = builder.prompt.messages.iter().rposition(|message| message.chat_role == ChatRole::User);
    let messages = builder.prompt.messages.iter().enumerate();
    for (index, message) in messages.filter(|(_, message)| message.chat_role != ChatRole::System) {
        let role = if message.chat_role == ChatRole::Assistant { "assistant" } else { "user" };
        // Thinking blocks are only valid while the tool round they began is open.
        let is_open = last_user.is_none_or(|last_user| index > last_user);
        let blocks = build_content_blocks(builder, message, is_open);
        match turns.last_mut() {
            _ if blocks.is_empty() => {}
            Some((last, content)) if *last == role => content.extend(blocks),
            _ => turns.push((role, blocks)),
        }
    }
    turns.into_iter().map(|(role, content)| json!({ "role": role, "content": content })).collect()
}

fn build_content_blocks(
    builder: &VendorRequestBuilder<'_>,
    message: &PromptMessage,
    keep_thinking: bool,
) -> Vec<Value> {
    let text = message.text();
    if message.chat_role == ChatRole::Tool {
        let mut result =
            json!({ "type": "tool_result", "tool_use_id": builder.answered_call_id(message), "content": text });
        if message.failed {
            result["is_error"] = json!(true);
        }
        return vec![result];
    }
    let images = message.images.iter().map(|image| {
        let source = json!({ "type": "base64", "media_type": image.media_type, "data": &*image.data });
        json!({ "type": "image", "source": source })
    });
    if let Some(blocks) = decode_content_blocks(builder, message, keep_thinking) {
        return blocks;
    }
    // The API refuses texts of whitespace only.
    let text_block = (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text }));
    let calls = message
        .tool_calls
        .iter()
        .map(|call| with_vendor_safe_call_id(builder, build_tool_use_block(builder.tool_names, call)));
    images.chain(text_block).chain(calls).collect()
}

fn build_tool_use_block(names: &VendorToolNameMap, call: &ToolCall) -> Value {
    let input = to_arguments_object(&call.arguments);
    json!({ "type": "tool_use", "id": call.id, "name": names.vendor_name(&call.name), "input": input })
}

/// Replaces the id of a call by one that the vendor accepts.
fn with_vendor_safe_call_id(builder: &VendorRequestBuilder<'_>, mut call: Value) -> Value {
    call["id"] = json!(builder.endpoint.vendor_call_id(nonempty_str_at(&call, "/id").unwrap_or_default()));
    call
}

/// Returns whether thinking may be enabled: not in the middle of a tool round that this model began without it.
fn can_enable_thinking(builder: &VendorRequestBuilder<'_>) -> bool {
    let open_round = builder.prompt.messages.iter().rev().take_while(|message| message.chat_role != ChatRole::User);
    let mut begins_with_thinking = true;
    for message in open_round.filter(|message| !message.tool_calls.is_empty()) {
        let Some(blocks) = decode_content_blocks(builder, message, true) else { return false };
        let is_thinking =
            |block: &Value| matches!(nonempty_str_at(block, "/type"), Some("thinking" | "redacted_thinking"));
        begins_with_thinking = blocks.first().is_some_and(is_thinking);
    }
    begins_with_thinking
}

/// Restores the content blocks of an earlier reply, in their original order, from the message's vendor state.
fn decode_content_blocks(
    builder: &VendorRequestBuilder<'_>,
    message: &PromptMessage,
    keep_thinking: bool,
) -> Option<Vec<Value>> {
    let Value::Array(mut blocks) = vendor_state::decode_vendor_state(ANTHROPIC_STATE, builder.endpoint, message)?
    else {
        return None;
    };
    blocks.retain(|block| match nonempty_str_at(block, "/type") {
        Some("tool_use") => vendor_state::has_tool_call(message, nonempty_str_at(block, "/id")),
        Some("text") => true,
        _ => keep_thinking,
    });
    let calls = blocks.iter().filter(|block| block["type"] == "tool_use").count();
    let is_complete = calls > 0 && calls == message.tool_calls.len();
    let with_id =
        |block: Value| if block["type"] == "tool_use" { with_vendor_safe_call_id(builder, block) } else { block };
    is_complete.then(|| blocks.into_iter().map(with_id).collect())
}

/// Reads the response stream.
pub(super) struct AnthropicStreamReader {
    pub context: VendorStreamReaderContext,
    tool_calls: ToolCallAssembler,
    /// By content block index.
    blocks: BTreeMap<u64, PartialAnthropicContentBlock>,
    stop: Option<StopReason>,
    usage: TokenUsage,
}

/// A content block that is being received.
enum PartialAnthropicContentBlock {
    Thinking(PartialAnthropicThinkingBlock),
    Text(String),
    /// The next call of the assembler.
    ToolUse,
}

struct PartialAnthropicThinkingBlock {
    block: Value,
    thinking: String,
    signature: String,
}

impl PartialAnthropicThinkingBlock {
    fn from_block_start(block: &Value) -> Self {
        let at = |key: &str| nonempty_str_at(block, key).unwrap_or_default().to_owned();
        Self { block: block.clone(), thinking: at("/thinking"), signature: at("/signature") }
    }

    /// Returns the block as it must be sent back.
    fn to_json(&self) -> Value {
        let mut block = self.block.clone();
        // A redacted block has neither.
        if block["type"] == "thinking" {
            block["thinking"] = json!(self.thinking);
            block["signature"] = json!(self.signature);
        }
        block
    }
}

impl AnthropicStreamReader {
    pub(super) fn new(context: VendorStreamReaderContext) -> Self {
        Self {
            context,
            tool_calls: ToolCallAssembler::default(),
            blocks: BTreeMap::new(),
            stop: None,
            usage: TokenUsage::default(),
        }
    }

    /// Returns the token usage reported so far.
    pub(super) fn usage(&self) -> Option<TokenUsage> {
        (self.usage != TokenUsage::default()).then_some(self.usage)
    }

    pub(super) fn read_event(&mut self, event: &SseEvent, out: &mut Vec<ReplyChunk>) -> Result<(), CallFailure> {
        let body = self.context.parse_event_json(event)?;
        match nonempty_str_at(&body, "/type").unwrap_or(&event.name) {
            "message_start" => self.update_usage(body.pointer("/message/usage")),
            "content_block_start" => self.start_block(&body, out)?,
            "content_block_delta" => self.apply_delta(&body, out)?,
            "message_delta" => {
                self.update_usage(body.get("usage"));
                self.stop = nonempty_str_at(&body, "/delta/stop_reason").map(parse_anthropic_stop).or(self.stop);
            }
            "message_stop" => self.finish_stream(out),
            "error" => return Err(self.context.classify_error(&body)),
            _ => {}
        }
        Ok(())
    }

    fn start_block(&mut self, body: &Value, out: &mut Vec<ReplyChunk>) -> Result<(), CallFailure> {
        let block = &body["content_block"];
        let index = body["index"].as_u64().unwrap_or(0);
        match nonempty_str_at(block, "/type") {
            Some("text") => {
                self.blocks.insert(index, PartialAnthropicContentBlock::Text(String::new()));
                self.append_text(index, nonempty_str_at(block, "/text"), out);
            }
            Some("tool_use") => {
                self.blocks.insert(index, PartialAnthropicContentBlock::ToolUse);
                self.tool_calls.add_fragment(
                    index,
                    nonempty_str_at(block, "/id"),
                    nonempty_str_at(block, "/name"),
                    "",
                )?;
            }
            Some("thinking" | "redacted_thinking") => {
                self.blocks.insert(
                    index,
                    PartialAnthropicContentBlock::Thinking(PartialAnthropicThinkingBlock::from_block_start(block)),
                );
            }
            _ => {}
        }
        Ok(())
    }

    fn append_text(&mut self, index: u64, text: Option<&str>, out: &mut Vec<ReplyChunk>) {
        let Some(text) = text else { return };
        if let Some(PartialAnthropicContentBlock::Text(block_text)) = self.blocks.get_mut(&index) {
            block_text.push_str(text);
        }
        out.push(ReplyChunk::Text(text.to_owned()));
    }

    fn apply_delta(&mut self, body: &Value, out: &mut Vec<ReplyChunk>) -> Result<(), CallFailure> {
        let delta = &body["delta"];
        let index = body["index"].as_u64().unwrap_or(0);
        match nonempty_str_at(delta, "/type") {
            Some("text_delta") => self.append_text(index, nonempty_str_at(delta, "/text"), out),
            Some("input_json_delta") => {
                self.tool_calls.add_fragment(
                    index,
                    None,
                    None,
                    nonempty_str_at(delta, "/partial_json").unwrap_or_default(),
                )?;
            }
            Some("thinking_delta") => {
                let thinking = nonempty_str_at(delta, "/thinking").unwrap_or_default();
                if let Some(PartialAnthropicContentBlock::Thinking(current)) = self.blocks.get_mut(&index) {
                    current.thinking.push_str(thinking);
                }
                out.push(ReplyChunk::Reasoning(thinking.to_owned()));
            }
            Some("signature_delta") => {
                if let Some(PartialAnthropicContentBlock::Thinking(current)) = self.blocks.get_mut(&index) {
                    current.signature.push_str(nonempty_str_at(delta, "/signature").unwrap_or_default());
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Merges usage, which arrives in two parts: later values replace earlier ones, missing ones stay.
    fn update_usage(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage else { return };
        let at = |key: &str| token_count_at(usage, key);
        if let Some(uncached) = at("/input_tokens") {
            let read = at("/cache_read_input_tokens").unwrap_or(self.usage.cached_tokens);
            let written = at("/cache_creation_input_tokens").unwrap_or(self.usage.cache_write_tokens);
            self.usage.input_tokens = uncached.saturating_add(read).saturating_add(written);
            (self.usage.cached_tokens, self.usage.cache_write_tokens) = (read, written);
        }
        self.usage.output_tokens = at("/output_tokens").unwrap_or(self.usage.output_tokens);
    }

    fn finish_stream(&mut self, out: &mut Vec<ReplyChunk>) {
        let stop =
            self.stop.unwrap_or(if self.tool_calls.len() > 0 { StopReason::ToolCalls } else { StopReason::Done });
        let calls = self.tool_calls.finish_calls(&self.context.tool_names, &self.context.known_call_ids, stop);
        if calls.iter().any(Option::is_some) {
            out.push(self.encode_reply_state(&calls));
        }
        out.extend(calls.into_iter().flatten().map(ReplyChunk::ToolCall));
        out.push(finish_chunk(stop, self.usage()));
    }

    /// Encodes all content blocks of the reply, in order.
    fn encode_reply_state(&self, calls: &[Option<ToolCall>]) -> ReplyChunk {
        let mut calls = calls.iter();
        let blocks = self.blocks.values().filter_map(|block| match block {
            PartialAnthropicContentBlock::Thinking(block) => Some(block.to_json()),
            // The API refuses texts of whitespace only.
            PartialAnthropicContentBlock::Text(text) => {
                (!text.trim().is_empty()).then(|| json!({ "type": "text", "text": text }))
            }
            PartialAnthropicContentBlock::ToolUse => {
                calls.next()?.as_ref().map(|call| build_tool_use_block(&self.context.tool_names, call))
            }
        });
        vendor_state::encode_vendor_state(ANTHROPIC_STATE, &self.context.endpoint, blocks.collect())
    }
}

fn parse_anthropic_stop(reason: &str) -> StopReason {
    match reason {
        "max_tokens" | "model_context_window_exceeded" => StopReason::Length,
        "tool_use" => StopReason::ToolCalls,
        "refusal" => StopReason::ContentFilter,
        "end_turn" | "stop_sequence" => StopReason::Done,
        _ => stop_for_unknown_reason(),
    }
}
