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

use crate::limits::{NEWS_MAX, NEWS_MIN, NEWS_SHARE};

/// The first eight bytes of a text's address, and the row the text lies in.
type Address = (i64, i64);
const ADDRESS_BYTES: usize = 16;

/// A connection, and what it knows of new addresses.
#[derive(Debug)]
pub(super) struct Db {
    db: Connection,
    addresses: RefCell<Addresses>,
}

impl Deref for Db {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        &self.db
    }
}

impl From<Connection> for Db {
    fn from(db: Connection) -> Self {
        Self { db, addresses: RefCell::default() }
    }
}

#[derive(Debug, Default)]
struct Addresses {
    /// Those of the list, in the index's order.
    news: BTreeSet<Address>,
    /// The last row of the list that was read or written.
    seen: i64,
    /// What the transaction under way changes; true of memory once it is committed.
    change: Change,
}

#[derive(Debug, Default)]
struct Change {
    added: BTreeSet<Address>,
    /// All of the list was moved, and its rows are gone.
    emptied: bool,
    seen: Option<i64>,
}

impl Db {
    /// Reads what is new in the list. To be called in every transaction before anything else here.
    pub(super) fn catch_up(&self) -> Result<(), rusqlite::Error> {
        let mut addresses = self.addresses.borrow_mut();
        let mut query = self.prepare_cached("SELECT id, data FROM news WHERE id > ?1 ORDER BY id")?;
        let mut rows = query.query([addresses.seen])?;
        while let Some(row) = rows.next()? {
            let (id, data) = (row.get(0)?, row.get_ref(1)?.as_blob()?);
            if data.is_empty() {
                addresses.news.clear();
            }
            addresses.news.extend(unpacked(data));
            addresses.seen = id;
        }
        Ok(())
    }

    /// The rows of texts that may have this address. Not all need be there any more.
    pub(super) fn places(&self, hash: i64) -> Result<Vec<i64>, rusqlite::Error> {
        let addresses = self.addresses.borrow();
        let of_hash = (hash, i64::MIN)..=(hash, i64::MAX);
        let listed = addresses.change.added.range(of_hash.clone()).chain(addresses.news.range(of_hash));
        let mut places: Vec<i64> = listed.map(|(_, place)| *place).collect();
        let mut query = self.prepare_cached("SELECT body FROM addresses WHERE hash = ?1")?;
        let mut rows = query.query([hash])?;
        while let Some(row) = rows.next()? {
            places.push(row.get(0)?);
        }
        Ok(places)
    }

    /// Notes where a new text lies.
    pub(super) fn note(&self, hash: i64, place: i64) {
        self.addresses.borrow_mut().change.added.insert((hash, place));
    }

    /// Takes an address out of the index, where [`Db::empty_news`] has put it.
    pub(super) fn strike(&self, hash: i64, place: i64) -> Result<(), rusqlite::Error> {
        self.prepare_cached("DELETE FROM addresses WHERE hash = ?1 AND body = ?2")?.execute([hash, place])?;
        Ok(())
    }

    /// Moves all of the list into the index, so that what is taken out there is gone.
    pub(super) fn empty_news(&self) -> Result<(), rusqlite::Error> {
        self.move_all(&mut self.addresses.borrow_mut())
    }

    fn move_all(&self, addresses: &mut Addresses) -> Result<(), rusqlite::Error> {
        let mut moved = std::mem::take(&mut addresses.change.added);
        if !addresses.change.emptied {
            moved.extend(&addresses.news);
        }
        let mut insert = self.prepare_cached("INSERT OR IGNORE INTO addresses VALUES (?1, ?2)")?;
        for (hash, place) in moved {
            insert.execute([hash, place])?;
        }
        self.execute("DELETE FROM news", [])?;
        addresses.change.emptied = true;
        self.list(addresses, &[])
    }

    /// Writes down what the transaction brought, before it is committed.
    pub(super) fn write_news(&self) -> Result<(), rusqlite::Error> {
        let addresses = &mut *self.addresses.borrow_mut();
        let Some(newest) = addresses.change.added.iter().map(|(_, place)| *place).max() else { return Ok(()) };
        let listed = if addresses.change.emptied { 0 } else { addresses.news.len() };
        let most = usize::try_from(newest / NEWS_SHARE).unwrap_or(NEWS_MAX).clamp(NEWS_MIN, NEWS_MAX);
        if listed + addresses.change.added.len() > most {
            return self.move_all(addresses);
        }
        let data = packed(&addresses.change.added);
        self.list(addresses, &data)
    }

    /// What was written stands.
    pub(super) fn committed(&self) {
        let addresses = &mut *self.addresses.borrow_mut();
        let change = std::mem::take(&mut addresses.change);
        if change.emptied {
            addresses.news.clear();
        }
        addresses.news.extend(change.added);
        addresses.seen = change.seen.unwrap_or(addresses.seen);
    }

    /// What was written does not stand.
    pub(super) fn undone(&self) {
        self.addresses.borrow_mut().change = Change::default();
    }

    /// Adds a row to the list.
    fn list(&self, addresses: &mut Addresses, data: &[u8]) -> Result<(), rusqlite::Error> {
        let next = addresses.change.seen.unwrap_or(addresses.seen) + 1;
        self.prepare_cached("INSERT INTO news VALUES (?1, ?2)")?.execute(params![next, data])?;
        addresses.change.seen = Some(next);
        Ok(())
    }
}

fn packed(addresses: &BTreeSet<Address>) -> Vec<u8> {
    addresses.iter().flat_map(|(hash, place)| [hash.to_le_bytes(), place.to_le_bytes()]).flatten().collect()
}

/// What [`packed`] was given; of bytes that are not its, something or other, which points to no text.
fn unpacked(data: &[u8]) -> impl Iterator<Item = Address> {
    data.chunks_exact(ADDRESS_BYTES).map(|pair| {
        let number = |at: usize| pair[at..].first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
        (number(0), number(8))
    })
}
