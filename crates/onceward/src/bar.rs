//! How far a verb is, drawn where somebody looks.

use std::io::{IsTerminal as _, Write as _, stderr};

/// A line on the terminal that is drawn over and over.
#[derive(Default)]
pub(crate) struct Bar {
    shown: String,
}

impl Bar {
    const WIDTH: u64 = 30;

    /// Only on a terminal.
    pub(crate) fn wanted() -> Option<Self> {
        stderr().is_terminal().then(Self::default)
    }

    pub(crate) fn draw(&mut self, what: &str, done: u64, all: u64) {
        let full = (done.min(all) * Self::WIDTH).checked_div(all).unwrap_or(Self::WIDTH);
        let cells: String = (0..Self::WIDTH).map(|at| if at < full { '█' } else { '·' }).collect();
        let line = format!("{what:<10} {cells} {}%", (done.min(all) * 100).checked_div(all).unwrap_or(100));
        if line != self.shown {
            // Nobody can be told that the terminal does not take it.
            let _ = write!(stderr(), "\r{line}\x1b[K");
            self.shown = line;
        }
    }

    pub(crate) fn clear(&mut self) {
        if !std::mem::take(&mut self.shown).is_empty() {
            let _ = write!(stderr(), "\r\x1b[K");
        }
    }
}
