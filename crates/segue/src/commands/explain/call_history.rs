//! Collects everything a journal says about one call.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::bail;
use segue_core::context::{CallThread, FragmentReceipt};
use segue_core::event::{CallAnswered, CallOpened, Event};
use segue_core::ids::{CallId, RoleName, Seq, SessionId, ThreadId, UnixMillis};
use segue_engine::Engine;

use super::tool_results::ToolOutcomesByCall;
use crate::journal_pager::JournalPager;
use crate::name_lookup;
use crate::print::number_format::format_timestamps_in_line;

/// The sequence number and time of a recorded event.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordedSeqAndTime {
    pub seq: Seq,
    pub at: UnixMillis,
}

/// One call and its history.
#[derive(Debug)]
pub(crate) struct ExplainedCall {
    pub opened: (RecordedSeqAndTime, Arc<CallOpened>),
    /// The earlier call that opened the thread, and its opening fragments; `None` if this call opened it.
    pub thread_opening: Option<(CallId, Vec<FragmentReceipt>)>,
    /// Messages of the thread that were compacted before this call.
    pub folded_messages: u32,
    /// The previous call of the same role.
    pub previous_call: Option<CallId>,
    /// One line for each tool result that the call carries.
    pub tool_results: Vec<String>,
    /// One line for each attempt without an answer.
    pub failed_attempts: Vec<String>,
    pub answered: Option<Box<CallAnswered>>,
    /// Whether the call is no longer pending.
    is_closed: bool,
}

/// Reads the journal and returns the history of a call.
pub(crate) async fn load_call_history(
    engine: &Engine,
    session: &SessionId,
    wanted: CallId,
) -> anyhow::Result<ExplainedCall> {
    let mut found: Option<ExplainedCall> = None;
    let mut calls = Vec::new();
    let mut latest: BTreeMap<RoleName, CallId> = BTreeMap::new();
    let mut openings: BTreeMap<ThreadId, (CallId, Vec<FragmentReceipt>)> = BTreeMap::new();
    let mut folded: BTreeMap<ThreadId, u32> = BTreeMap::new();
    let mut results = ToolOutcomesByCall::default();
    let mut journal = JournalPager::from_start(engine, session);
    loop {
        let events = journal.next_page().await?;
        if events.is_empty() {
            break;
        }
        for event in events {
            results.apply_event(&event.event);
            if let Some(found) = found.as_mut().filter(|_| event.event.ends_call(wanted)) {
                found.is_closed = true;
            }
            match &event.event {
                Event::CallOpened(opened) => {
                    calls.push(opened.call.0);
                    // A recomputation is not part of the conversation, so it is nobody's previous call.
                    let previous = match opened.recomputation {
                        Some(_) => latest.get(&opened.role).copied(),
                        None => latest.insert(opened.role.clone(), opened.call),
                    };
                    let thread = opened.receipt.thread.thread_id();
                    if opened.call == wanted {
                        found = Some(ExplainedCall {
                            opened: (RecordedSeqAndTime { seq: event.seq, at: event.at }, opened.clone()),
                            thread_opening: openings.get(&thread).cloned(),
                            folded_messages: folded.get(&thread).copied().unwrap_or(0),
                            previous_call: previous,
                            tool_results: opened
                                .continues
                                .map(|call| results.results_for_call(call))
                                .unwrap_or_default(),
                            failed_attempts: Vec::new(),
                            answered: None,
                            is_closed: false,
                        });
                    }
                    if let CallThread::Opened { thread, .. } = opened.receipt.thread {
                        openings.insert(thread, (opened.call, opened.receipt.opening.clone()));
                    }
                }
                Event::ThreadCompacted(compacted) => {
                    let uses_thread =
                        |found: &&mut ExplainedCall| found.opened.1.receipt.thread.thread_id() == compacted.thread;
                    if let Some(found) = found.as_mut().filter(uses_thread).filter(|found| !found.is_closed) {
                        found
                            .failed_attempts
                            .push(format_timestamps_in_line(&event.event.summary_line(&|_| String::new())));
                    }
                    *folded.entry(compacted.thread).or_default() += compacted.folded_entries;
                }
                Event::CallAnswered(answered) if answered.call == wanted => {
                    if let Some(found) = &mut found {
                        found.answered = Some(answered.clone());
                    }
                }
                Event::CallFailed { call, .. }
                | Event::CallFailedOver { call, .. }
                | Event::CallOutcomeUnknown { call, .. }
                | Event::InheritedCallStarted { call }
                | Event::CallResolved { call, .. }
                | Event::CallCancelled { call, .. }
                | Event::CallAnsweredLate { call, .. }
                    if *call == wanted =>
                {
                    if let Some(found) = &mut found {
                        found
                            .failed_attempts
                            .push(format_timestamps_in_line(&event.event.summary_line(&|_| String::new())));
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
        bail!("session `{session}` has no calls yet");
    }
    let near: Vec<String> =
        name_lookup::nearest_numbers(wanted.0, calls).iter().map(|call| CallId(*call).to_string()).collect();
    bail!("session `{session}` has no call {wanted}; the nearest are {}", near.join(", "))
}
