//! One PostgreSQL server for many runs of the lab's tests.

use std::io::Read as _;

use onceward_testkit::postgres::PostgresServer;

/// No test: `cargo xtask lab` runs it beside the others, which are told where it is, and ends its input when all are done.
#[test]
#[ignore = "serves `cargo xtask lab`"]
fn serve_postgres_for_lab_runs() {
    let server = PostgresServer::start();
    println!("\nserver {}", server.url());
    let mut nothing = String::new();
    let _ = std::io::stdin().read_to_string(&mut nothing);
}
