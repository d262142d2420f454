//! Deleted sessions leave no data in the file, even after pages were split, merged and reused.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use segue_core::body::BodyId;
use segue_store::conformance::{
    StoreFixture, TestJournalWriter, first_record_bodies, internal_body, read_all_records, sample_commit,
    sample_summary, visible_body,
};
use segue_store::{JournalCommit, Snapshot};

use crate::seeded_random::SeededRandom;
use crate::sqlite_file::SqliteFile;

#[tokio::test]
async fn no_data_of_a_deleted_session_survives_page_reuse() {
    for seed in 0..2 {
        let file = SqliteFile::new();
        let store = file.open_store();
        let mut random = SeededRandom(seed);
        let mut sessions = BTreeMap::new();
        let mut deleted_markers = Vec::new();
        for round in 0..90u64 {
            let number = random.below(16);
            let marker = |kind: &str| BodyId::hash_text(&format!("{seed} {number} {round} {kind}")).to_string();
            if random.below(4) == 0 {
                if let Some((writer, markers)) = sessions.remove(&number) {
                    let writer: TestJournalWriter = writer;
                    store.delete_session(&writer.session, None).await.expect("deleted");
                    let markers: Vec<String> = markers;
                    deleted_markers.extend(markers);
                }
                continue;
            }
            let (writer, markers) = match sessions.entry(number) {
                Entry::Occupied(old) => old.into_mut(),
                Entry::Vacant(new) => {
                    new.insert((TestJournalWriter::create_session(&store, &format!("s{number}")).await, Vec::new()))
                }
            };
            let long = format!("{} {}", marker("text"), random.prose(200));
            let text = long.repeat(1 + random.below(40));
            let title = format!("{}{}", marker("title"), "x".repeat(random.below(300)));
            let mut commit = JournalCommit {
                bodies: first_record_bodies(writer.lease, vec![visible_body(&text), internal_body(&marker("short"))]),
                summary: Some(sample_summary(&title, round)),
                ..sample_commit(&writer.session, writer.lease, 2)
            };
            commit.records[1].bytes = marker("record").repeat(1 + random.below(9)).into_bytes();
            writer.lease.head = store.append_commit(commit).await.expect("in time");
            let bytes = format!("{}{}", marker("state"), random.prose(5000)).into_bytes();
            store
                .save_snapshot(&writer.session, Snapshot { seq: writer.lease.head, format: 1, bytes })
                .await
                .expect("kept");
            markers.extend(["text", "title", "short", "record", "state"].map(marker));
        }
        let all_bytes = file.all_bytes();
        let found =
            sessions.values().flat_map(|(_, markers)| markers).filter(|marker| all_bytes.contains(*marker)).count();
        assert!(found > 0, "the test can see stored data");
        let remaining: Vec<&String> = deleted_markers.iter().filter(|marker| all_bytes.contains(*marker)).collect();
        assert_eq!(remaining, Vec::<&String>::new(), "seed {seed}: of {} markers", deleted_markers.len());
        for (writer, _) in sessions.values() {
            assert_eq!(read_all_records(&store, &writer.session).await.len() as u64, writer.lease.head.0);
        }
        assert!(store.check_integrity().await.expect("checked").is_clean());
    }
}
