//! Threads as lanes over the turns: which role remembers what, from when to when.

use std::collections::BTreeSet;

use axum::Json;
use segue_core::ids::TurnId;
use segue_core::scope::{ScopeTag, ThreadOpenReason};
use segue_core::session::SessionState;
use serde::Serialize;
use utoipa::ToSchema;

use super::common_types::serialized_name;
use super::session_view::{read_session_state, with_session_history};
use super::{AtEventParams, SessionPath};
use crate::extract::{QueryParams, SessionRef};
use crate::history::{JournalPosition, SessionHistory, ThreadHistoryEntry};
use crate::problem::HttpProblem;

/// All threads.
#[derive(Debug, Serialize, ToSchema)]
pub struct ThreadList {
    /// In the order they were opened.
    pub threads: Vec<ThreadView>,
}

/// A thread.
#[derive(Debug, Serialize, ToSchema)]
pub struct ThreadView {
    /// Which.
    pub thread: String,
    /// Whose memory.
    pub role: String,
    /// Of which individual.
    pub agent: Option<String>,
    /// Of the talk with whom.
    pub peer: Option<String>,
    /// On which model, where the role has a thread for each.
    pub model: Option<String>,
    /// Which sample of that.
    pub sample: Option<u16>,
    /// How far the role's memory reaches, in words.
    pub memory: String,
    /// The call that opened it.
    pub opened: ThreadCallPoint,
    /// Why it was opened.
    pub opening_reason: ThreadOpeningView,
    /// What it is good for: it ends when one of these changes.
    pub valid_for: ScopeTagView,
    /// The call that found another wanted in its place.
    pub ended: Option<ThreadCallPoint>,
    /// The calls that used it.
    pub calls: Vec<String>,
    /// The turns of those.
    pub turns: Vec<String>,
    /// Messages it held when it was last used.
    pub messages: u32,
    /// Tokens it held when it was last used.
    pub tokens: u32,
    /// How it was shortened.
    pub compactions: Vec<CompactionView>,
    /// Whether a call could still continue it.
    pub is_active: bool,
}

/// A call and where it was opened.
#[derive(Debug, Serialize, ToSchema)]
pub struct ThreadCallPoint {
    /// The place.
    pub seq: u64,
    /// When.
    pub at: u64,
    /// In which turn.
    pub turn: Option<String>,
    /// The call.
    pub call: String,
}

/// Why a thread was opened.
#[derive(Debug, Serialize, ToSchema)]
pub struct ThreadOpeningView {
    /// `fresh`, `first`, `changed` or `aged`.
    pub kind: String,
    /// In words.
    pub summary: String,
    /// What changed: `turn`, `phase`, `model`, `work`, `reset`.
    pub changed: Vec<String>,
}

/// What a thread is good for.
#[derive(Debug, Serialize, ToSchema)]
pub struct ScopeTagView {
    /// This phase.
    pub phase: Option<String>,
    /// This visit of it.
    pub visit: Option<u32>,
    /// This turn.
    pub turn: Option<String>,
    /// This model.
    pub model: Option<String>,
    /// This work item.
    pub work_item: Option<String>,
}

/// How a thread was shortened.
#[derive(Debug, Serialize, ToSchema)]
pub struct CompactionView {
    /// The place.
    pub seq: u64,
    /// When.
    pub at: u64,
    /// Messages folded.
    pub messages_folded: u32,
    /// Tokens before.
    pub tokens_before: u32,
    /// Tokens after.
    pub tokens_after: u32,
    /// The call that wrote the summary.
    pub summary_call: Option<String>,
}

/// Which role remembers what, from when to when
#[utoipa::path(get, path = "/v1/sessions/{session}/threads", tag = "threads", params(SessionPath, AtEventParams), responses((status = 200, body = ThreadList)))]
pub async fn list_threads(
    session_ref: SessionRef,
    QueryParams(at): QueryParams<AtEventParams>,
) -> Result<Json<ThreadList>, HttpProblem> {
    let at = at.to_seq()?;
    let (rules, state) = read_session_state(&session_ref, at).await?;
    let spec = rules.spec();
    let memory = |note: &ThreadHistoryEntry| {
        spec.roles.get(&note.slot.role).map(|role| role.scope.describe()).unwrap_or_default()
    };
    let threads = with_session_history(&session_ref, at, |chronicle| {
        let view =
            |note: &ThreadHistoryEntry| thread_view(chronicle, note, memory(note), is_thread_active(note, &state));
        chronicle.threads.values().map(view).collect()
    });
    Ok(Json(ThreadList { threads: threads.await? }))
}

fn thread_view(history: &SessionHistory, entry: &ThreadHistoryEntry, memory: String, stands: bool) -> ThreadView {
    let turns: BTreeSet<TurnId> = entry.calls.iter().filter_map(|call| history.calls.get(call)?.turn).collect();
    let point = |(place, turn, call): &(JournalPosition, Option<TurnId>, segue_core::ids::CallId)| ThreadCallPoint {
        seq: place.seq.0,
        at: place.at.0,
        turn: turn.map(|turn| turn.to_string()),
        call: call.to_string(),
    };
    let compaction = |compacted: &crate::history::CompactionEntry| CompactionView {
        seq: compacted.position.seq.0,
        at: compacted.position.at.0,
        messages_folded: compacted.messages_folded,
        tokens_before: compacted.tokens_before,
        tokens_after: compacted.tokens_after,
        summary_call: compacted.summary_call.map(|call| call.to_string()),
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
        is_active: stands,
    }
}

/// Whether the thread is still in its place, and what it is good for still holds.
fn is_thread_active(entry: &ThreadHistoryEntry, state: &SessionState) -> bool {
    let session = &state.session;
    let phase_holds = entry.tag.phase_visit.as_ref().is_none_or(|visit| {
        let mut stands = session.phase_graphs.iter().filter(|(key, _)| key.graph == visit.graph).peekable();
        // A graph that never moved is in its first visit.
        stands.peek().is_none() || stands.any(|(_, stand)| stand.state.visit == visit.number)
    });
    let turn_holds =
        entry.tag.turn.is_none_or(|turn| session.current_turn.as_ref().is_some_and(|running| running.id == turn));
    let is_kept =
        entry.tag.single_call.is_none() && entry.ended.is_none() && session.threads.contains_key(&entry.thread);
    let resets = session.slot_resets.get(&entry.slot).copied().unwrap_or(0);
    is_kept && phase_holds && turn_holds && resets == entry.tag.slot_resets
}

fn thread_opening_view(why: &ThreadOpenReason) -> ThreadOpeningView {
    let parts = match why {
        ThreadOpenReason::Changed(parts) => parts.iter().map(serialized_name).collect(),
        ThreadOpenReason::Fresh | ThreadOpenReason::FirstUse | ThreadOpenReason::TooOld => Vec::new(),
    };
    ThreadOpeningView { kind: serialized_name(why), summary: why.to_string(), changed: parts }
}

fn scope_tag_view(tag: &ScopeTag) -> ScopeTagView {
    ScopeTagView {
        phase: tag.phase_visit.as_ref().map(|visit| visit.phase.to_string()),
        visit: tag.phase_visit.as_ref().map(|visit| visit.number),
        turn: tag.turn.map(|turn| turn.to_string()),
        model: tag.model.as_ref().map(|(model, _)| model.to_string()),
        work_item: tag.work_item.as_ref().map(ToString::to_string),
    }
}
