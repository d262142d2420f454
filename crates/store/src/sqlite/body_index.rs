//! Finds the rows of bodies by their addresses. An address is the first eight bytes of a body id.
//!
//! Addresses are hashes and come in no order, so if each new one went straight into the index, every new text would
//! change a different page. Therefore new addresses are first appended to a list (table `unindexed_addresses`), which
//! every connection also keeps in memory. Once there are enough of them that many fall on the same page, they are moved
//! into the index (table `addresses`) in the order of the index.
//!
//! After a move, the list begins with an empty row. A connection that reads this row clears its copy of the list,
//! because bodies may have been deleted since.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Deref;

use rusqlite::{Connection, params};

use crate::limits::{BODIES_PER_UNINDEXED_ADDRESS, UNINDEXED_ADDRESSES_MAX, UNINDEXED_ADDRESSES_MIN};

/// An address, and the row of the body.
type BodyIndexEntry = (i64, i64);
const BODY_ADDRESS_BYTES: usize = 16;

/// A connection with its copy of the list of new addresses.
#[derive(Debug)]
pub(super) struct SqliteStoreConnection {
    db: Connection,
    unindexed: RefCell<UnindexedBodyEntries>,
}

impl Deref for SqliteStoreConnection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.db
    }
}

impl From<Connection> for SqliteStoreConnection {
    fn from(db: Connection) -> Self {
        Self { db, unindexed: RefCell::default() }
    }
}

#[derive(Debug, Default)]
struct UnindexedBodyEntries {
    /// The addresses in the list, in the order of the index.
    listed: BTreeSet<BodyIndexEntry>,
    /// The last row of the list that was read or written.
    last_row: i64,
    /// The changes of the current transaction, which are applied to this copy on commit.
    change: UnindexedBodyEntryChanges,
}

#[derive(Debug, Default)]
struct UnindexedBodyEntryChanges {
    added: BTreeSet<BodyIndexEntry>,
    /// Whether the whole list was moved to the index.
    flushed: bool,
    last_row: Option<i64>,
}

impl SqliteStoreConnection {
    /// Reads new rows of the list. Must be called first in every transaction.
    pub(super) fn read_new_body_addresses(&self) -> Result<(), rusqlite::Error> {
        let mut addresses = self.unindexed.borrow_mut();
        let mut query = self.prepare_cached("SELECT id, data FROM unindexed_addresses WHERE id > ?1 ORDER BY id")?;
        let mut rows = query.query([addresses.last_row])?;
        while let Some(row) = rows.next()? {
            let (id, data) = (row.get(0)?, row.get_ref(1)?.as_blob()?);
            if data.is_empty() {
                addresses.listed.clear();
            }
            addresses.listed.extend(decode_body_addresses(data));
            addresses.last_row = id;
        }
        Ok(())
    }

    /// Returns the rows of bodies that may have this address. Some of them may have been deleted.
    pub(super) fn find_body_rows(&self, hash: i64) -> Result<Vec<i64>, rusqlite::Error> {
        let addresses = self.unindexed.borrow();
        let with_hash = (hash, i64::MIN)..=(hash, i64::MAX);
        let listed = addresses.change.added.range(with_hash.clone()).chain(addresses.listed.range(with_hash));
        let mut rows_found: Vec<i64> = listed.map(|(_, body_row)| *body_row).collect();
        let mut query = self.prepare_cached("SELECT body FROM addresses WHERE hash = ?1")?;
        let mut rows = query.query([hash])?;
        while let Some(row) = rows.next()? {
            rows_found.push(row.get(0)?);
        }
        Ok(rows_found)
    }

    /// Adds the address of a new body.
    pub(super) fn add_body_address(&self, hash: i64, body_row: i64) {
        self.unindexed.borrow_mut().change.added.insert((hash, body_row));
    }

