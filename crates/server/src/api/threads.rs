//! Threads as lanes over the turns: which role remembers what, from when to when.

use std::collections::BTreeSet;

use axum::Json;
use segue_core::ids::TurnId;
use segue_core::scope::{Opening, Tag};
use segue_core::session::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::session_view::{chronicle, state};
use super::shapes::word;
use super::{At, Named};
use crate::chronicle::{Chronicle, Place, ThreadNote};
use crate::extract::{Held, Params};
use crate::problem::Problem;

/// All threads.
#[derive(Debug, Serialize, ToSchema)]
pub struct Threads {
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
    pub opened: Point,
    /// Why it was opened.
    pub why: WhyOpened,
    /// What it is good for: it ends when one of these changes.
    pub until: UntilView,
    /// The call that found another wanted in its place.
    pub ended: Option<Point>,
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
    pub stands: bool,
}

/// A call and where it was opened.
#[derive(Debug, Serialize, ToSchema)]
pub struct Point {
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
pub struct WhyOpened {
    /// `fresh`, `first`, `changed` or `aged`.
    pub is: String,
    /// In words.
    pub words: String,
    /// What changed: `turn`, `phase`, `model`, `work`, `reset`.
    pub parts: Vec<String>,
}

/// What a thread is good for.
#[derive(Debug, Serialize, ToSchema)]
pub struct UntilView {
    /// This phase.
    pub phase: Option<String>,
    /// This visit of it.
    pub visit: Option<u32>,
    /// This turn.
    pub turn: Option<String>,
    /// This model.
    pub model: Option<String>,
    /// This work item.
    pub work: Option<String>,
}

/// How a thread was shortened.
#[derive(Debug, Serialize, ToSchema)]
pub struct CompactionView {
    /// The place.
    pub seq: u64,
    /// When.
    pub at: u64,
    /// Messages folded.
    pub folded: u32,
    /// Tokens before.
    pub tokens_before: u32,
    /// Tokens after.
    pub tokens_after: u32,
    /// The call that wrote the summary.
    pub by: Option<String>,
}

/// Which role remembers what, from when to when
#[utoipa::path(get, path = "/v1/sessions/{session}/threads", tag = "threads", params(Named, At), responses((status = 200, body = Threads)))]
pub async fn list(held: Held, Params(at): Params<At>) -> Result<Json<Threads>, Problem> {
    let at = at.seq()?;
    let (rules, state) = state(&held, at).await?;
    let spec = rules.spec();
    let memory = |note: &ThreadNote| spec.roles.get(&note.slot.role).map(|role| role.scope.words()).unwrap_or_default();
    let threads = chronicle(&held, at, |chronicle| {
        let view = |note: &ThreadNote| thread_view(chronicle, note, memory(note), stands(note, &state));
        chronicle.threads.values().map(view).collect()
    });
    Ok(Json(Threads { threads: threads.await? }))
}

fn thread_view(chronicle: &Chronicle, note: &ThreadNote, memory: String, stands: bool) -> ThreadView {
    let turns: BTreeSet<TurnId> = note.calls.iter().filter_map(|call| chronicle.calls.get(call)?.turn).collect();
    let point = |(place, turn, call): &(Place, Option<TurnId>, segue_core::ids::CallId)| Point {
        seq: place.seq.0,
        at: place.at.0,
        turn: turn.map(|turn| turn.to_string()),
        call: call.to_string(),
    };
    let compaction = |compacted: &crate::chronicle::Compacted| CompactionView {
        seq: compacted.place.seq.0,
        at: compacted.place.at.0,
        folded: compacted.folded,
        tokens_before: compacted.tokens_before,
        tokens_after: compacted.tokens_after,
        by: compacted.by.map(|call| call.to_string()),
    };
    let (model, sample) = note.slot.model.clone().unzip();
    ThreadView {
        thread: note.thread.to_string(),
        role: note.slot.role.to_string(),
        agent: note.slot.agent.as_ref().map(ToString::to_string),
        peer: note.slot.peer.as_ref().map(ToString::to_string),
        model: model.map(|model| model.to_string()),
        sample,
        memory,
        opened: point(&note.opened),
        why: why(&note.why),
        until: until(&note.tag),
        ended: note.ended.as_ref().map(point),
        calls: note.calls.iter().map(ToString::to_string).collect(),
        turns: turns.iter().map(ToString::to_string).collect(),
        messages: note.messages,
        tokens: note.tokens,
        compactions: note.compactions.iter().map(compaction).collect(),
        stands,
    }
}

/// Whether the thread is still in its place, and what it is good for still holds.
fn stands(note: &ThreadNote, state: &State) -> bool {
    let session = &state.session;
    let phase_holds = note.tag.phase.as_ref().is_none_or(|visit| {
        let mut stands = session.phases.iter().filter(|(key, _)| key.graph == visit.graph).peekable();
        // A graph that never moved is in its first visit.
        stands.peek().is_none() || stands.any(|(_, stand)| stand.now.visit == visit.visit)
    });
    let turn_holds = note.tag.turn.is_none_or(|turn| session.turn.as_ref().is_some_and(|running| running.id == turn));
    let is_kept = note.tag.fresh.is_none() && note.ended.is_none() && session.threads.contains_key(&note.thread);
    let resets = session.resets.get(&note.slot).copied().unwrap_or(0);
    is_kept && phase_holds && turn_holds && resets == note.tag.resets
}

fn why(why: &Opening) -> WhyOpened {
    let parts = match why {
        Opening::Changed(parts) => parts.iter().map(word).collect(),
        Opening::Fresh | Opening::First | Opening::Aged => Vec::new(),
    };
    WhyOpened { is: word(why), words: why.to_string(), parts }
}

fn until(tag: &Tag) -> UntilView {
    UntilView {
        phase: tag.phase.as_ref().map(|visit| visit.phase.to_string()),
        visit: tag.phase.as_ref().map(|visit| visit.visit),
        turn: tag.turn.map(|turn| turn.to_string()),
        model: tag.model.as_ref().map(|(model, _)| model.to_string()),
        work: tag.work.as_ref().map(ToString::to_string),
    }
}
