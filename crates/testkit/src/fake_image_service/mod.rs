//! A fake image service that speaks OpenAI's protocol for images and moderation over real HTTP.
//!
//! It responds with success, unless a test scripts a failure of a real service:
//!
//! ```
//! use onceward_testkit::fake_image_service::{FakeImageService, FakeResponse, RequestKind, TestGate};
//!
//! let service = FakeImageService::start();
//! // The next request fails, the one after it succeeds.
//! service.respond_next(RequestKind::Generation, FakeResponse::error_status(429).header("Retry-After", "7"));
//! // From now on the response is a URL, and the download stalls in the middle until the gate opens.
//! let gate = TestGate::new();
//! service.respond_always(RequestKind::Generation, FakeResponse::ImageUrl);
//! service.respond_next(RequestKind::Download, FakeResponse::StallMidBody(gate.clone()));
//! # let _ = (service.url(), service.received());
//! # gate.open();
//! ```
//!
//! It runs on plain threads, so it also serves a process that a test starts and kills. Waiting on a [`TestGate`] blocks
//! the thread; on a single-threaded runtime, wait in `spawn_blocking`.

mod connection;
mod gate;
mod png;
mod response;

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use serde_json::Value;

pub use gate::TestGate;
pub use png::gray_noise_png;
pub use response::FakeResponse;

/// The kind of a request, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestKind {
    /// `POST /v1/images/generations`
    Generation,
    /// `GET /pictures/…`
    Download,
    /// `POST /v1/moderations`
    Moderation,
}

/// A request that the service received.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceivedRequest {
    pub kind: RequestKind,
    pub path: String,
    /// By lower-case name.
    pub headers: BTreeMap<String, String>,
    /// Null if there was none.
    pub body: Value,
}

/// The service. Dropping it stops it.
#[derive(Debug)]
pub struct FakeImageService {
    address: SocketAddr,
    shared: Arc<FakeServiceShared>,
}

#[derive(Debug, Default)]
struct FakeServiceShared {
    script: Mutex<ResponseScript>,
    stopped: AtomicBool,
    /// Opens when the service stops, to release requests that never got a response.
    shutdown: TestGate,
}

#[derive(Debug, Default)]
struct ResponseScript {
    next: BTreeMap<RequestKind, VecDeque<FakeResponse>>,
    always: BTreeMap<RequestKind, FakeResponse>,
    received: Vec<ReceivedRequest>,
}

impl FakeImageService {
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("a bound address");
        let shared = Arc::new(FakeServiceShared::default());
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if serving.stopped.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&serving);
                // A client that disconnects must not fail the test.
                thread::spawn(move || connection::serve_connection(&stream, address, &shared).ok());
            }
        });
        Self { address, shared }
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Sets the response for the next request of this kind that has none yet.
    pub fn respond_next(&self, kind: RequestKind, response: impl Into<FakeResponse>) {
        self.shared.lock_script().next.entry(kind).or_default().push_back(response.into());
    }

    /// Sets the response for all requests of this kind without a `respond_next`.
    pub fn respond_always(&self, kind: RequestKind, response: impl Into<FakeResponse>) {
        self.shared.lock_script().always.insert(kind, response.into());
    }

    /// Returns all requests so far, in order.
    pub fn received(&self) -> Vec<ReceivedRequest> {
        self.shared.lock_script().received.clone()
    }

    /// Returns the image of every generation, whatever the prompt.
    pub fn image_bytes() -> Vec<u8> {
        gray_noise_png(64)
    }
}

impl FakeServiceShared {
    fn lock_script(&self) -> MutexGuard<'_, ResponseScript> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take_response(&self, request: ReceivedRequest) -> FakeResponse {
        let mut script = self.lock_script();
        let kind = request.kind;
        script.received.push(request);
        let next = script.next.get_mut(&kind).and_then(VecDeque::pop_front);
        next.or_else(|| script.always.get(&kind).cloned()).unwrap_or(FakeResponse::Success)
    }
}

impl Drop for FakeImageService {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        self.shared.shutdown.open();
        // Wakes the listener so that it sees `stopped`.
        let _ = TcpStream::connect(self.address);
    }
}
