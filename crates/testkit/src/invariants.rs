//! The invariants of core, checked after every input of a test that uses the harness.

use segue_core::codec;
use segue_core::event::{CallQueuedOnThread, RecordedEvent};
use segue_core::flow::DynFlow;
use segue_core::ids::{CallId, TurnId};
use segue_core::session::{Session, SessionState};
use serde_json::Value;

/// Checks all invariants of a session.
///
/// # Panics
/// Panics if an invariant is violated.
pub fn assert_invariants(flow: &dyn DynFlow, journal: &[RecordedEvent], state: &SessionState) {
    assert_state_equals_replay(flow, journal, state);
    assert_step_invariants(flow, journal, &SessionState::new(flow), journal.len(), state);
}

/// Checks the invariants after one input. `state` results from `before` and the last `new` events of the journal.
pub(crate) fn assert_step_invariants(
    flow: &dyn DynFlow,
    journal: &[RecordedEvent],
    before: &SessionState,
    new: usize,
    state: &SessionState,
) {
    assert_events_round_trip(journal, new);
    assert_snapshot_restores_state(flow, before, &journal[journal.len() - new..], state);
    if journal.len() / FULL_REPLAY_INTERVAL != (journal.len() - new) / FULL_REPLAY_INTERVAL {
        assert_state_equals_replay(flow, journal, state);
    }
    assert_threads_consistent(&state.session);
    assert_waits_resolvable(&state.session);
    assert_turn_ownership(&state.session);
}

/// The number of events after which the whole journal is replayed.
const FULL_REPLAY_INTERVAL: usize = 32;

fn assert_events_round_trip(journal: &[RecordedEvent], new: usize) {
    for (index, recorded) in journal.iter().enumerate().skip(journal.len() - new) {
        assert_eq!(recorded.seq.0, index as u64 + 1, "the journal has no gap");
        let written = codec::encode_event(&recorded.event);
        let read = codec::decode_event(recorded.seq, recorded.at, &written).expect("what is written can be read");
        assert_eq!(&read, recorded, "an event survives encoding and decoding");
    }
}

/// Checks that the state results from the journal.
pub(crate) fn assert_state_equals_replay(flow: &dyn DynFlow, journal: &[RecordedEvent], state: &SessionState) {
    let folded = SessionState::fold(flow, journal);
    assert_eq!(folded.session, state.session, "the state results from the journal");
    assert_eq!(
        flow.serialize_state(&folded.flow),
        flow.serialize_state(&state.flow),
        "the flow's state results from the journal"
    );
}

fn assert_snapshot_restores_state(
    flow: &dyn DynFlow,
    before: &SessionState,
    new: &[RecordedEvent],
    state: &SessionState,
) {
    let snapshot = codec::encode_snapshot(flow, before).expect("a state can be encoded");
    let mut opened = codec::decode_snapshot(flow, &snapshot).expect("a snapshot can be decoded");
    assert_eq!(opened.session, before.session, "a snapshot equals the state");
    new.iter().for_each(|event| opened.apply(flow, event));
    assert_eq!(opened.session, state.session, "a snapshot and the later events result in the state");
    assert_eq!(
        flow.serialize_state(&opened.flow),
        flow.serialize_state(&state.flow),
        "a snapshot and the later events result in the flow's state"
    );
}

