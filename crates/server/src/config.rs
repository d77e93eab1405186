//! What can be set.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::telemetry::Telemetry;

/// How a server behaves. The defaults suit one machine.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Bytes of one request's body.
    pub max_body_bytes: usize,
    /// Bytes of bodies that are being read at the same time, of all connections together.
    pub max_total_body_bytes: usize,
    /// Bytes of a request's line and headers.
    pub max_head_bytes: usize,
    /// Calls in one batch.
    pub max_batch_items: usize,
    /// Connections at the same time.
    pub max_connections: usize,
    /// Leases that wait for work at the same time.
    pub max_long_polls: usize,
    /// Streams of the log at the same time.
    pub max_streams: usize,
    /// How many in a hundred of the leases that wait, and of the streams, may be of one key.
    pub api_key_share_percent: u8,
    /// How long a lease may wait for work.
    pub max_wait: Duration,
    /// For a request's line and headers to come. A connection without a request is closed after it, too.
    pub head_timeout: Duration,
    /// For a request's body to come.
    pub body_timeout: Duration,
    /// For a client to take what is written to it.
    pub write_timeout: Duration,
    /// For a request to be answered, but for those that wait on purpose.
    pub request_timeout: Duration,
    /// For those under way to come to an end when the server is to stop.
    pub drain_timeout: Duration,
    /// A stream without news says that it is still there.
    pub keep_alive_interval: Duration,
    /// Larger payloads do not come with a lease: they are fetched.
    pub max_inline_payload_bytes: u64,
    /// Whether it listens on loopback: then it is open to this machine as long as no key was ever made.
    pub is_loopback: bool,
    /// Requests a second of one key; 0 for no limit.
    pub requests_per_second: u32,
    /// Lifecycles that ship with the server and were left out, each with the reason: whoever asks for one is told it.
    pub skipped_lifecycles: BTreeMap<Arc<str>, String>,
    /// What watches; the engine's spans go to the same one.
    pub telemetry: Arc<Telemetry>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            max_body_bytes: 16 << 20,
            max_total_body_bytes: 256 << 20,
            max_head_bytes: 64 << 10,
            max_batch_items: 1_000,
            max_connections: 10_000,
            max_long_polls: 10_000,
            max_streams: 1_000,
            api_key_share_percent: 50,
            max_wait: Duration::from_mins(5),
            head_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            request_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(30),
            keep_alive_interval: Duration::from_secs(15),
            max_inline_payload_bytes: 64 << 10,
            is_loopback: false,
            requests_per_second: 5_000,
            skipped_lifecycles: BTreeMap::new(),
            telemetry: Telemetry::new(),
        }
    }
}
