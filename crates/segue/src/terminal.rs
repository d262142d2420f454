//! A conversation at the keyboard: what is read, what is shown, and what a line that begins with a slash means. It decides
//! how things look and nothing about how they go on: that is the engine's.

mod commands;
mod display;
mod draft;
mod enter;
mod history;
mod journal;
mod modes;
mod partner;
mod progress;
mod reader;
mod recap;
mod screen;
mod signals;
mod slash;
mod spent;
mod talk;

pub use enter::{Answers, Arguments};
pub use partner::Partner;
pub use screen::Screen;
pub use talk::{now, talk};

#[cfg(test)]
mod tests;
