//! What a program leaves behind: found below this process, and ended.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions};

/// What cannot be killed in this time is stuck in the kernel, or not ours to kill.
pub(super) const CLEANUP_TIMEOUT: Duration = Duration::from_secs(2);

/// Between looks at what is dying.
pub(super) const CLEANUP_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Orphans become children of this process, not of the machine's first, and can be found.
pub(super) fn become_subreaper() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Of this process, those of all its threads. Where the kernel does not tell, there are none to be seen.
pub(super) fn child_pids() -> Vec<Pid> {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let lists = threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let parse = |list: String| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>();
    lists.flat_map(parse).filter_map(Pid::from_raw).collect()
}

/// The supervisor is dead before its time, and could not sweep: whatever of this execution still runs is ended. It is known by its
/// environment, since this process may have other children. All of the machine's processes are looked at: what is told of a process's children may
/// lack some while they come and go.
pub(super) async fn kill_execution_processes(execution: &str) {
    let env_marker = format!("ONCEWARD_EXECUTION={execution}");
    let deadline = Instant::now() + CLEANUP_TIMEOUT;
    let mut killed = Vec::new();
    loop {
        let found = find_marked_pids(env_marker.as_bytes());
        for pid in &found {
            let _ = rustix::process::kill_process(*pid, Signal::KILL);
        }
        // Those that became our children are ours to bury; of the others nothing is heard.
        killed.extend(&found);
        killed.retain(|pid| matches!(rustix::process::waitpid(Some(*pid), WaitOptions::NOHANG), Ok(None)));
        if (found.is_empty() && killed.is_empty()) || Instant::now() > deadline {
            return;
        }
        tokio::time::sleep(CLEANUP_POLL_INTERVAL).await;
    }
}

fn find_marked_pids(env_marker: &[u8]) -> Vec<Pid> {
    let Ok(all) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pids = all.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok().and_then(Pid::from_raw));
    let is_marked = |pid: &Pid| {
        let environment = std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == env_marker)
    };
    pids.filter(is_marked).collect()
}
