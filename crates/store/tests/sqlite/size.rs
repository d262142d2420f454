//! What a turn costs on disk.

use std::sync::Arc;

use segue_core::body::BodyId;
use segue_core::ids::{Seq, UnixMillis};
use segue_store::conformance::{StoreFixture, TestWriter, internal_body, sample_commit, sample_summary, visible_body};
use segue_store::{Commit, JournalRecord, Store};

use crate::noise::Noise;
use crate::place::File;

const SESSIONS: usize = 8;
const TURNS: u64 = 120;
const USER_CHARS: usize = 270;
const REPLY_CHARS: usize = 900;

#[tokio::test]
async fn a_turn_takes_little_more_than_its_text() {
    let place = File::new();
    let store = place.open_store();
    let mut writers = tokio::task::JoinSet::new();
    for number in 0..SESSIONS {
        let one = TestWriter::create_session(&store, &format!("01920f3e-session-{number:04}")).await;
        writers.spawn(converse(store.clone(), one, Noise(42 + number as u64)));
    }
    writers.join_all().await;
    store.close().await.expect("closes");
    let bytes = std::fs::metadata(place.path()).expect("is there").len();
    let turns = SESSIONS as u64 * TURNS;
    let ratio = (bytes / turns) as f64 / (USER_CHARS + REPLY_CHARS) as f64;
    assert!(ratio < 1.8, "{} bytes a turn, {ratio:.2} times the text", bytes / turns);
}

/// Two commits a turn: what the user said, what came back.
async fn converse(store: Arc<dyn Store>, mut one: TestWriter, mut noise: Noise) {
    for turn in 0..TURNS {
        for text in [visible_body(&noise.prose(USER_CHARS)), internal_body(&noise.prose(REPLY_CHARS))] {
            let id = text.id;
            let records = (1..=3).map(|step| event(one.lease.head.0 + step, turn, step, id)).collect();
            let summary = Some(sample_summary("how to tune a violin", turn));
            let commit = Commit { records, bodies: vec![text], summary, ..sample_commit(&one.session, one.lease, 0) };
            one.lease.head = store.append_commit(commit).await.expect("in time");
        }
    }
}

/// About 200 bytes, as events are.
fn event(seq: u64, turn: u64, step: u64, body: BodyId) -> JournalRecord {
    let at = 1_700_000_000_000 + seq * 1733;
    let json = match step {
        1 => format!(
            r#"{{"type":"message_recorded","message":"m{seq}","turn":"t{turn}","from":{{"role":"user"}},"text":{{"body":"{body}","tokens":{}}},"thread":"th{}","visible":true,"at":{at}}}"#,
            50 + seq % 90,
            seq % 5
        ),
        2 => format!(
            r#"{{"type":"call_opened","call":"c{seq}","role":"speaker","thread":"th{}","model":"small-fast","receipt":{{"body":"{body}","tokens":{}}},"attempt":1,"deadline":{}}}"#,
            seq % 5,
            900 + seq % 333,
            at + 60_000
        ),
        _ => format!(
            r#"{{"type":"call_closed","call":"c{}","outcome":{{"reply":{{"body":"{body}","tokens":{}}}}},"usage":{{"input":{},"output":{},"cached":{}}},"ms":{}}}"#,
            seq - 1,
            180 + seq % 77,
            1000 + seq * 3 % 999,
            180 + seq % 77,
            seq * 11 % 900,
            200 + seq * 7 % 1900
        ),
    };
    JournalRecord { seq: Seq(seq), at: UnixMillis(at), bytes: json.into_bytes() }
}
