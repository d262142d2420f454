//! Where texts lie, by their addresses.
//!
//! Addresses come in no order, so an index of all of them would have a page of its own changed by every new text. What is new
//! is therefore listed in the order it came (`news`), which every connection keeps in memory, and is moved into the index
//! (`addresses`) in the index's order, once there is enough of it for many to fall on one page.
//!
//! The list begins with an empty row whenever all before it was moved. Whoever reads that row forgets what it knew: some of it
//! may have been erased since.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Deref;

use rusqlite::{Connection, params};

use crate::limits::{BODIES_PER_UNINDEXED_ADDRESS, UNINDEXED_ADDRESSES_MAX, UNINDEXED_ADDRESSES_MIN};

/// The first eight bytes of a text's address, and the row the text lies in.
type BodyAddress = (i64, i64);
const BODY_ADDRESS_BYTES: usize = 16;

/// A connection, and what it knows of new addresses.
#[derive(Debug)]
pub(super) struct StoreConnection {
    db: Connection,
    unindexed: RefCell<UnindexedAddresses>,
}

impl Deref for StoreConnection {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.db
    }
}

impl From<Connection> for StoreConnection {
    fn from(db: Connection) -> Self {
        Self { db, unindexed: RefCell::default() }
    }
}

#[derive(Debug, Default)]
struct UnindexedAddresses {
    /// Those of the list, in the index's order.
    listed: BTreeSet<BodyAddress>,
    /// The last row of the list that was read or written.
    last_row: i64,
    /// What the transaction under way changes; true of memory once it is committed.
    change: AddressChanges,
}

#[derive(Debug, Default)]
struct AddressChanges {
    added: BTreeSet<BodyAddress>,
    /// All of the list was moved, and its rows are gone.
    flushed: bool,
    last_row: Option<i64>,
}

impl StoreConnection {
    /// Reads what is new in the list. To be called in every transaction before anything else here.
    pub(super) fn read_new_addresses(&self) -> Result<(), rusqlite::Error> {
        let mut addresses = self.unindexed.borrow_mut();
        let mut query = self.prepare_cached("SELECT id, data FROM news WHERE id > ?1 ORDER BY id")?;
        let mut rows = query.query([addresses.last_row])?;
        while let Some(row) = rows.next()? {
            let (id, data) = (row.get(0)?, row.get_ref(1)?.as_blob()?);
            if data.is_empty() {
                addresses.listed.clear();
            }
            addresses.listed.extend(decode_addresses(data));
            addresses.last_row = id;
        }
        Ok(())
    }

    /// The rows of texts that may have this address. Not all need be there any more.
    pub(super) fn find_body_rows(&self, hash: i64) -> Result<Vec<i64>, rusqlite::Error> {
        let addresses = self.unindexed.borrow();
        let of_hash = (hash, i64::MIN)..=(hash, i64::MAX);
        let listed = addresses.change.added.range(of_hash.clone()).chain(addresses.listed.range(of_hash));
        let mut places: Vec<i64> = listed.map(|(_, place)| *place).collect();
        let mut query = self.prepare_cached("SELECT body FROM addresses WHERE hash = ?1")?;
        let mut rows = query.query([hash])?;
        while let Some(row) = rows.next()? {
            places.push(row.get(0)?);
        }
        Ok(places)
    }

    /// Notes where a new text lies.
    pub(super) fn add_address(&self, hash: i64, body_row: i64) {
        self.unindexed.borrow_mut().change.added.insert((hash, body_row));
    }

    /// Takes an address out of the index, where [`Db::empty_news`] has put it.
    pub(super) fn remove_address(&self, hash: i64, body_row: i64) -> Result<(), rusqlite::Error> {
        self.prepare_cached("DELETE FROM addresses WHERE hash = ?1 AND body = ?2")?.execute([hash, body_row])?;
        Ok(())
    }

    /// Moves all of the list into the index, so that what is taken out there is gone.
    pub(super) fn flush_addresses_to_index(&self) -> Result<(), rusqlite::Error> {
        self.move_all_to_index(&mut self.unindexed.borrow_mut())
    }

    fn move_all_to_index(&self, addresses: &mut UnindexedAddresses) -> Result<(), rusqlite::Error> {
        let mut moved = std::mem::take(&mut addresses.change.added);
        if !addresses.change.flushed {
            moved.extend(&addresses.listed);
        }
        let mut insert = self.prepare_cached("INSERT OR IGNORE INTO addresses VALUES (?1, ?2)")?;
        for (hash, place) in moved {
            insert.execute([hash, place])?;
        }
        self.execute("DELETE FROM news", [])?;
        addresses.change.flushed = true;
        self.append_address_row(addresses, &[])
    }

    /// Writes down what the transaction brought, before it is committed.
    pub(super) fn write_new_addresses(&self) -> Result<(), rusqlite::Error> {
        let addresses = &mut *self.unindexed.borrow_mut();
        let Some(newest) = addresses.change.added.iter().map(|(_, place)| *place).max() else { return Ok(()) };
        let listed = if addresses.change.flushed { 0 } else { addresses.listed.len() };
        let most = usize::try_from(newest / BODIES_PER_UNINDEXED_ADDRESS)
            .unwrap_or(UNINDEXED_ADDRESSES_MAX)
            .clamp(UNINDEXED_ADDRESSES_MIN, UNINDEXED_ADDRESSES_MAX);
        if listed + addresses.change.added.len() > most {
            return self.move_all_to_index(addresses);
        }
        let data = encode_addresses(&addresses.change.added);
        self.append_address_row(addresses, &data)
    }

    /// What was written stands.
    pub(super) fn on_commit(&self) {
        let addresses = &mut *self.unindexed.borrow_mut();
        let change = std::mem::take(&mut addresses.change);
        if change.flushed {
            addresses.listed.clear();
        }
        addresses.listed.extend(change.added);
        addresses.last_row = change.last_row.unwrap_or(addresses.last_row);
    }

    /// What was written does not stand.
    pub(super) fn on_rollback(&self) {
        self.unindexed.borrow_mut().change = AddressChanges::default();
    }

    /// Adds a row to the list.
    fn append_address_row(&self, addresses: &mut UnindexedAddresses, data: &[u8]) -> Result<(), rusqlite::Error> {
        let next = addresses.change.last_row.unwrap_or(addresses.last_row) + 1;
        self.prepare_cached("INSERT INTO news VALUES (?1, ?2)")?.execute(params![next, data])?;
        addresses.change.last_row = Some(next);
        Ok(())
    }
}

fn encode_addresses(addresses: &BTreeSet<BodyAddress>) -> Vec<u8> {
    addresses.iter().flat_map(|(hash, place)| [hash.to_le_bytes(), place.to_le_bytes()]).flatten().collect()
}

/// What [`packed`] was given; of bytes that are not its, something or other, which points to no text.
fn decode_addresses(data: &[u8]) -> impl Iterator<Item = BodyAddress> {
    data.chunks_exact(BODY_ADDRESS_BYTES).map(|pair| {
        let number = |at: usize| pair[at..].first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
        (number(0), number(8))
    })
}
