//! The workspace tools, through the trait that the engine uses.

mod support;

mod attacks;
mod checkpoints;
mod commands;
mod copies;
mod files;
