//! Encoding and decoding of events: newer formats and broken events are rejected, and unknown fields are ignored.

use segue_core::codec::{EVENT_FORMAT, Error, decode_event, encode_event};
use segue_core::event::{Event, MidTurnPolicy, RecordedEvent};
use segue_core::ids::{Seq, UnixMillis};
use serde_json::Value;

fn read(text: &str) -> Result<Event, Error> {
    decode_event(Seq(7), UnixMillis(1), text.as_bytes()).map(|RecordedEvent { event, .. }| event)
}

const RENAMED: &str = r#"{"type":"session_renamed","title":"mine"}"#;

#[test]
fn event_of_format_1_is_one_json_object_without_a_format_number() {
    assert_eq!(EVENT_FORMAT, 1);
    let event = read(RENAMED).expect("it is an event");
    assert_eq!(String::from_utf8(encode_event(&event)).as_deref(), Ok(RENAMED));
}

#[test]
fn event_of_a_newer_format_is_rejected_with_its_number() {
    for (text, found) in [
        (r#"{"v":99,"type":"session_renamed","title":"mine"}"#, 99),
        (r#"{"v":2,"something":"else"}"#, 2),
        (r#"{"v":99999999999999}"#, u32::MAX),
    ] {
        let error = read(text).expect_err("it is newer");
        assert_eq!(error, Error::NewerFormat { seq: Seq(7), found });
        assert!(
            error.to_string().starts_with(&format!("event 7 has format {found}, but this version reads formats up to"))
        );
    }
}

#[test]
fn event_with_a_known_format_number_is_decoded() {
    assert_eq!(read(r#"{"v":1,"type":"session_renamed","title":"mine"}"#), read(RENAMED));
}

#[test]
fn invalid_event_is_rejected_with_its_sequence_number() {
    let garbage: [&[u8]; 10] = [
        b"",
        b"{",
        b"null",
        b"[]",
        b"\xff\xfe",
        b"{\"v\":",
        b"{\"type\":\"no_such_thing\"}",
        b"{\"type\":\"session_renamed\"}",
        b"{\"type\":\"session_renamed\",\"title\":7}",
        b"{\"type\":\"session_renamed\",\"title\":\"mine\"} and more",
    ];
    for bytes in garbage {
        let error = decode_event(Seq(7), UnixMillis(1), bytes).expect_err("it is not an event");
        assert!(matches!(error, Error::Unreadable { seq: Seq(7), .. }), "{error}");
        assert!(error.to_string().starts_with("event 7 cannot be read: "));
    }
}

#[test]
fn unknown_fields_are_ignored() {
    let text = r#"{"type":"session_renamed","title":"mine","colour":{"deep":["blue"]}}"#;
    assert_eq!(read(text), read(RENAMED));
    let text = r#"{"type":"turn_ended","turn":3,"outcome":{"failed":{"reason":"no","code":12}},"mood":"sad"}"#;
    assert!(read(text).is_ok());
}

#[test]
fn fields_added_later_may_be_missing() {
    let body = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";
    let texts = format!(r#"{{"body":"{body}","tokens":1}}"#);
    let received =
        read(&format!(r#"{{"type":"user_message_received","message":1,"text":{texts}}}"#)).expect("it is read");
    assert!(
        matches!(received, Event::UserMessageReceived(received) if received.mid_turn_policy == MidTurnPolicy::Queue && received.idempotency_key.is_none())
    );
    for text in [
        r#"{"type":"session_opened","format":1,"session":"s","flow":"f"}"#.to_owned(),
        r#"{"type":"timer_set","timer":1,"name":"t","fires_at":5}"#.to_owned(),
        format!(r#"{{"type":"reply_sent","text":{texts}}}"#),
        r#"{"type":"work_item_assigned","agent":"ann"}"#.to_owned(),
        r#"{"type":"tool_run_opened","run":1,"tool":"look","arguments":{}}"#.to_owned(),
        r#"{"type":"call_deferred","deferred_id":1,"request":{"role":"r","ask":"a"},"waits_for_call":1}"#.to_owned(),
        format!(r#"{{"type":"agent_message_sent","message":1,"from":"a","to":"b","topic":"t","text":{texts}}}"#),
        format!(
            r#"{{"type":"thread_compacted","thread":1,"folded_entries":2,"kept_indices":[],"summary":[{texts}],"tokens_before":9,"tokens_after":3}}"#
        ),
    ] {
        let event = read(&text).unwrap_or_else(|error| panic!("{text}: {error}"));
        let again: Value = serde_json::from_slice(&encode_event(&event)).expect("it is JSON");
        assert_eq!(again["type"], serde_json::from_str::<Value>(&text).expect("it is JSON")["type"]);
    }
}
