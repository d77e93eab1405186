//! A service that draws, for tests: OpenAI's protocol for images and moderation, over real HTTP on a port of its own.
//!
//! It answers well until it is told otherwise, and then as badly as real services do:
//!
//! ```
//! use onceward_testkit::pictures::{Answer, Asked, Pictures};
//!
//! let service = Pictures::start();
//! // The next order is sent away, the one after it gets a picture.
//! service.next(Asked::Drawing, Answer::refusal(429).header("Retry-After", "7"));
//! // From now on the answer is an address, and the download stalls half way until the gate opens.
//! let gate = onceward_testkit::pictures::Gate::new();
//! service.always(Asked::Drawing, Answer::Link);
//! service.next(Asked::Download, Answer::Stall(gate.clone()));
//! # let _ = (service.url(), service.heard());
//! # gate.open();
//! ```
//!
//! It stands on plain threads, so it also serves a program that a test starts and kills. Waiting on a [`TestGate`] blocks its
//! thread: on a runtime of one thread, wait in `spawn_blocking`.

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

/// What a request asks for, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestKind {
    /// `POST /v1/images/generations`
    Generation,
    /// `GET /pictures/…`
    Download,
    /// `POST /v1/moderations`
    Moderation,
}

/// A request that came in.
#[derive(Clone, Debug, PartialEq)]
pub struct ReceivedRequest {
    pub kind: RequestKind,
    pub path: String,
    /// By their names in small letters.
    pub headers: BTreeMap<String, String>,
    /// Null, where there was none.
    pub body: Value,
}

/// The service. It ends when it is dropped.
#[derive(Debug)]
pub struct FakeImageService {
    address: SocketAddr,
    shared: Arc<FakeServiceShared>,
}

#[derive(Debug, Default)]
struct FakeServiceShared {
    script: Mutex<ResponseScript>,
    stopped: AtomicBool,
    /// Opens when the service ends: whoever was never answered may go.
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
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(FakeServiceShared::default());
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if serving.stopped.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&serving);
                // A client that goes away is no fault of the test's.
                thread::spawn(move || connection::serve_connection(&stream, address, &shared).ok());
            }
        });
        Self { address, shared }
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How the next request of this kind is answered that has no answer yet.
    pub fn respond_next(&self, kind: RequestKind, response: impl Into<FakeResponse>) {
        self.shared.lock_script().next.entry(kind).or_default().push_back(response.into());
    }

    /// How all requests of this kind are answered for which there is no `next`.
    pub fn respond_always(&self, kind: RequestKind, response: impl Into<FakeResponse>) {
        self.shared.lock_script().always.insert(kind, response.into());
    }

    /// All requests so far, in order.
    pub fn received(&self) -> Vec<ReceivedRequest> {
        self.shared.lock_script().received.clone()
    }

    /// The picture that it draws, whatever the prompt.
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
        // Wakes the listener, which sees that it is over.
        let _ = TcpStream::connect(self.address);
    }
}
