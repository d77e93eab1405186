//! How far a verb is, drawn where somebody looks.

use std::io::{IsTerminal as _, Write as _, stderr};

/// A line on the terminal that is drawn over and over.
#[derive(Default)]
pub(crate) struct ProgressBar {
    drawn_line: String,
}

impl ProgressBar {
    const WIDTH_CELLS: u64 = 30;

    /// Only on a terminal.
    pub(crate) fn for_terminal() -> Option<Self> {
        stderr().is_terminal().then(Self::default)
    }

    pub(crate) fn draw(&mut self, label: &str, done: u64, total: u64) {
        let full = (done.min(total) * Self::WIDTH_CELLS).checked_div(total).unwrap_or(Self::WIDTH_CELLS);
        let cells: String = (0..Self::WIDTH_CELLS).map(|at| if at < full { '█' } else { '·' }).collect();
        let line = format!("{label:<10} {cells} {}%", (done.min(total) * 100).checked_div(total).unwrap_or(100));
        if line != self.drawn_line {
            // Nobody can be told that the terminal does not take it.
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
