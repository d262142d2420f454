//! A conversation at the keyboard: what is read, what is shown, and what a line that begins with a slash means. It decides
//! how things look and nothing about how they go on: that is the engine's.

mod backend;
mod chat_loop;
mod command_handlers;
mod cost_table;
mod input_history;
mod input_reader;
mod message_draft;
mod process_signals;
mod recap;
mod reply_lookup;
mod screen;
mod session_entry;
mod slash_command;
mod terminal_mode;
mod turn_display;

pub use backend::Backend;
pub use chat_loop::{now_millis, run_chat_loop};
pub use screen::Screen;
pub use session_entry::{AnswerSource, ChatOptions};

#[cfg(test)]
mod tests;
