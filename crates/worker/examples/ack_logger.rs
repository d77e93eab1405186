//! A worker for `sdk/tests/kill_test.py`, beside those in Python and TypeScript. Commits explicitly and logs each
//! commit that the server acknowledged.
//!
//! `ack_logger URL LIFECYCLE ACK_FILE`

use std::fs::OpenOptions;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use onceward_worker::{Client, Failure, Job, RetryPolicy, WorkerConfig};
use serde_json::{Value, json};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().ok_or("ack_logger URL LIFECYCLE ACK_FILE");
    let (url, lifecycle, ack_file) = (next()?, next()?, Arc::<str>::from(next()?));
    let retry_policy = RetryPolicy { response_timeout: Duration::from_secs(5), ..RetryPolicy::default() };
    let client = Client::new(&url, None)?.with_retry_policy(retry_policy);
    let config = WorkerConfig {
        name: "rust".to_owned(),
        lease: Some(Duration::from_secs(3)),
        ..WorkerConfig::for_lifecycle(&lifecycle).concurrency(4)
    };
    let worker = client.work_with(config, move |payload: Value, job: Job| {
        let ack_file = Arc::clone(&ack_file);
        async move {
            job.commit(&json!({ "by": "rust", "of": payload })).await?;
            let mut lines = OpenOptions::new().create(true).append(true).open(&*ack_file)?;
            // One write per line, because other workers append to the same file.
            lines.write_all(format!("{} {}\n", job.record.id, job.token).as_bytes())?;
            Ok::<_, Failure>(())
        }
    });
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())?;
    tokio::select! {
        ended = worker.wait() => ended?,
        _ = terminate.recv() => worker.close().await?,
    }
    Ok(())
}
