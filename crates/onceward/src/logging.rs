//! The program's log: for people on a terminal, JSON otherwise, always on stderr.
//!
//! Only lines of our own crates are written, whatever is asked for: libraries below us tell statements and their parameters at
//! their lowest levels, and with them what is nobody's business.

use std::io::{self, IsTerminal as _, Write, stderr};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::voice::{self, Voice};

/// Begins the name of every crate of ours.
const OURS: &str = "onceward";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Human,
    Json,
}

/// Begin to write, in a way that waits for no reader. Says in which format. `ONCEWARD_LOG` says what: a level (`error`, `warn`, `info`, `debug`, `trace`, `off`), or levels by crate
/// (`info,onceward_engine=debug`).
pub(crate) fn start(format: Option<LogFormat>) -> Result<LogFormat> {
    let asked = std::env::var("ONCEWARD_LOG").unwrap_or_default();
    let filter = ours(&asked).with_context(|| format!("ONCEWARD_LOG={asked} is no filter; try info or debug"))?;
    let terminal = stderr().is_terminal();
    let usual = if terminal { LogFormat::Human } else { LogFormat::Json };
    let registry = tracing_subscriber::registry();
    let format = format.unwrap_or(usual);
    voice::start();
    match format {
        LogFormat::Human => {
            let lines = fmt::layer().with_writer(|| Voice).with_ansi(terminal).with_target(false);
            registry.with(lines.with_filter(filter)).try_init()?;
        }
        LogFormat::Json => {
            let lines = fmt::layer().json().flatten_event(true).with_current_span(false).with_span_list(false);
            registry.with(lines.with_writer(|| Voice).with_filter(filter)).try_init()?;
        }
    }
    Ok(format)
}

/// Lines that wait to be written. Beyond that they are left out, and counted.
const LINES: usize = 4_096;

/// How long the last lines may take.
const LAST_LINES: Duration = Duration::from_secs(1);

/// The log goes out by a thread of its own: whoever does not read it must not stop hearts from beating, nor requests from being answered.
static OUT: OnceLock<SyncSender<Word>> = OnceLock::new();
static LEFT_OUT: AtomicUsize = AtomicUsize::new(0);

enum Word {
    Line(Vec<u8>),
    /// Say when all before this is out.
    Flush(SyncSender<()>),
}

fn out() -> &'static SyncSender<Word> {
    OUT.get_or_init(|| {
        let (sender, words) = sync_channel(LINES);
        std::thread::spawn(move || carry(&words));
        sender
    })
}

fn carry(words: &Receiver<Word>) {
    for word in words {
        // Where it cannot be written there is nobody to tell.
        let _ = match word {
            Word::Line(line) => {
                let left_out = LEFT_OUT.swap(0, Ordering::Relaxed);
                if left_out > 0 {
                    let _ = writeln!(stderr(), "{left_out} lines are left out: they came faster than they were read");
                }
                stderr().write_all(&line)
            }
            Word::Flush(done) => {
                let _ = done.try_send(());
                Ok(())
            }
        };
    }
}

/// Wait until all that was logged is out, for a moment at most.
pub(crate) fn flush() {
    let Some(out) = OUT.get() else { return };
    let (done, is_done) = sync_channel(1);
    let until = Instant::now() + LAST_LINES;
    let mut word = Word::Flush(done);
    while let Err(TrySendError::Full(back)) = out.try_send(word) {
        if Instant::now() >= until {
            return;
        }
        word = back;
        std::thread::yield_now();
    }
    let _ = is_done.recv_timeout(until.saturating_duration_since(Instant::now()));
}

/// Say something outside of the log, by the same way.
pub(crate) fn tell(text: &str) {
    let _ = Out.write(text.as_bytes());
}

struct Out;

impl Write for Out {
    /// A whole line each time: that is how they are formatted.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Err(TrySendError::Full(_)) = out().try_send(Word::Line(line.to_vec())) {
            LEFT_OUT.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn ours(asked: &str) -> Result<Targets> {
    let asked: Targets = if asked.trim().is_empty() { Targets::new() } else { asked.parse()? };
    let usual = asked.default_level().unwrap_or(LevelFilter::INFO);
    let own: Vec<_> = asked.iter().filter(|(target, _)| target.starts_with(OURS)).collect();
    let own: Vec<_> = own.into_iter().map(|(target, level)| (target.to_owned(), level)).collect();
    Ok(Targets::new().with_target(OURS, usual).with_targets(own))
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::ours;

    #[test]
    fn only_our_own_lines_are_written() {
        for asked in ["trace", "trace,tokio_postgres=trace,axum=trace"] {
            let filter = ours(asked).unwrap();
            assert!(filter.would_enable("onceward_engine::batch", &Level::TRACE));
            assert!(!filter.would_enable("tokio_postgres::query", &Level::ERROR));
            assert!(!filter.would_enable("axum::rejection", &Level::ERROR));
        }
        let filter = ours("warn,onceward_engine=debug").unwrap();
        assert!(filter.would_enable("onceward_engine::batch", &Level::DEBUG));
        assert!(!filter.would_enable("onceward_server::door", &Level::INFO));
        assert!(ours("").unwrap().would_enable("onceward::serve", &Level::INFO));
        assert!(ours("onceward=loud").is_err());
    }
}
