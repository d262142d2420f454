//! Messages that arrive during a turn, and invalid messages.

use segue_core::decide::{InputRefusal, OperatorCommand, SessionInput};
use segue_core::event::MidTurnPolicy;
use segue_core::limits::SESSION_LIMITS;
use segue_testkit::{ClosureFlow, SessionHarness};

use super::{message, outcomes};

fn chat(policy: MidTurnPolicy) -> SessionHarness {
    SessionHarness::open_with_mid_turn_policy(ClosureFlow::single_speaker(ClosureFlow::speaker_role()), policy)
}

fn with_policy(text: &str, policy: MidTurnPolicy) -> SessionInput {
    SessionInput::Message {
        text: text.to_owned(),
        idempotency_key: None,
        mid_turn_policy: Some(policy),
        images: Vec::new(),
    }
}

#[test]
fn queued_messages_get_one_turn_each_in_order() {
    let mut harness = chat(MidTurnPolicy::Queue);
    harness.send_message("one").send_message("two").send_message("three");
    assert_eq!(harness.open_call_roles().len(), 1, "turns do not interleave");
    harness.answer_call("speaker", "1").answer_call("speaker", "2");
    assert_eq!(
        harness.prompt_lines("speaker"),
        "System: be speaker\nUser: one\nAssistant: 1\nUser: two\nAssistant: 2\nUser: three\n"
    );
}

#[test]
fn coalesced_messages_share_the_next_turn() {
    let mut harness = chat(MidTurnPolicy::Coalesce);
    harness.send_message("one").send_message("two").send_message("three").answer_call("speaker", "1");
    assert_eq!(harness.prompt_lines("speaker"), "System: be speaker\nUser: one\nAssistant: 1\nUser: two + three\n");
    harness.answer_call("speaker", "2");
    assert!(harness.session().is_idle());
}

#[test]
fn messages_can_coalesce_by_their_own_policy() {
    let mut harness = chat(MidTurnPolicy::Queue);
    harness
        .send_message("one")
        .send_message("two")
        .apply_input(with_policy("three", MidTurnPolicy::Coalesce))
        .apply_input(with_policy("four", MidTurnPolicy::Coalesce));
    harness.send_message("five").answer_call("speaker", "1");
    assert!(harness.prompt_lines("speaker").ends_with("User: two\n"), "two wants a turn of its own");
    harness.answer_call("speaker", "2");
    assert!(harness.prompt_lines("speaker").ends_with("User: three + four\n"));
    harness.answer_call("speaker", "3");
    assert!(harness.prompt_lines("speaker").ends_with("User: five\n"));
}

#[test]
fn a_rejected_message_leaves_no_trace() {
    let mut harness = chat(MidTurnPolicy::Reject);
    harness.send_message("one");
    let before = harness.journal().len();
    assert_eq!(harness.try_input(message("two")).err(), Some(InputRefusal::Busy));
    assert_eq!(harness.journal().len(), before);
    harness.answer_call("speaker", "1").send_message("two");
    assert_eq!(harness.open_call_roles(), ["speaker"], "between turns it is taken");
}

#[test]
fn interrupting_message_ends_the_turn_and_starts_the_next() {
    let mut harness = chat(MidTurnPolicy::Interrupt);
    harness.send_message("one").send_message("two");
    assert_eq!(outcomes(&harness), ["interrupted"]);
    assert_eq!(
        harness.prompt_lines("speaker"),
        "System: be speaker\nUser: two\n",
        "an unanswered question is not remembered"
    );
    harness.answer_call("speaker", "2");
    assert_eq!(outcomes(&harness), ["interrupted", "done"]);
}

#[test]
fn interrupting_message_goes_before_queued_ones() {
    let mut harness = chat(MidTurnPolicy::Queue);
    harness.send_message("one").send_message("two").apply_input(with_policy("now", MidTurnPolicy::Interrupt));
    assert!(harness.prompt_lines("speaker").ends_with("User: now\n"));
    harness.answer_call("speaker", "yes");
    assert!(harness.prompt_lines("speaker").ends_with("User: two\n"), "and nothing is lost");
}

