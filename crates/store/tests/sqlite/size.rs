//! How much space a turn takes on disk.

use std::sync::Arc;

use segue_core::body::BodyId;
use segue_core::ids::{Seq, UnixMillis};
use segue_store::conformance::{
    StoreFixture, TestJournalWriter, first_record_bodies, internal_body, sample_commit, sample_summary, visible_body,
};
use segue_store::{JournalCommit, JournalRecord, Store};

use crate::seeded_random::SeededRandom;
use crate::sqlite_file::SqliteFile;

const SESSIONS: usize = 8;
const TURNS: u64 = 120;
const USER_CHARS: usize = 270;
const REPLY_CHARS: usize = 900;

#[tokio::test]
async fn a_turn_takes_little_more_than_its_text() {
    let file = SqliteFile::new();
    let store = file.open_store();
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..SESSIONS {
        let writer = TestJournalWriter::create_session(&store, &format!("01920f3e-session-{number:04}")).await;
        writers.spawn(write_turns(store.clone(), writer, SeededRandom(42 + number as u64)));
    }
    writers.join_all().await;
    store.close().await.expect("closes");
    let bytes = std::fs::metadata(file.path()).expect("is there").len();
    let turns = SESSIONS as u64 * TURNS;
    let ratio = (bytes / turns) as f64 / (USER_CHARS + REPLY_CHARS) as f64;
    assert!(ratio < 1.8, "{} bytes a turn, {ratio:.2} times the text", bytes / turns);
}

/// Appends two commits per turn: the user's message with the call, and the answer.
async fn write_turns(store: Arc<dyn Store>, mut writer: TestJournalWriter, mut random: SeededRandom) {
    for turn in 1..=TURNS {
        let message = visible_body(&random.prose(USER_CHARS));
        let reply = internal_body(&random.prose(REPLY_CHARS));
        for (text, events) in
            [(message.clone(), message_events(turn, message.id)), (reply.clone(), answer_events(turn, reply.id))]
        {
            let records = (1..).zip(events).map(|(step, event)| record(writer.lease.head.0 + step, event)).collect();
            let summary = Some(sample_summary("how to tune a violin", turn));
            let commit = JournalCommit {
                records,
                bodies: first_record_bodies(writer.lease, vec![text]),
                summary,
                ..sample_commit(&writer.session, writer.lease, 0)
            };
            writer.lease.head = store.append_commit(commit).await.expect("in time");
        }
    }
}

fn record(seq: u64, event: String) -> JournalRecord {
    JournalRecord { seq: Seq(seq), at: UnixMillis(1_700_000_000_000 + seq * 1733), bytes: event.into_bytes() }
}

/// The events that follow from a user's message, as the engine writes them.
fn message_events(turn: u64, body: BodyId) -> [String; 3] {
    let tokens = 50 + turn % 90;
    let digest = BodyId::hash_text(&format!("prompt {turn} {body}"));
    [
        format!(r#"{{"type":"user_message_received","message":{turn},"text":{{"body":"{body}","tokens":{tokens}}}}}"#),
        format!(r#"{{"type":"turn_started","turn":{turn},"messages":[{turn}]}}"#),
        format!(
            r#"{{"type":"call_opened","call":{turn},"turn":{turn},"role":"assistant","ask":"reply","model":"small-fast","reply_tokens_max":4096,"receipt":{{"thread":{{"continued":1}},"carried":{{"entries":{},"tokens":{}}},"ask":[{{"name":"message","layer":"user_words","source":{{"message":{turn}}},"why":"what the user said","text":{{"body":"{body}","tokens":{tokens}}}}}],"tokens":{},"window_tokens":100000,"prefix":{{"extends":{}}},"digest":"{digest}"}}}}"#,
            turn * 2,
            turn * 300,
            turn * 300 + tokens,
            turn - 1,
        ),
    ]
}

/// The events that follow from a model's answer.
fn answer_events(turn: u64, body: BodyId) -> [String; 3] {
    let tokens = 180 + turn % 77;
    [
        format!(
            r#"{{"type":"call_answered","call":{turn},"text":{{"body":"{body}","tokens":{tokens}}},"stop_reason":"done","usage":{{"input_tokens":{},"output_tokens":{tokens},"cached_tokens":{}}},"cost_microusd":{},"duration_ms":{}}}"#,
            turn * 300 + 100,
            turn * 290,
            turn * 71 % 999,
            200 + turn * 7 % 1900,
        ),
        format!(
            r#"{{"type":"reply_sent","text":{{"body":"{body}","tokens":{tokens}}},"role":"assistant","call":{turn}}}"#
        ),
        format!(r#"{{"type":"turn_ended","turn":{turn},"outcome":"done"}}"#),
    ]
}
