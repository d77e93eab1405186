//! Work that takes long on a runtime's thread.

use tokio::runtime::{Handle, RuntimeFlavor};

/// Records that are decided, or told to the log, in some twenty milliseconds: a few microseconds each. With more of them, others who
/// wait for their turn on the same thread would notice.
const MANY: usize = 5_000;

/// Compute right here. Where that takes long, whoever else waits for this thread of the runtime's goes on elsewhere meanwhile: there may be
/// only one such thread (decision 0182). A runtime on the caller's own thread has no elsewhere.
pub fn unhurried<R>(records: usize, work: impl FnOnce() -> R) -> R {
    let others_can_go = || Handle::try_current().is_ok_and(|on| on.runtime_flavor() == RuntimeFlavor::MultiThread);
    if records > MANY && others_can_go() { tokio::task::block_in_place(work) } else { work() }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::*;

    /// On a runtime with one thread, work that takes long waits for what another task says; and that one has its turn.
    #[test]
    fn the_others_go_on() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("a runtime");
        let (say, hear) = channel();
        let working = runtime.spawn(async move {
            tokio::spawn(async move { say.send(7) });
            unhurried(MANY + 1, move || hear.recv_timeout(Duration::from_mins(1)))
        });
        assert_eq!(runtime.block_on(working).expect("it ends"), Ok(7));
    }

    /// Where there is no elsewhere it is done all the same: on a runtime of the caller's own thread, and on a thread without any.
    #[test]
    fn without_others_it_is_done_all_the_same() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        assert_eq!(runtime.block_on(async { unhurried(MANY + 1, || 1) }), 1);
        assert_eq!(unhurried(MANY + 1, || 2), 2);
    }
}
