//! The host of records: what it stores, finds, refuses, repeats and takes back.

mod desk;
mod finding;
mod repeating;
mod tables;
mod undoing;
mod writing;
