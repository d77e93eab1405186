//! The HTTP listener: accepts connections within limits and shuts down gracefully.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use onceward_engine::Engine;
use onceward_store::AnyStore;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use crate::app::AppState;
use crate::capacity::ConnectionGuard;
use crate::config::ServerConfig;
use crate::openapi;
use crate::problem::Problem;
use crate::repoll::RepollOnSelfWake;
use crate::request_service::RequestService;
use crate::router::with_middleware;
use crate::system_routes::SystemRoutes;
use crate::write_timeout::WriteTimeoutStream;

/// Delay after a failed `accept`. The usual cause is a lack of file descriptors, which needs time to pass.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Time for the client to read the last response before the server closes the connection.
const CLOSE_LINGER: Duration = Duration::from_secs(1);

/// Connections over the limit that get a 503 response at the same time. The server closes further ones without a
/// response.
const MAX_REJECTED_CONNECTIONS: usize = 64;

/// The engine has the last 1/6 of the drain time for itself, so that slow clients cannot prevent it from returning
/// its leased jobs.
const ENGINE_DRAIN_DIVISOR: u32 = 6;

/// Serves the engine and the routes of the systems until `stop` completes, then drains. During the drain, in-flight
/// requests finish, long polls return no jobs, streams end and the engine closes. If that takes longer than
/// `drain_timeout`, returns an error of kind [`TimedOut`](io::ErrorKind::TimedOut).
pub async fn serve(
    listener: TcpListener,
    engine: Engine<AnyStore>,
    config: ServerConfig,
    systems: Vec<SystemRoutes>,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let config = ServerConfig { is_loopback: listener.local_addr()?.ip().is_loopback(), ..config };
    // Loads the API keys before the first request is accepted, so that inconsistent keys fail the start (INV-8).
    let auth_required = engine.api_keys().is_auth_required().await.map_err(io::Error::other)?;
    if !auth_required && !config.is_loopback {
        return Err(io::Error::other(
            "the server has no API keys and its address can be reached from other machines; create an API key with `onceward key create`",
        ));
    }
    let self_timed_paths = systems.iter().flat_map(|system| system.self_timed_paths.iter().copied()).collect();
    let binary_paths = systems.iter().flat_map(|system| system.binary_paths.iter().copied()).collect();
    let (routes, api) = openapi::build_routes(systems);
    let app = AppState::new(engine, config, openapi::to_json_text(&api), self_timed_paths, binary_paths);
    let connection_permits = Arc::new(Semaphore::new(app.config().max_connections.min(Semaphore::MAX_PERMITS)));
    let service =
        RequestService { router: with_middleware(routes, app.clone()), app: app.clone(), saw_request: Arc::default() };
    let rejection_permits = Arc::new(Semaphore::new(MAX_REJECTED_CONNECTIONS));
    let acceptor = Acceptor { service, connection_permits: Arc::clone(&connection_permits), rejection_permits };
    // Detects revoked API keys, so that long polls and streams end with their key. Dropping the set stops the task.
    let mut key_watcher = JoinSet::new();
    let key_watcher_app = app.clone();
    key_watcher.spawn(async move { key_watcher_app.engine().api_keys().watch_changes().await });
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            connection = listener.accept() => acceptor.accept(connection).await,
            () = &mut stop => break,
        }
    }
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
                    connection = listener.accept() => acceptor.accept(connection).await,
                    () = &mut idle => break,
                }
            }
            drop(listener);
            let all = u32::try_from(app.config().max_connections.min(Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
            let _ = connection_permits.acquire_many(all).await;
        });
    let is_drained = drained.await.is_ok();
    key_watcher.shutdown().await;
    // Without a timeout, an unresponsive database would block the shutdown forever.
    let is_closed = timeout_at(drain_started_at + drain_timeout, app.engine().close()).await.is_ok();
    let unfinished = match (is_drained, is_closed) {
        (true, true) => return Ok(()),
        (false, true) => "requests did not finish within the drain timeout",
        (true, false) => "the engine did not close within the drain timeout",
        (false, false) => "requests did not finish and the engine did not close within the drain timeout",
    };
    tracing::error!(reason = unfinished, "drain timed out; the server drops unfinished requests");
    Err(io::Error::new(io::ErrorKind::TimedOut, unfinished))
}

