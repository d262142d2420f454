//! The SQLite store passes the conformance suite, and its own tests of killed processes, corrupted files and full
//! disks.

mod addresses;
mod crash;
mod damage;
mod disk_full;
mod erase;
mod leases;
mod memory_equivalence;
mod migration;
mod seeded_random;
mod size;
mod sqlite_file;

mod conformance {
    segue_store::suite!(crate::sqlite_file::SqliteFile::new());
}
