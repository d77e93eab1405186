//! Deletes images from the bucket: a worker deletes those of removed assets, a periodic scan deletes orphans. Both run
//! in every process that has a bucket, also if it generates no images.

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

/// Worker name in leases and worker lists.
const CLEANUP_WORKER_NAME: &str = "onceward.image.clearing";

/// Low, because no caller waits for a deletion.
const CLEANUP_CONCURRENCY: usize = 2;

/// Delay and interval of the orphan scan. They are long because a scan lists all images.
const FIRST_SCAN_DELAY: Duration = Duration::from_mins(10);
const SCAN_INTERVAL: Duration = Duration::from_hours(24);

/// The age at which orphaned payloads are deleted, too.
const MIN_ORPHAN_AGE: Duration = Duration::from_hours(24);

/// Starts the worker and the periodic scan that delete images of removed assets and orphaned images. The bucket is the
/// engine's object storage.
pub fn start_cleanup<S: Store + 'static>(engine: &Engine<S>, object_storage: &ObjectStorage) -> WorkerHandle {
    let scan_storage = object_storage.clone();
    engine.spawn_periodic(CLEANUP_WORKER_NAME, FIRST_SCAN_DELAY, SCAN_INTERVAL, move |engine| {
        let objects = scan_storage.clone();
        async move {
            match delete_orphaned_images(engine.store(), &objects, MIN_ORPHAN_AGE).await {
                Ok(0) => {}
                Ok(images) => info!(images, "orphaned images were deleted"),
                // The next scan finds them.
                Err(error) => warn!(code = error.code(), %error, "scan for orphaned images failed"),
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

/// Deletes images older than `min_age` whose job ended without them or was pruned. Returns the number deleted.
///
/// An image is orphaned if a process died between storing and committing and the job was not retried, or if a worker
/// stored it after losing its lease.
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
        // Pause as long as the batch took, to leave capacity to callers.
        sleep(page_started_at.elapsed()).await;
    }
    Ok(deleted)
}

/// Returns whether an image is orphaned. An ended job commits nothing more, so an image that it does not reference then
/// stays unreferenced. The job of a removed asset still references its image; the cleanup worker deletes that one.
async fn is_orphaned<S: Store>(store: &S, name: &str) -> Result<bool, StoreError> {
    // Objects without a job id in their name belong to other users of the bucket.
    let Some(job) = bucket::parse_job_id(name) else { return Ok(false) };
    let Some(job) = store.record(job).await? else { return Ok(true) };
    Ok(*job.lifecycle.name == *JOB_LIFECYCLE && job.is_final() && job.text_field("resultUrl") != Some(name))
}

async fn delete_asset_images<S: Store>(store: &S, objects: &ObjectStorage, job: &WorkerJob) -> JobResult {
    let (asset, failure_message) = (&job.record, "the image could not be deleted from the bucket");
    let mut names: Vec<String> = asset.text_field("url").map(str::to_owned).into_iter().collect();
    match attempt_object_names(store, asset).await {
        Ok(siblings) => names.extend(siblings),
        Err(error) => {
            warn!(asset = %asset.id, code = error.code(), %error, "deleting the image of a removed asset failed");
            return Err(FailureReport::new("503", failure_message));
        }
    }
    for name in names {
        match objects.remove_named(&name).await {
            // No object can have an invalid name.
            Ok(()) | Err(ObjectError::InvalidObjectName(_)) => {}
            Err(error) => {
                warn!(asset = %asset.id, code = error.code(), %error, "deleting the image of a removed asset failed");
                return Err(FailureReport::new("503", failure_message));
            }
        }
    }
    Ok(json!({}))
}

/// Returns the names under which lost workers may have stored images of the same job.
async fn attempt_object_names<S: Store>(store: &S, asset: &Record) -> Result<Vec<String>, StoreError> {
    let Some(job) = asset.ref_field("job") else { return Ok(Vec::new()) };
    let attempts = store.record(job).await?.map_or(0, |job| job.attempt);
    // A job with a single attempt has no other images.
    let tokens = (1..=attempts).rev().take(bucket::MAX_CLEANED_ATTEMPTS).filter(|_| attempts > 1);
    Ok(tokens.flat_map(|token| bucket::object_names(job, FencingToken(token))).collect())
}
