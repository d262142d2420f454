//! Killed in the middle of a turn, and what the next one makes of it.

use crate::support::Place;

/// Looks until the session's journal holds this; the program that writes it is at work meanwhile.
pub fn wait_for(place: &Place, session: &str, wanted: &str) {
    for _ in 0..2_000 {
        if place.run(&["show", session, "--events"]).out.contains(wanted) {
            return;
        }
        std::thread::yield_now();
    }
    panic!("`{wanted}` never came to pass in {session}");
}

/// A session whose turn was under way when its process was killed.
fn killed() -> Place {
    let place = Place::with_session(&["first"]);
    place.write("hang.toml", "[default]\nhang = true\n");
    let mut child = place.start(&["send", "--session", "a", "--script", "hang.toml", "second"]);
    wait_for(&place, "a", "c2 assistant asked");
    // While it lives, others may read and nobody else may write.
    let error = place.fails(&["send", "--session", "a", "--script", "echo.toml", "third"]);
    assert!(error.starts_with("error: the session `a` is in use by another process ("), "{error}");
    assert!(place.fails(&["rename", "a", "mine"]).contains("in use by another process"));
    assert!(place.fails(&["delete", "a", "--yes"]).contains("in use by another process"));
    child.kill().expect("killed");
    child.wait().expect("gone");
    place
}

#[test]
fn a_killed_turn_goes_on_where_it_stood() {
    let place = killed();
    let shown = place.ok(&["show", "a"]);
    assert!(shown.contains("t2 is not finished\nc2 is owed (try 1)\n"), "{shown}");
    let doctor = place.ok(&["doctor"]);
    assert!(doctor.contains("1 session with an unfinished turn, taken up when used next: a\n"), "{doctor}");
    assert!(place.ok(&["sessions"]).contains("(at work)"));

    // Reading changed nothing: the call is still the same one, never made again.
    assert!(!place.ok(&["show", "a", "--events"]).contains("maybe billed"));
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
    let shown = place.ok(&["show", "a"]);
    assert!(shown.contains("3 calls · 1 of unknown end, maybe billed"), "{shown}");
    assert!(!shown.contains("is owed"), "{shown}");
    assert!(!place.ok(&["doctor"]).contains("unfinished"));
}

#[test]
fn a_killed_turn_can_be_cancelled_without_calling_anybody() {
    let place = killed();
    assert_eq!(place.ok(&["rename", "a", "left behind"]), "a is called “left behind”\n");
    assert_eq!(place.ok(&["cancel", "a"]), "t2 of a is cancelled\n");
    let events = place.ok(&["show", "a", "--events"]);
    assert!(events.contains("c2 cancelled in flight, possibly billed: cancelled on request"), "{events}");
    let shown = place.ok(&["show", "a"]);
    assert!(shown.contains("1 call · 1 of unknown end, maybe billed · 40 in, 5 out"), "{shown}");
    let explained = place.ok(&["explain", "a", "c2"]);
    assert!(explained.contains("c2 cancelled in flight, possibly billed: cancelled on request"), "{explained}");
    assert!(!place.ok(&["doctor"]).contains("unfinished"));
    assert_eq!(place.fails(&["cancel", "a"]), "error: no turn is running, so there is nothing to cancel\n");
}

#[test]
fn a_killed_turn_is_left_out_of_a_fork() {
    let place = killed();
    assert_eq!(place.ok(&["fork", "a", "--name", "b"]), "b is forked from a\n");
    let shown = place.ok(&["show", "b"]);
    assert!(shown.contains("t2 was cancelled") && !shown.contains("is owed"), "{shown}");
    assert!(!shown.contains("maybe billed"), "the fork did not make that call: {shown}");
    assert!(place.ok(&["show", "a"]).contains("t2 is not finished"), "the original waits as before");
}

#[test]
fn only_the_session_that_is_used_is_taken_up() {
    let place = killed();
    assert_eq!(place.ok(&["send", "--session", "b", "--script", "echo.toml", "else"]), "You said: else\n");
    assert!(place.ok(&["show", "a"]).contains("t2 is not finished"));
}

#[test]
fn nothing_is_decided_about_a_call_that_waits_for_nobody() {
    let place = killed();
    let error = place.fails(&["resolve", "a", "c1", "retry"]);
    assert_eq!(error, "error: c1 is not waiting for a decision\n");
}