    /// Removes an address from the index. The list must have been moved there by
    /// [`flush_body_addresses_to_index`](Self::flush_body_addresses_to_index).
    pub(super) fn remove_body_address(&self, hash: i64, body_row: i64) -> Result<(), rusqlite::Error> {
        self.prepare_cached("DELETE FROM addresses WHERE hash = ?1 AND body = ?2")?.execute([hash, body_row])?;
        Ok(())
    }

    /// Moves the whole list into the index, so that addresses can be removed there.
    pub(super) fn flush_body_addresses_to_index(&self) -> Result<(), rusqlite::Error> {
        self.move_body_addresses_to_index(&mut self.unindexed.borrow_mut())
    }

    fn move_body_addresses_to_index(&self, addresses: &mut UnindexedBodyEntries) -> Result<(), rusqlite::Error> {
        let mut moved = std::mem::take(&mut addresses.change.added);
        if !addresses.change.flushed {
            moved.extend(&addresses.listed);
        }
        let mut insert = self.prepare_cached("INSERT OR IGNORE INTO addresses VALUES (?1, ?2)")?;
        for (hash, body_row) in moved {
            insert.execute([hash, body_row])?;
        }
        self.execute("DELETE FROM unindexed_addresses", [])?;
        addresses.change.flushed = true;
        self.append_body_address_row(addresses, &[])
    }

    /// Writes the new addresses of this transaction, before it is committed.
    pub(super) fn write_new_body_addresses(&self) -> Result<(), rusqlite::Error> {
        let addresses = &mut *self.unindexed.borrow_mut();
        let Some(newest_row) = addresses.change.added.iter().map(|(_, body_row)| *body_row).max() else {
            return Ok(());
        };
        let listed = if addresses.change.flushed { 0 } else { addresses.listed.len() };
        let listed_max = usize::try_from(newest_row / BODIES_PER_UNINDEXED_ADDRESS)
            .unwrap_or(UNINDEXED_ADDRESSES_MAX)
            .clamp(UNINDEXED_ADDRESSES_MIN, UNINDEXED_ADDRESSES_MAX);
        if listed + addresses.change.added.len() > listed_max {
            return self.move_body_addresses_to_index(addresses);
        }
        let data = encode_body_addresses(&addresses.change.added);
        self.append_body_address_row(addresses, &data)
    }

    /// Applies the transaction's changes to the copy in memory.
    pub(super) fn on_commit(&self) {
        let addresses = &mut *self.unindexed.borrow_mut();
        let change = std::mem::take(&mut addresses.change);
        if change.flushed {
            addresses.listed.clear();
        }
        addresses.listed.extend(change.added);
        addresses.last_row = change.last_row.unwrap_or(addresses.last_row);
    }

    /// Drops the transaction's changes.
    pub(super) fn on_rollback(&self) {
        self.unindexed.borrow_mut().change = UnindexedBodyEntryChanges::default();
    }

    fn append_body_address_row(
        &self,
        addresses: &mut UnindexedBodyEntries,
        data: &[u8],
    ) -> Result<(), rusqlite::Error> {
        let next = addresses.change.last_row.unwrap_or(addresses.last_row) + 1;
        self.prepare_cached("INSERT INTO unindexed_addresses VALUES (?1, ?2)")?.execute(params![next, data])?;
        addresses.change.last_row = Some(next);
        Ok(())
    }
}

fn encode_body_addresses(addresses: &BTreeSet<BodyIndexEntry>) -> Vec<u8> {
    addresses.iter().flat_map(|(hash, body_row)| [hash.to_le_bytes(), body_row.to_le_bytes()]).flatten().collect()
}

/// Decodes the result of [`encode_body_addresses`]. Corrupted bytes give addresses that match no body.
fn decode_body_addresses(data: &[u8]) -> impl Iterator<Item = BodyIndexEntry> {
    data.chunks_exact(BODY_ADDRESS_BYTES).map(|pair| {
        let number = |at: usize| pair[at..].first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
        (number(0), number(8))
    })
}
