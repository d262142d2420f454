//! The promises of core, checked after every input of every test that goes through a stage.

use segue_core::codec;
use segue_core::event::{CallDeferred, Recorded};
use segue_core::flow::Rules;
use segue_core::ids::{CallId, TurnId};
use segue_core::session::{Session, State};

/// Checks what must hold whatever was told: `state` is what the journal led to.
///
/// # Panics
/// It does not hold.
pub fn promises(rules: &dyn Rules, journal: &[Recorded], state: &State) {
    the_state_is_the_fold_of_the_journal(rules, journal, state);
    step(rules, journal, &State::fresh(rules), journal.len(), state);
}

/// Checks what must hold after one input: `state` is what `before` and the `new` events at the journal's end led to.
pub(crate) fn step(rules: &dyn Rules, journal: &[Recorded], before: &State, new: usize, state: &State) {
    events_survive_being_written_down(journal, new);
    a_snapshot_and_what_follows_give_the_state(rules, before, &journal[journal.len() - new..], state);
    if journal.len() / FOLDED_EVERY != (journal.len() - new) / FOLDED_EVERY {
        the_state_is_the_fold_of_the_journal(rules, journal, state);
    }
    threads_are_free_or_used(&state.session);
    waiting_ends(&state.session);
    turns_own_what_is_theirs(&state.session);
}

/// After how many events the whole journal is folded once more.
const FOLDED_EVERY: usize = 32;

fn events_survive_being_written_down(journal: &[Recorded], new: usize) {
    for (place, recorded) in journal.iter().enumerate().skip(journal.len() - new) {
        assert_eq!(recorded.seq.0, place as u64 + 1, "the journal has no gap");
        let written = codec::encode(&recorded.event);
        let read = codec::decode(recorded.seq, recorded.at, &written).expect("what is written can be read");
        assert_eq!(&read, recorded, "an event survives being written down");
    }
}

/// Checks that a state follows from its journal.
pub(crate) fn the_state_is_the_fold_of_the_journal(rules: &dyn Rules, journal: &[Recorded], state: &State) {
    let folded = State::fold(rules, journal);
    assert_eq!(folded.session, state.session, "the state is the fold of the journal");
    assert_eq!(rules.save(&folded.flow), rules.save(&state.flow), "so is the flow's");
}

fn a_snapshot_and_what_follows_give_the_state(rules: &dyn Rules, before: &State, new: &[Recorded], state: &State) {
    let snapshot = codec::encode_snapshot(rules, before).expect("a state can be written down");
    let mut opened = codec::decode_snapshot(rules, &snapshot).expect("and read again");
    assert_eq!(opened.session, before.session, "a snapshot is the state");
    new.iter().for_each(|event| opened.apply(rules, event));
    assert_eq!(opened.session, state.session, "a snapshot and what follows it give the state");
    assert_eq!(rules.save(&opened.flow), rules.save(&state.flow), "so it is with the flow's");
}

fn threads_are_free_or_used(session: &Session) {
    let is_under_way = |call: &CallId| session.calls.contains_key(call) || session.rounds.contains_key(call);
    for thread in session.threads.values() {
        assert!(thread.busy.as_ref().is_none_or(is_under_way), "{} waits for nobody: {:?}", thread.id, thread.busy);
        let stands = session.slots.get(&thread.slot) == Some(&thread.id);
        assert!(stands || thread.busy.is_some(), "{} is forgotten once no call can continue it", thread.id);
        let mut open: Vec<&str> = Vec::new();
        for entry in &thread.entries {
            open.extend(entry.tool_calls.iter().map(|call| call.id.as_str()));
            if let Some(place) = open.iter().position(|id| entry.answers.as_deref() == Some(id)) {
                open.remove(place);
            }
        }
        let in_round = thread.busy.is_some_and(|call| session.rounds.contains_key(&call));
        assert!(open.is_empty() || in_round, "{} holds a tool call without its result", thread.id);
    }
    for (slot, id) in &session.slots {
        assert_eq!(session.threads.get(id).map(|thread| &thread.slot), Some(slot), "a slot holds a thread of its own");
    }
    for (call, open) in &session.calls {
        assert!(session.plan(*call).is_some(), "an owed call can be made");
        if open.opened.recomputes.is_some() {
            continue;
        }
        let thread = open.opened.receipt.thread.thread();
        assert_eq!(session.threads[&thread].busy, Some(*call), "{call} has {thread} to itself");
    }
}

fn waiting_ends(session: &Session) {
    let is_under_way = |call: CallId| session.calls.contains_key(&call) || session.rounds.contains_key(&call);
    let free = |wait: &CallDeferred| {
        let mut threads = session.threads.values().filter(|thread| thread.slot.role == wait.wish.role);
        threads.all(|thread| thread.busy.is_none() || thread.busy == wait.follows)
    };
    for wait in session.deferred.values() {
        assert!(is_under_way(wait.waits_for) || !free(wait), "a waiting call waits for one that is under way");
        assert!(wait.follows.is_none_or(|call| session.rounds.contains_key(&call)), "what it follows is still there");
    }
    for (call, round) in &session.rounds {
        let runs = session.tools.values().filter(|run| run.wish.as_ref().is_some_and(|(asker, _)| asker == call));
        let missing = round.results.iter().filter(|wished| wished.text.is_none()).count();
        assert_eq!(runs.count(), missing, "each result that is missing is on its way");
        let waits = session.deferred.values().any(|wait| wait.follows == Some(*call));
        assert!(missing > 0 || waits, "a round whose tools have answered goes on");
    }
    if session.turn.is_none() && session.closed.is_none() {
        assert!(session.queue.is_empty(), "no message waits while no turn runs");
    }
}

fn turns_own_what_is_theirs(session: &Session) {
    let running = session.turn.as_ref().map(|turn| turn.id);
    let owned = |turn: Option<TurnId>, what: &str| {
        assert!(turn.is_none() || turn == running, "{what} outlived its turn {turn:?}");
    };
    session.calls.values().for_each(|open| owned(open.opened.turn, "a call"));
    session.tools.values().for_each(|run| owned(run.turn, "a tool run"));
    session.rounds.values().for_each(|round| owned(round.turn, "a round"));
    session.deferred.values().for_each(|wait| owned(wait.turn, "a waiting call"));
    let waits = session.calls.len() + session.tools.len() + session.rounds.len() + session.deferred.len();
    assert!(running.is_none() || waits + session.timers.len() > 0, "a turn that runs waits for something");
    if session.closed.is_some() && running.is_none() {
        assert_eq!(waits + session.timers.len(), 0, "nothing is owed for a closed session");
    }
}
