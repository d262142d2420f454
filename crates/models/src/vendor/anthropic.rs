//! Anthropic's messages. What is cached there is marked by us: the instructions, the end of the last prompt, and the end of this one if
//! another will begin with it.

use std::collections::BTreeMap;

use segue_core::prompt::{CallFailure, ChatRole, PromptMessage, StopReason, TokenUsage, ToolCall};
use serde_json::{Value, json};

use super::sse::SseEvent;
use super::tool_call_assembler::ToolCallAssembler;
use super::tool_names::ToolNameMap;
use super::wire_format::{
    ReaderContext, VendorRequestBuilder, finish_chunk, nonempty_str_at, stop_for_unknown_reason, to_arguments_object,
    token_count_at,
};
use super::{JsonMode, ReasoningEffort, ThinkingSupport, schema_compat, vendor_state};
use crate::model::{PromptCaching, ReplyChunk};

/// The version of the format.
pub(super) const ANTHROPIC_VERSION_HEADER: (&str, &str) = ("anthropic-version", "2023-06-01");
/// Whose seals these are.
const ANTHROPIC_STATE: &str = "anthropic";

pub(super) fn build_anthropic_body(builder: &VendorRequestBuilder<'_>) -> Value {
    let connection = builder.endpoint;
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
        // Somebody must be spoken to; instructions alone are then what is said.
        let said = std::mem::take(&mut system);
        messages.push(json!({ "role": "user", "content": said }));
    }
    mark_cache_breakpoints(&mut tools, &mut system, &mut messages, builder.caching);
    let mut body = json!({
        "model": connection.model,
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
    match (connection.params.effort, connection.capabilities.thinking) {
        (Some(effort), ThinkingSupport::Levels) => {
            // Most of them cannot do without.
            let level = if effort == ReasoningEffort::None { ReasoningEffort::Low } else { effort };
            body["output_config"]["effort"] = json!(level.as_str());
            body["thinking"] = json!({ "type": "adaptive", "display": "summarized" });
        }
        (None | Some(ReasoningEffort::None), _) | (Some(_), ThinkingSupport::None) => {}
        (Some(effort), ThinkingSupport::Budget | ThinkingSupport::Unknown) => {
            let tokens = connection.thinking_token_budget(
                effort,
                builder.output_token_budget(),
                builder.prompt.reply_tokens_max,
            );
            if let Some(tokens) = tokens.filter(|_| can_enable_thinking(builder)) {
                body["thinking"] = json!({ "type": "enabled", "budget_tokens": tokens });
            }
        }
    }
    if let Some(temperature) = connection.effective_temperature() {
        body["temperature"] = json!(temperature);
    }
    body
}

/// Sets the marks up to which the vendor keeps what it has read. At most four are allowed; three are of use.
fn mark_cache_breakpoints(tools: &mut [Value], system: &mut [Value], messages: &mut [Value], caching: PromptCaching) {
    if let Some(last) = system.last_mut().or(tools.last_mut()) {
        set_cache_control(last);
    }
    if caching == PromptCaching::SystemOnly {
        return;
    }
    let last_user = messages.len().checked_sub(1);
    // Where the prompt before this one ended: the user's message before the last.
    let before = messages.len().checked_sub(3).filter(|place| messages[*place]["role"] == "user");
    for place in [before, last_user].into_iter().flatten() {
        if let Some(last) = messages[place]["content"].as_array_mut().and_then(|blocks| blocks.last_mut()) {
            set_cache_control(last);
        }
    }
}

fn set_cache_control(block: &mut Value) {
    block["cache_control"] = json!({ "type": "ephemeral" });
}

/// User and assistant in turn; what a tool returned is the user's.
fn build_anthropic_messages(builder: &VendorRequestBuilder<'_>) -> Vec<Value> {
    let mut turns: Vec<(&str, Vec<Value>)> = Vec::new();
    let last_asked = builder.prompt.messages.iter().rposition(|message| message.chat_role == ChatRole::User);
    let messages = builder.prompt.messages.iter().enumerate();
    for (place, message) in messages.filter(|(_, message)| message.chat_role != ChatRole::System) {
        let role = if message.chat_role == ChatRole::Assistant { "assistant" } else { "user" };
        // Thoughts are bound to the tools and the words before them, so they go back only while the round they began is open.
        let is_open = last_asked.is_none_or(|asked| place > asked);
        let blocks = build_content_blocks(builder, message, is_open);
        match turns.last_mut() {
            _ if blocks.is_empty() => {}
            Some((last, said)) if *last == role => said.extend(blocks),
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
    let said = message.text();
    if message.chat_role == ChatRole::Tool {
        let mut result =
            json!({ "type": "tool_result", "tool_use_id": builder.answered_call_id(message), "content": said });
        if message.failed {
            result["is_error"] = json!(true);
        }
        return vec![result];
    }
    let images = message.images.iter().map(|image| {
        let source = json!({ "type": "base64", "media_type": image.media_type.mime_type(), "data": &*image.data });
        json!({ "type": "image", "source": source })
    });
    if let Some(sealed) = decode_content_blocks(builder, message, keep_thinking) {
        return sealed;
    }
    // A text of blanks only is refused.
    let words = (!said.trim().is_empty()).then(|| json!({ "type": "text", "text": said }));
    let calls = message
        .tool_calls
        .iter()
        .map(|call| with_vendor_call_id(builder, build_tool_use_block(builder.tool_names, call)));
    images.chain(words).chain(calls).collect()
}

fn build_tool_use_block(names: &ToolNameMap, call: &ToolCall) -> Value {
    let input = to_arguments_object(&call.arguments);
    json!({ "type": "tool_use", "id": call.id, "name": names.vendor_name(&call.name), "input": input })
}

/// A call with an id that the vendor takes.
fn with_vendor_call_id(builder: &VendorRequestBuilder<'_>, mut call: Value) -> Value {
    call["id"] = json!(builder.endpoint.vendor_call_id(nonempty_str_at(&call, "/id").unwrap_or_default()));
    call
}

/// Whether the round that is open, if one is, began with a thought of this model: thinking cannot be switched on in the middle of one.
fn can_enable_thinking(builder: &VendorRequestBuilder<'_>) -> bool {
    let open = builder.prompt.messages.iter().rev().take_while(|message| message.chat_role != ChatRole::User);
    let mut is_first_thought_through = true;
    for message in open.filter(|message| !message.tool_calls.is_empty()) {
        let Some(blocks) = decode_content_blocks(builder, message, true) else { return false };
        let is_thought =
            |block: &Value| matches!(nonempty_str_at(block, "/type"), Some("thinking" | "redacted_thinking"));
        is_first_thought_through = blocks.first().is_some_and(is_thought);
    }
    is_first_thought_through
}

/// What the model thought, said and called, in its own order.
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
    let is_whole = calls > 0 && calls == message.tool_calls.len();
    let sent = |block: Value| if block["type"] == "tool_use" { with_vendor_call_id(builder, block) } else { block };
    is_whole.then(|| blocks.into_iter().map(sent).collect())
}

/// Reads the stream.
pub(super) struct AnthropicStreamReader {
    pub context: ReaderContext,
    tool_calls: ToolCallAssembler,
    /// By their places.
    blocks: BTreeMap<u64, StreamedBlock>,
    stop: Option<StopReason>,
    usage: TokenUsage,
}

/// A piece of the answer on its way.
enum StreamedBlock {
    Thinking(ThinkingBlock),
    Text(String),
    /// The next of the calls.
    ToolUse,
}

/// A thought on its way.
struct ThinkingBlock {
    block: Value,
    thinking: String,
    signature: String,
}

impl ThinkingBlock {
    fn from_block_start(block: &Value) -> Self {
        let at = |key: &str| nonempty_str_at(block, key).unwrap_or_default().to_owned();
        Self { block: block.clone(), thinking: at("/thinking"), signature: at("/signature") }
    }

    /// The thought as it must be sent back.
    fn to_json(&self) -> Value {
        let mut block = self.block.clone();
        // One that nobody may read has neither.
        if block["type"] == "thinking" {
            block["thinking"] = json!(self.thinking);
            block["signature"] = json!(self.signature);
        }
        block
    }
}

impl AnthropicStreamReader {
    pub fn new(context: ReaderContext) -> Self {
        Self {
            context,
            tool_calls: ToolCallAssembler::default(),
            blocks: BTreeMap::new(),
            stop: None,
            usage: TokenUsage::default(),
        }
    }

    /// The figures so far.
    pub fn usage(&self) -> Option<TokenUsage> {
        (self.usage != TokenUsage::default()).then_some(self.usage)
    }

    pub fn read_event(&mut self, event: &SseEvent, out: &mut Vec<ReplyChunk>) -> Result<(), CallFailure> {
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
        let place = body["index"].as_u64().unwrap_or(0);
        match nonempty_str_at(block, "/type") {
            Some("text") => {
                self.blocks.insert(place, StreamedBlock::Text(String::new()));
                self.append_text(place, nonempty_str_at(block, "/text"), out);
            }
            Some("tool_use") => {
                self.blocks.insert(place, StreamedBlock::ToolUse);
                self.tool_calls.add_fragment(
                    place,
                    nonempty_str_at(block, "/id"),
                    nonempty_str_at(block, "/name"),
                    "",
                )?;
            }
            Some("thinking" | "redacted_thinking") => {
                self.blocks.insert(place, StreamedBlock::Thinking(ThinkingBlock::from_block_start(block)));
            }
            _ => {}
        }
        Ok(())
    }

    fn append_text(&mut self, index: u64, words: Option<&str>, out: &mut Vec<ReplyChunk>) {
        let Some(words) = words else { return };
        if let Some(StreamedBlock::Text(said)) = self.blocks.get_mut(&index) {
            said.push_str(words);
        }
        out.push(ReplyChunk::Text(words.to_owned()));
    }

    fn apply_delta(&mut self, body: &Value, out: &mut Vec<ReplyChunk>) -> Result<(), CallFailure> {
        let delta = &body["delta"];
        let place = body["index"].as_u64().unwrap_or(0);
        match nonempty_str_at(delta, "/type") {
            Some("text_delta") => self.append_text(place, nonempty_str_at(delta, "/text"), out),
            Some("input_json_delta") => {
                self.tool_calls.add_fragment(
                    place,
                    None,
                    None,
                    nonempty_str_at(delta, "/partial_json").unwrap_or_default(),
                )?;
            }
            Some("thinking_delta") => {
                let thought = nonempty_str_at(delta, "/thinking").unwrap_or_default();
                if let Some(StreamedBlock::Thinking(current)) = self.blocks.get_mut(&place) {
                    current.thinking.push_str(thought);
                }
                out.push(ReplyChunk::Reasoning(thought.to_owned()));
            }
            Some("signature_delta") => {
                if let Some(StreamedBlock::Thinking(current)) = self.blocks.get_mut(&place) {
                    current.signature.push_str(nonempty_str_at(delta, "/signature").unwrap_or_default());
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The figures come in two parts; what comes later is the total, and what does not come again holds.
    fn update_usage(&mut self, usage: Option<&Value>) {
        let Some(usage) = usage else { return };
        let at = |key: &str| token_count_at(usage, key);
        if let Some(fresh) = at("/input_tokens") {
            let read = at("/cache_read_input_tokens").unwrap_or(self.usage.cached_tokens);
            let written = at("/cache_creation_input_tokens").unwrap_or(self.usage.cache_write_tokens);
            self.usage.input_tokens = fresh.saturating_add(read).saturating_add(written);
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

    /// The whole answer, in its order.
    fn encode_reply_state(&self, calls: &[Option<ToolCall>]) -> ReplyChunk {
        let mut calls = calls.iter();
        let blocks = self.blocks.values().filter_map(|block| match block {
            StreamedBlock::Thinking(thought) => Some(thought.to_json()),
            // A text of blanks only is refused.
            StreamedBlock::Text(words) => (!words.trim().is_empty()).then(|| json!({ "type": "text", "text": words })),
            StreamedBlock::ToolUse => {
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
