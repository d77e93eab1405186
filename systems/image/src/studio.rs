//! The worker inside the process. It draws what is ordered, stores the picture, and only then commits.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::ErrorReport;
use onceward_core::hex;
use onceward_core::record::{Actor, Token};
use onceward_engine::{Done, Engine, Job, ObjectError, Objects, Worker, Working};
use onceward_store::Store;
use serde_json::json;
use sha2::{Digest, Sha256};
use tracing::warn;

use crate::order;
use crate::provider::{Picture, Provider};
use crate::{JOB, bucket};

/// As the worker is called, by its leases and in lists. No key has such an owner unless an operator makes one.
const NAME: &str = "onceward.image";

/// Shorter than the lifecycle's own: where a process is gone, another does not wait long for its jobs. The heart beats on while a provider takes
/// its time.
const LEASE: onceward_core::time::Duration = onceward_core::time::Duration::from_secs(15);

/// How long a job that is to stop may wait for its picture: it is nearly there perhaps, and paid for.
const LAST_WAIT: Duration = Duration::from_secs(5);

/// Who draws, and how much at once.
#[derive(Clone, Debug)]
pub struct Studio {
    pub provider: Provider,
    pub at_once: usize,
}

/// Draw what is ordered, in this process. The bucket is the engine's own object store.
pub fn open_studio<S: Store + 'static>(engine: &Engine<S>, objects: &Objects, studio: Studio) -> Worker {
    let Studio { provider, at_once } = studio;
    let working = Working {
        name: NAME.into(),
        actor: Actor::new(NAME, &["worker"]),
        at_once,
        lease: Some(LEASE),
        ..Working::on(JOB)
    };
    let desk = Arc::new(Desk { provider, objects: objects.clone() });
    engine.work(working, move |job| {
        let desk = Arc::clone(&desk);
        async move { desk.work(&job).await }
    })
}

#[derive(Debug)]
struct Desk {
    provider: Provider,
    objects: Objects,
}

impl Desk {
    async fn work(&self, job: &Job) -> Done {
        self.tidy(job).await;
        let Some(order) = job.payload.as_deref().and_then(order::read) else {
            return Err(ErrorReport::new("400", "this is no order for a picture"));
        };
        let picture = tokio::select! {
            drawn = self.provider.draw(&order) => drawn?,
            () = too_late(job) => return Err(ErrorReport::new("yielded", "")),
        };
        self.keep(job, picture).await
    }

    /// IMG-3: stored first. What the closure answers with is committed after this, and is refused where another has the job by now.
    async fn keep(&self, job: &Job, picture: Picture) -> Done {
        let Some(name) = bucket::name(job.record.id, job.token, picture.kind) else {
            return Err(ErrorReport::new("502", "what the provider sent is no picture"));
        };
        let sha256 = hex::encode(&Sha256::digest(&picture.bytes));
        let bytes = picture.bytes.len();
        self.objects.put_named(&name, picture.bytes).await.map_err(|error| not_kept(&error))?;
        Ok(json!({ "url": name, "sha256": sha256, "bytes": bytes }))
    }

    /// What earlier attempts have stored and never committed is nobody's: none of them can commit any more, since this one has the lease.
    async fn tidy(&self, job: &Job) {
        for token in (1..job.token.0).rev().take(bucket::ATTEMPTS) {
            for name in bucket::names(job.record.id, Token(token)) {
                if let Err(error) = self.objects.remove_named(&name).await {
                    warn!(code = error.code(), "what an attempt left behind stays: {error}");
                }
            }
        }
    }
}

/// Waits until the job is to stop, and a little longer.
async fn too_late(job: &Job) {
    job.stopped().await;
    tokio::time::sleep(LAST_WAIT).await;
}

/// The bucket failed, not the provider: it is tried again as any server's error is.
fn not_kept(error: &ObjectError) -> ErrorReport {
    warn!(code = error.code(), "a picture could not be stored: {error}");
    ErrorReport::new("503", "the picture could not be stored")
}
