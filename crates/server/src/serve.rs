//! The HTTP listener: accepts connections within limits and shuts down gracefully.

use std::io;
use std::pin::pin;

use onceward_engine::Engine;
use onceward_store::AnyStore;
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::acceptor::Acceptor;
use crate::app::AppState;
use crate::config::ServerConfig;
use crate::openapi;
use crate::request_service::RequestService;
use crate::router::with_middleware;
use crate::system_routes::SystemRoutes;

/// The engine has the last 1/6 of the drain time for itself, so that slow clients cannot prevent it from returning
/// its leased jobs.
const ENGINE_DRAIN_DIVISOR: u32 = 6;

/// Serves the engine and the routes of the systems until `stop` completes, then drains. During the drain, in-flight
/// requests finish, long polls return no jobs, streams end and the engine closes. If that takes longer than
/// `drain_timeout`, returns an error of kind [`TimedOut`](io::ErrorKind::TimedOut). If a task of the engine dies, drains
/// too and returns an error.
///
/// Accepts, drains and answers health checks on the caller's runtime, and serves the other connections on the engine's.
/// If these are different runtimes, a save that blocks the engine's threads delays none of this.
pub async fn serve(
    listener: TcpListener,
    engine: Engine<AnyStore>,
    config: ServerConfig,
    systems: Vec<SystemRoutes>,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let config = ServerConfig { is_loopback: listener.local_addr()?.ip().is_loopback(), ..config };
    // Loads the API keys before the first request is accepted, so that inconsistent keys fail the start (INV-8).
    let mut startup_check = JoinSet::new();
    let runtime = engine.runtime().clone();
    let checked_engine = engine.internal_handle();
    startup_check.spawn_on(async move { checked_engine.api_keys().is_auth_required().await }, &runtime);
    let auth_required = joined(startup_check).await?.map_err(io::Error::other)?;
    if !auth_required && !config.is_loopback {
        return Err(io::Error::other(
            "the server has no API keys and its address can be reached from other machines; create an API key with `onceward key create`",
        ));
    }
    let self_timed_paths = systems.iter().flat_map(|system| system.self_timed_paths.iter().copied()).collect();
    let binary_paths = systems.iter().flat_map(|system| system.binary_paths.iter().copied()).collect();
    let (routes, api) = openapi::build_routes(systems);
    let app = AppState::new(engine, config, openapi::to_json_text(&api), self_timed_paths, binary_paths);
    let service = RequestService::new(app.clone(), with_middleware(routes, app.clone()));
    let acceptor = Acceptor::new(service);
    // Detects revoked API keys, so that long polls and streams end with their key. Dropping the set stops the task.
    let mut key_watcher = JoinSet::new();
    let key_watcher_app = app.clone();
    key_watcher.spawn_on(async move { key_watcher_app.engine().api_keys().watch_changes().await }, &runtime);
    let mut stop = pin!(stop);
    let dead_task = loop {
        tokio::select! {
            connection = listener.accept() => acceptor.handle(connection, &listener).await,
            () = &mut stop => break None,
            dead_task = app.engine().wait_dead_task() => break Some(dead_task),
            _ = key_watcher.join_next() => {
                tracing::error!(task = KEY_WATCHER_NAME, "a server task ended unexpectedly; the process must be restarted");
                break Some(KEY_WATCHER_NAME.into());
            }
        }
    };
    tracing::info!("server is draining");
    let (drain_started_at, drain_timeout) = (Instant::now(), app.config().drain_timeout);
    // Stops leasing, for in-process workers and for HTTP callers.
    app.engine().begin_shutdown();
    app.capacity().begin_drain();
    // Waiting lease calls wake up, see the shutdown and return.
    app.engine().wake_all();
    let drained =
        timeout_at(drain_started_at + drain_timeout / ENGINE_DRAIN_DIVISOR * (ENGINE_DRAIN_DIVISOR - 1), async {
            // Keep accepting during the drain: new callers get a 503 that says why, and workers can still report.
            let mut idle = pin!(app.capacity().wait_idle());
            loop {
                tokio::select! {
                    connection = listener.accept() => acceptor.handle(connection, &listener).await,
                    () = &mut idle => break,
                }
            }
            drop(listener);
            acceptor.wait_closed().await;
        });
    let is_drained = drained.await.is_ok();
    // The engine's threads may be blocked, or the database unresponsive. That must not block the shutdown forever.
    let _ = timeout_at(drain_started_at + drain_timeout, key_watcher.shutdown()).await;
    let is_closed = timeout_at(drain_started_at + drain_timeout, app.engine().close()).await.is_ok();
    let unfinished = match (is_drained, is_closed) {
        (true, true) => return dead_task.map_or(Ok(()), |task| Err(dead_task_error(&task))),
        (false, true) => "requests did not finish within the drain timeout",
        (true, false) => "the engine did not close within the drain timeout",
        (false, false) => "requests did not finish and the engine did not close within the drain timeout",
    };
    tracing::error!(reason = unfinished, "drain timed out; the server drops unfinished requests");
    Err(io::Error::new(io::ErrorKind::TimedOut, unfinished))
}

/// Name of the task that ends long calls when their API key is revoked.
const KEY_WATCHER_NAME: &str = "api_key_watcher";

fn dead_task_error(task: &str) -> io::Error {
    io::Error::other(format!("the task `{task}` ended unexpectedly"))
}

/// Returns the result of the only task of a set.
async fn joined<T: 'static>(mut task: JoinSet<T>) -> io::Result<T> {
    let ended = task.join_next().await.ok_or_else(|| io::Error::other("the runtime has ended"))?;
    ended.map_err(io::Error::other)
}
