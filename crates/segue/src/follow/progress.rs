//! One line on standard error that says who is being waited for, while nothing else is to be seen.

use std::io::{IsTerminal, Write};
use std::time::Instant;

use super::CallRow;
use crate::print::{amount, error_paint};

#[derive(Debug)]
pub(super) struct Progress {
    on: bool,
    shown: bool,
    since: Instant,
}

impl Progress {
    pub fn new() -> Self {
        Self { on: std::io::stderr().is_terminal(), shown: false, since: Instant::now() }
    }

    pub fn tick(&mut self, open: Option<&CallRow>) {
        if !self.on {
            return;
        }
        let waited = amount::duration(u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX));
        let line = match open {
            Some(row) => format!("… waiting for {} on {} ({}), {waited}", row.role, row.model, row.call),
            None => format!("… waiting, {waited}"),
        };
        self.shown = true;
        let _ = write!(std::io::stderr().lock(), "\r\x1b[K{}", error_paint().dim(line));
    }

    pub fn clear(&mut self) {
        if std::mem::take(&mut self.shown) {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
        self.since = Instant::now();
    }
}
