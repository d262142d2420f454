//! A progress line on standard error, shown on terminals while no reply streams in.

use std::io::{IsTerminal, Write};

use crate::print::text::truncate_to_width;
use crate::print::{CliOutputCapabilities, stderr_paint};

#[derive(Debug)]
pub(crate) struct ProgressLine {
    enabled: bool,
    visible: bool,
}

impl ProgressLine {
    pub(crate) fn new() -> Self {
        Self { enabled: std::io::stderr().is_terminal(), visible: false }
    }

    pub(crate) fn is_enabled(&self) -> bool {
        self.enabled
    }

    pub(crate) fn show(&mut self, line: &str) {
        if !self.enabled || line.is_empty() {
            return;
        }
        self.visible = true;
        let line = truncate_to_width(line, CliOutputCapabilities::for_stdout().width.saturating_sub(1));
        let _ = write!(std::io::stderr().lock(), "\r\x1b[K{}", stderr_paint().dim(line));
    }

    pub(crate) fn clear(&mut self) {
        if std::mem::take(&mut self.visible) {
            let _ = write!(std::io::stderr().lock(), "\r\x1b[K");
        }
    }
}
