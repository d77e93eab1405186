//! The background tasks of an engine. Each is supervised: if one ends while the engine is open, its duty is not done any
//! more, so the engine reports its name and the program should exit.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt as _;
use onceward_store::Store;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tracing::error;

use crate::in_process_worker::WorkerHandle;
use crate::retention::prune;
use crate::shared::Shared;
use crate::submission::queue::IncomingOperations;
use crate::{clock_watch, group_commit, inbox, notifier, scheduler, worker_registry};

/// Dropping it aborts the tasks.
#[derive(Debug, Default)]
pub(crate) struct BackgroundTasks {
    engine_tasks: Mutex<Vec<JoinHandle<()>>>,
    pub(crate) workers: Mutex<Vec<WorkerHandle>>,
}

impl BackgroundTasks {
    /// Starts the engine's own tasks.
    pub(crate) fn start<S: Store + 'static>(shared: &Arc<Shared<S>>, incoming: IncomingOperations) -> Self {
        let tasks = Self::default();
        tasks.spawn(shared, "group_commit", group_commit::run(Arc::clone(shared), incoming));
        tasks.spawn(shared, "scheduler", scheduler::run(Arc::clone(shared)));
        tasks.spawn(shared, "retention", prune::run(Arc::clone(shared)));
        tasks.spawn(shared, "worker_registry", worker_registry::run(Arc::clone(shared)));
        tasks.spawn(shared, "notifier", notifier::run(Arc::clone(shared)));
        tasks.spawn(shared, "clock_watch", clock_watch::run(Arc::clone(shared)));
        if let Some(changes) = shared.store.change_notifications() {
            let forward = notifier::forward_remote_changes(Arc::clone(shared), changes.clone());
            tasks.spawn(shared, "remote_changes", forward);
            tasks.spawn(shared, "inbox", inbox::run(Arc::clone(shared), changes));
        }
        tasks
    }

    /// Spawns a task that runs until the engine closes.
    pub(crate) fn spawn<S: Store + 'static>(
        &self,
        shared: &Arc<Shared<S>>,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let engine = Arc::clone(shared);
        let handle = spawn_supervised(shared, name.into(), async move {
            task.await;
            if !engine.queue.is_closed() {
                engine.dead_task.report(name.into());
            }
        });
        self.engine_tasks.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
    }

    /// Aborts the engine's own tasks and waits for them, so that they release the store.
    pub(crate) async fn abort_and_wait(&self) {
        for task in drain_handles(&self.engine_tasks) {
            task.abort();
            let _ = task.await;
        }
    }
}

impl Drop for BackgroundTasks {
    fn drop(&mut self) {
        drain_handles(&self.workers).iter().for_each(WorkerHandle::abort);
        drain_handles(&self.engine_tasks).iter().for_each(JoinHandle::abort);
    }
}

pub(crate) fn drain_handles<T>(handles: &Mutex<Vec<T>>) -> Vec<T> {
    std::mem::take(&mut handles.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Spawns a task that may end, but not by a panic.
pub(crate) fn spawn_supervised<S: Store + 'static>(
    shared: &Arc<Shared<S>>,
    name: Arc<str>,
    task: impl Future<Output = ()> + Send + 'static,
) -> JoinHandle<()> {
    let shared = Arc::clone(shared);
    tokio::spawn(async move {
        let outcome = AssertUnwindSafe(task).catch_unwind().await;
        if outcome.is_err() {
            shared.dead_task.report(name);
        }
    })
}

/// The first task that ended although the engine was open.
#[derive(Debug, Default)]
pub(crate) struct DeadTask(watch::Sender<Option<Arc<str>>>);

impl DeadTask {
    fn report(&self, name: Arc<str>) {
        error!(task = %name, "an engine task ended unexpectedly; the process must be restarted");
        self.0.send_if_modified(|dead| {
            let is_first = dead.is_none();
            if is_first {
                *dead = Some(name);
            }
            is_first
        });
    }

    pub(crate) fn name(&self) -> Option<Arc<str>> {
        self.0.borrow().clone()
    }

    /// Waits until a task has died.
    pub(crate) async fn wait(&self) -> Arc<str> {
        let mut dead = self.0.subscribe();
        loop {
            if let Some(name) = dead.borrow_and_update().clone() {
                return name;
            }
            // The sender lives as long as `self`.
            let _ = dead.changed().await;
        }
    }
}
