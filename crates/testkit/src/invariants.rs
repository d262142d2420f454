//! The promises of core, checked after every input of every test that goes through a stage.

use segue_core::codec;
use segue_core::event::{CallDeferred, RecordedEvent};
use segue_core::flow::DynFlow;
use segue_core::ids::{CallId, TurnId};
use segue_core::session::{Session, SessionState};

/// Checks what must hold whatever was told: `state` is what the journal led to.
///
/// # Panics
/// It does not hold.
pub fn assert_invariants(flow: &dyn DynFlow, journal: &[RecordedEvent], state: &SessionState) {
    assert_state_equals_replay(flow, journal, state);
    assert_step_invariants(flow, journal, &SessionState::new(flow), journal.len(), state);
}

/// Checks what must hold after one input: `state` is what `before` and the `new` events at the journal's end led to.
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

/// After how many events the whole journal is folded once more.
const FULL_REPLAY_INTERVAL: usize = 32;

fn assert_events_round_trip(journal: &[RecordedEvent], new: usize) {
    for (place, recorded) in journal.iter().enumerate().skip(journal.len() - new) {
        assert_eq!(recorded.seq.0, place as u64 + 1, "the journal has no gap");
        let written = codec::encode_event(&recorded.event);
        let read = codec::decode_event(recorded.seq, recorded.at, &written).expect("what is written can be read");
        assert_eq!(&read, recorded, "an event survives being written down");
    }
}

/// Checks that a state follows from its journal.
pub(crate) fn assert_state_equals_replay(flow: &dyn DynFlow, journal: &[RecordedEvent], state: &SessionState) {
    let folded = SessionState::fold(flow, journal);
    assert_eq!(folded.session, state.session, "the state is the fold of the journal");
    assert_eq!(flow.serialize_state(&folded.flow), flow.serialize_state(&state.flow), "so is the flow's");
}

fn assert_snapshot_restores_state(
    flow: &dyn DynFlow,
    before: &SessionState,
    new: &[RecordedEvent],
    state: &SessionState,
) {
    let snapshot = codec::encode_snapshot(flow, before).expect("a state can be written down");
    let mut opened = codec::decode_snapshot(flow, &snapshot).expect("and read again");
    assert_eq!(opened.session, before.session, "a snapshot is the state");
    new.iter().for_each(|event| opened.apply(flow, event));
    assert_eq!(opened.session, state.session, "a snapshot and what follows it give the state");
    assert_eq!(flow.serialize_state(&opened.flow), flow.serialize_state(&state.flow), "so it is with the flow's");
}

fn assert_threads_consistent(session: &Session) {
    let is_under_way = |call: &CallId| session.open_calls.contains_key(call) || session.tool_rounds.contains_key(call);
    for thread in session.threads.values() {
        assert!(
            thread.active_call.as_ref().is_none_or(is_under_way),
            "{} waits for nobody: {:?}",
            thread.id,
            thread.active_call
        );
        let stands = session.thread_by_slot.get(&thread.slot) == Some(&thread.id);
        assert!(stands || thread.active_call.is_some(), "{} is forgotten once no call can continue it", thread.id);
        let mut open: Vec<&str> = Vec::new();
        for entry in &thread.entries {
            open.extend(entry.tool_calls.iter().map(|call| call.id.as_str()));
            if let Some(place) = open.iter().position(|id| entry.tool_call_id.as_deref() == Some(id)) {
                open.remove(place);
            }
        }
        let in_round = thread.active_call.is_some_and(|call| session.tool_rounds.contains_key(&call));
        assert!(open.is_empty() || in_round, "{} holds a tool call without its result", thread.id);
    }
    for (slot, id) in &session.thread_by_slot {
        assert_eq!(session.threads.get(id).map(|thread| &thread.slot), Some(slot), "a slot holds a thread of its own");
    }
    for (call, open) in &session.open_calls {
        assert!(session.prompt_plan(*call).is_some(), "an owed call can be made");
        if open.opened.recomputation.is_some() {
            continue;
        }
        let thread = open.opened.receipt.thread.thread_id();
        assert_eq!(session.threads[&thread].active_call, Some(*call), "{call} has {thread} to itself");
    }
}

fn assert_waits_resolvable(session: &Session) {
    let is_under_way = |call: CallId| session.open_calls.contains_key(&call) || session.tool_rounds.contains_key(&call);
    let free = |wait: &CallDeferred| {
        let mut threads = session.threads.values().filter(|thread| thread.slot.role == wait.request.role);
        threads.all(|thread| thread.active_call.is_none() || thread.active_call == wait.continues)
    };
    for wait in session.deferred_calls.values() {
        assert!(is_under_way(wait.waits_for_call) || !free(wait), "a waiting call waits for one that is under way");
        assert!(
            wait.continues.is_none_or(|call| session.tool_rounds.contains_key(&call)),
            "what it follows is still there"
        );
    }
    for (call, round) in &session.tool_rounds {
        let runs = session
            .open_tool_runs
            .values()
            .filter(|run| run.requested_by.as_ref().is_some_and(|(asker, _)| asker == call));
        let missing = round.tool_results.iter().filter(|wished| wished.text.is_none()).count();
        assert_eq!(runs.count(), missing, "each result that is missing is on its way");
        let waits = session.deferred_calls.values().any(|wait| wait.continues == Some(*call));
        assert!(missing > 0 || waits, "a round whose tools have answered goes on");
    }
    if session.current_turn.is_none() && session.closed_reason.is_none() {
        assert!(session.queued_messages.is_empty(), "no message waits while no turn runs");
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
    session.deferred_calls.values().for_each(|wait| owned(wait.turn, "a waiting call"));
    let waits = session.open_calls.len()
        + session.open_tool_runs.len()
        + session.tool_rounds.len()
        + session.deferred_calls.len();
    assert!(running.is_none() || waits + session.timers.len() > 0, "a turn that runs waits for something");
    if session.closed_reason.is_some() && running.is_none() {
        assert_eq!(waits + session.timers.len(), 0, "nothing is owed for a closed session");
    }
}
