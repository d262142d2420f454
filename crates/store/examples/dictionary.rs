//! Trains a compression dictionary for journals from the sessions of a store.
//!
//! `cargo run -p segue-store --example dictionary -- STORE.db OUT.zdict`
//!
//! The example `dictionary_sessions` of `segue-engine` writes sessions of the built-in flows to train on.
//!
//! A dictionary that released versions have used is never changed; a better one gets a mark and a file of its own.

use std::error::Error;

use segue_core::ids::Seq;
use segue_store::sqlite::SqliteStore;
use segue_store::{JournalReader, SessionCatalog, SessionQuery, StoreMaintenance};

const DICTIONARY_BYTES: usize = 16 << 10;
/// Records per sample, about as many as one commit has.
const RECORDS_PER_SAMPLE: usize = 6;
const SESSIONS_MAX: usize = 1_000;
const RECORDS_MAX: usize = 100_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(store_path), Some(dictionary_path)) = (arguments.next(), arguments.next()) else {
        return Err("usage: dictionary STORE.db OUT.zdict".into());
    };
    let store = SqliteStore::open(&store_path)?;
    let mut samples: Vec<Vec<u8>> = Vec::new();
    for entry in store.list_sessions(&SessionQuery::newest(SESSIONS_MAX)).await?.entries {
        let records = store.read_records(&entry.session, Seq(0), RECORDS_MAX).await?;
        for batch in records.chunks(RECORDS_PER_SAMPLE) {
            samples.push(batch.iter().flat_map(|record| record.bytes.iter().copied()).collect());
            samples.extend(batch.iter().map(|record| record.bytes.clone()));
        }
    }
    store.close().await?;
    std::fs::write(dictionary_path, zstd::dict::from_samples(&samples, DICTIONARY_BYTES)?)?;
    Ok(())
}
