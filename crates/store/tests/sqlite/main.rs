//! The SQLite store keeps the promises of every store, and its own: about killed processes, damaged files and full disks.

mod addresses;
mod crash;
mod damage;
mod erase;
mod noise;
mod place;
mod size;
mod space;
mod twin;

mod conformance {
    segue_store::suite!(crate::place::File::new());
}
