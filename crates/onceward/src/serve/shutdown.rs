//! The signals that stop the server.

use anyhow::Result;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::output::print_stderr;
use crate::sighup::hangup_signal;

/// Registered signals. Those that arrive before [`wait`](Self::wait) are kept.
pub(super) struct ShutdownSignals<H> {
    term: Signal,
    int: Signal,
    hangup: H,
}

impl ShutdownSignals<()> {
    pub(super) fn register() -> Result<ShutdownSignals<impl Future<Output = ()>>> {
        let hangup = hangup_signal()?;
        Ok(ShutdownSignals { term: signal(SignalKind::terminate())?, int: signal(SignalKind::interrupt())?, hangup })
    }
}

impl<H: Future<Output = ()>> ShutdownSignals<H> {
    /// Waits for the first signal. A second one ends the process at once.
    pub(super) async fn wait(self) {
        let Self { mut term, mut int, hangup } = self;
        tokio::select! {
            _ = term.recv() => {}
            _ = int.recv() => {}
            () = hangup => {}
        }
        // If standard error is not a terminal, the log reports the shutdown.
        if std::io::IsTerminal::is_terminal(&std::io::stderr()) {
            print_stderr("draining: requests in progress finish; a second signal stops the server at once\n");
        }
        tokio::spawn(async move {
            tokio::select! {
                _ = term.recv() => {}
                _ = int.recv() => {}
            }
            std::process::exit(1);
        });
    }
}
