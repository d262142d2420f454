//! Tests the server through its HTTP API, with scripted and rehearsal models.

mod access;
mod documents;
mod http_page;
mod erasure;
mod import;
mod keys;
mod late_answers;
mod key_limits;
mod limits;
mod messages;
mod openai;
mod sessions;
mod streams;
mod test_server;
mod tool_runs;
mod views;
mod webhooks;
