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
//! It stands on plain threads, so it also serves a program that a test starts and kills. Waiting on a [`Gate`] blocks its
//! thread: on a runtime of one thread, wait in `spawn_blocking`.

mod answer;
mod gate;
mod png;
mod talk;

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use serde_json::Value;

pub use answer::Answer;
pub use gate::Gate;
pub use png::png;

/// What a request asks for, by its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asked {
    /// `POST /v1/images/generations`
    Drawing,
    /// `GET /pictures/…`
    Download,
    /// `POST /v1/moderations`
    Moderation,
}

/// A request that came in.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    pub asked: Asked,
    pub path: String,
    /// By their names in small letters.
    pub headers: BTreeMap<String, String>,
    /// Null, where there was none.
    pub body: Value,
}

/// The service. It ends when it is dropped.
#[derive(Debug)]
pub struct Pictures {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    told: Mutex<Told>,
    stopped: AtomicBool,
    /// Opens when the service ends: whoever was never answered may go.
    end: Gate,
}

#[derive(Debug, Default)]
struct Told {
    next: BTreeMap<Asked, VecDeque<Answer>>,
    always: BTreeMap<Asked, Answer>,
    heard: Vec<Heard>,
}

impl Pictures {
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let address = listener.local_addr().expect("an address");
        let shared = Arc::new(Shared::default());
        let serving = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if serving.stopped.load(Ordering::SeqCst) {
                    return;
                }
                let shared = Arc::clone(&serving);
                // A client that goes away is no fault of the test's.
                thread::spawn(move || talk::serve(&stream, address, &shared).ok());
            }
        });
        Self { address, shared }
    }

    /// `http://127.0.0.1:PORT`
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How the next request of this kind is answered that has no answer yet.
    pub fn next(&self, asked: Asked, answer: impl Into<Answer>) {
        self.shared.told().next.entry(asked).or_default().push_back(answer.into());
    }

    /// How all requests of this kind are answered for which there is no `next`.
    pub fn always(&self, asked: Asked, answer: impl Into<Answer>) {
        self.shared.told().always.insert(asked, answer.into());
    }

    /// All requests so far, in order.
    pub fn heard(&self) -> Vec<Heard> {
        self.shared.told().heard.clone()
    }

    /// The picture that it draws, whatever the prompt.
    pub fn picture() -> Vec<u8> {
        png(64)
    }
}

impl Shared {
    fn told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answer(&self, heard: Heard) -> Answer {
        let mut told = self.told();
        let asked = heard.asked;
        told.heard.push(heard);
        let next = told.next.get_mut(&asked).and_then(VecDeque::pop_front);
        next.or_else(|| told.always.get(&asked).cloned()).unwrap_or(Answer::Well)
    }
}

impl Drop for Pictures {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::SeqCst);
        self.shared.end.open();
        // Wakes the listener, which sees that it is over.
        let _ = TcpStream::connect(self.address);
    }
}
