//! Runs a PostgreSQL server for tests in other languages. Prints the URLs of the requested number of empty databases,
//! and runs until its standard input ends.

use std::io::{Read as _, Write as _};

use onceward_testkit::postgres::PostgresServer;

fn main() -> std::io::Result<()> {
    let databases = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1);
    let server = PostgresServer::from_env().unwrap_or_else(PostgresServer::start);
    for _ in 0..databases {
        println!("{}", server.create_database());
    }
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
