//! Fuzz targets of core; see `segue_testkit::run_fuzz_target`.

#![allow(clippy::disallowed_methods, reason = "a test reads its corpus")]

use std::path::{Path, PathBuf};

use segue_core::codec::{decode_event, encode_event};
use segue_core::ids::{Seq, UnixMillis};
use segue_core::signal::{BlockFieldSchema, BlockSet, BlockStreamFilter, parse_reply};
use segue_testkit::{injection_corpus, run_fuzz_target};

fn corpus(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fuzz").join(target)
}

/// Every event of the golden journals.
fn golden_events() -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/format-1");
    let files = std::fs::read_dir(folder).expect("golden journals").flatten().map(|entry| entry.path());
    let journals = files.filter(|path| path.extension().is_some_and(|ending| ending == "jsonl"));
    let mut events = Vec::new();
    for journal in journals {
        for line in std::fs::read_to_string(journal).expect("a journal").lines() {
            let line: serde_json::Value = serde_json::from_str(line).expect("JSON");
            events.push(line["event"].to_string().into_bytes());
        }
    }
    events.sort();
    events
}

#[test]
fn fuzz_event_codec() {
    run_fuzz_target("event codec", &corpus("event_codec"), &golden_events(), |bytes| {
        let Ok(recorded) = decode_event(Seq(1), UnixMillis(1), bytes) else { return };
        let again = decode_event(Seq(1), UnixMillis(1), &encode_event(&recorded.event));
        assert_eq!(again.as_ref(), Ok(&recorded), "what was decoded can be encoded");
    });
}

#[test]
fn fuzz_block_scanner_against_streaming_filter() {
    let blocks = BlockSet::default()
        .with_block("NOTE", BlockFieldSchema::default())
        .with_block("STEP", BlockFieldSchema::default());
    let mut seeds: Vec<Vec<u8>> = injection_corpus().iter().map(|text| text.as_bytes().to_vec()).collect();
    seeds.push(b"Before <<<NOTE>>>a: b\n- c<<<END>>> between\n```\n<<<STEP>>>\n```\n> <<<NOTE>>>\nafter".to_vec());
    run_fuzz_target("block scanner", &corpus("blocks"), &seeds, |bytes| {
        let text = String::from_utf8_lossy(bytes);
        let parsed = parse_reply(&text, &blocks, &[""; 0]);
        // The sizes of the pieces follow from the input.
        let mut filter = BlockStreamFilter::ignoring_quotes(blocks.clone(), &[] as &[&str]);
        let (mut streamed, mut rest) = (String::new(), &*text);
        let mut sizes = bytes.iter().map(|byte| usize::from(byte % 7) + 1).cycle();
        while !rest.is_empty() {
            let size = rest.ceil_char_boundary(sizes.next().unwrap_or(1).min(rest.len()));
            streamed.push_str(&filter.push(&rest[..size]));
            rest = &rest[size..];
        }
        streamed.push_str(&filter.finish());
        assert_eq!(streamed, parsed.visible_text, "what is streamed is what is recorded");
    });
}
