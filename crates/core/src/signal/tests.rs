//! The parser as a whole: blocks, fields, JSON, the stream filter, and the running time of each.

mod blocks;
mod fields;
mod filter;
mod json;
mod time;
