//! A worker in Rust for `sdk/tests/killing.py`: commits by hand, and writes down each commit that the server has acknowledged.
//! `toiler URL LIFECYCLE BOOK`

use std::fs::OpenOptions;
use std::io::Write as _;
use std::time::Duration;

use onceward_worker::{Client, Failure, Job, Working};
use serde_json::{Value as Json, json};
use tokio::signal::unix::{SignalKind, signal};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [url, lifecycle, book] = words.as_slice() else { return Err("toiler URL LIFECYCLE BOOK".into()) };
    let working = Working {
        name: "rust".to_owned(),
        at_once: 4,
        lease: Some(Duration::from_secs(3)),
        ..Working::on(lifecycle)
    };
    let mut stop = signal(SignalKind::terminate())?;
    let book = book.clone();
    let worker = Client::new(url, None)?.work(working, move |job: Job| {
        let book = book.clone();
        async move { toil(&job, &book).await }
    });
    tokio::select! {
        ended = worker.ended() => ended?,
        _ = stop.recv() => worker.close().await?,
    }
    Ok(())
}

async fn toil(job: &Job, book: &str) -> Result<(), Failure> {
    let of: Json = job.input()?;
    let committed = job.commit(&json!({ "by": "rust", "of": of })).await;
    committed.map_err(|error| Failure::retryable("COMMIT", error.to_string()))?;
    let line = format!("{} {}\n", job.record.id, job.token);
    let written = OpenOptions::new().create(true).append(true).open(book).and_then(|mut book| book.write_all(line.as_bytes()));
    written.map_err(|error| Failure::terminal("BOOK", error.to_string()))
}
