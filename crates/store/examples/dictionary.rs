//! Makes a dictionary for the compression of journals out of the sessions of a store.
//!
//! `cargo run -p segue-store --example dictionary -- STORE.db OUT.zdict`
//!
//! A dictionary that stores have been written with is never changed: a better one gets a mark and a file of its own.

use std::error::Error;

use segue_core::ids::Seq;
use segue_store::sqlite::SqliteStore;
use segue_store::{SessionQuery, Store};

const DICTIONARY_BYTES: usize = 16 << 10;
/// Records that lie together, as those of one commit do.
const TOGETHER: usize = 6;
const SESSIONS: usize = 1_000;
const RECORDS: usize = 100_000;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(from), Some(to)) = (arguments.next(), arguments.next()) else {
        return Err("name a store to learn from and a file to write".into());
    };
    let store = SqliteStore::open(&from)?;
    let mut samples: Vec<Vec<u8>> = Vec::new();
    for row in store.list_sessions(&SessionQuery::newest(SESSIONS)).await?.entries {
        let records = store.read_records(&row.session, Seq(0), RECORDS).await?;
        for some in records.chunks(TOGETHER) {
            samples.push(some.iter().flat_map(|record| record.bytes.iter().copied()).collect());
            samples.extend(some.iter().map(|record| record.bytes.clone()));
        }
    }
    store.close().await?;
    std::fs::write(to, zstd::dict::from_samples(&samples, DICTIONARY_BYTES)?)?;
    Ok(())
}