fn assert_threads_consistent(session: &Session) {
    let is_in_progress =
        |call: &CallId| session.open_calls.contains_key(call) || session.tool_rounds.contains_key(call);
    for thread in session.threads.values() {
        assert!(
            thread.active_call.as_ref().is_none_or(is_in_progress),
            "{} is used by a call that is not open: {:?}",
            thread.id,
            thread.active_call
        );
        let is_current = session.thread_by_slot.get(&thread.slot) == Some(&thread.id);
        assert!(is_current || thread.active_call.is_some(), "{} is dropped once no call can continue it", thread.id);
        let stored = serde_json::to_value(&**thread).expect("a thread is JSON");
        let mut open: Vec<&Value> = Vec::new();
        for entry in stored["entries"].as_array().expect("a thread has a list of entries") {
            open.extend(entry["tool_calls"].as_array().into_iter().flatten().map(|call| &call["id"]));
            if let Some(index) = open.iter().position(|id| entry["tool_call_id"] == **id) {
                open.remove(index);
            }
        }
        let in_round = thread.active_call.is_some_and(|call| session.tool_rounds.contains_key(&call));
        assert!(open.is_empty() || in_round, "{} has a tool call without a result", thread.id);
    }
    for (slot, id) in &session.thread_by_slot {
        assert_eq!(session.threads.get(id).map(|thread| &thread.slot), Some(slot), "a slot refers to its own thread");
    }
    for (call, open) in &session.open_calls {
        assert!(session.prompt_plan(*call).is_some(), "a pending call has a prompt");
        if open.opened.recomputation.is_some() {
            continue;
        }
        let thread = open.opened.receipt.thread.thread_id();
        assert_eq!(session.threads[&thread].active_call, Some(*call), "{call} is the only user of {thread}");
    }
}

fn assert_waits_resolvable(session: &Session) {
    let is_in_progress =
        |call: CallId| session.open_calls.contains_key(&call) || session.tool_rounds.contains_key(&call);
    let thread_is_free = |wait: &CallQueuedOnThread| {
        let mut threads = session.threads.values().filter(|thread| thread.slot.role == wait.request.role);
        threads.all(|thread| thread.active_call.is_none() || thread.active_call == wait.continues)
    };
    for wait in session.deferred_calls.values() {
        assert!(
            is_in_progress(wait.waits_for_call) || !thread_is_free(wait),
            "a deferred call waits for a call in progress"
        );
        assert!(
            wait.continues.is_none_or(|call| session.tool_rounds.contains_key(&call)),
            "the tool round that it continues exists"
        );
    }
    let mut waiting_runs = session.held_tool_runs.keys().chain(&session.edited_tool_runs);
    assert!(
        waiting_runs.all(|run| session.open_tool_runs.contains_key(run)),
        "a run that is held or was edited is open"
    );
    for (call, round) in &session.tool_rounds {
        let runs = session
            .open_tool_runs
            .values()
            .filter(|run| run.requested_by.as_ref().is_some_and(|(requester, _)| requester == call));
        let stored = serde_json::to_value(round).expect("a tool round is JSON");
        let results = stored["tool_results"].as_array().expect("a tool round has a list of results");
        let missing = results.iter().filter(|result| result["text"].is_null()).count();
        assert_eq!(runs.count(), missing, "each missing tool result has an open run");
        let waits = session.deferred_calls.values().any(|wait| wait.continues == Some(*call));
        assert!(missing > 0 || waits, "a complete tool round is continued");
    }
    if session.current_turn.is_none() && session.closed_reason.is_none() {
        assert!(session.queued_messages.is_empty(), "no message waits while no turn is running");
    }
}

fn assert_turn_ownership(session: &Session) {
    let running = session.current_turn.as_ref().map(|turn| turn.id);
    let owned = |turn: Option<TurnId>, what: &str| {
        assert!(turn.is_none() || turn == running, "{what} outlived its turn {turn:?}");
    };
    session.open_calls.values().for_each(|open| owned(open.opened.turn, "a call"));
    session.open_tool_runs.values().for_each(|run| owned(run.turn, "a tool run"));
    session.tool_rounds.values().for_each(|round| owned(round.turn, "a round"));
    session.deferred_calls.values().for_each(|wait| owned(wait.turn, "a deferred call"));
    let pending = session.open_calls.len()
        + session.open_tool_runs.len()
        + session.tool_rounds.len()
        + session.deferred_calls.len();
    let waits = session.timers.len() + session.open_asks.len() + session.open_children.len();
    assert!(running.is_none() || pending + waits > 0, "a running turn has pending work");
    if session.closed_reason.is_some() && running.is_none() {
        assert_eq!(pending + session.timers.len(), 0, "a closed session has no pending work");
    }
}