#[test]
fn cancelled_turn_ends_its_calls_and_the_next_message_continues() {
    let mut harness = chat(MidTurnPolicy::Queue);
    harness.send_message("one").send_message("two").take_new_event_lines();
    harness.run_command(OperatorCommand::Cancel { turn: None });
    expect_test::expect![[r#"
        c1 cancelled in flight, possibly billed: cancelled on request
        t1 cancelled
        t2 started with m2
        c2 speaker asked reply on plain, th1 continued (0 messages); prefix broken by message after 6 tokens
    "#]]
    .assert_eq(&harness.take_new_event_lines());
    harness.answer_call("speaker", "2");
    assert_eq!(
        harness.try_input(SessionInput::Operator(OperatorCommand::Cancel { turn: None })).err(),
        Some(InputRefusal::NoTurnRunning)
    );
}

#[test]
fn a_message_sent_twice_under_one_key_is_one_message() {
    let mut harness = chat(MidTurnPolicy::Queue);
    let keyed = |text: &str| SessionInput::Message {
        text: text.to_owned(),
        idempotency_key: Some("k".into()),
        mid_turn_policy: None,
        images: Vec::new(),
    };
    let first = harness.try_input(keyed("one")).expect("it is taken").message;
    let before = harness.journal().len();
    let again = harness.try_input(keyed("one")).expect("it is recognised").message;
    assert_eq!(first, again);
    assert_eq!(harness.journal().len(), before);
    harness.answer_call("speaker", "1").run_command(OperatorCommand::Close);
    assert_eq!(harness.try_input(keyed("one")).expect("even when the session is closed").message, first);
    let long = "k".repeat(SESSION_LIMITS.idempotency_key_bytes_max + 1);
    let long = SessionInput::Message {
        text: "hi".to_owned(),
        idempotency_key: Some(long.into()),
        mid_turn_policy: None,
        images: Vec::new(),
    };
    assert!(matches!(harness.try_input(long), Err(InputRefusal::IdempotencyKeyTooLong { bytes: 201, most: 200 })));
}

#[test]
fn a_full_queue_refuses_and_says_how_full_it_is() {
    let mut harness = chat(MidTurnPolicy::Queue);
    for n in 0..=SESSION_LIMITS.queued_messages_max {
        harness.send_message(&format!("message {n}"));
    }
    let refusal = harness.try_input(message("one too many")).err();
    assert_eq!(refusal, Some(InputRefusal::QueueFull { waiting: SESSION_LIMITS.queued_messages_max }));
    harness.answer_call("speaker", "1").send_message("now there is room");
}

#[test]
fn invalid_messages_are_refused_with_the_reason() {
    let mut harness = chat(MidTurnPolicy::Queue);
    let mut refuse = |text: &str| harness.try_input(message(text)).expect_err("it is refused");
    assert_eq!(refuse(""), InputRefusal::EmptyMessage);
    assert_eq!(refuse(" \n\t"), InputRefusal::EmptyMessage);
    assert_eq!(refuse("a\u{0}b"), InputRefusal::ControlCharacter { code: 0, position: 2 });
    assert_eq!(refuse("żół\u{1b}[2J"), InputRefusal::ControlCharacter { code: 0x1b, position: 4 });
    let ten_megabytes = "x".repeat(10 << 20);
    assert_eq!(
        refuse(&ten_megabytes),
        InputRefusal::MessageTooLong { bytes: 10 << 20, most: SESSION_LIMITS.message_bytes_max }
    );
    assert_eq!(harness.journal().len(), 1, "nothing but the opening was recorded");
    harness.send_message("tabs\tand\r\nline breaks are fine").answer_call("speaker", "indeed");
    harness.send_message(&"x".repeat(SESSION_LIMITS.message_bytes_max));
}

#[test]
fn a_session_is_titled_after_its_first_line() {
    let mut harness = chat(MidTurnPolicy::Queue);
    harness.send_message(&format!("  {}\nsecond line", "long ".repeat(40)));
    let title = harness.session().title.clone();
    assert_eq!(title.chars().count(), SESSION_LIMITS.title_chars_max);
    assert!(title.starts_with("long long") && title.ends_with('…'));
    harness
        .run_command(OperatorCommand::Rename { title: "mine".into() })
        .answer_call("speaker", "1")
        .send_message("another");
    assert_eq!(harness.session().title, "mine");
}
