//! The listener: connections bounded in number and in time, and an orderly end.

use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use onceward_engine::Engine;
use onceward_store::AnyStore;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, TryAcquireError};
use tokio::time::timeout;

use crate::app::App;
use crate::door::Door;
use crate::openapi;
use crate::part::Part;
use crate::router::around;
use crate::settings::Settings;

/// Before the next try where the machine cannot take a connection: most often it has no more file handles.
const BREATHE: Duration = Duration::from_millis(50);

/// For one more than there is room for. Written without waiting: whoever cannot even take this goes without.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\nretry-after: 1\r\n\
connection: close\r\ncontent-length: 187\r\n\r\n\
{\"type\":\"/errors/too_many_connections\",\"title\":\"too many connections\",\"status\":503,\
\"code\":\"too_many_connections\",\"detail\":\"as many connections are open as may be\",\"retry_after_ms\":1000}";

/// Serve an engine, and the parts that systems add, until `stop` comes. Then what is under way is finished, whoever waits for work
/// is told that there is none, streams end, and the engine is closed.
pub async fn serve(
    listener: TcpListener,
    engine: Engine<AnyStore>,
    settings: Settings,
    parts: Vec<Part>,
    stop: impl Future<Output = ()>,
) -> io::Result<()> {
    let settings = Settings { loopback: listener.local_addr()?.ip().is_loopback(), ..settings };
    // Once here, so that keys that clash are found before anybody is let in (INV-8).
    let asked_for = engine.keys().are_asked_for().await.map_err(io::Error::other)?;
    if !asked_for && !settings.loopback {
        return Err(io::Error::other("there are no keys, and others than this machine could come: make one first"));
    }
    let unhurried = parts.iter().flat_map(|part| part.unhurried.iter().copied()).collect();
    let bytes = parts.iter().flat_map(|part| part.bytes.iter().copied()).collect();
    let (routes, api) = openapi::with(parts);
    let app = App::new(engine, settings, openapi::text(&api), unhurried, bytes);
    let places = Arc::new(Semaphore::new(app.settings().connections.min(Semaphore::MAX_PERMITS)));
    let house =
        House { door: Door { router: around(routes, app.clone()), app: app.clone() }, places: Arc::clone(&places) };
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            connection = listener.accept() => house.welcome(connection).await,
            () = &mut stop => break,
        }
    }
    tracing::info!("stopping: what is under way is finished");
    app.gate().leave();
    // Leases that wait look up, and see that nobody hands out work any more.
    app.engine().wake();
    let drained = timeout(app.settings().drain_time, async {
        // Whoever comes meanwhile is told that the server is leaving, which a closed port could not say; and a worker can still report.
        let mut quiet = pin!(app.gate().quiet());
        loop {
            tokio::select! {
                connection = listener.accept() => house.welcome(connection).await,
                () = &mut quiet => break,
            }
        }
        drop(listener);
        let all = u32::try_from(app.settings().connections.min(Semaphore::MAX_PERMITS)).unwrap_or(u32::MAX);
        let _ = places.acquire_many(all).await;
    });
    if drained.await.is_err() {
        tracing::warn!("not everything came to an end in time");
    }
    app.engine().close().await;
    Ok(())
}

/// Where connections are taken in.
struct House {
    door: Door,
    places: Arc<Semaphore>,
}

impl House {
    async fn welcome(&self, connection: io::Result<(TcpStream, std::net::SocketAddr)>) {
        let stream = match connection {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("a connection could not be taken: {error}");
                tokio::time::sleep(BREATHE).await;
                return;
            }
        };
        match Arc::clone(&self.places).try_acquire_owned() {
            Ok(place) => {
                // An answer is one write, and nobody should wait for its acknowledgement.
                let _ = stream.set_nodelay(true);
                tokio::spawn(talk(self.door.clone(), stream, place));
            }
            Err(TryAcquireError::NoPermits | TryAcquireError::Closed) => {
                let _ = stream.try_write(FULL);
            }
        }
    }
}

/// One connection, from its first request to its last.
async fn talk(door: Door, stream: TcpStream, _place: OwnedSemaphorePermit) {
    let app = door.app.clone();
    let settings = app.settings();
    let _connected = app.gate().connect();
    let mut connection = pin!(
        http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(settings.head_time)
            .max_buf_size(settings.head_bytes.max(8 << 10))
            .serve_connection(TokioIo::new(stream), door)
    );
    // One that comes when the server is leaving has its answer first: it is the last, and says so.
    let is_late = app.gate().is_leaving();
    let enough = async {
        if is_late {
            app.gate().quiet().await;
        } else {
            app.gate().left().await;
        }
    };
    tokio::select! {
        // A client that breaks off or talks nonsense is its own affair.
        _ = connection.as_mut() => return,
        () = enough => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}
