//! Serves the threads of a session: which role remembered what, and for how long.

use std::collections::BTreeSet;

use axum::Json;
use segue_core::ids::TurnId;
use segue_core::scope::{ThreadOpenReason, ThreadReuseConditions};
use segue_core::session::SessionState;
use serde::Serialize;
use utoipa::ToSchema;

use super::common_types::serialized_name;
use super::session_view::{read_session_state, with_session_history};
use super::{AtEventParams, SessionPathParamDocs};
use crate::extract::{CallerSessionRef, QueryParams};
use crate::history::{EventSeqAndTime, SessionHistory, ThreadHistoryEntry};
use crate::problem::HttpProblem;

/// The threads of a session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ThreadList {
    /// In the order of opening.
    pub threads: Vec<ThreadView>,
}

/// A thread.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ThreadView {
    pub thread: String,
    pub role: String,
    pub agent: Option<String>,
    /// The agent or user that the role talks to.
    pub peer: Option<String>,
    /// Set where the role has one thread per model.
    pub model: Option<String>,
    pub sample: Option<u16>,
    /// A description of the role's scope.
    pub memory: String,
    /// The call that opened the thread.
    pub opened: ThreadBoundaryCallView,
    pub opening_reason: ThreadOpenReasonView,
    /// What the thread is valid for; it ends when one of these changes.
    pub valid_for: ThreadReuseConditionsView,
    /// The call that opened the next thread in its place.
    pub ended: Option<ThreadBoundaryCallView>,
    /// The calls that used the thread.
    pub calls: Vec<String>,
    /// The turns of those calls.
    pub turns: Vec<String>,
    /// The number of messages after the last call.
    pub messages: u32,
    /// The number of tokens after the last call.
    pub tokens: u32,
    pub compactions: Vec<ThreadCompactionView>,
    /// Whether a call could still continue the thread.
    pub is_active: bool,
}

/// A call, and the event that opened it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ThreadBoundaryCallView {
    pub seq: u64,
    pub at: u64,
    pub turn: Option<String>,
    pub call: String,
}

/// Why a thread was opened.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ThreadOpenReasonView {
    /// `fresh`, `first_use`, `changed` or `too_old`.
    #[serde(rename = "type")]
    pub kind: String,
    pub summary: String,
    /// For `changed`, any of `turn`, `phase`, `model`, `work_item` and `reset`.
    pub changed: Vec<String>,
}

/// What a thread is valid for.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ThreadReuseConditionsView {
    pub phase: Option<String>,
    /// The visit to that phase.
    pub visit: Option<u32>,
    pub turn: Option<String>,
    pub model: Option<String>,
    pub work_item: Option<String>,
}

/// A compaction of a thread.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ThreadCompactionView {
    pub seq: u64,
    pub at: u64,
    /// The number of messages that were replaced by a summary.
    pub messages_folded: u32,
    pub tokens_before: u32,
    pub tokens_after: u32,
    /// The call that wrote the summary.
    pub summary_call: Option<String>,
}

/// List the threads of a session
#[utoipa::path(get, path = "/v1/sessions/{session}/threads", tag = "threads", params(SessionPathParamDocs, AtEventParams), responses((status = 200, body = ThreadList)))]
pub(crate) async fn list_threads(
    session_ref: CallerSessionRef,
    QueryParams(at): QueryParams<AtEventParams>,
) -> Result<Json<ThreadList>, HttpProblem> {
    let at = at.to_seq()?;
    let (flow, state) = read_session_state(&session_ref, at).await?;
    let spec = flow.spec();
    let memory = |entry: &ThreadHistoryEntry| {
        spec.roles.get(&entry.slot.role).map(|role| role.scope.to_string()).unwrap_or_default()
    };
    let threads = with_session_history(&session_ref, at, |history| {
        let view =
            |entry: &ThreadHistoryEntry| thread_view(history, entry, memory(entry), is_thread_active(entry, &state));
        history.threads.values().map(view).collect()
    });
    Ok(Json(ThreadList { threads: threads.await? }))
}

