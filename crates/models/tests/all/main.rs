//! Tests of all models through their public interface.

mod anthropic_wire;
mod bad_servers;
mod cassette;
mod chat_wire;
mod discovery;
mod foreign_tool_calls;
mod fuzz;
mod gemini_wire;
mod ollama_wire;
mod rehearsal;
mod rehearsal_schema;
mod responses_wire;
mod scripted;
mod scripted_doc;
mod server;
mod stop_reasons;
mod structured;
mod support;
mod tool_choice_wire;
mod tool_failures;
mod tool_rounds;
mod truncated_replies;
