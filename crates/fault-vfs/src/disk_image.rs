//! Rebuilds files from a recording, as a power cut at some point could have left them.

use std::collections::BTreeMap;
use std::path::Path;

use crate::SqliteFileChange;

/// The unit that a disk writes as a whole.
const SECTOR_BYTES: usize = 512;

/// What a power cut does to writes that were not synced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerCutWriteLoss {
    /// All of them are lost.
    All,
    /// None is lost.
    None,
    /// Each is written, lost, or torn between sectors, and they reach the disk in any order.
    Random(u64),
}

/// The content of files.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PowerCutDiskImage {
    files: BTreeMap<String, Vec<u8>>,
}

impl PowerCutDiskImage {
    /// Returns the files after a power cut that followed `changes`.
    #[must_use]
    pub fn after_power_cut(changes: &[SqliteFileChange], lost: PowerCutWriteLoss) -> Self {
        let mut image = Self::default();
        let mut unsynced: BTreeMap<&str, Vec<&SqliteFileChange>> = BTreeMap::new();
        for change in changes {
            match change {
                SqliteFileChange::Write { path, .. } | SqliteFileChange::Truncate { path, .. } => {
                    unsynced.entry(path).or_default().push(change);
                }
                SqliteFileChange::Sync { path } => {
                    for change in unsynced.remove(path.as_str()).unwrap_or_default() {
                        image.apply(change, usize::MAX);
                    }
                }
                // The folder is synced by SQLite when it matters.
                SqliteFileChange::Delete { path } => {
                    unsynced.remove(path.as_str());
                    image.files.remove(path);
                }
                SqliteFileChange::Mark(_) => {}
            }
        }
        let mut random = match lost {
            PowerCutWriteLoss::Random(seed) => seed.wrapping_mul(2).wrapping_add(1),
            PowerCutWriteLoss::All | PowerCutWriteLoss::None => 0,
        };
        for (path, mut changes) in unsynced {
            image.files.entry(path.to_owned()).or_default();
            match lost {
                PowerCutWriteLoss::All => {}
                PowerCutWriteLoss::None => changes.iter().for_each(|change| image.apply(change, usize::MAX)),
                PowerCutWriteLoss::Random(_) => {
                    for index in (1..changes.len()).rev() {
                        changes.swap(index, next_random(&mut random) % (index + 1));
                    }
                    for change in changes {
                        match next_random(&mut random) % 3 {
                            0 => {}
                            1 => image.apply(change, usize::MAX),
                            _ => image.apply(change, (next_random(&mut random) % 9) * SECTOR_BYTES),
                        }
                    }
                }
            }
        }
        image
    }

    /// Writes the files into a folder, under their own names.
    ///
    /// # Errors
    /// The folder cannot be written to.
    pub fn write_to(&self, folder: &Path) -> std::io::Result<()> {
        for (path, bytes) in &self.files {
            let name = Path::new(path).file_name().unwrap_or_default();
            std::fs::write(folder.join(name), bytes)?;
        }
        Ok(())
    }

    /// Applies a change, or the first bytes of a write.
    fn apply(&mut self, change: &SqliteFileChange, bytes_max: usize) {
        match change {
            SqliteFileChange::Write { path, offset, bytes } => {
                let file = self.files.entry(path.clone()).or_default();
                let (start, bytes) =
                    (usize::try_from(*offset).unwrap_or(usize::MAX), &bytes[..bytes.len().min(bytes_max)]);
                let end = start.saturating_add(bytes.len());
                if file.len() < end {
                    file.resize(end, 0);
                }
                file[start..end].copy_from_slice(bytes);
            }
            SqliteFileChange::Truncate { path, size } => {
                self.files.entry(path.clone()).or_default().resize(usize::try_from(*size).unwrap_or(usize::MAX), 0);
            }
            SqliteFileChange::Sync { .. } | SqliteFileChange::Delete { .. } | SqliteFileChange::Mark(_) => {}
        }
    }
}

/// A small generator of random numbers (xorshift); the state is never zero.
fn next_random(state: &mut u64) -> usize {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    usize::try_from(*state >> 33).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(offset: u64, bytes: &[u8]) -> SqliteFileChange {
        SqliteFileChange::Write { path: "/x/db".into(), offset, bytes: bytes.to_vec() }
    }

    #[test]
    fn synced_writes_survive_and_others_may_be_lost() {
        let changes = [write(0, b"aaaa"), SqliteFileChange::Sync { path: "/x/db".into() }, write(2, b"bbbb")];
        let file = |lost| PowerCutDiskImage::after_power_cut(&changes, lost).files["/x/db"].clone();
        assert_eq!(file(PowerCutWriteLoss::All), b"aaaa");
        assert_eq!(file(PowerCutWriteLoss::None), b"aabbbb");
        let outcomes: Vec<Vec<u8>> = (0..40).map(|seed| file(PowerCutWriteLoss::Random(seed))).collect();
        assert!(outcomes.iter().all(|outcome| outcome.starts_with(b"aa")));
        assert!(outcomes.contains(&b"aaaa".to_vec()) && outcomes.contains(&b"aabbbb".to_vec()));
    }

    #[test]
    fn torn_write_ends_at_a_sector() {
        let changes = [write(0, &[7; 4096])];
        let lengths = (0..200).map(|seed| {
            PowerCutDiskImage::after_power_cut(&changes, PowerCutWriteLoss::Random(seed)).files["/x/db"].len()
        });
        let lengths: std::collections::BTreeSet<usize> = lengths.collect();
        assert!(lengths.iter().all(|length| length % SECTOR_BYTES == 0) && lengths.len() > 4, "{lengths:?}");
    }
}
