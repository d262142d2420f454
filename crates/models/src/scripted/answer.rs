//! Turns an entry into an answer to play: placeholders filled, pieces cut, failures worded.

use std::time::Duration;

use segue_core::prompt::{Failure, FailureKind, Stop, ToolCall};

use super::entry::{Body, Then};
use super::matching::Call;
use crate::model::Finish;
use crate::playback::{Beat, Playback};
use crate::template;
use crate::text::{Pieces, first_user};

/// The answer for the `n`-th use of the entry called `entry`.
pub(super) fn prepare(then: &Then, call: &Call<'_>, entry: &str, n: u32) -> Playback {
    let fill = |name: &str| placeholder(call, n, name);
    let render = |text: &String| if then.raw { text.clone() } else { template::render(text, &fill) };
    let render_json = |json| if then.raw { Clone::clone(json) } else { template::render_json(json, &fill) };

    let mut beats = vec![Beat::Wait(Duration::from_millis(then.delay_ms))];
    beats.extend(then.reasoning.as_ref().map(|text| Beat::Reasoning(render(text))));
    let kind = then.fail.unwrap_or(FailureKind::Network);
    let failure = Failure {
        kind,
        message: then.message.as_ref().map_or_else(|| "scripted failure".to_owned(), render),
        retry_after_ms: then.retry_after_ms,
        spent: None,
    };
    if then.fail.is_some() && then.fail_after_chunks.is_none() {
        beats.push(Beat::Fail(failure));
        return Playback::new(beats);
    }
    let cut = |text| match then.chunk_chars {
        Some(chars) => Pieces::cut(text, chars),
        None => Pieces::whole(text),
    };
    beats.push(Beat::Text(match &then.body {
        Body::Nothing => Pieces::given(Vec::new()),
        Body::Text(text) => cut(render(text)),
        Body::Json(json) => cut(render_json(json).to_string()),
        Body::Chunks(chunks) => Pieces::given(chunks.iter().map(render).collect()),
    }));
    beats.extend(then.tool_calls.iter().enumerate().map(|(index, tool)| {
        let id = tool.id.clone().unwrap_or_else(|| format!("call_{entry}_{n}_{}", index + 1));
        Beat::ToolCall(ToolCall { id, name: tool.name.clone(), arguments: render_json(&tool.arguments) })
    }));
    if then.hang {
        beats.push(Beat::Hang);
    }
    let stop = then.stop.unwrap_or(if then.tool_calls.is_empty() { Stop::Done } else { Stop::Tools });
    beats.push(Beat::Finish(Finish { stop, usage: then.usage, ..Finish::default() }));
    let playback = Playback::new(beats).with_gap(Duration::from_millis(then.chunk_delay_ms));
    match then.fail_after_chunks {
        Some(chunks) => playback.breaking_after(chunks, failure),
        None => playback,
    }
}

fn placeholder(call: &Call<'_>, n: u32, name: &str) -> Option<String> {
    let facts = call.facts;
    let or_none = |name: Option<String>| Some(name.unwrap_or_default());
    match name {
        "last" => Some(call.last().to_owned()),
        "first" => Some(first_user(call.prompt)),
        "n" => Some(n.to_string()),
        "turn" => or_none(facts.turn.map(|turn| turn.0.to_string())),
        "role" => Some(facts.role.to_string()),
        "ask" => Some(facts.ask.to_string()),
        "phase" => or_none(facts.phase.as_ref().map(ToString::to_string)),
        "agent" => or_none(facts.agent.as_ref().map(ToString::to_string)),
        "peer" => or_none(facts.peer.as_ref().map(ToString::to_string)),
        "model" => Some(call.prompt.model.to_string()),
        "attempt" => Some(facts.attempt.to_string()),
        "call" => Some(facts.call.0.to_string()),
        _ => None,
    }
}
