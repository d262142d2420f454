//! Explains why no entry matched a call: what the call was, and which conditions of the closest entries are not met.

use std::fmt::Write as _;

use segue_core::prompt::{CallFailure, CallFailureKind};

use super::matching::ScriptedReplyConditionInputs;
use super::scripted_reply::ScriptedReply;
use crate::limits::{QUOTED_CHARS_MAX, UNMATCHED_REPLIES_SHOWN_MAX};
use crate::text::shorten_to_line;

/// Builds the failure of a call that no entry matches; `uses` counts the uses of each entry.
pub(super) fn no_matching_reply_failure(
    call: &ScriptedReplyConditionInputs<'_>,
    entries: &[ScriptedReply],
    uses: &[u32],
) -> CallFailure {
    let mut message = format!("no scripted reply for this call: {}", describe_call(call));
    let mut reasons: Vec<_> = entries
        .iter()
        .zip(uses)
        .enumerate()
        .map(|(index, (entry, used))| (reply_label(index, entry), mismatch_reasons(call, entry, *used)))
        .collect();
    // The sort is stable: of equally close entries, the first in the file comes first.
    reasons.sort_by_key(|(_, reasons)| reasons.len());
    if !reasons.is_empty() {
        message.push_str("\nclosest entries:");
    }
    for (label, mismatches) in reasons.iter().take(UNMATCHED_REPLIES_SHOWN_MAX) {
        let _ = write!(message, "\n  {label}: {}", mismatches.join("; "));
    }
    if reasons.len() > UNMATCHED_REPLIES_SHOWN_MAX {
        let _ = write!(message, "\n  ({} more)", reasons.len() - UNMATCHED_REPLIES_SHOWN_MAX);
    }
    CallFailure::new(CallFailureKind::BadRequest, message)
}

/// Returns the name of an entry for messages.
pub(super) fn reply_label(index: usize, entry: &ScriptedReply) -> String {
    match entry.line {
        Some(line) => format!("[[reply]] {} (line {line})", index + 1),
        None => format!("[[reply]] {}", index + 1),
    }
}

fn describe_call(call: &ScriptedReplyConditionInputs<'_>) -> String {
    let metadata = call.metadata;
    let mut parts = vec![format!("role `{}`", metadata.role), format!("ask `{}`", metadata.ask)];
    parts.extend(metadata.phase.as_ref().map(|phase| format!("phase `{phase}`")));
    parts.extend(metadata.agent.as_ref().map(|agent| format!("agent `{agent}`")));
    parts.extend(metadata.peer.as_ref().map(|peer| format!("peer `{peer}`")));
    parts.extend(metadata.turn.map(|turn| format!("turn {}", turn.0)));
    parts.push(format!("call {}", metadata.call.0));
    parts.push(format!("attempt {}", metadata.attempt));
    parts.push(format!("model `{}`", call.prompt.model));
    parts.push(match call.last_user_text() {
        "" => "no user message".to_owned(),
        last => format!("last user message “{}”", shorten_to_line(last, QUOTED_CHARS_MAX)),
    });
    parts.join(", ")
}

fn mismatch_reasons(call: &ScriptedReplyConditionInputs<'_>, entry: &ScriptedReply, used: u32) -> Vec<String> {
    let mut reasons: Vec<_> = entry.when.mismatches(call).map(|mismatch| mismatch.to_string()).collect();
    if let Some(times) = entry.times.filter(|times| used >= *times) {
        reasons.push(format!("used up (times = {times})"));
    }
    reasons
}
