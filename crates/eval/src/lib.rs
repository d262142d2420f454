//! Measures how well a model plays a flow. A library of [conversations](conversation), each with a user who answers by
//! simple rules, is held with the model; the [scores](score) are computed from the journal alone, so that they are the
//! same for a live model and for a recording of it. A [report] says for each role what was measured, and in words what
//! the model is good enough for. [Results](results) of earlier evaluations decide how a model is asked for signals.
//!
//! This crate knows no vendor and no store; the caller brings an engine, and creates the [workspace](workspace_fixture)
//! that a conversation describes.

pub mod conversation;
mod language;
pub mod library;
pub mod limits;
pub mod record;
pub mod report;
pub mod results;
pub mod runner;
pub mod score;
mod simulated_user;
pub mod workspace_fixture;
