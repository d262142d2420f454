//! Where texts lie, by their addresses.
//!
//! Addresses come in no order, so an index of all of them would have a page of its own changed by every new text. What is new
//! is therefore listed in the order it came (`news`), which every connection keeps in memory, and is moved into the index
//! (`addresses`) stretch by stretch in the index's order, once there is enough of it for many to fall on one page.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Deref;

use rusqlite::{Connection, params};

use crate::limits::{NEWS_MAX, NEWS_MIN, NEWS_MOVED, NEWS_SHARE};

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
    /// Up to where the index has been gone through, and the row before which the list is in it once that is done.
    sweep: Option<Sweep>,
    /// What the transaction under way changes; true of memory once it is committed.
    change: Change,
}

#[derive(Debug, Clone, Copy)]
struct Sweep {
    from: Address,
    before: i64,
}

#[derive(Debug, Default)]
struct Change {
    added: Vec<Address>,
    moved: Vec<Address>,
    /// The sweep as it stands after that.
    sweep: Option<Option<Sweep>>,
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
            addresses.seen = row.get(0)?;
            let data = row.get_ref(1)?.as_blob()?;
            if data.is_empty() {
                // All before this was moved, and some of it may have been erased since.
                addresses.news.clear();
                addresses.sweep = None;
            }
            addresses.news.extend(unpacked(data));
        }
        Ok(())
    }

    /// The rows of texts that may have this address. Not all need be there any more.
    pub(super) fn places(&self, hash: i64) -> Result<Vec<i64>, rusqlite::Error> {
        let addresses = self.addresses.borrow();
        let added = addresses.change.added.iter().filter(|(of, _)| *of == hash);
        let news = addresses.news.range((hash, i64::MIN)..=(hash, i64::MAX));
        let mut places: Vec<i64> = added.chain(news).map(|(_, place)| *place).collect();
        let mut query = self.prepare_cached("SELECT body FROM addresses WHERE hash = ?1")?;
        let mut rows = query.query([hash])?;
        while let Some(row) = rows.next()? {
            places.push(row.get(0)?);
        }
        Ok(places)
    }

    /// Notes where a new text lies.
    pub(super) fn note(&self, hash: i64, place: i64) {
        self.addresses.borrow_mut().change.added.push((hash, place));
    }

    /// Takes an address out of the index, where [`Db::empty_news`] has put it.
    pub(super) fn strike(&self, hash: i64, place: i64) -> Result<(), rusqlite::Error> {
        self.prepare_cached("DELETE FROM addresses WHERE hash = ?1 AND body = ?2")?.execute([hash, place])?;
        Ok(())
    }

    /// Moves all of the list into the index, so that what is taken out there is gone.
    pub(super) fn empty_news(&self) -> Result<(), rusqlite::Error> {
        let mut addresses = self.addresses.borrow_mut();
        let addresses = &mut *addresses;
        let added = std::mem::take(&mut addresses.change.added);
        self.index(addresses.news.iter().chain(&added))?;
        self.execute("DELETE FROM news", [])?;
        // An empty row tells the others, and keeps the count.
        addresses.change.emptied = true;
        self.list(&mut *addresses, &[])
    }

    /// Writes down what the transaction brought, before it is committed.
    pub(super) fn write_news(&self) -> Result<(), rusqlite::Error> {
        let mut addresses = self.addresses.borrow_mut();
        let addresses = &mut *addresses;
        let Some(&(_, newest)) = addresses.change.added.last() else { return Ok(()) };
        let data = packed(&addresses.change.added);
        self.list(addresses, &data)?;
        let most = usize::try_from(newest / NEWS_SHARE).unwrap_or(NEWS_MAX).clamp(NEWS_MIN, NEWS_MAX);
        if addresses.news.len() > most && !addresses.change.emptied {
            self.sweep_on(addresses)?;
        }
        Ok(())
    }

    /// What was written stands.
    pub(super) fn committed(&self) {
        let mut addresses = self.addresses.borrow_mut();
        let change = std::mem::take(&mut addresses.change);
        if change.emptied {
            addresses.news.clear();
            addresses.sweep = None;
        }
        for address in &change.moved {
            addresses.news.remove(address);
        }
        addresses.news.extend(change.added);
        addresses.seen = change.seen.unwrap_or(addresses.seen);
        addresses.sweep = change.sweep.unwrap_or(addresses.sweep);
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

    /// Moves the next stretch. At the end of the index, all that was listed when it was begun is in it.
    fn sweep_on(&self, addresses: &mut Addresses) -> Result<(), rusqlite::Error> {
        let sweep = addresses.sweep.unwrap_or(Sweep { from: (i64::MIN, i64::MIN), before: addresses.seen });
        let mut ahead = addresses.news.range(sweep.from..);
        let moved: Vec<Address> = ahead.by_ref().take(NEWS_MOVED).copied().collect();
        let next = ahead.next().map(|from| Sweep { from: *from, ..sweep });
        self.index(&moved)?;
        if next.is_none() {
            // The newest row stays: it keeps the count.
            self.prepare_cached("DELETE FROM news WHERE id < ?1")?.execute([sweep.before])?;
        }
        addresses.change.moved = moved;
        addresses.change.sweep = Some(next);
        Ok(())
    }

    fn index<'a>(&self, moved: impl IntoIterator<Item = &'a Address>) -> Result<(), rusqlite::Error> {
        let mut insert = self.prepare_cached("INSERT OR IGNORE INTO addresses VALUES (?1, ?2)")?;
        for (hash, place) in moved {
            insert.execute([hash, place])?;
        }
        Ok(())
    }
}

fn packed(addresses: &[Address]) -> Vec<u8> {
    addresses.iter().flat_map(|(hash, place)| [hash.to_le_bytes(), place.to_le_bytes()].concat()).collect()
}

/// What [`packed`] was given; of bytes that are not its, something or other, which points to no text.
fn unpacked(data: &[u8]) -> impl Iterator<Item = Address> {
    data.chunks_exact(ADDRESS_BYTES).map(|pair| {
        let number = |at: usize| pair[at..].first_chunk().map_or(0, |bytes| i64::from_le_bytes(*bytes));
        (number(0), number(8))
    })
}
