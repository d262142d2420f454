//! A process that is killed during a turn, and how the next one recovers.

use crate::support::Place;

/// Polls the journal of a session until it contains `wanted`.
pub(crate) fn wait_for(place: &Place, session: &str, wanted: &str) {
    for _ in 0..2_000 {
        if place.run(&["show", session, "--events"]).out.contains(wanted) {
            return;
        }
        std::thread::yield_now();
    }
    panic!("`{wanted}` did not appear in {session}");
}

/// A home with a session whose process was killed during a turn.
fn killed() -> Place {
    let place = Place::with_session(&["first"]);
    place.write("hang.toml", "[default]\nhang = true\n");
    let mut child = place.start(&["send", "--session", "a", "--script", "hang.toml", "second"]);
    wait_for(&place, "a", "c2 assistant asked");
    // While the process runs, others cannot delete the session.
    assert!(place.fails(&["delete", "a", "--yes"]).contains("in use by another process"));
    child.kill().expect("killed");
    child.wait().expect("gone");
    place
}

#[test]
fn r2_a_command_reaches_a_session_that_another_process_holds() {
    let place = Place::with_session(&["first"]);
    place.write("hang.toml", "[default]\nhang = true\n");
    let mut child = place.start(&["send", "--session", "a", "--script", "hang.toml", "second"]);
    wait_for(&place, "a", "c2 assistant asked");
    place.ok(&["rename", "a", "mine"]);
    assert!(place.ok(&["sessions"]).contains("mine"), "the process that holds the session has recorded it");
    child.kill().expect("killed");
    child.wait().expect("gone");
}

#[test]
fn a_killed_turn_resumes() {
    let place = killed();
    let shown = place.ok(&["show", "a"]);
    assert!(shown.contains("t2 is not finished\nc2 is pending (attempt 1)\n"), "{shown}");
    let doctor = place.ok(&["doctor"]);
    assert!(doctor.contains("1 session with an unfinished turn, resumed at the next use: a\n"), "{doctor}");
    assert!(place.ok(&["sessions"]).contains("(active)"));

    // Reading does not resume the turn.
    assert!(!place.ok(&["show", "a", "--events"]).contains("possibly billed"));
    assert_eq!(place.ok(&["send", "--session", "a", "--script", "echo.toml", "third"]), "You said: third\n");

    let events = place.ok(&["show", "a", "--events"]);
    for wanted in [
        "m2 user: second",
        "c2 attempt 1 was in flight when the process died, possibly billed; retry at",
        "c2 answered: You said: second",
        "t2 done",
        "m3 user: third",
        "t3 done",
    ] {
        assert!(events.contains(wanted), "{wanted} is missing:\n{events}");
    }
    let retry = events.lines().find_map(|line| line.split_once("; retry at ")).map(|(_, at)| at);
    assert!(retry.is_some_and(|at| at.len() == "12:34:56".len()), "a time of day: {retry:?}");
    let shown = place.ok(&["show", "a"]);
    assert!(shown.contains("3 calls · 1 with unknown outcome, possibly billed"), "{shown}");
    assert!(!shown.contains("is pending"), "{shown}");
    assert!(!place.ok(&["doctor"]).contains("unfinished"));
}

#[test]
fn a_killed_turn_can_be_cancelled_without_a_call() {
    let place = killed();
    assert_eq!(place.ok(&["rename", "a", "left behind"]), "renamed a to “left behind”\n");
    assert_eq!(place.ok(&["cancel", "a"]), "cancelled t2 of a\n");
    let events = place.ok(&["show", "a", "--events"]);
    assert!(events.contains("c2 cancelled in flight, possibly billed: cancelled on request"), "{events}");
    let shown = place.ok(&["show", "a"]);
    assert!(shown.contains("1 call · 1 with unknown outcome, possibly billed · 40 in, 5 out"), "{shown}");
    let explained = place.ok(&["explain", "a", "c2"]);
    assert!(explained.contains("c2 cancelled in flight, possibly billed: cancelled on request"), "{explained}");
    assert!(!place.ok(&["doctor"]).contains("unfinished"));
    assert_eq!(place.fails(&["cancel", "a"]), "error: no turn is running, so there is nothing to cancel\n");
}

#[test]
fn a_killed_turn_is_left_out_of_a_fork() {
    let place = killed();
    assert_eq!(place.ok(&["fork", "a", "--name", "b"]), "forked a to b\n");
    let shown = place.ok(&["show", "b"]);
    assert!(shown.contains("t2 was cancelled") && !shown.contains("is pending"), "{shown}");
    assert!(!shown.contains("possibly billed"), "the fork did not make that call: {shown}");
    assert!(place.ok(&["show", "a"]).contains("t2 is not finished"), "the original is unchanged");
}

#[test]
fn only_the_session_that_is_used_resumes() {
    let place = killed();
    assert_eq!(place.ok(&["send", "--session", "b", "--script", "echo.toml", "else"]), "You said: else\n");
    assert!(place.ok(&["show", "a"]).contains("t2 is not finished"));
}

#[test]
fn a_call_that_does_not_wait_cannot_be_resolved() {
    let place = killed();
    let error = place.fails(&["resolve", "a", "c1", "retry"]);
    assert_eq!(error, "error: c1 is not waiting for a decision\n");
}