fn thread_view(history: &SessionHistory, entry: &ThreadHistoryEntry, memory: String, is_active: bool) -> ThreadView {
    let turns: BTreeSet<TurnId> = entry.calls.iter().filter_map(|call| history.calls.get(call)?.turn).collect();
    let point =
        |(position, turn, call): &(EventSeqAndTime, Option<TurnId>, segue_core::ids::CallId)| ThreadBoundaryCallView {
            seq: position.seq.0,
            at: position.at.0,
            turn: turn.map(|turn| turn.to_string()),
            call: call.to_string(),
        };
    let compaction = |compaction: &crate::history::ThreadCompactionHistoryEntry| ThreadCompactionView {
        seq: compaction.position.seq.0,
        at: compaction.position.at.0,
        messages_folded: compaction.messages_folded,
        tokens_before: compaction.tokens_before,
        tokens_after: compaction.tokens_after,
        summary_call: compaction.summary_call.map(|call| call.to_string()),
    };
    let (model, sample) = entry.slot.model.clone().unzip();
    ThreadView {
        thread: entry.thread.to_string(),
        role: entry.slot.role.to_string(),
        agent: entry.slot.agent.as_ref().map(ToString::to_string),
        peer: entry.slot.peer.as_ref().map(ToString::to_string),
        model: model.map(|model| model.to_string()),
        sample,
        memory,
        opened: point(&entry.opened),
        opening_reason: thread_opening_view(&entry.opening_reason),
        valid_for: scope_tag_view(&entry.tag),
        ended: entry.ended.as_ref().map(point),
        calls: entry.calls.iter().map(ToString::to_string).collect(),
        turns: turns.iter().map(ToString::to_string).collect(),
        messages: entry.messages,
        tokens: entry.tokens,
        compactions: entry.compactions.iter().map(compaction).collect(),
        is_active,
    }
}

/// Returns whether the thread is the newest of its slot and its scope tag still matches the state.
fn is_thread_active(entry: &ThreadHistoryEntry, state: &SessionState) -> bool {
    let session = &state.session;
    let phase_holds = entry.tag.phase_visit.as_ref().is_none_or(|visit| {
        let mut graphs = session.phase_graphs.iter().filter(|(key, _)| key.graph == visit.graph).peekable();
        // A graph without a recorded status is in its first visit.
        graphs.peek().is_none() || graphs.any(|(_, status)| status.state.visit == visit.number)
    });
    let turn_holds =
        entry.tag.turn.is_none_or(|turn| session.current_turn.as_ref().is_some_and(|running| running.id == turn));
    let is_kept =
        entry.tag.single_call.is_none() && entry.ended.is_none() && session.threads.contains_key(&entry.thread);
    let resets = session.slot_resets.get(&entry.slot).copied().unwrap_or(0);
    is_kept && phase_holds && turn_holds && resets == entry.tag.slot_resets
}

fn thread_opening_view(reason: &ThreadOpenReason) -> ThreadOpenReasonView {
    let changed = match reason {
        ThreadOpenReason::Changed(changed) => changed.iter().map(serialized_name).collect(),
        ThreadOpenReason::Fresh | ThreadOpenReason::FirstUse | ThreadOpenReason::TooOld => Vec::new(),
    };
    ThreadOpenReasonView { kind: serialized_name(reason), summary: reason.to_string(), changed }
}

fn scope_tag_view(tag: &ThreadReuseConditions) -> ThreadReuseConditionsView {
    ThreadReuseConditionsView {
        phase: tag.phase_visit.as_ref().map(|visit| visit.phase.to_string()),
        visit: tag.phase_visit.as_ref().map(|visit| visit.number),
        turn: tag.turn.map(|turn| turn.to_string()),
        model: tag.model.as_ref().map(|(model, _)| model.to_string()),
        work_item: tag.work_item.as_ref().map(ToString::to_string),
    }
}
