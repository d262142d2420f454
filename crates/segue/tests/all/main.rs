//! The program, through its binary. Each test has a folder of its own: a home, a store, its scenarios.

mod asking;
mod assistant;
mod concierge;
mod crash;
mod doc;
mod errors;
mod models;
mod reading;
mod settings;
mod support;
mod transfer;
mod vendor;
