//! A worker in Rust for `sdk/tests/killing.py`, beside those in Python and TypeScript: commits by hand, and writes down each commit that
//! the server has acknowledged.
//!
//! `toiler URL LIFECYCLE BOOK`

use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use onceward_worker::{Client, Failure, Job, Patience, Working};
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("toiler URL LIFECYCLE BOOK");
    let (url, lifecycle, book) = (next()?, next()?, Arc::<str>::from(next()?));
    let patience = Patience { answer: Duration::from_secs(5), ..Patience::default() };
    let client = Client::new(&url, None)?.with(patience);
    let working =
        Working { name: "rust".to_owned(), lease: Some(Duration::from_secs(3)), ..Working::on(&lifecycle).at_once(4) };
    let worker = client.work_with(working, move |payload: Value, job: Job| {
        let book = Arc::clone(&book);
        async move {
            job.commit(&json!({ "by": "rust", "of": payload })).await?;
            let mut lines = OpenOptions::new().create(true).append(true).open(&*book)?;
            // In one write: others have the book open, too.
            lines.write_all(format!("{} {}\n", job.record.id, job.token).as_bytes())?;
            Ok::<_, Failure>(())
        }
    });
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        ended = worker.ended() => ended?,
        _ = terminate.recv() => worker.close().await?,
    }
    Ok(())
}
