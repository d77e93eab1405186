//! Finds and kills processes that a command left behind.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions};

/// A process that survives longer is stuck in the kernel or belongs to another user.
pub(super) const CLEANUP_TIMEOUT: Duration = Duration::from_secs(2);

/// Delay between two checks for dying processes.
pub(super) const CLEANUP_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// Makes orphaned descendants children of this process, so that it can find them.
pub(super) fn become_subreaper() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Returns the children of all threads of this process; empty if the kernel does not list them.
pub(super) fn child_pids() -> Vec<Pid> {
    let Ok(threads) = std::fs::read_dir("/proc/self/task") else { return Vec::new() };
    let lists = threads.flatten().filter_map(|thread| std::fs::read_to_string(thread.path().join("children")).ok());
    let parse = |list: String| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<i32>>();
    lists.flat_map(parse).filter_map(Pid::from_raw).collect()
}

/// Kills all processes of an execution after its supervisor died. They are recognized by their environment, because
/// this process may have other children. Searches all processes of the machine, because lists of children may be
/// incomplete while processes start and end.
pub(super) async fn kill_execution_processes(execution: &str) {
    let env_marker = format!("ONCEWARD_EXECUTION={execution}");
    let deadline = Instant::now() + CLEANUP_TIMEOUT;
    let mut killed = Vec::new();
    loop {
        let found = find_marked_pids(env_marker.as_bytes());
        for pid in &found {
            let _ = rustix::process::kill_process(*pid, Signal::KILL);
        }
        // Reap the processes that became our children; `waitpid` fails for the others.
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
