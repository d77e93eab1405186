//! The listener: connections bounded in number and in time, and an orderly end.

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

use crate::app::App;
use crate::door::Door;
use crate::gate::Connected;
use crate::openapi;
use crate::own_turn::OwnTurn;
use crate::part::Part;
use crate::patient::Patient;
use crate::problem::Problem;
use crate::router::around;
use crate::settings::Settings;

/// Before the next try where the machine cannot take a connection: most often it has no more file handles.
const BREATHE: Duration = Duration::from_millis(50);

/// How long one who was told why is given to read it.
const LINGER: Duration = Duration::from_secs(1);

/// Connections for which there is no room, and which are told so at the same time; others are closed without a word.
const TURNED_AWAY: usize = 64;

/// Of the time that a drain may take, the last part of this many is the engine's own: a client that is slow to the end must not cost
/// the jobs that are to be given back.
const FOR_THE_ENGINE: u32 = 6;

/// Serve an engine, and the parts that systems add, until `stop` comes. Then what is under way is finished, whoever waits for work
/// is told that there is none, streams end, and the engine is closed. All of that has its time: what is not done by then is given
/// up, and told as an error of the kind [`TimedOut`](io::ErrorKind::TimedOut).
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
    let door = Door { router: around(routes, app.clone()), app: app.clone(), heard: Arc::default() };
    let turned_away = Arc::new(Semaphore::new(TURNED_AWAY));
    let house = House { door, places: Arc::clone(&places), turned_away };
    // For calls that go on: they end with their key. Dropped, it ends.
    let mut watching = JoinSet::new();
    let watched = app.clone();
    watching.spawn(async move { watched.engine().keys().watch().await });
    let mut stop = pin!(stop);
    loop {
        tokio::select! {
            connection = listener.accept() => house.welcome(connection).await,
            () = &mut stop => break,
        }
    }
    tracing::info!("stopping: what is under way is finished");
    let (began, whole) = (Instant::now(), app.settings().drain_time);
    // No more leases: neither for workers inside the process, nor for others.
    app.engine().leave();
    app.gate().leave();
    // Leases that wait look up, and see that nobody hands out work any more.
    app.engine().wake();
    let drained = timeout_at(began + whole / FOR_THE_ENGINE * (FOR_THE_ENGINE - 1), async {
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
    let are_answered = drained.await.is_ok();
    watching.shutdown().await;
    // A database that does not answer would be waited for without end.
    let is_closed = timeout_at(began + whole, app.engine().close()).await.is_ok();
    let given_up = match (are_answered, is_closed) {
        (true, true) => return Ok(()),
        (false, true) => "not every request came to an end in time",
        (true, false) => "the engine did not come to an end in time",
        (false, false) => "neither every request nor the engine came to an end in time",
    };
    tracing::error!("{given_up}: the rest is given up; what was answered is kept");
    Err(io::Error::new(io::ErrorKind::TimedOut, given_up))
}

/// Where connections are taken in.
struct House {
    door: Door,
    places: Arc<Semaphore>,
    turned_away: Arc<Semaphore>,
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
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            // An answer is one write, and nobody should wait for its acknowledgement.
            let _ = stream.set_nodelay(true);
            // Counted here, and not when it has its first turn: who comes later and asks sees all who came before.
            let connected = self.door.app.gate().connect();
            tokio::spawn(talk(self.door.clone(), stream, place, connected));
        } else if let Ok(place) = Arc::clone(&self.turned_away).try_acquire_owned() {
            tokio::spawn(async move {
                let full = Problem::new(503, "too_many_connections", "as many connections are open as may be");
                farewell(stream, &full.last_words()).await;
                drop(place);
            });
        }
    }
}

/// One connection, from its first request to its last.
async fn talk(door: Door, stream: TcpStream, _place: OwnedSemaphorePermit, _connected: Connected) {
    let app = door.app.clone();
    let settings = app.settings();
    let heard = Arc::new(AtomicBool::new(false));
    let door = Door { heard: Arc::clone(&heard), ..door };
    let mut connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(settings.head_time)
        .max_buf_size(settings.head_bytes.max(8 << 10))
        .serve_connection(TokioIo::new(Patient::new(stream, settings.write_time, Arc::clone(&heard))), door);
    // One that comes when the server is leaving has its answer first: it is the last, and says so.
    let is_late = app.gate().is_leaving();
    let enough = async {
        if is_late {
            app.gate().quiet().await;
        } else {
            app.gate().left().await;
        }
    };
    // A client that breaks off or talks nonsense is its own affair.
    let ended = tokio::select! {
        ended = OwnTurn::new(poll_fn(|cx| connection.poll_without_shutdown(cx))) => Some(ended),
        () = enough => None,
    };
    let ended = if let Some(ended) = ended {
        ended
    } else {
        Pin::new(&mut connection).graceful_shutdown();
        poll_fn(|cx| connection.poll_without_shutdown(cx)).await
    };
    let rest = connection.into_parts();
    let stream = rest.io.into_inner();
    // From here on we speak for ourselves.
    let was_heard = heard.swap(true, Ordering::Relaxed);
    match ended {
        // Whoever has begun a request is told; whoever only kept the connection open knows.
        Err(error) if error.is_timeout() && !rest.read_buf.is_empty() => {
            let slow = Problem::new(408, "slow_head", "the request's line and headers did not come in time");
            farewell(stream, &slow.last_words()).await;
        }
        Err(error) if error.is_parse() && !was_heard => {
            let wrong = if error.is_parse_too_large() {
                let most = settings.head_bytes;
                let detail = format!(
                    "a request's line has at most {most} bytes, and its headers, 100 at most, have twice as many"
                );
                Problem::new(431, "head_too_large", detail).with("most", most)
            } else {
                Problem::new(400, "bad_head", "this is no request of HTTP/1.1 that can be read")
            };
            farewell(stream, &wrong.last_words()).await;
        }
        _ if app.gate().is_leaving() => {}
        _ => farewell(stream, &[]).await,
    }
}

/// Say the last words on a connection, and give the other side a moment to read them and hang up: to close it with something unread in it
/// would take back what is on its way.
async fn farewell(mut stream: impl AsyncRead + AsyncWrite + Unpin, words: &[u8]) {
    let parting = async {
        stream.write_all(words).await?;
        stream.shutdown().await?;
        let mut unread = [0; 4 << 10];
        while stream.read(&mut unread).await? > 0 {}
        io::Result::Ok(())
    };
    let _ = timeout(LINGER, parting).await;
}
