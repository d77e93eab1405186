//! A worker in Rust: counts the words of a text, in two phases.
//!
//! `onceward serve`, then `cargo run -p onceward-worker --example count_words`, then
//! `onceward new execution.job --payload '{"text": "one two three"}'`. Ctrl-C ends it, after what it has begun.

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
    // Prepare: may happen more than once, so it changes nothing outside.
    if input.text.is_empty() {
        return Err(Failure::terminal("EMPTY", "there are no words in nothing"));
    }
    if job.should_stop() {
        return Err(Failure::yielded());
    }
    // Quick enough to be done here. What takes long goes into `tokio::task::spawn_blocking`: hearts beat in this very thread.
    let counted = WordCount { words: input.text.split_whitespace().count() };
    // Commit: what is returned lands at most once. `job.commit(&counted).await?` would do so here, with time to tidy up after it.
    Ok(counted)
}
