//! Tests the server through its HTTP API, with scripted and rehearsal models.

mod access;
mod access_matrix;
mod database_down;
mod documents;
mod erasure;
mod http_page;
mod import;
mod key_limits;
mod keys;
mod late_answers;
mod limits;
mod messages;
mod nodes;
mod openai;
mod openai_tools;
mod sessions;
mod streams;
mod test_server;
mod tool_runs;
mod views;
mod webhooks;
