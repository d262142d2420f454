//! A stand-in that plays any role without a model, so that a flow can be tried without a key. It decides what to answer from
//! the request alone: the same request gets the same answer, today and tomorrow, on every machine. It does not pretend: prose
//! ends with [`MARK`].
//!
//! In this order it gives: what the flow hints at; a tool call, if one is plainly asked for; JSON that satisfies the schema;
//! prose, with a block if its instructions call for one now.

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

use segue_core::prompt::{OutputFormat, Prompt, StopReason, ToolCall};

pub use self::phrases::REHEARSAL_MARK;

use self::parsed_prompt::ParsedPrompt;
use self::rng::SeededRng;
use crate::limits::{REHEARSAL_HINT_BYTES_MAX, SIMULATED_WINDOW_TOKENS};
use crate::model::{
    CallMetadata, LanguageModel, ModelDescription, ModelRequest, ModelSource, ReplyChunkStream, ReplyFinish,
};
use crate::playback::{PlaybackStep, ReplyPlayback};
use crate::template;
use crate::text::TextChunks;

/// Characters a token is taken for where an answer must be kept short.
const CHARS_PER_TOKEN: usize = 4;

/// The stand-in.
#[derive(Debug, Clone, Copy, Default)]
pub struct RehearsalModel {
    speed: TypingSpeed,
}

/// How fast it talks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypingSpeed {
    /// Before the first chunk.
    pub first_chunk_ms: u64,
    /// Between chunks.
    pub chunk_ms: u64,
    /// Characters a chunk.
    pub chunk_chars: usize,
}

impl TypingSpeed {
    /// No pauses at all.
    pub const INSTANT: Self = Self { first_chunk_ms: 0, chunk_ms: 0, chunk_chars: 12 };
}

impl Default for TypingSpeed {
    /// As fast as people like to read along.
    fn default() -> Self {
        Self { first_chunk_ms: 150, chunk_ms: 12, chunk_chars: 6 }
    }
}

impl RehearsalModel {
    /// A stand-in that talks at this pace.
    #[must_use]
    pub fn with_speed(speed: TypingSpeed) -> Self {
        Self { speed }
    }

    /// A stand-in that answers at once.
    #[must_use]
    pub fn instant() -> Self {
        Self::with_speed(TypingSpeed::INSTANT)
    }
}

impl LanguageModel for RehearsalModel {
    fn stream(&self, request: ModelRequest) -> ReplyChunkStream {
        let answer = compose_rehearsal_reply(&request.prompt, &request.metadata);
        let mut beats = vec![
            PlaybackStep::Wait(Duration::from_millis(self.speed.first_chunk_ms)),
            PlaybackStep::Text(TextChunks::split_every(answer.text, self.speed.chunk_chars)),
        ];
        beats.extend(answer.tool_call.map(PlaybackStep::ToolCall));
        beats.push(PlaybackStep::Finish(ReplyFinish { stop: answer.stop, ..ReplyFinish::default() }));
        ReplyPlayback::new(beats).with_chunk_delay(Duration::from_millis(self.speed.chunk_ms)).into_stream()
    }

    fn describe(&self) -> ModelDescription {
        ModelDescription {
            kind: ModelSource::Rehearsal,
            label: phrases::REHEARSAL_LABEL.to_owned(),
            window_tokens: SIMULATED_WINDOW_TOKENS,
        }
    }
}

/// What the stand-in came up with.
#[derive(Debug, Default)]
struct RehearsalReply {
    text: String,
    tool_call: Option<ToolCall>,
    stop: StopReason,
}

impl RehearsalReply {
    fn from_text(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

fn compose_rehearsal_reply(prompt: &Prompt, call: &CallMetadata) -> RehearsalReply {
    let reading = ParsedPrompt::from_prompt(prompt);
    if let Some(hint) = &call.hints.reply_template {
        return RehearsalReply::from_text(render_reply_template(hint, prompt, call, &reading));
    }
    let mut dice = SeededRng::from_call(prompt, call);
    if let Some(tool_call) = tool_choice::choose_tool_call(prompt, &reading, &mut dice) {
        return RehearsalReply { tool_call: Some(tool_call), stop: StopReason::ToolCalls, ..RehearsalReply::default() };
    }
    if let OutputFormat::Json(schema) = &prompt.output_format {
        return RehearsalReply::from_text(json_generator::generate_json(schema, &reading, &mut dice).to_string());
    }
    let prose = phrases::escape_block_markers(&prose::compose_prose(&reading, call, &mut dice));
    let prose = format!("{prose} {REHEARSAL_MARK}");
    let limit = usize::try_from(prompt.reply_tokens_max).unwrap_or(usize::MAX).saturating_mul(CHARS_PER_TOKEN);
    // No limit at all is what a zero can only mean.
    if limit > 0 && prose.chars().count() > limit {
        return RehearsalReply {
            text: prose.chars().take(limit).collect(),
            stop: StopReason::Length,
            ..RehearsalReply::default()
        };
    }
    match blocks::compose_due_block(&reading, &mut dice) {
        Some(block) => RehearsalReply::from_text(format!("{prose}\n\n{block}")),
        None => RehearsalReply::from_text(prose),
    }
}

/// The flow's own words, placeholders filled. If they are JSON, they stay JSON.
fn render_reply_template(hint: &str, prompt: &Prompt, call: &CallMetadata, parsed: &ParsedPrompt) -> String {
    let room = Cell::new(REHEARSAL_HINT_BYTES_MAX);
    let fill = |name: &str| {
        if room.get() == 0 {
            return Some(String::new());
        }
        let value = phrases::escape_block_markers(&resolve_rehearsal_placeholder(name, prompt, call, parsed)?);
        let left = room.get().checked_sub(value.len());
        room.set(left.unwrap_or(0));
        Some(if left.is_some() { value } else { String::new() })
    };
    match serde_json::from_str(hint) {
        Ok(json) => template::render_json_template(&json, &fill).to_string(),
        Err(_) => template::render_template(hint, &fill),
    }
}

fn resolve_rehearsal_placeholder(
    name: &str,
    prompt: &Prompt,
    call: &CallMetadata,
    parsed: &ParsedPrompt,
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
