//! In-process worker that generates an image, stores it, and only then commits.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::FailureReport;
use onceward_core::hex;
use onceward_core::record::{Actor, FencingToken};
use onceward_engine::{Engine, JobResult, ObjectError, ObjectStorage, WorkerConfig, WorkerHandle, WorkerJob};
use onceward_store::Store;
use serde_json::json;
use sha2::{Digest, Sha256};
use tracing::warn;

use crate::prompt_payload;
use crate::provider::{GeneratedImage, ImageProvider};
use crate::{JOB_LIFECYCLE, bucket};

/// Worker name in leases and worker lists. No API key has this owner unless an operator creates one.
const WORKER_NAME: &str = "onceward.image";

/// Shorter than the lifecycle's lease, so that another process takes over soon if this one dies. Heartbeats extend it
/// while the provider works.
const LEASE_DURATION: onceward_core::time::Duration = onceward_core::time::Duration::from_secs(15);

/// Time that a job may still wait for its image after a stop request, because the provider already charges for it.
const STOP_GRACE_TIMEOUT: Duration = Duration::from_secs(5);

/// Provider and concurrency of the image worker.
#[derive(Clone, Debug)]
pub struct ImageWorkerConfig {
    pub provider: ImageProvider,
    pub concurrency: usize,
}

/// Starts the worker that generates images in this process. The bucket is the engine's object storage.
pub fn start_image_worker<S: Store + 'static>(
    engine: &Engine<S>,
    objects: &ObjectStorage,
    config: ImageWorkerConfig,
) -> WorkerHandle {
    let ImageWorkerConfig { provider, concurrency } = config;
    let worker_config = WorkerConfig {
        name: WORKER_NAME.into(),
        actor: Actor::new(WORKER_NAME, &["worker"]),
        concurrency,
        lease_duration: Some(LEASE_DURATION),
        ..WorkerConfig::for_lifecycle(JOB_LIFECYCLE)
    };
    let worker = Arc::new(ImageWorker { provider, objects: objects.clone() });
    engine.work(worker_config, move |job| {
        let worker = Arc::clone(&worker);
        async move { worker.run_job(&job).await }
    })
}

#[derive(Debug)]
struct ImageWorker {
    provider: ImageProvider,
    objects: ObjectStorage,
}

impl ImageWorker {
    async fn run_job(&self, job: &WorkerJob) -> JobResult {
        self.delete_stale_attempts(job).await;
        let Some(order) = job.payload.as_deref().and_then(prompt_payload::parse_payload) else {
            return Err(FailureReport::new("400", "the payload is not an image request"));
        };
        let image = tokio::select! {
            generated = self.provider.generate(&order) => generated?,
            () = wait_stop_grace(job) => return Err(FailureReport::new("yielded", "")),
        };
        self.store_image(job, image).await
    }

    /// IMG-3: Stores the image before the engine commits the returned result. If another worker has leased the job
    /// since, the engine refuses the commit.
    async fn store_image(&self, job: &WorkerJob, image: GeneratedImage) -> JobResult {
        let Some(name) = bucket::object_name(job.record.id, job.token, image.media_type) else {
            return Err(FailureReport::new("502", "the provider's answer is not an image"));
        };
        let sha256 = hex::encode(&Sha256::digest(&image.bytes));
        let bytes = image.bytes.len();
        self.objects.put_named(&name, image.bytes).await.map_err(|error| storage_failure(&error))?;
        Ok(json!({ "url": name, "sha256": sha256, "bytes": bytes }))
    }

    /// Deletes images that earlier attempts stored without committing. They cannot commit any more, because this
    /// attempt holds the lease.
    async fn delete_stale_attempts(&self, job: &WorkerJob) {
        for token in (1..job.token.0).rev().take(bucket::MAX_CLEANED_ATTEMPTS) {
            for name in bucket::object_names(job.record.id, FencingToken(token)) {
                if let Err(error) = self.objects.remove_named(&name).await {
                    warn!(code = error.code(), %error, "the image of an earlier attempt could not be deleted");
                }
            }
        }
    }
}

/// Waits for a stop request and then for [`STOP_GRACE_TIMEOUT`].
async fn wait_stop_grace(job: &WorkerJob) {
    job.wait_stop_requested().await;
    tokio::time::sleep(STOP_GRACE_TIMEOUT).await;
}

/// Reports a storage failure, which is retried like a server error of the provider.
fn storage_failure(error: &ObjectError) -> FailureReport {
    warn!(code = error.code(), %error, "image could not be stored");
    FailureReport::new("503", "the image could not be stored")
}
