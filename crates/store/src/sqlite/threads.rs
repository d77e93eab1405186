//! The threads on which SQLite runs: one that writes, a few that read. A caller waits for its answer without holding a thread.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use crate::error::StoreError;

type Job<T> = Box<dyn FnOnce(&mut T) + Send>;

/// How many threads a runtime has for itself on so many cores, while one of these writes.
pub(super) const fn beside_the_writer(cores: usize) -> usize {
    if cores > 1 { cores - 1 } else { 1 }
}

/// Threads that each have a `T` of their own and take turns at jobs.
#[derive(Debug)]
pub(super) struct Threads<T> {
    /// `None` only while being dropped.
    jobs: Option<Sender<Job<T>>>,
    handles: Vec<JoinHandle<()>>,
    /// One of the tools: whoever finds it free may use it in place of its thread.
    first: Arc<Mutex<T>>,
    /// What to do with a tool that a job has dropped in the middle.
    recover: fn(&mut T),
}

impl<T: Send + 'static> Threads<T> {
    pub(super) fn start(name: &str, tools: Vec<T>, recover: fn(&mut T)) -> Result<Self, StoreError> {
        let (jobs, waiting) = channel::<Job<T>>();
        let waiting = Arc::new(Mutex::new(waiting));
        let mut handles = Vec::with_capacity(tools.len());
        let tools: Vec<_> = tools.into_iter().map(|tool| Arc::new(Mutex::new(tool))).collect();
        let first = tools.first().map(Arc::clone).ok_or_else(|| StoreError::Unavailable("no thread".to_owned()))?;
        for tool in tools {
            let waiting = Arc::clone(&waiting);
            let work = move || {
                while let Some(job) = next(&waiting) {
                    job(&mut tool.lock().unwrap_or_else(PoisonError::into_inner));
                }
            };
            let handle = std::thread::Builder::new().name(format!("onceward-{name}")).spawn(work);
            handles.push(handle.map_err(|error| StoreError::Unavailable(error.to_string()))?);
        }
        Ok(Self { jobs: Some(jobs), handles, first, recover })
    }

    /// Do a job on this very thread, where its tool is free and fit for that; else the job comes back.
    pub(super) fn here<R, J: FnOnce(&mut T) -> Result<R, StoreError>>(
        &self,
        is_fit: impl FnOnce(&T) -> bool,
        job: J,
    ) -> Result<Result<R, StoreError>, J> {
        match self.first.try_lock() {
            Ok(mut tool) if is_fit(&tool) => Ok(guarded(&mut *tool, self.recover, job)),
            _ => Err(job),
        }
    }

    pub(super) async fn run<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut T) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        let gone = || StoreError::Unavailable("the store's thread has ended".to_owned());
        let (answer, answered) = oneshot::channel();
        let recover = self.recover;
        let job: Job<T> = Box::new(move |tool| {
            // A job that panics fails alone: the thread and its tool are there for the next.
            let done = guarded(tool, recover, job);
            // Whoever asked may have gone away: what was done stays done.
            let _ = answer.send(done);
        });
        self.jobs.as_ref().ok_or_else(gone)?.send(job).map_err(|_| gone())?;
        answered.await.map_err(|_| gone())?
    }
}

fn guarded<T, R>(
    tool: &mut T,
    recover: fn(&mut T),
    job: impl FnOnce(&mut T) -> Result<R, StoreError>,
) -> Result<R, StoreError> {
    catch_unwind(AssertUnwindSafe(|| job(tool))).unwrap_or_else(|panic| {
        recover(tool);
        Err(StoreError::Unavailable(format!("the store's own code panicked: {}", words(&*panic))))
    })
}

/// What a panic said.
fn words(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a word")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_core_is_for_the_writer() {
        assert_eq!([1, 2, 3, 16].map(beside_the_writer), [1, 1, 2, 15]);
    }

    /// A job is done on the caller's own thread where its tool is free, and comes back where it is not. A panic is taken back either way.
    #[test]
    fn a_free_tool_may_be_used_by_whoever_asks() {
        let threads = Threads::start("test", vec![0_u32], |tool| *tool = 100).expect("a thread");
        let caller = std::thread::current().id();
        let job = |tool: &mut u32| {
            *tool += 1;
            Ok((*tool, std::thread::current().id()))
        };
        assert!(threads.here(|tool| *tool > 0, job).is_err(), "it is not fit for that");
        let done = threads.here(|tool| *tool == 0, job).unwrap_or_else(|_| panic!("it is free")).expect("a job");
        assert_eq!(done, (1, caller));
        let held = threads.first.lock().expect("free again");
        assert!(threads.here(|_| true, job).is_err(), "it is in use");
        drop(held);
        let panics = |_: &mut u32| -> Result<(), StoreError> { panic!("for the test") };
        let said = threads.here(|_| true, panics).unwrap_or_else(|_| panic!("it is free"));
        assert!(matches!(said, Err(StoreError::Unavailable(why)) if why.contains("for the test")));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (count, thread) = runtime.block_on(threads.run(job)).expect("its thread is there");
        assert_eq!(count, 101, "what the panic left was put right");
        assert_ne!(thread, caller);
    }
}
