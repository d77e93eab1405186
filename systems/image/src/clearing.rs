//! The worker that takes removed pictures out of the bucket. It runs wherever there is a bucket, also where nobody draws.

use onceward_core::decide::ErrorReport;
use onceward_core::record::Actor;
use onceward_engine::{Done, Engine, Job, ObjectError, Objects, Worker, Working};
use onceward_store::Store;
use serde_json::json;
use tracing::warn;

use crate::ASSET;

/// As the worker is called, by its leases and in lists.
const NAME: &str = "onceward.image.clearing";

/// Pictures at the same time. Nobody waits for them.
const AT_ONCE: usize = 2;

/// Take the pictures of removed assets out of the bucket, which is the engine's own object store.
pub fn open_clearing<S: Store + 'static>(engine: &Engine<S>, objects: &Objects) -> Worker {
    let working =
        Working { name: NAME.into(), actor: Actor::new(NAME, &["worker"]), at_once: AT_ONCE, ..Working::on(ASSET) };
    let objects = objects.clone();
    engine.work(working, move |job| {
        let objects = objects.clone();
        async move { clear(&objects, &job).await }
    })
}

async fn clear(objects: &Objects, job: &Job) -> Done {
    let Some(name) = job.record.text("url") else { return Ok(json!({})) };
    match objects.remove_named(name).await {
        // What no name can be, nothing has.
        Ok(()) | Err(ObjectError::BadName(_)) => Ok(json!({})),
        Err(error) => {
            warn!(code = error.code(), "a removed picture is still there: {error}");
            Err(ErrorReport::new("503", "the picture could not be taken out of the bucket"))
        }
    }
}
