//! Runs long computations without blocking the other tasks of a runtime thread.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Deciding or encoding this many records takes about 20 ms. Above that, other tasks on the thread would notice the
/// delay.
const MAX_INLINE_RECORDS: usize = 5_000;

/// Runs `work` on the current thread. If it covers many records, the runtime first moves its other tasks to another
/// thread, because it may have only one worker thread (decision 0020). A current-thread runtime cannot do that; there
/// `work` blocks the other tasks.
pub fn block_in_place_if_large<R>(records: usize, work: impl FnOnce() -> R) -> R {
    let is_multi_thread = || Handle::try_current().is_ok_and(|on| on.runtime_flavor() == RuntimeFlavor::MultiThread);
    if records > MAX_INLINE_RECORDS && is_multi_thread() { tokio::task::block_in_place(work) } else { work() }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    /// The runtime has one thread, and the work waits for a message from another task.
    #[test]
    fn other_tasks_run_while_large_work_blocks() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
        let (sender, receiver) = channel();
        let task = runtime.spawn(async move {
            tokio::spawn(async move { sender.send(7) });
            block_in_place_if_large(MAX_INLINE_RECORDS + 1, move || receiver.recv_timeout(Duration::from_mins(1)))
        });
        assert_eq!(runtime.block_on(task).expect("the task ends"), Ok(7));
    }

    /// Covers a current-thread runtime and a thread without a runtime.
    #[test]
    fn large_work_runs_inline_without_multi_thread_runtime() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        assert_eq!(runtime.block_on(async { block_in_place_if_large(MAX_INLINE_RECORDS + 1, || 1) }), 1);
        assert_eq!(block_in_place_if_large(MAX_INLINE_RECORDS + 1, || 2), 2);
    }
}
