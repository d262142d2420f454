//! What deleted sessions leave behind in the file, after pages were split, merged and used again.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use segue_core::body::BodyId;
use segue_store::conformance::{
    StoreFixture, TestWriter, internal_body, read_all_records, sample_commit, sample_summary, visible_body,
};
use segue_store::{Commit, Snapshot};

use crate::noise::Noise;
use crate::place::File;

#[tokio::test]
async fn no_trace_of_a_deleted_session_survives_the_shuffling_of_pages() {
    for seed in 0..2 {
        let place = File::new();
        let store = place.open_store();
        let mut noise = Noise(seed);
        let mut living = BTreeMap::new();
        let mut gone = Vec::new();
        for round in 0..90u64 {
            let number = noise.below(16);
            let marker = |kind: &str| BodyId::hash_text(&format!("{seed} {number} {round} {kind}")).to_string();
            if noise.below(4) == 0 {
                if let Some((one, markers)) = living.remove(&number) {
                    let one: TestWriter = one;
                    store.delete_session(&one.session).await.expect("deleted");
                    let markers: Vec<String> = markers;
                    gone.extend(markers);
                }
                continue;
            }
            let (one, markers) = match living.entry(number) {
                Entry::Occupied(old) => old.into_mut(),
                Entry::Vacant(new) => {
                    new.insert((TestWriter::create_session(&store, &format!("s{number}")).await, Vec::new()))
                }
            };
            let long = format!("{} {}", marker("text"), noise.prose(200));
            let text = long.repeat(1 + noise.below(40));
            let title = format!("{}{}", marker("title"), "x".repeat(noise.below(300)));
            let mut commit = Commit {
                bodies: vec![visible_body(&text), internal_body(&marker("short"))],
                summary: Some(sample_summary(&title, round)),
                ..sample_commit(&one.session, one.lease, 2)
            };
            commit.records[1].bytes = marker("record").repeat(1 + noise.below(9)).into_bytes();
            one.lease.head = store.append_commit(commit).await.expect("in time");
            let bytes = format!("{}{}", marker("state"), noise.prose(5000)).into_bytes();
            store.save_snapshot(&one.session, Snapshot { seq: one.lease.head, format: 1, bytes }).await.expect("kept");
            markers.extend(["text", "title", "short", "record", "state"].map(marker));
        }
        let at_rest = place.at_rest();
        let seen = living.values().flat_map(|(_, markers)| markers).filter(|marker| at_rest.contains(*marker)).count();
        assert!(seen > 0, "the test can see what is there");
        let left: Vec<&String> = gone.iter().filter(|marker| at_rest.contains(*marker)).collect();
        assert_eq!(left, Vec::<&String>::new(), "seed {seed}: of {} markers", gone.len());
        for (one, _) in living.values() {
            assert_eq!(read_all_records(&store, &one.session).await.len() as u64, one.lease.head.0);
        }
        assert!(store.check_integrity().await.expect("checked").is_clean());
    }
}
