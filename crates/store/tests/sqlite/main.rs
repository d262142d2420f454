//! The SQLite store keeps the promises of every store, and its own: about killed processes, damaged files and full disks.

mod place;

mod conformance {
    segue_store::suite!(crate::place::File::new());
}
