//! The end of the terminal that a verb was started from.

use anyhow::Result;
use tokio::signal::unix::{SignalKind, signal};

/// Comes when the terminal is closed, unless that is not to matter.
pub(crate) fn hangup_signal() -> Result<impl Future<Output = ()>> {
    let hangup = if is_sighup_ignored() { None } else { Some(signal(SignalKind::hangup())?) };
    Ok(async move {
        match hangup {
            Some(mut hang_up) => drop(hang_up.recv().await),
            None => std::future::pending().await,
        }
    })
}

/// Whether whoever started this wants a terminal's end not to matter, as `nohup` does. Asked before anybody listens, which would undo
/// it. Where the system does not tell, it matters.
fn is_sighup_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    // SIGHUP is the first signal, and so the lowest bit.
    ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).is_some_and(|mask| mask & 1 == 1)
}
