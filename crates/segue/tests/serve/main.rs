//! Tests of `segue serve` through its binary.

mod chat;
mod crash;
mod keys;
#[cfg(target_os = "linux")]
mod load;
#[cfg(unix)]
mod open_files;
mod place;
