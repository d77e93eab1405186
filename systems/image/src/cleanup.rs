//! What leaves the bucket: removed pictures, by a worker, and those that nobody has, by a look now and then. Both run wherever there is
//! a bucket, also where nobody draws.

use std::time::Duration;

use onceward_core::decide::FailureReport;
use onceward_core::record::{Actor, FencingToken, Record};
use onceward_engine::{
    Engine, EngineError, JobResult, ObjectError, ObjectStorage, WorkerConfig, WorkerHandle, WorkerJob,
};
use onceward_store::{Store, StoreError};
use serde_json::json;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::{ASSET_LIFECYCLE, JOB_LIFECYCLE, bucket};

/// As the worker is called, by its leases and in lists.
const CLEANUP_WORKER_NAME: &str = "onceward.image.clearing";

/// Pictures at the same time. Nobody waits for them.
const CLEANUP_CONCURRENCY: usize = 2;

/// How long after its start a process looks for what nobody has, and how long after each look again. A look lists all pictures.
const FIRST_SCAN_DELAY: Duration = Duration::from_mins(10);
const SCAN_INTERVAL: Duration = Duration::from_hours(24);

/// A picture that nobody has may lie there for so long, as a payload that nobody has may.
const MIN_ORPHAN_AGE: Duration = Duration::from_hours(24);

/// Take the pictures of removed assets out of the bucket, which is the engine's own object store, and those that nobody has.
pub fn start_cleanup<S: Store + 'static>(engine: &Engine<S>, object_storage: &ObjectStorage) -> WorkerHandle {
    let scan_storage = object_storage.clone();
    engine.spawn_periodic(FIRST_SCAN_DELAY, SCAN_INTERVAL, move |engine| {
        let objects = scan_storage.clone();
        async move {
            match delete_orphaned_images(engine.store(), &objects, MIN_ORPHAN_AGE).await {
                Ok(0) => {}
                Ok(pictures) => info!(pictures, "took out pictures that nobody has"),
                // They are found by the next look.
                Err(error) => warn!(code = error.code(), "looking for pictures that nobody has: {error}"),
            }
        }
    });
    let config = WorkerConfig {
        name: CLEANUP_WORKER_NAME.into(),
        actor: Actor::new(CLEANUP_WORKER_NAME, &["worker"]),
        concurrency: CLEANUP_CONCURRENCY,
        ..WorkerConfig::for_lifecycle(ASSET_LIFECYCLE)
    };
    let (internal_engine, objects) = (engine.internal_handle(), object_storage.clone());
    engine.work(config, move |job| {
        let (engine, objects) = (internal_engine.clone(), objects.clone());
        async move { delete_asset_images(engine.store(), &objects, &job).await }
    })
}

/// Take out pictures that were stored so long ago and that nobody has: their job has ended without them, or is gone. Such are left where
/// a process died between storing and committing and nobody tried again, and where a lost worker stored late. How many there were.
pub async fn delete_orphaned_images<S: Store>(
    store: &S,
    objects: &ObjectStorage,
    min_age: Duration,
) -> Result<u64, EngineError> {
    let mut old_names = objects.stale_names(bucket::ORIGINALS_FOLDER, min_age).await?;
    let mut deleted = 0;
    while let Some(names) = old_names.next_batch().await? {
        let page_started_at = Instant::now();
        for name in names {
            if is_orphaned(store, &name).await? {
                objects.remove_named(&name).await?;
                deleted += 1;
            }
        }
        // As long a rest as it took: callers come first.
        sleep(page_started_at.elapsed()).await;
    }
    Ok(deleted)
}

/// A job that has ended commits no more, so what it has not committed by then it never has. A removed picture's job still names it, for
/// the worker to take out.
async fn is_orphaned<S: Store>(store: &S, name: &str) -> Result<bool, StoreError> {
    // What is not named by a job is none of ours.
    let Some(job) = bucket::parse_job_id(name) else { return Ok(false) };
    let Some(job) = store.record(job).await? else { return Ok(true) };
    Ok(*job.lifecycle.name == *JOB_LIFECYCLE && job.is_final() && job.text_field("resultUrl") != Some(name))
}

async fn delete_asset_images<S: Store>(store: &S, objects: &ObjectStorage, job: &WorkerJob) -> JobResult {
    let (asset, failure_message) = (&job.record, "the picture could not be taken out of the bucket");
    let mut names: Vec<String> = asset.text_field("url").map(str::to_owned).into_iter().collect();
    match attempt_object_names(store, asset).await {
        Ok(siblings) => names.extend(siblings),
        Err(error) => {
            warn!(code = error.code(), "a removed picture is still there: {error}");
            return Err(FailureReport::new("503", failure_message));
        }
    }
    for name in names {
        match objects.remove_named(&name).await {
            // What no name can be, nothing has.
            Ok(()) | Err(ObjectError::InvalidObjectName(_)) => {}
            Err(error) => {
                warn!(code = error.code(), "a removed picture is still there: {error}");
                return Err(FailureReport::new("503", failure_message));
            }
        }
    }
    Ok(json!({}))
}

/// What lost workers may have stored late for the same order: its owner wants none of it.
async fn attempt_object_names<S: Store>(store: &S, asset: &Record) -> Result<Vec<String>, StoreError> {
    let Some(job) = asset.ref_field("job") else { return Ok(Vec::new()) };
    let attempts = store.record(job).await?.map_or(0, |job| job.attempt);
    // An only attempt has no siblings.
    let tokens = (1..=attempts).rev().take(bucket::MAX_CLEANED_ATTEMPTS).filter(|_| attempts > 1);
    Ok(tokens.flat_map(|token| bucket::object_names(job, FencingToken(token))).collect())
}
