//! What leaves the bucket: removed pictures, by a worker, and those that nobody has, by a look now and then. Both run wherever there is
//! a bucket, also where nobody draws.

use std::time::Duration;

use onceward_core::decide::ErrorReport;
use onceward_core::record::{Actor, Record, Token};
use onceward_engine::{Done, Engine, EngineError, Job, ObjectError, Objects, Worker, Working};
use onceward_store::{Store, StoreError};
use serde_json::json;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};

use crate::{ASSET, JOB, bucket};

/// As the worker is called, by its leases and in lists.
const NAME: &str = "onceward.image.clearing";

/// Pictures at the same time. Nobody waits for them.
const AT_ONCE: usize = 2;

/// How long after its start a process looks for what nobody has, and how long after each look again. A look lists all pictures.
const FIRST: Duration = Duration::from_mins(10);
const EVERY: Duration = Duration::from_hours(24);

/// A picture that nobody has may lie there for so long, as a payload that nobody has may.
const AGE: Duration = Duration::from_hours(24);

/// Take the pictures of removed assets out of the bucket, which is the engine's own object store, and those that nobody has.
pub fn open_clearing<S: Store + 'static>(engine: &Engine<S>, objects: &Objects) -> Worker {
    let looked = objects.clone();
    engine.now_and_then(FIRST, EVERY, move |engine| {
        let objects = looked.clone();
        async move {
            match clear_leftovers(engine.store(), &objects, AGE).await {
                Ok(0) => {}
                Ok(pictures) => info!(pictures, "took out pictures that nobody has"),
                // They are found by the next look.
                Err(error) => warn!(code = error.code(), "looking for pictures that nobody has: {error}"),
            }
        }
    });
    let working =
        Working { name: NAME.into(), actor: Actor::new(NAME, &["worker"]), at_once: AT_ONCE, ..Working::on(ASSET) };
    let (within, objects) = (engine.within(), objects.clone());
    engine.work(working, move |job| {
        let (engine, objects) = (within.clone(), objects.clone());
        async move { clear(engine.store(), &objects, &job).await }
    })
}

/// Take out pictures that were stored so long ago and that nobody has: their job has ended without them, or is gone. Such are left where
/// a process died between storing and committing and nobody tried again, and where a lost worker stored late. How many there were.
pub async fn clear_leftovers<S: Store>(store: &S, objects: &Objects, age: Duration) -> Result<u64, EngineError> {
    let mut old = objects.old_names(bucket::FOLDER, age).await?;
    let mut taken = 0;
    while let Some(names) = old.next().await? {
        let begun = Instant::now();
        for name in names {
            if is_nobodys(store, &name).await? {
                objects.remove_named(&name).await?;
                taken += 1;
            }
        }
        // As long a rest as it took: callers come first.
        sleep(begun.elapsed()).await;
    }
    Ok(taken)
}

/// A job that has ended commits no more, so what it has not committed by then it never has. A removed picture's job still names it, for
/// the worker to take out.
async fn is_nobodys<S: Store>(store: &S, name: &str) -> Result<bool, StoreError> {
    // What is not named by a job is none of ours.
    let Some(job) = bucket::job(name) else { return Ok(false) };
    let Some(job) = store.record(job).await? else { return Ok(true) };
    Ok(*job.lifecycle.name == *JOB && job.is_final() && job.text("resultUrl") != Some(name))
}

async fn clear<S: Store>(store: &S, objects: &Objects, job: &Job) -> Done {
    let (asset, still_there) = (&job.record, "the picture could not be taken out of the bucket");
    let mut names: Vec<String> = asset.text("url").map(str::to_owned).into_iter().collect();
    match siblings(store, asset).await {
        Ok(siblings) => names.extend(siblings),
        Err(error) => {
            warn!(code = error.code(), "a removed picture is still there: {error}");
            return Err(ErrorReport::new("503", still_there));
        }
    }
    for name in names {
        match objects.remove_named(&name).await {
            // What no name can be, nothing has.
            Ok(()) | Err(ObjectError::BadName(_)) => {}
            Err(error) => {
                warn!(code = error.code(), "a removed picture is still there: {error}");
                return Err(ErrorReport::new("503", still_there));
            }
        }
    }
    Ok(json!({}))
}

/// What lost workers may have stored late for the same order: its owner wants none of it.
async fn siblings<S: Store>(store: &S, asset: &Record) -> Result<Vec<String>, StoreError> {
    let Some(job) = asset.named("job") else { return Ok(Vec::new()) };
    let attempts = store.record(job).await?.map_or(0, |job| job.attempt);
    // An only attempt has no siblings.
    let tokens = (1..=attempts).rev().take(bucket::ATTEMPTS).filter(|_| attempts > 1);
    Ok(tokens.flat_map(|token| bucket::names(job, Token(token))).collect())
}
