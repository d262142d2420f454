//! Tests of `segue serve` through its binary.

mod chat;
mod crash;
mod keys;
mod place;
