//! Runs one PostgreSQL server for many lab test processes.

use std::io::Read as _;

use onceward_testkit::postgres::PostgresServer;

/// Not a test: `cargo xtask lab` runs it next to the tests, passes them its URL, and closes its input when all are
/// done.
#[test]
#[ignore = "serves `cargo xtask lab`"]
fn serve_postgres_for_lab_runs() {
    let server = PostgresServer::start();
    println!("\nserver {}", server.url());
    let mut nothing = String::new();
    let _ = std::io::stdin().read_to_string(&mut nothing);
}
