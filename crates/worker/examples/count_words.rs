//! A worker that counts the words of a text, in two phases.
//!
//! Run `onceward serve`, then `cargo run -p onceward-worker --example count_words`, then
//! `onceward new execution.job --payload '{"text": "one two three"}'`. Ctrl-C ends it after the current job.

use onceward_worker::{Client, Failure, Job, WorkerConfig};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct WordCountInput {
    text: String,
}

#[derive(Serialize)]
struct WordCount {
    words: usize,
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let url = std::env::var("ONCEWARD_URL").unwrap_or_else(|_| "http://127.0.0.1:7171".to_owned());
    let client = Client::new(&url, std::env::var("ONCEWARD_KEY").ok().as_deref())?;
    let worker = client.work_with(WorkerConfig::for_lifecycle("execution.job").concurrency(4), count);
    tokio::select! {
        ended = worker.wait() => ended?,
        _ = tokio::signal::ctrl_c() => worker.close().await?,
    }
    Ok(())
}

async fn count(input: WordCountInput, job: Job) -> Result<WordCount, Failure> {
    // Prepare: may run more than once, so it changes nothing outside.
    if input.text.is_empty() {
        return Err(Failure::terminal("EMPTY", "the text is empty"));
    }
    if job.should_stop() {
        return Err(Failure::yielded());
    }
    // Fast enough to run here. Long computations belong in `tokio::task::spawn_blocking`.
    let counted = WordCount { words: input.text.split_whitespace().count() };
    // Commit: the returned value is committed at most once. `job.commit(&counted).await?` would commit here and
    // leave time to clean up.
    Ok(counted)
}
