//! What becomes of a message while a turn runs, and of messages nobody should send.

use segue_core::decide::{InputRefusal, OperatorCommand, SessionInput};
use segue_core::event::MidTurnPolicy;
use segue_core::limits::{IDEMPOTENCY_KEY_BYTES_MAX, MESSAGE_BYTES_MAX, QUEUED_MESSAGES_MAX, TITLE_CHARS_MAX};
use segue_testkit::{ClosureFlow, SessionHarness};

use super::{message, outcomes};

fn chat(busy: MidTurnPolicy) -> SessionHarness {
    SessionHarness::open_with_mid_turn_policy(ClosureFlow::single_speaker(ClosureFlow::speaker_role()), busy)
}

fn with_policy(text: &str, busy: MidTurnPolicy) -> SessionInput {
    SessionInput::Message {
        text: text.to_owned(),
        idempotency_key: None,
        mid_turn_policy: Some(busy),
        images: Vec::new(),
    }
}

#[test]
fn queued_messages_get_a_turn_each_in_their_order() {
    let mut stage = chat(MidTurnPolicy::Queue);
    stage.send_message("one").send_message("two").send_message("three");
    assert_eq!(stage.open_call_roles().len(), 1, "turns do not interleave");
    stage.answer_call("speaker", "1").answer_call("speaker", "2");
    assert_eq!(
        stage.prompt_lines("speaker"),
        "System: be speaker\nUser: one\nAssistant: 1\nUser: two\nAssistant: 2\nUser: three\n"
    );
}

#[test]
fn coalesced_messages_share_the_next_turn() {
    let mut stage = chat(MidTurnPolicy::Coalesce);
    stage.send_message("one").send_message("two").send_message("three").answer_call("speaker", "1");
    assert_eq!(stage.prompt_lines("speaker"), "System: be speaker\nUser: one\nAssistant: 1\nUser: two + three\n");
    stage.answer_call("speaker", "2");
    assert!(stage.session().is_idle());
}

#[test]
fn a_message_can_ask_to_share_a_turn_with_others_that_ask_for_it_too() {
    let mut stage = chat(MidTurnPolicy::Queue);
    stage
        .send_message("one")
        .send_message("two")
        .apply_input(with_policy("three", MidTurnPolicy::Coalesce))
        .apply_input(with_policy("four", MidTurnPolicy::Coalesce));
    stage.send_message("five").answer_call("speaker", "1");
    assert!(stage.prompt_lines("speaker").ends_with("User: two\n"), "two wants a turn of its own");
    stage.answer_call("speaker", "2");
    assert!(stage.prompt_lines("speaker").ends_with("User: three + four\n"));
    stage.answer_call("speaker", "3");
    assert!(stage.prompt_lines("speaker").ends_with("User: five\n"));
}

#[test]
fn a_rejected_message_leaves_no_trace() {
    let mut stage = chat(MidTurnPolicy::Reject);
    stage.send_message("one");
    let before = stage.journal().len();
    assert_eq!(stage.try_input(message("two")).err(), Some(InputRefusal::Busy));
    assert_eq!(stage.journal().len(), before);
    stage.answer_call("speaker", "1").send_message("two");
    assert_eq!(stage.open_call_roles(), ["speaker"], "between turns it is taken");
}

#[test]
fn an_interrupting_message_stops_the_turn_and_takes_its_place() {
    let mut stage = chat(MidTurnPolicy::Interrupt);
    stage.send_message("one").send_message("two");
    assert_eq!(outcomes(&stage), ["interrupted"]);
    assert_eq!(
        stage.prompt_lines("speaker"),
        "System: be speaker\nUser: two\n",
        "an unanswered question is not remembered"
    );
    stage.answer_call("speaker", "2");
    assert_eq!(outcomes(&stage), ["interrupted", "done"]);
}

#[test]
fn an_interrupting_message_goes_before_those_that_wait() {
    let mut stage = chat(MidTurnPolicy::Queue);
    stage.send_message("one").send_message("two").apply_input(with_policy("now", MidTurnPolicy::Interrupt));
    assert!(stage.prompt_lines("speaker").ends_with("User: now\n"));
    stage.answer_call("speaker", "yes");
    assert!(stage.prompt_lines("speaker").ends_with("User: two\n"), "and nothing is lost");
}

