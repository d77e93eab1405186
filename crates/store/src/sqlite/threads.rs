//! The threads on which SQLite runs: one that writes, a few that read. A caller waits for its answer without holding a thread.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use crate::error::StoreError;

type Job<T> = Box<dyn FnOnce(&mut T) + Send>;

/// Threads that each have a `T` of their own and take turns at jobs.
#[derive(Debug)]
pub(super) struct Threads<T> {
    /// `None` only while being dropped.
    jobs: Option<Sender<Job<T>>>,
    handles: Vec<JoinHandle<()>>,
}

impl<T: Send + 'static> Threads<T> {
    pub(super) fn start(name: &str, tools: Vec<T>) -> Result<Self, StoreError> {
        let (jobs, waiting) = channel::<Job<T>>();
        let waiting = Arc::new(Mutex::new(waiting));
        let mut handles = Vec::with_capacity(tools.len());
        for mut tool in tools {
            let waiting = Arc::clone(&waiting);
            let work = move || {
                while let Some(job) = next(&waiting) {
                    job(&mut tool);
                }
            };
            let handle = std::thread::Builder::new().name(format!("onceward-{name}")).spawn(work);
            handles.push(handle.map_err(|error| StoreError::Unavailable(error.to_string()))?);
        }
        Ok(Self { jobs: Some(jobs), handles })
    }

    pub(super) async fn run<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut T) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        let gone = || StoreError::Unavailable("the store's thread has ended".to_owned());
        let (answer, answered) = oneshot::channel();
        let job: Job<T> = Box::new(move |tool| {
            // Whoever asked may have gone away: what was done stays done.
            let _ = answer.send(job(tool));
        });
        self.jobs.as_ref().ok_or_else(gone)?.send(job).map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

fn next<T>(waiting: &Mutex<Receiver<Job<T>>>) -> Option<Job<T>> {
    waiting.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

impl<T> Drop for Threads<T> {
    /// Waits for the jobs that were taken on, so that the file is closed when the store is gone.
    fn drop(&mut self) {
        self.jobs = None;
        for handle in self.handles.drain(..) {
            let _ = handle.join();
        }
    }
}
