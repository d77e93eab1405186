//! Sets up the log: text on a terminal, JSON otherwise, always on standard error.
//!
//! Writes lines of Onceward's own crates only, whatever `ONCEWARD_LOG` says: at their lowest levels, libraries log SQL
//! statements with their parameters, which may hold caller data.

use std::io::{IsTerminal as _, stderr};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use tracing_subscriber::filter::{LevelFilter, Targets};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::{Layer as _, SubscriberExt as _};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::stderr_thread::{self, StderrWriter};

/// The prefix of the name of every Onceward crate.
const CRATE_PREFIX: &str = "onceward";

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    Human,
    Json,
}

/// Starts logging without blocking on a slow reader, and returns the format. `ONCEWARD_LOG` selects a level (`error`,
/// `warn`, `info`, `debug`, `trace`, `off`), or levels by crate (`info,onceward_engine=debug`).
pub(crate) fn start(format: Option<LogFormat>) -> Result<LogFormat> {
    let filter_text = std::env::var("ONCEWARD_LOG").unwrap_or_default();
    let filter = own_crates_filter(&filter_text).with_context(|| {
        format!("ONCEWARD_LOG={filter_text} is not a valid filter; use a level such as info or debug")
    })?;
    let terminal = stderr().is_terminal();
    let default_format = if terminal { LogFormat::Human } else { LogFormat::Json };
    let registry = tracing_subscriber::registry();
    let format = format.unwrap_or(default_format);
    stderr_thread::start();
    match format {
        LogFormat::Human => {
            let layer = fmt::layer().with_writer(|| StderrWriter).with_ansi(terminal).with_target(false);
            registry.with(layer.with_filter(filter)).try_init()?;
        }
        LogFormat::Json => {
            let layer = fmt::layer().json().flatten_event(true).with_current_span(false).with_span_list(false);
            registry.with(layer.with_writer(|| StderrWriter).with_filter(filter)).try_init()?;
        }
    }
    Ok(format)
}

fn own_crates_filter(filter_text: &str) -> Result<Targets> {
    let requested: Targets = if filter_text.trim().is_empty() { Targets::new() } else { filter_text.parse()? };
    let default_level = requested.default_level().unwrap_or(LevelFilter::INFO);
    let own_targets: Vec<_> = requested.iter().filter(|(target, _)| target.starts_with(CRATE_PREFIX)).collect();
    let own_targets: Vec<_> = own_targets.into_iter().map(|(target, level)| (target.to_owned(), level)).collect();
    Ok(Targets::new().with_target(CRATE_PREFIX, default_level).with_targets(own_targets))
}

#[cfg(test)]
mod tests {
    use tracing::Level;

    use super::own_crates_filter;

    #[test]
    fn filter_enables_own_crates_only() {
        for filter_text in ["trace", "trace,tokio_postgres=trace,axum=trace"] {
            let filter = own_crates_filter(filter_text).unwrap();
            assert!(filter.would_enable("onceward_engine::batch", &Level::TRACE));
            assert!(!filter.would_enable("tokio_postgres::query", &Level::ERROR));
            assert!(!filter.would_enable("axum::rejection", &Level::ERROR));
        }
        let filter = own_crates_filter("warn,onceward_engine=debug").unwrap();
        assert!(filter.would_enable("onceward_engine::batch", &Level::DEBUG));
        assert!(!filter.would_enable("onceward_server::serve", &Level::INFO));
        assert!(own_crates_filter("").unwrap().would_enable("onceward::serve", &Level::INFO));
        assert!(own_crates_filter("onceward=loud").is_err());
    }
}