#[test]
fn a_cancelled_turn_ends_with_its_calls_and_the_next_message_goes_on() {
    let mut stage = chat(MidTurnPolicy::Queue);
    stage.send_message("one").send_message("two").take_log();
    stage.run_command(OperatorCommand::Cancel);
    expect_test::expect![[r#"
        c1 cancelled in flight, maybe billed: stopped by hand
        t1 cancelled
        t2 begins with m2
        c2 speaker asked reply on plain, th1 continued (0 messages); prefix kept 6, broken by message
    "#]]
    .assert_eq(&stage.take_log());
    stage.answer_call("speaker", "2");
    assert_eq!(
        stage.try_input(SessionInput::Operator(OperatorCommand::Cancel)).err(),
        Some(InputRefusal::NoTurnRunning)
    );
}

#[test]
fn a_message_sent_twice_under_one_key_is_one_message() {
    let mut stage = chat(MidTurnPolicy::Queue);
    let keyed = |text: &str| SessionInput::Message {
        text: text.to_owned(),
        idempotency_key: Some("k".into()),
        mid_turn_policy: None,
        images: Vec::new(),
    };
    let first = stage.try_input(keyed("one")).expect("it is taken").message;
    let before = stage.journal().len();
    let again = stage.try_input(keyed("one")).expect("it is recognised").message;
    assert_eq!(first, again);
    assert_eq!(stage.journal().len(), before);
    stage.answer_call("speaker", "1").run_command(OperatorCommand::Close);
    assert_eq!(stage.try_input(keyed("one")).expect("even when the session is closed").message, first);
    let long = "k".repeat(IDEMPOTENCY_KEY_BYTES_MAX + 1);
    let long = SessionInput::Message {
        text: "hi".to_owned(),
        idempotency_key: Some(long.into()),
        mid_turn_policy: None,
        images: Vec::new(),
    };
    assert!(matches!(stage.try_input(long), Err(InputRefusal::IdempotencyKeyTooLong { bytes: 201, most: 200 })));
}

#[test]
fn a_full_queue_refuses_and_says_how_full_it_is() {
    let mut stage = chat(MidTurnPolicy::Queue);
    for n in 0..=QUEUED_MESSAGES_MAX {
        stage.send_message(&format!("message {n}"));
    }
    let refusal = stage.try_input(message("one too many")).err();
    assert_eq!(refusal, Some(InputRefusal::QueueFull { waiting: QUEUED_MESSAGES_MAX }));
    stage.answer_call("speaker", "1").send_message("now there is room");
}

#[test]
fn messages_nobody_should_send_are_refused_by_name() {
    let mut stage = chat(MidTurnPolicy::Queue);
    let mut refuse = |text: &str| stage.try_input(message(text)).expect_err("it is refused");
    assert_eq!(refuse(""), InputRefusal::EmptyMessage);
    assert_eq!(refuse(" \n\t"), InputRefusal::EmptyMessage);
    assert_eq!(refuse("a\u{0}b"), InputRefusal::ControlCharacter { code: 0, position: 2 });
    assert_eq!(refuse("żół\u{1b}[2J"), InputRefusal::ControlCharacter { code: 0x1b, position: 4 });
    let ten_megabytes = "x".repeat(10 << 20);
    assert_eq!(refuse(&ten_megabytes), InputRefusal::MessageTooLong { bytes: 10 << 20, most: MESSAGE_BYTES_MAX });
    assert_eq!(stage.journal().len(), 1, "nothing but the opening was recorded");
    stage.send_message("tabs\tand\r\nline breaks are fine").answer_call("speaker", "indeed");
    stage.send_message(&"x".repeat(MESSAGE_BYTES_MAX));
}

#[test]
fn a_session_is_titled_after_its_first_line() {
    let mut stage = chat(MidTurnPolicy::Queue);
    stage.send_message(&format!("  {}\nsecond line", "long ".repeat(40)));
    let title = stage.session().title.clone();
    assert_eq!(title.chars().count(), TITLE_CHARS_MAX);
    assert!(title.starts_with("long long") && title.ends_with('…'));
    stage
        .run_command(OperatorCommand::Rename { title: "mine".into() })
        .answer_call("speaker", "1")
        .send_message("another");
    assert_eq!(stage.session().title, "mine");
}
