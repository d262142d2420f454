//! The built-in demo model, which answers when no real model is configured. Its reply depends only on the request: the same
//! request gets the same reply on every machine. Prose ends with [`REHEARSAL_MARK`], so it is never mistaken for a real
//! answer.
//!
//! It returns, in this order: the flow's reply template; a tool call, if the message clearly asks for one; JSON that
//! satisfies the requested schema; prose, followed by a block if the instructions ask for one now.

mod blocks;
mod json_generator;
mod parsed_prompt;
mod phrases;
mod prose;
mod recall;
mod rng;
mod tool_choice;

use std::cell::Cell;
use std::time::Duration;

use segue_core::prompt::{ModelOutputFormat, Prompt, StopReason, ToolCall};

pub use self::phrases::REHEARSAL_MARK;

use self::parsed_prompt::RehearsalPromptParts;
use self::rng::SeededRng;
use crate::limits::{REHEARSAL_HINT_BYTES_MAX, SIMULATED_WINDOW_TOKENS};
use crate::model::{
    LanguageModel, ModelBackendKind, ModelCallOrigin, ModelDescription, ModelRequest, ReplyChunkStream, ReplyFinish,
};
use crate::playback::{ReplyPlayback, ReplyPlaybackStep};
use crate::template;
use crate::text::TextChunkIterator;

/// Estimated characters per token, to respect the reply limit.
const CHARS_PER_TOKEN: usize = 4;

/// The built-in demo model.
#[derive(Debug, Clone, Copy, Default)]
pub struct RehearsalModel {
    speed: RehearsalTypingSpeed,
}

/// How fast the rehearsal model streams its replies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RehearsalTypingSpeed {
    /// Delay before the first chunk.
    pub first_chunk_ms: u64,
    /// Delay between chunks.
    pub chunk_ms: u64,
    pub chunk_chars: usize,
}

impl RehearsalTypingSpeed {
    /// No delays.
    pub const INSTANT: Self = Self { first_chunk_ms: 0, chunk_ms: 0, chunk_chars: 12 };
}

impl Default for RehearsalTypingSpeed {
    /// A comfortable reading speed.
    fn default() -> Self {
        Self { first_chunk_ms: 150, chunk_ms: 12, chunk_chars: 6 }
    }
}

impl RehearsalModel {
    /// Creates a model that streams at this speed.
    #[must_use]
    pub fn with_speed(speed: RehearsalTypingSpeed) -> Self {
        Self { speed }
    }

    /// Creates a model that answers without delays.
    #[must_use]
    pub fn instant() -> Self {
        Self::with_speed(RehearsalTypingSpeed::INSTANT)
    }
}

impl LanguageModel for RehearsalModel {
    fn stream(&self, request: ModelRequest) -> ReplyChunkStream {
        let reply = compose_rehearsal_reply(&request.prompt, &request.metadata);
        let mut steps = vec![
            ReplyPlaybackStep::Wait(Duration::from_millis(self.speed.first_chunk_ms)),
            ReplyPlaybackStep::Text(TextChunkIterator::split_every(reply.text, self.speed.chunk_chars)),
        ];
        steps.extend(reply.tool_calls.into_iter().map(ReplyPlaybackStep::ToolCall));
        steps.push(ReplyPlaybackStep::Finish(ReplyFinish { stop: reply.stop, ..ReplyFinish::default() }));
        ReplyPlayback::new(steps).with_chunk_delay(Duration::from_millis(self.speed.chunk_ms)).into_stream()
    }

    fn describe(&self) -> ModelDescription {
        ModelDescription {
            kind: ModelBackendKind::Rehearsal,
            label: phrases::REHEARSAL_LABEL.to_owned(),
            window_tokens: SIMULATED_WINDOW_TOKENS,
        }
    }
}

#[derive(Debug, Default)]
struct RehearsalReply {
    text: String,
    tool_calls: Vec<ToolCall>,
    stop: StopReason,
}

