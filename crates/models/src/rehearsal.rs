//! A stand-in that plays any role without a model, so that a flow can be tried without a key. It decides what to answer from
//! the request alone: the same request gets the same answer, today and tomorrow, on every machine. It does not pretend: prose
//! ends with [`MARK`].
//!
//! In this order it gives: what the flow hints at; a tool call, if one is plainly asked for; JSON that satisfies the schema;
//! prose, with a block if its instructions call for one now.

mod blocks;
mod dice;
mod prose;
mod reading;
mod recall;
mod schema;
mod tools;
mod words;

use std::cell::Cell;
use std::time::Duration;

use segue_core::prompt::{Output, Prompt, Stop, ToolCall};

pub use self::words::MARK;

use self::dice::Dice;
use self::reading::Reading;
use crate::limits::{REHEARSAL_HINT_BYTES_MAX, STAND_IN_WINDOW_TOKENS};
use crate::model::{CallFacts, ChunkStream, Description, Finish, Kind, Model, Request};
use crate::playback::{Beat, Playback};
use crate::template;
use crate::text::Pieces;

/// Characters a token is taken for where an answer must be kept short.
const CHARS_PER_TOKEN: usize = 4;

/// The stand-in.
#[derive(Debug, Clone, Copy, Default)]
pub struct Rehearsal {
    pace: Pace,
}

/// How fast it talks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Before the first chunk.
    pub first_ms: u64,
    /// Between chunks.
    pub chunk_ms: u64,
    /// Characters a chunk.
    pub chunk_chars: usize,
}

impl Pace {
    /// No pauses at all.
    pub const INSTANT: Self = Self { first_ms: 0, chunk_ms: 0, chunk_chars: 12 };
}

impl Default for Pace {
    /// As fast as people like to read along.
    fn default() -> Self {
        Self { first_ms: 150, chunk_ms: 12, chunk_chars: 6 }
    }
}

impl Rehearsal {
    /// A stand-in that talks at this pace.
    #[must_use]
    pub fn paced(pace: Pace) -> Self {
        Self { pace }
    }

    /// A stand-in that answers at once.
    #[must_use]
    pub fn instant() -> Self {
        Self::paced(Pace::INSTANT)
    }
}

impl Model for Rehearsal {
    fn stream(&self, request: Request) -> ChunkStream {
        let answer = answer(&request.prompt, &request.call);
        let mut beats = vec![
            Beat::Wait(Duration::from_millis(self.pace.first_ms)),
            Beat::Text(Pieces::cut(answer.text, self.pace.chunk_chars)),
        ];
        beats.extend(answer.tool_call.map(Beat::ToolCall));
        beats.push(Beat::Finish(Finish { stop: answer.stop, ..Finish::default() }));
        Playback::new(beats).with_gap(Duration::from_millis(self.pace.chunk_ms)).into_stream()
    }

    fn describe(&self) -> Description {
        Description { kind: Kind::Rehearsal, label: words::LABEL.to_owned(), window_tokens: STAND_IN_WINDOW_TOKENS }
    }
}

/// What the stand-in came up with.
#[derive(Debug, Default)]
struct Answer {
    text: String,
    tool_call: Option<ToolCall>,
    stop: Stop,
}

impl Answer {
    fn text(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

fn answer(prompt: &Prompt, call: &CallFacts) -> Answer {
    let reading = Reading::of(prompt);
    if let Some(hint) = &call.hints.rehearse {
        return Answer::text(follow(hint, prompt, call, &reading));
    }
    let mut dice = Dice::of(prompt, call);
    if let Some(tool_call) = tools::wanted(prompt, &reading, &mut dice) {
        return Answer { tool_call: Some(tool_call), stop: Stop::Tools, ..Answer::default() };
    }
    if let Output::Json(schema) = &prompt.output {
        return Answer::text(schema::value(schema, &reading, &mut dice).to_string());
    }
    let prose = words::without_markers(&prose::compose(&reading, call, &mut dice));
    let prose = format!("{prose} {MARK}");
    let limit = usize::try_from(prompt.reply_tokens_max).unwrap_or(usize::MAX).saturating_mul(CHARS_PER_TOKEN);
    // No limit at all is what a zero can only mean.
    if limit > 0 && prose.chars().count() > limit {
        return Answer { text: prose.chars().take(limit).collect(), stop: Stop::Length, ..Answer::default() };
    }
    match blocks::due(&reading, &mut dice) {
        Some(block) => Answer::text(format!("{prose}\n\n{block}")),
        None => Answer::text(prose),
    }
}

/// The flow's own words, placeholders filled. If they are JSON, they stay JSON.
fn follow(hint: &str, prompt: &Prompt, call: &CallFacts, reading: &Reading) -> String {
    let room = Cell::new(REHEARSAL_HINT_BYTES_MAX);
    let fill = |name: &str| {
        if room.get() == 0 {
            return Some(String::new());
        }
        let value = words::without_markers(&placeholder(name, prompt, call, reading)?);
        let left = room.get().checked_sub(value.len());
        room.set(left.unwrap_or(0));
        Some(if left.is_some() { value } else { String::new() })
    };
    match serde_json::from_str(hint) {
        Ok(json) => template::render_json(&json, &fill).to_string(),
        Err(_) => template::render(hint, &fill),
    }
}

fn placeholder(name: &str, prompt: &Prompt, call: &CallFacts, reading: &Reading) -> Option<String> {
    Some(match name {
        "last" => reading.last().to_owned(),
        "first" => reading.first().to_owned(),
        "previous" => reading.previous().unwrap_or_default().to_owned(),
        "topic" => reading.topic(),
        "first_topic" => reading.first_topic(),
        "keywords" => reading.keywords().join(", "),
        "mark" => MARK.to_owned(),
        "n" => reading.said_count().to_string(),
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
