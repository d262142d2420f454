//! The models as their callers see them.

mod anthropic_wire;
mod bad_servers;
mod cassette;
mod chat_wire;
mod cut_answers;
mod discover;
mod ends;
mod foreign_calls;
mod gemini_wire;
mod ollama_wire;
mod outcomes;
mod rehearsal;
mod rehearsal_schema;
mod responses_wire;
mod rounds;
mod scripted;
mod scripted_doc;
mod server;
mod structured;
mod support;
