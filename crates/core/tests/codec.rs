//! Events as they are written down: newer ones are refused by name, broken ones too, and what is not known is left be.

use segue_core::codec::{Error, FORMAT, decode, encode};
use segue_core::event::{Busy, Event, Recorded};
use segue_core::ids::{Millis, Seq};
use serde_json::Value;

fn read(text: &str) -> Result<Event, Error> {
    decode(Seq(7), Millis(1), text.as_bytes()).map(|Recorded { event, .. }| event)
}

const RENAMED: &str = r#"{"is":"session_renamed","title":"mine"}"#;

#[test]
fn an_event_is_written_as_one_json_object_without_a_mark_in_the_first_format() {
    assert_eq!(FORMAT, 1);
    let event = read(RENAMED).expect("it is an event");
    assert_eq!(String::from_utf8(encode(&event)).as_deref(), Ok(RENAMED));
}

#[test]
fn an_event_of_a_newer_format_is_refused_by_its_number() {
    for (text, found) in [
        (r#"{"v":99,"is":"session_renamed","title":"mine"}"#, 99),
        (r#"{"v":2,"something":"else"}"#, 2),
        (r#"{"v":99999999999999}"#, u32::MAX),
    ] {
        let error = read(text).expect_err("it is newer");
        assert_eq!(error, Error::Newer { seq: Seq(7), found });
        assert!(error.to_string().starts_with(&format!("event 7 is of format {found}, and this version reads up to")));
    }
}

#[test]
fn a_marked_event_of_a_known_format_is_read() {
    assert_eq!(read(r#"{"v":1,"is":"session_renamed","title":"mine"}"#), read(RENAMED));
}

#[test]
fn what_is_no_event_is_unreadable_and_says_where() {
    let garbage: [&[u8]; 10] = [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        b"{\"v\":",
        b"{\"is\":\"no_such_thing\"}",
        b"{\"is\":\"session_renamed\"}",
        b"{\"is\":\"session_renamed\",\"title\":7}",
        b"{\"is\":\"session_renamed\",\"title\":\"mine\"} and more",
    ];
    for bytes in garbage {
        let error = decode(Seq(7), Millis(1), bytes).expect_err("it is no event");
        assert!(matches!(error, Error::Unreadable { seq: Seq(7), .. }), "{error}");
        assert!(error.to_string().starts_with("event 7 cannot be read: "));
    }
}

#[test]
fn fields_nobody_knows_are_left_be() {
    let text = r#"{"is":"session_renamed","title":"mine","colour":{"deep":["blue"]}}"#;
    assert_eq!(read(text), read(RENAMED));
    let text = r#"{"is":"turn_ended","turn":3,"outcome":{"failed":{"reason":"no","code":12}},"mood":"sad"}"#;
    assert!(read(text).is_ok());
}

#[test]
fn fields_that_came_later_may_be_missing() {
    let body = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let texts = format!(r#"{{"body":"{body}","tokens":1}}"#);
    let received = read(&format!(r#"{{"is":"message_received","message":1,"text":{texts}}}"#)).expect("it is read");
    assert!(
        matches!(received, Event::MessageReceived(received) if received.busy == Busy::Queue && received.key.is_none())
    );
    for text in [
        r#"{"is":"session_opened","format":1,"session":"s","flow":"f"}"#.to_owned(),
        r#"{"is":"timer_set","timer":1,"name":"t","at":5}"#.to_owned(),
        format!(r#"{{"is":"said","text":{texts}}}"#),
        r#"{"is":"work_leased","agent":"ann"}"#.to_owned(),
        r#"{"is":"tool_opened","run":1,"tool":"look","arguments":{}}"#.to_owned(),
        r#"{"is":"call_deferred","deferred":1,"wish":{"role":"r","ask":"a"},"waits_for":1}"#.to_owned(),
        format!(r#"{{"is":"message_posted","message":1,"from":"a","to":"b","topic":"t","text":{texts}}}"#),
        format!(
            r#"{{"is":"thread_compacted","thread":1,"folded":2,"kept":[],"summary":[{texts}],"tokens_before":9,"tokens_after":3}}"#
        ),
    ] {
        let event = read(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let again: Value = serde_json::from_slice(&encode(&event)).expect("it is JSON");
        assert_eq!(again["is"], serde_json::from_str::<Value>(&text).expect("it is JSON")["is"]);
    }
}
