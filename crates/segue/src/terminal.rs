//! The interactive conversation of `segue chat`: input, slash commands and display. The engine decides what happens in
//! the session; this module only sends it messages and commands and shows the events.

mod approval_prompt;
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

pub(crate) use backend::LocalOrRemoteEngine;
pub(crate) use chat_loop::{now_millis, run_chat_loop};
pub(crate) use screen::Screen;
pub(crate) use session_entry::{ChatReplySource, TerminalChatOptions};

#[cfg(test)]
mod tests;
