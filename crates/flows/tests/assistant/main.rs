//! Tests of the assistant flow, without an engine.

mod answer_schemas;
mod artifacts;
mod checklist;
mod declarations;
mod docs;
mod invalid_answers;
mod layers;
mod loading;
mod mcp_server;
mod planned_reads;
mod planned_searches;
mod samples;
mod snapshot;
mod support;
mod undo;
mod unread_steps;
mod write_binding;
