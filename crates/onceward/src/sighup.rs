//! Detects that the terminal was closed (SIGHUP).

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};

/// Returns a future that resolves when the terminal is closed. Never resolves if SIGHUP is ignored.
pub(crate) fn hangup_signal() -> Result<impl Future<Output = ()>> {
    let hangup = if is_sighup_ignored() { None } else { Some(signal(SignalKind::hangup())?) };
    Ok(async move {
        match hangup {
            Some(mut hang_up) => drop(hang_up.recv().await),
            None => std::future::pending().await,
        }
    })
}

/// Returns whether the parent ignores SIGHUP, as `nohup` does. Call it before a handler is registered, which would
/// overwrite that setting. Returns false on systems without `/proc`.
fn is_sighup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // SIGHUP is signal 1, the lowest bit of the mask.
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