/// Accepts connections within the limits.
struct Acceptor {
    service: RequestService,
    connection_permits: Arc<Semaphore>,
    rejection_permits: Arc<Semaphore>,
}

impl Acceptor {
    async fn accept(&self, connection: io::Result<(TcpStream, std::net::SocketAddr)>) {
        let stream = match connection {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "accepting a connection failed");
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
                return;
            }
        };
        if let Ok(permit) = Arc::clone(&self.connection_permits).try_acquire_owned() {
            // A response is one write; Nagle's algorithm would only delay it.
            let _ = stream.set_nodelay(true);
            // Count before spawning, so that a later request for metrics sees all earlier connections.
            let connection_guard = self.service.app.capacity().register_connection();
            tokio::spawn(serve_connection(self.service.clone(), stream, permit, connection_guard));
        } else if let Ok(permit) = Arc::clone(&self.rejection_permits).try_acquire_owned() {
            tokio::spawn(async move {
                let full = Problem::new(
                    503,
                    "too_many_connections",
                    "the server reached its limit of connections; retry later",
                );
                close_with_response(stream, &full.to_http_response()).await;
                drop(permit);
            });
        }
    }
}

/// Serves one connection until it closes.
async fn serve_connection(
    service: RequestService,
    stream: TcpStream,
    _permit: OwnedSemaphorePermit,
    _connection_guard: ConnectionGuard,
) {
    let app = service.app.clone();
    let config = app.config();
    let saw_request = Arc::new(AtomicBool::new(false));
    let service = RequestService { saw_request: Arc::clone(&saw_request), ..service };
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(config.head_timeout)
        .max_buf_size(config.max_head_bytes.max(8 << 10))
        .serve_connection(TokioIo::new(WriteTimeoutStream::new(stream, config, Arc::clone(&saw_request))), service);
    // A connection opened during the drain still gets one response, with `connection: close`.
    let opened_while_draining = app.capacity().is_draining();
    let shutdown = async {
        if opened_while_draining {
            app.capacity().wait_idle().await;
        } else {
            app.capacity().wait_drain().await;
        }
    };
    // Errors of the client need no logging.
    let ended = tokio::select! {
        ended = RepollOnSelfWake::new(poll_fn(|cx| connection.poll_without_shutdown(cx))) => Some(ended),
        () = shutdown => None,
    };
    let ended = if let Some(ended) = ended {
        ended
    } else {
        Pin::new(&mut connection).graceful_shutdown();
        poll_fn(|cx| connection.poll_without_shutdown(cx)).await
    };
    let rest = connection.into_parts();
    let stream = rest.io.into_inner();
    // Stop discarding writes: the server itself writes from here on.
    let had_request = saw_request.swap(true, Ordering::Relaxed);
    match ended {
        // If part of a request arrived, the client gets a response. An idle connection is closed without one.
        Err(error) if error.is_timeout() && !rest.read_buf.is_empty() => {
            let slow = Problem::new(408, "request_head_timeout", "the request line and headers did not arrive in time");
            close_with_response(stream, &slow.to_http_response()).await;
        }
        Err(error) if error.is_parse() && !had_request => {
            let problem = if error.is_parse_too_large() {
                let max_head_bytes = config.max_head_bytes;
                let detail = format!(
                    "the request head is too large: the request line may have {max_head_bytes} bytes, and up to 100 headers may have twice as many"
                );
                Problem::new(431, "request_head_too_large", detail).with_member("max_bytes", max_head_bytes)
            } else {
                Problem::new(400, "invalid_request_head", "the request head is not valid HTTP/1.1")
            };
            close_with_response(stream, &problem.to_http_response()).await;
        }
        _ if app.capacity().is_draining() => {}
        _ => close_with_response(stream, &[]).await,
    }
}

/// Writes the last response and gives the client time to read it. Closing a socket with unread input would reset
/// the connection, and the client could lose the response.
async fn close_with_response(mut stream: impl AsyncRead + AsyncWrite + Unpin, response: &[u8]) {
    let closing = async {
        stream.write_all(response).await?;
        stream.shutdown().await?;
        let mut unread = [0; 4 << 10];
        while stream.read(&mut unread).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = timeout(CLOSE_LINGER, closing).await;
}
