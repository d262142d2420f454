//! Finds a call in its journal, with what happened to it and what its thread began with.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::bail;
use segue_core::context::{Piece, ThreadUse};
use segue_core::event::{CallAnswered, CallOpened, Event};
use segue_core::ids::{CallId, Millis, RoleName, Seq, SessionId, ThreadId};
use segue_engine::Engine;

use super::tools::ToolResults;
use crate::journal::Journal;
use crate::lookup;
use crate::print::amount::timely;

/// When and where something was recorded.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    pub seq: Seq,
    pub at: Millis,
}

/// A call, and all that is known of it.
#[derive(Debug)]
pub struct Found {
    pub opened: (Place, Arc<CallOpened>),
    /// The call that opened its thread, and what it was opened with; nothing if that was this very call.
    pub opening: Option<(CallId, Vec<Piece>)>,
    /// Messages of its thread that were folded before it.
    pub folded: u32,
    /// The same role's call before it.
    pub previous: Option<CallId>,
    /// What came of the tools whose results it brings, in words.
    pub tools: Vec<String>,
    /// Tries that brought no answer, in words.
    pub tries: Vec<String>,
    pub answered: Option<Box<CallAnswered>>,
    /// Whether nothing is owed for it any more.
    is_over: bool,
}

/// Reads the journal for a call.
pub async fn find(engine: &Engine, session: &SessionId, wanted: CallId) -> anyhow::Result<Found> {
    let mut found: Option<Found> = None;
    let mut calls = Vec::new();
    let mut latest: BTreeMap<RoleName, CallId> = BTreeMap::new();
    let mut openings: BTreeMap<ThreadId, (CallId, Vec<Piece>)> = BTreeMap::new();
    let mut folded: BTreeMap<ThreadId, u32> = BTreeMap::new();
    let mut results = ToolResults::default();
    let mut journal = Journal::of(engine, session);
    loop {
        let events = journal.next().await?;
        if events.is_empty() {
            break;
        }
        for event in events {
            results.take(&event.event);
            if let Some(found) = found.as_mut().filter(|_| event.event.ends_call(wanted)) {
                found.is_over = true;
            }
            match &event.event {
                Event::CallOpened(opened) => {
                    calls.push(opened.call.0);
                    // What was made once more stands beside the conversation, and nothing follows on it.
                    let previous = match opened.recomputes {
                        Some(_) => latest.get(&opened.role).copied(),
                        None => latest.insert(opened.role.clone(), opened.call),
                    };
                    let thread = opened.receipt.thread.thread();
                    if opened.call == wanted {
                        found = Some(Found {
                            opened: (Place { seq: event.seq, at: event.at }, opened.clone()),
                            opening: openings.get(&thread).cloned(),
                            folded: folded.get(&thread).copied().unwrap_or(0),
                            previous,
                            tools: opened.follows.map(|call| results.of(call)).unwrap_or_default(),
                            tries: Vec::new(),
                            answered: None,
                            is_over: false,
                        });
                    }
                    if let ThreadUse::Opened { thread, .. } = opened.receipt.thread {
                        openings.insert(thread, (opened.call, opened.receipt.opening.clone()));
                    }
                }
                Event::ThreadCompacted(compacted) => {
                    let is_its = |found: &&mut Found| found.opened.1.receipt.thread.thread() == compacted.thread;
                    if let Some(found) = found.as_mut().filter(is_its).filter(|found| !found.is_over) {
                        found.tries.push(timely(&event.event.line(&|_| String::new())));
                    }
                    *folded.entry(compacted.thread).or_default() += compacted.folded;
                }
                Event::CallAnswered(answered) if answered.call == wanted => {
                    if let Some(found) = &mut found {
                        found.answered = Some(answered.clone());
                    }
                }
                Event::CallFailed { call, .. }
                | Event::CallMoved { call, .. }
                | Event::CallUnknown { call, .. }
                | Event::CallTakenUp { call }
                | Event::CallResolved { call, .. }
                | Event::CallCancelled { call, .. }
                | Event::CallAnsweredLate { call, .. }
                    if *call == wanted =>
                {
                    if let Some(found) = &mut found {
                        found.tries.push(timely(&event.event.line(&|_| String::new())));
                    }
                }
                _ => {}
            }
        }
    }
    if let Some(found) = found {
        return Ok(found);
    }
    if calls.is_empty() {
        bail!("the session `{session}` has made no call yet");
    }
    let near: Vec<String> = lookup::near(wanted.0, calls).iter().map(|call| CallId(*call).to_string()).collect();
    bail!("the session `{session}` has no call {wanted}; near it are {}", near.join(", "))
}
