//! Draws a progress bar on a terminal.

use std::io::{IsTerminal as _, Write as _, stderr};

/// A terminal line that is redrawn in place.
#[derive(Default)]
pub(crate) struct ProgressBar {
    drawn_line: String,
}

impl ProgressBar {
    const WIDTH_CELLS: u64 = 30;

    /// Returns `None` if standard error is not a terminal.
    pub(crate) fn for_terminal() -> Option<Self> {
        stderr().is_terminal().then(Self::default)
    }

    pub(crate) fn draw(&mut self, label: &str, done: u64, total: u64) {
        let full = (done.min(total) * Self::WIDTH_CELLS).checked_div(total).unwrap_or(Self::WIDTH_CELLS);
        let cells: String = (0..Self::WIDTH_CELLS).map(|at| if at < full { '█' } else { '·' }).collect();
        let line = format!("{label:<10} {cells} {}%", (done.min(total) * 100).checked_div(total).unwrap_or(100));
        if line != self.drawn_line {
            // A terminal that fails to draw leaves no other output to report it on.
            let _ = write!(stderr(), "\r{line}\x1b[K");
            self.drawn_line = line;
        }
    }

    pub(crate) fn clear(&mut self) {
        if !std::mem::take(&mut self.drawn_line).is_empty() {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
