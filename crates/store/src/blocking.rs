//! Work that takes long on a runtime's thread.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Records that are decided, or told to the log, in some twenty milliseconds: a few microseconds each. With more of them, others who
/// wait for their turn on the same thread would notice.
const MAX_INLINE_RECORDS: usize = 5_000;

/// Compute right here. Where that takes long, whoever else waits for this thread of the runtime's goes on elsewhere meanwhile: there may be
/// only one such thread (decision 0020). A runtime on the caller's own thread has no elsewhere.
pub fn block_in_place_if_large<R>(records: usize, work: impl FnOnce() -> R) -> R {
    let is_multi_thread = || Handle::try_current().is_ok_and(|on| on.runtime_flavor() == RuntimeFlavor::MultiThread);
    if records > MAX_INLINE_RECORDS && is_multi_thread() { tokio::task::block_in_place(work) } else { work() }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    /// On a runtime with one thread, work that takes long waits for what another task says; and that one has its turn.
    #[test]
    fn other_tasks_run_while_large_work_blocks() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
        let (sender, receiver) = channel();
        let task = runtime.spawn(async move {
            tokio::spawn(async move { sender.send(7) });
            block_in_place_if_large(MAX_INLINE_RECORDS + 1, move || receiver.recv_timeout(Duration::from_mins(1)))
        });
        assert_eq!(runtime.block_on(task).expect("it ends"), Ok(7));
    }

    /// Where there is no elsewhere it is done all the same: on a runtime of the caller's own thread, and on a thread without any.
    #[test]
    fn large_work_runs_inline_without_multi_thread_runtime() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        assert_eq!(runtime.block_on(async { block_in_place_if_large(MAX_INLINE_RECORDS + 1, || 1) }), 1);
        assert_eq!(block_in_place_if_large(MAX_INLINE_RECORDS + 1, || 2), 2);
    }
}
