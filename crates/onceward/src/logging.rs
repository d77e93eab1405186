//! The program's log: for people on a terminal, JSON otherwise, always on stderr.
//!
//! Only lines of our own crates are written, whatever is asked for: libraries below us tell statements and their parameters at
//! their lowest levels, and with them what is nobody's business.

use std::io::{IsTerminal as _, stderr};

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