impl RehearsalReply {
    fn from_text(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

fn compose_rehearsal_reply(prompt: &Prompt, call: &ModelCallOrigin) -> RehearsalReply {
    let parsed = RehearsalPromptParts::from_prompt(prompt);
    if let Some(reply_template) = &call.hints.reply_template {
        let tool_calls = call.hints.tool_calls.clone();
        let stop = if tool_calls.is_empty() { StopReason::default() } else { StopReason::ToolCalls };
        let text = render_reply_template(reply_template, prompt, call, &parsed);
        return RehearsalReply { text, tool_calls, stop };
    }
    let mut rng = SeededRng::from_call(prompt, call);
    if let Some(tool_call) = tool_choice::choose_tool_call(prompt, &parsed, &mut rng) {
        let tool_calls = vec![tool_call];
        return RehearsalReply { tool_calls, stop: StopReason::ToolCalls, ..RehearsalReply::default() };
    }
    if let ModelOutputFormat::Json(schema) = &prompt.output_format {
        return RehearsalReply::from_text(json_generator::generate_json(schema, &parsed, &mut rng).to_string());
    }
    let prose = phrases::escape_block_markers(&prose::compose_prose(&parsed, call, &mut rng));
    let prose = format!("{prose} {REHEARSAL_MARK}");
    let limit = usize::try_from(prompt.reply_tokens_max).unwrap_or(usize::MAX).saturating_mul(CHARS_PER_TOKEN);
    // Zero means no limit.
    if limit > 0 && prose.chars().count() > limit {
        return RehearsalReply {
            text: prose.chars().take(limit).collect(),
            stop: StopReason::Length,
            ..RehearsalReply::default()
        };
    }
    match blocks::compose_due_block(&parsed, &mut rng) {
        Some(block) => RehearsalReply::from_text(format!("{prose}\n\n{block}")),
        None => RehearsalReply::from_text(prose),
    }
}

/// Fills in the flow's reply template. A JSON template stays valid JSON.
fn render_reply_template(
    reply_template: &str,
    prompt: &Prompt,
    call: &ModelCallOrigin,
    parsed: &RehearsalPromptParts,
) -> String {
    let bytes_left = Cell::new(REHEARSAL_HINT_BYTES_MAX);
    let fill = |name: &str| {
        if bytes_left.get() == 0 {
            return Some(String::new());
        }
        let value = phrases::escape_block_markers(&resolve_rehearsal_placeholder(name, prompt, call, parsed)?);
        let left = bytes_left.get().checked_sub(value.len());
        bytes_left.set(left.unwrap_or(0));
        Some(if left.is_some() { value } else { String::new() })
    };
    match serde_json::from_str(reply_template) {
        Ok(json) => template::render_json_template(&json, &fill).to_string(),
        // A template of text, not of JSON.
        Err(_) => template::render_template(reply_template, &fill),
    }
}

fn resolve_rehearsal_placeholder(
    name: &str,
    prompt: &Prompt,
    call: &ModelCallOrigin,
    parsed: &RehearsalPromptParts,
) -> Option<String> {
    Some(match name {
        "last" => parsed.last_user_text().to_owned(),
        "first" => parsed.first_user_text().to_owned(),
        "previous" => parsed.previous_user_text().unwrap_or_default().to_owned(),
        "topic" => parsed.last_topic(),
        "first_topic" => parsed.first_topic(),
        "keywords" => parsed.keywords().join(", "),
        "mark" => REHEARSAL_MARK.to_owned(),
        "n" => parsed.user_message_count().to_string(),
        "turn" => call.turn.map(|turn| turn.0.to_string()).unwrap_or_default(),
        "role" => call.role.to_string(),
        "ask" => call.ask.to_string(),
        "phase" => call.phase.as_ref().map(ToString::to_string).unwrap_or_default(),
        "agent" => call.agent.as_ref().map(ToString::to_string).unwrap_or_default(),
        "peer" => call.peer.as_ref().map(ToString::to_string).unwrap_or_default(),
        "model" => prompt.model.to_string(),
        "attempt" => call.attempt.to_string(),
        _ => return None,
    })
}
