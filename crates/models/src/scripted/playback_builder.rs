//! Turns an entry into a playback: fills placeholders, splits the text, builds failures.

use std::time::Duration;

use segue_core::prompt::{CallFailure, CallFailureKind, StopReason, ToolCall};

use super::matching::ScriptedReplyConditionInputs;
use super::scripted_reply::{ScriptedReplyBehavior, ScriptedReplyBody};
use crate::model::ReplyFinish;
use crate::playback::{ReplyPlayback, ReplyPlaybackStep};
use crate::template;
use crate::text::{TextChunkIterator, first_user_text};

/// Builds the reply for the given use of the entry called `entry`.
pub(super) fn build_playback(
    behavior: &ScriptedReplyBehavior,
    call: &ScriptedReplyConditionInputs<'_>,
    entry: &str,
    use_number: u32,
) -> ReplyPlayback {
    let fill = |name: &str| resolve_scripted_placeholder(call, use_number, name);
    let render = |text: &String| if behavior.raw { text.clone() } else { template::render_template(text, &fill) };
    let render_json =
        |json| if behavior.raw { Clone::clone(json) } else { template::render_json_template(json, &fill) };

    let mut steps = vec![ReplyPlaybackStep::Wait(Duration::from_millis(behavior.delay_ms))];
    steps.extend(behavior.reasoning.as_ref().map(|text| ReplyPlaybackStep::Reasoning(render(text))));
    let kind = behavior.fail.unwrap_or(CallFailureKind::Network);
    let failure = CallFailure {
        kind,
        message: behavior.message.as_ref().map_or_else(|| "scripted failure".to_owned(), render),
        retry_after_ms: behavior.retry_after_ms,
        cost: None,
    };
    if behavior.fail.is_some() && behavior.fail_after_chunks.is_none() {
        steps.push(ReplyPlaybackStep::Fail(failure));
        return ReplyPlayback::new(steps);
    }
    let split = |text| match behavior.chunk_chars {
        Some(chars) => TextChunkIterator::split_every(text, chars),
        None => TextChunkIterator::single_chunk(text),
    };
    steps.push(ReplyPlaybackStep::Text(match &behavior.body {
        ScriptedReplyBody::Empty => TextChunkIterator::from_chunks(Vec::new()),
        ScriptedReplyBody::Text(text) => split(render(text)),
        ScriptedReplyBody::Json(json) => split(render_json(json).to_string()),
        ScriptedReplyBody::Chunks(chunks) => TextChunkIterator::from_chunks(chunks.iter().map(render).collect()),
    }));
    steps.extend(behavior.tool_calls.iter().enumerate().map(|(index, tool)| {
        let id = tool.id.clone().unwrap_or_else(|| format!("call_{entry}_{use_number}_{}", index + 1));
        ReplyPlaybackStep::ToolCall(ToolCall { id, name: tool.name.clone(), arguments: render_json(&tool.arguments) })
    }));
    if behavior.hang {
        steps.push(ReplyPlaybackStep::Hang);
    }
    let stop =
        behavior.stop.unwrap_or(if behavior.tool_calls.is_empty() { StopReason::Done } else { StopReason::ToolCalls });
    steps.push(ReplyPlaybackStep::Finish(ReplyFinish { stop, usage: behavior.usage, ..ReplyFinish::default() }));
    let playback = ReplyPlayback::new(steps).with_chunk_delay(Duration::from_millis(behavior.chunk_delay_ms));
    match behavior.fail_after_chunks {
        Some(chunks) => playback.failing_after_chunks(chunks, failure),
        None => playback,
    }
}

fn resolve_scripted_placeholder(
    call: &ScriptedReplyConditionInputs<'_>,
    use_number: u32,
    name: &str,
) -> Option<String> {
    let metadata = call.metadata;
    let or_empty = |value: Option<String>| Some(value.unwrap_or_default());
    match name {
        "last" => Some(call.last_user_text().to_owned()),
        "first" => Some(first_user_text(call.prompt)),
        "n" => Some(use_number.to_string()),
        "turn" => or_empty(metadata.turn.map(|turn| turn.0.to_string())),
        "role" => Some(metadata.role.to_string()),
        "ask" => Some(metadata.ask.to_string()),
        "phase" => or_empty(metadata.phase.as_ref().map(ToString::to_string)),
        "agent" => or_empty(metadata.agent.as_ref().map(ToString::to_string)),
        "peer" => or_empty(metadata.peer.as_ref().map(ToString::to_string)),
        "model" => Some(call.prompt.model.to_string()),
        "attempt" => Some(metadata.attempt.to_string()),
        "call" => Some(metadata.call.0.to_string()),
        _ => None,
    }
}
