//! What becomes of a message while a turn runs, and of messages nobody should send.

use segue_core::decide::{Command, Input, Refusal};
use segue_core::event::Busy;
use segue_core::limits::{IDEMPOTENCY_KEY_BYTES_MAX, MESSAGE_BYTES_MAX, QUEUED_MESSAGES_MAX, TITLE_CHARS_MAX};
use segue_testkit::{Puppet, Stage};

use super::{message, outcomes};

fn chat(busy: Busy) -> Stage {
    Stage::open_with(Puppet::chat(Puppet::speaker()), busy)
}

fn with_policy(text: &str, busy: Busy) -> Input {
    Input::Message { text: text.to_owned(), key: None, busy: Some(busy), images: Vec::new() }
}

#[test]
fn queued_messages_get_a_turn_each_in_their_order() {
    let mut stage = chat(Busy::Queue);
    stage.say("one").say("two").say("three");
    assert_eq!(stage.open_roles().len(), 1, "turns do not interleave");
    stage.answer("speaker", "1").answer("speaker", "2");
    assert_eq!(
        stage.prompt_lines("speaker"),
        "System: be speaker\nUser: one\nAssistant: 1\nUser: two\nAssistant: 2\nUser: three\n"
    );
}

#[test]
fn coalesced_messages_share_the_next_turn() {
    let mut stage = chat(Busy::Coalesce);
    stage.say("one").say("two").say("three").answer("speaker", "1");
    assert_eq!(stage.prompt_lines("speaker"), "System: be speaker\nUser: one\nAssistant: 1\nUser: two + three\n");
    stage.answer("speaker", "2");
    assert!(stage.session().is_idle());
}

#[test]
fn a_message_can_ask_to_share_a_turn_with_others_that_ask_for_it_too() {
    let mut stage = chat(Busy::Queue);
    stage.say("one").say("two").give(with_policy("three", Busy::Coalesce)).give(with_policy("four", Busy::Coalesce));
    stage.say("five").answer("speaker", "1");
    assert!(stage.prompt_lines("speaker").ends_with("User: two\n"), "two wants a turn of its own");
    stage.answer("speaker", "2");
    assert!(stage.prompt_lines("speaker").ends_with("User: three + four\n"));
    stage.answer("speaker", "3");
    assert!(stage.prompt_lines("speaker").ends_with("User: five\n"));
}

#[test]
fn a_rejected_message_leaves_no_trace() {
    let mut stage = chat(Busy::Reject);
    stage.say("one");
    let before = stage.journal().len();
    assert_eq!(stage.try_give(message("two")).err(), Some(Refusal::Busy));
    assert_eq!(stage.journal().len(), before);
    stage.answer("speaker", "1").say("two");
    assert_eq!(stage.open_roles(), ["speaker"], "between turns it is taken");
}

#[test]
fn an_interrupting_message_stops_the_turn_and_takes_its_place() {
    let mut stage = chat(Busy::Interrupt);
    stage.say("one").say("two");
    assert_eq!(outcomes(&stage), ["interrupted"]);
    assert_eq!(
        stage.prompt_lines("speaker"),
        "System: be speaker\nUser: two\n",
        "an unanswered question is not remembered"
    );
    stage.answer("speaker", "2");
    assert_eq!(outcomes(&stage), ["interrupted", "done"]);
}

#[test]
fn an_interrupting_message_goes_before_those_that_wait() {
    let mut stage = chat(Busy::Queue);
    stage.say("one").say("two").give(with_policy("now", Busy::Interrupt));
    assert!(stage.prompt_lines("speaker").ends_with("User: now\n"));
    stage.answer("speaker", "yes");
    assert!(stage.prompt_lines("speaker").ends_with("User: two\n"), "and nothing is lost");
}

#[test]
fn a_cancelled_turn_ends_with_its_calls_and_the_next_message_goes_on() {
    let mut stage = chat(Busy::Queue);
    stage.say("one").say("two").log();
    stage.command(Command::Cancel);
    expect_test::expect![[r#"
        c1 cancelled in flight, maybe billed: stopped by hand
        t1 cancelled
        t2 begins with m2
        c2 speaker asked reply on plain, th1 continued (0 messages); prefix kept 6, broken by message
    "#]]
    .assert_eq(&stage.log());
    stage.answer("speaker", "2");
    assert_eq!(stage.try_give(Input::Operator(Command::Cancel)).err(), Some(Refusal::NothingRuns));
}

#[test]
fn a_message_sent_twice_under_one_key_is_one_message() {
    let mut stage = chat(Busy::Queue);
    let keyed =
        |text: &str| Input::Message { text: text.to_owned(), key: Some("k".into()), busy: None, images: Vec::new() };
    let first = stage.try_give(keyed("one")).expect("it is taken").message;
    let before = stage.journal().len();
    let again = stage.try_give(keyed("one")).expect("it is recognised").message;
    assert_eq!(first, again);
    assert_eq!(stage.journal().len(), before);
    stage.answer("speaker", "1").command(Command::Close);
    assert_eq!(stage.try_give(keyed("one")).expect("even when the session is closed").message, first);
    let long = "k".repeat(IDEMPOTENCY_KEY_BYTES_MAX + 1);
    let long = Input::Message { text: "hi".to_owned(), key: Some(long.into()), busy: None, images: Vec::new() };
    assert!(matches!(stage.try_give(long), Err(Refusal::KeyTooLong { bytes: 201, most: 200 })));
}

#[test]
fn a_full_queue_refuses_and_says_how_full_it_is() {
    let mut stage = chat(Busy::Queue);
    for n in 0..=QUEUED_MESSAGES_MAX {
        stage.say(&format!("message {n}"));
    }
    let refusal = stage.try_give(message("one too many")).err();
    assert_eq!(refusal, Some(Refusal::QueueFull { waiting: QUEUED_MESSAGES_MAX }));
    stage.answer("speaker", "1").say("now there is room");
}

#[test]
fn messages_nobody_should_send_are_refused_by_name() {
    let mut stage = chat(Busy::Queue);
    let mut refuse = |text: &str| stage.try_give(message(text)).expect_err("it is refused");
    assert_eq!(refuse(""), Refusal::EmptyMessage);
    assert_eq!(refuse(" \n\t"), Refusal::EmptyMessage);
    assert_eq!(refuse("a\u{0}b"), Refusal::ControlCharacter { code: 0, at: 2 });
    assert_eq!(refuse("żół\u{1b}[2J"), Refusal::ControlCharacter { code: 0x1b, at: 4 });
    let ten_megabytes = "x".repeat(10 << 20);
    assert_eq!(refuse(&ten_megabytes), Refusal::MessageTooLong { bytes: 10 << 20, most: MESSAGE_BYTES_MAX });
    assert_eq!(stage.journal().len(), 1, "nothing but the opening was recorded");
    stage.say("tabs\tand\r\nline breaks are fine").answer("speaker", "indeed");
    stage.say(&"x".repeat(MESSAGE_BYTES_MAX));
}

#[test]
fn a_session_is_titled_after_its_first_line() {
    let mut stage = chat(Busy::Queue);
    stage.say(&format!("  {}\nsecond line", "long ".repeat(40)));
    let title = stage.session().title.clone();
    assert_eq!(title.chars().count(), TITLE_CHARS_MAX);
    assert!(title.starts_with("long long") && title.ends_with('…'));
    stage.command(Command::Rename { title: "mine".into() }).answer("speaker", "1").say("another");
    assert_eq!(stage.session().title, "mine");
}
