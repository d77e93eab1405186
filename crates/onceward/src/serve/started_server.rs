//! Serves the listener of a running engine.

use std::io::ErrorKind;
use std::sync::Arc;

use anyhow::Result;
use onceward_engine::Engine;
use onceward_server::ServerConfig;
use onceward_store::AnyStore;
use tokio::net::TcpListener;

use super::shutdown::ShutdownSignals;
use super::temp_storage::TempStorage;
use crate::output::{CommandStatus, print_stderr};
use crate::stderr_thread;
use crate::system_routes::all_system_routes;

/// A server whose engine runs and whose listener is not served yet.
pub(super) struct StartedServer<H> {
    pub(super) listener: std::net::TcpListener,
    pub(super) engine: Engine<AnyStore>,
    pub(super) config: ServerConfig,
    pub(super) signals: ShutdownSignals<H>,
    /// Removed when the server ends.
    pub(super) temp_storage: Option<TempStorage>,
}

impl<H: Future<Output = ()>> StartedServer<H> {
    /// Serves until the server has drained.
    pub(super) async fn run(self) -> Result<CommandStatus> {
        let _temp_storage = self.temp_storage;
        let (telemetry, engine) = (Arc::clone(&self.config.telemetry), self.engine.internal_handle());
        let listener = TcpListener::from_std(self.listener)?;
        let stop = self.signals.wait();
        if let Err(error) = onceward_server::serve(listener, self.engine, self.config, all_system_routes(), stop).await
        {
            let detail = match (error.kind(), engine.dead_task()) {
                (ErrorKind::TimedOut, _) => "; unfinished requests were dropped",
                (_, Some(_)) => "; restart the server",
                _ => return Err(error.into()),
            };
            print_stderr(&format!("error: {error}{detail}\n"));
            stderr_thread::flush();
            // Exit as on the second signal: a task that has not drained may be waiting for an unresponsive database.
            std::process::exit(1);
        }
        // Exports the last spans.
        tokio::task::spawn_blocking(move || telemetry.close()).await?;
        Ok(CommandStatus::Success)
    }
}
