//! Process statistics from `/proc`; `None` on systems without it.

use std::fs;

pub(crate) fn resident_memory_bytes() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1_024)
}

/// Counts open file descriptors, sockets included.
pub(crate) fn open_file_count() -> Option<u64> {
    fs::read_dir("/proc/self/fd").ok().map(|all| u64::try_from(all.count()).unwrap_or(u64::MAX))
}
