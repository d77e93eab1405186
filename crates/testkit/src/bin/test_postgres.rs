//! A PostgreSQL server for tests that are no Rust: prints the URLs of as many empty databases as are asked for, and runs until its
//! standard input ends.

use std::io::{Read as _, Write as _};

use onceward_testkit::postgres::Server;

fn main() -> std::io::Result<()> {
    let databases = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1);
    let server = Server::given().unwrap_or_else(Server::start);
    for _ in 0..databases {
        println!("{}", server.database());
    }
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
