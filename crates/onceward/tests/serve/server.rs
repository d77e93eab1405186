//! Starts a server for a test.

use onceward_testkit::TempDir;
use onceward_testkit::server_process::{self, DatabaseKind, ServerProcess};

pub(crate) const BINARY: &str = env!("CARGO_BIN_EXE_onceward");

pub(crate) fn start_server(db: DatabaseKind) -> ServerProcess {
    let folder = TempDir::new();
    ServerProcess::start(&mut server_process::serve_command(BINARY, &db.new_url(&folder))).with_temp_dir(folder)
}
