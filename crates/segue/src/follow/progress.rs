//! One line on standard error that says who is being waited for, while nothing else is to be seen.

use std::io::{IsTerminal, Write};

use crate::print::text::fitted;
use crate::print::{Screen, error_paint};

#[derive(Debug)]
pub(super) struct Progress {
    on: bool,
    shown: bool,
}

impl Progress {
    pub fn new() -> Self {
        Self { on: std::io::stderr().is_terminal(), shown: false }
    }

    pub fn is_on(&self) -> bool {
        self.on
    }

    pub fn show(&mut self, line: &str) {
        if !self.on || line.is_empty() {
            return;
        }
        self.shown = true;
        let line = fitted(line, Screen::here().width.saturating_sub(1));
        let _ = write!(std::io::stderr().lock(), "\r\x1b[K{}", error_paint().dim(line));
    }

    pub fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }
}
