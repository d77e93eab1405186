//! What can be set.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::observe::Observe;

/// How a server behaves. The defaults suit one machine.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Bytes of one request's body.
    pub body_bytes: usize,
    /// Bytes of bodies that are being read at the same time, of all connections together.
    pub bodies_bytes: usize,
    /// Bytes of a request's line and headers.
    pub head_bytes: usize,
    /// Calls in one batch.
    pub batch: usize,
    /// Connections at the same time.
    pub connections: usize,
    /// Leases that wait for work at the same time.
    pub polls: usize,
    /// Streams of the log at the same time.
    pub streams: usize,
    /// How many in a hundred of the leases that wait, and of the streams, may be of one key.
    pub key_share: u8,
    /// How long a lease may wait for work.
    pub longest_wait: Duration,
    /// For a request's line and headers to come. A connection without a request is closed after it, too.
    pub head_time: Duration,
    /// For a request's body to come.
    pub body_time: Duration,
    /// For a client to take what is written to it.
    pub write_time: Duration,
    /// For a request to be answered, but for those that wait on purpose.
    pub request_time: Duration,
    /// For those under way to come to an end when the server is to stop.
    pub drain_time: Duration,
    /// A stream without news says that it is still there.
    pub keep_alive: Duration,
    /// Larger payloads do not come with a lease: they are fetched.
    pub inline_payload: u64,
    /// Whether it listens on loopback: then it is open to this machine as long as no key was ever made.
    pub loopback: bool,
    /// Requests a second of one key; 0 for no limit.
    pub requests_per_second: u32,
    /// Lifecycles that ship with the server and were left out, each with the reason: whoever asks for one is told it.
    pub left_out: BTreeMap<Arc<str>, String>,
    /// What watches; the engine's spans go to the same one.
    pub observe: Arc<Observe>,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            body_bytes: 16 << 20,
            bodies_bytes: 256 << 20,
            head_bytes: 64 << 10,
            batch: 1_000,
            connections: 10_000,
            polls: 10_000,
            streams: 1_000,
            key_share: 50,
            longest_wait: Duration::from_mins(5),
            head_time: Duration::from_secs(30),
            body_time: Duration::from_secs(30),
            write_time: Duration::from_secs(30),
            request_time: Duration::from_secs(30),
            drain_time: Duration::from_secs(30),
            keep_alive: Duration::from_secs(15),
            inline_payload: 64 << 10,
            loopback: false,
            requests_per_second: 5_000,
            left_out: BTreeMap::new(),
            observe: Observe::new(),
        }
    }
}
