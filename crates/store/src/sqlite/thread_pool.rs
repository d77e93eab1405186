//! Threads that run SQLite: one writer and a few readers. A caller awaits its result without blocking a thread.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use tokio::sync::oneshot;

use crate::error::StoreError;

type ThreadJob<T> = Box<dyn FnOnce(&mut T) + Send>;

/// Returns the number of runtime threads for this many cores, leaving one core for the writer.
pub(super) const fn runtime_threads_beside_writer(cores: usize) -> usize {
    if cores > 1 { cores - 1 } else { 1 }
}

/// Threads that each own a `T` and take jobs from a common queue.
#[derive(Debug)]
pub(super) struct ThreadPool<T> {
    /// `None` only while being dropped.
    jobs: Option<Sender<ThreadJob<T>>>,
    handles: Vec<JoinHandle<()>>,
    /// The resource of the first thread. If it is free, a caller can use it on its own thread.
    first_resource: Arc<Mutex<T>>,
    /// Restores a resource after a job panicked. Returns whether the job certainly wrote nothing.
    recover_after_panic: fn(&mut T) -> bool,
}

impl<T: Send + 'static> ThreadPool<T> {
    pub(super) fn start(
        name: &str,
        resources: Vec<T>,
        recover_after_panic: fn(&mut T) -> bool,
    ) -> Result<Self, StoreError> {
        let (jobs, job_receiver) = channel::<ThreadJob<T>>();
        let waiting = Arc::new(Mutex::new(job_receiver));
        let mut handles = Vec::with_capacity(resources.len());
        let tools: Vec<_> = resources.into_iter().map(|tool| Arc::new(Mutex::new(tool))).collect();
        let first = tools
            .first()
            .map(Arc::clone)
            .ok_or_else(|| StoreError::Unavailable("a thread pool needs at least one thread".to_owned()))?;
        for tool in tools {
            let waiting = Arc::clone(&waiting);
            let work = move || {
                while let Some(job) = next_job(&waiting) {
                    job(&mut tool.lock().unwrap_or_else(PoisonError::into_inner));
                }
            };
            let handle = std::thread::Builder::new().name(format!("onceward-{name}")).spawn(work);
            handles.push(handle.map_err(|error| StoreError::Unavailable(error.to_string()))?);
        }
        Ok(Self { jobs: Some(jobs), handles, first_resource: first, recover_after_panic })
    }

    /// Runs a job on the current thread, if the resource is free and `is_usable` accepts it. Otherwise returns the job.
    pub(super) fn try_inline<R, J: FnOnce(&mut T) -> Result<R, StoreError>>(
        &self,
        is_usable: impl FnOnce(&T) -> bool,
        job: J,
    ) -> Result<Result<R, StoreError>, J> {
        match self.first_resource.try_lock() {
            Ok(mut tool) if is_usable(&tool) => Ok(run_guarded(&mut *tool, self.recover_after_panic, job)),
            _ => Err(job),
        }
    }

    pub(super) async fn run<R: Send + 'static>(
        &self,
        job: impl FnOnce(&mut T) -> Result<R, StoreError> + Send + 'static,
    ) -> Result<R, StoreError> {
        let thread_ended = || StoreError::Unavailable("the store's thread has ended".to_owned());
        let (reply_sender, reply_receiver) = oneshot::channel();
        let recover = self.recover_after_panic;
        let job: ThreadJob<T> = Box::new(move |tool| {
            // A panic fails only this job. The thread and its resource remain usable.
            let result = run_guarded(tool, recover, job);
            // If the caller was cancelled, the job's changes remain.
            let _ = reply_sender.send(result);
        });
        self.jobs.as_ref().ok_or_else(thread_ended)?.send(job).map_err(|_| thread_ended())?;
        reply_receiver.await.map_err(|_| thread_ended())?
    }
}

fn run_guarded<T, R>(
    resource: &mut T,
    recover_after_panic: fn(&mut T) -> bool,
    job: impl FnOnce(&mut T) -> Result<R, StoreError>,
) -> Result<R, StoreError> {
    catch_unwind(AssertUnwindSafe(|| job(resource))).unwrap_or_else(|panic| {
        Err(if recover_after_panic(resource) {
            StoreError::Panicked
        } else {
            StoreError::Unavailable(format!("the store panicked: {}", panic_message(&*panic)))
        })
    })
}

/// Returns the message of a panic.
fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

fn next_job<T>(job_receiver: &Mutex<Receiver<ThreadJob<T>>>) -> Option<ThreadJob<T>> {
    job_receiver.lock().unwrap_or_else(PoisonError::into_inner).recv().ok()
}

impl<T> Drop for ThreadPool<T> {
    /// Waits for queued jobs, so that the file is closed when the store is dropped.
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
    fn runtime_threads_leave_one_core_for_writer() {
        assert_eq!([1, 2, 3, 16].map(runtime_threads_beside_writer), [1, 1, 2, 15]);
    }

    /// Covers a panic in both cases.
    #[test]
    fn job_runs_inline_only_while_resource_is_free() {
        let recover = |tool: &mut u32| {
            *tool = 100;
            false
        };
        let pool = ThreadPool::start("test", vec![0_u32], recover).expect("a thread");
        let caller = std::thread::current().id();
        let job = |tool: &mut u32| {
            *tool += 1;
            Ok((*tool, std::thread::current().id()))
        };
        assert!(pool.try_inline(|tool| *tool > 0, job).is_err(), "`is_usable` rejects the resource");
        let result =
            pool.try_inline(|tool| *tool == 0, job).unwrap_or_else(|_| panic!("the resource is free")).expect("a job");
        assert_eq!(result, (1, caller));
        let guard = pool.first_resource.lock().expect("the resource is free again");
        assert!(pool.try_inline(|_| true, job).is_err(), "the resource is in use");
        drop(guard);
        let panicking_job = |_: &mut u32| -> Result<(), StoreError> { panic!("for the test") };
        let panic_result = pool.try_inline(|_| true, panicking_job).unwrap_or_else(|_| panic!("the resource is free"));
        assert!(matches!(panic_result, Err(StoreError::Unavailable(why)) if why.contains("for the test")));
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
        let (count, thread) = runtime.block_on(pool.run(job)).expect("the thread survives the panic");
        assert_eq!(count, 101, "the resource was recovered after the panic");
        assert_ne!(thread, caller);
    }
}
