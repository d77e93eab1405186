//! Configuration of the server.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::telemetry::Telemetry;

/// Limits and timeouts of a server. The defaults suit one machine.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// Maximum size of one request body.
    pub max_body_bytes: usize,
    /// Maximum size of all request bodies held at the same time.
    pub max_total_body_bytes: usize,
    /// Size up to which one response may contain records and payloads. A batch answers with ids, states and versions
    /// from there on, a lease call leases no more jobs, and a page ends.
    pub max_response_bytes: usize,
    /// Maximum size of all responses that clients have not read yet. Also applies while a call with a large response
    /// reads the store.
    pub max_total_response_bytes: usize,
    /// Longest time that a call waits until there is memory for its response.
    pub response_memory_timeout: Duration,
    /// Maximum size of a request line; headers may have twice as much.
    pub max_head_bytes: usize,
    /// Maximum number of calls in one batch request.
    pub max_batch_items: usize,
    /// Maximum number of open connections.
    pub max_connections: usize,
    /// Percentage of the connections that one address may hold; an IPv6 address counts with its network of 64 bits.
    pub address_share_percent: u8,
    /// Maximum number of lease calls that wait for jobs.
    pub max_long_polls: usize,
    /// Maximum number of open log streams.
    pub max_streams: usize,
    /// Percentage of the long polls, of the streams and of the memory for responses that one API key may hold.
    pub api_key_share_percent: u8,
    /// Longest time that a lease call may wait for jobs.
    pub max_wait: Duration,
    /// Time to receive the request line and headers. Also the idle timeout of a connection.
    pub head_timeout: Duration,
    /// Time to receive a request body.
    pub body_timeout: Duration,
    /// Time in which a client must read what the server writes, or at least `min_read_bytes_per_second` of it.
    pub write_timeout: Duration,
    /// Rate at which a client must read at least.
    pub min_read_bytes_per_second: u32,
    /// Time to answer a request, except on paths that limit their own time.
    pub request_timeout: Duration,
    /// Time for in-flight requests to finish during shutdown.
    pub drain_timeout: Duration,
    /// Interval of keep-alive messages on an idle stream.
    pub keep_alive_interval: Duration,
    /// Largest payload that a lease response contains. Workers download larger ones.
    pub max_inline_payload_bytes: u64,
    /// Whether the server listens on loopback. If so, it accepts local requests while no API key was ever created.
    pub is_loopback: bool,
    /// Requests per second of one API key; 0 disables the limit.
    pub requests_per_second: u32,
    /// Built-in lifecycles that were not loaded, with the reason. Error messages about them quote it.
    pub skipped_lifecycles: BTreeMap<Arc<str>, String>,
    /// Versions of the server's lifecycle files: hashes by name.
    pub file_versions: BTreeMap<Arc<str>, Arc<str>>,
    /// Metrics and traces of the server. The engine sends its spans here, too.
    pub telemetry: Arc<Telemetry>,
}

impl Default for ServerConfig {
    fn default() -> Self {
        Self {
            max_body_bytes: 16 << 20,
            max_total_body_bytes: 256 << 20,
            max_response_bytes: 8 << 20,
            max_total_response_bytes: 256 << 20,
            response_memory_timeout: Duration::from_secs(5),
            max_head_bytes: 64 << 10,
            max_batch_items: 1_000,
            max_connections: 10_000,
            address_share_percent: 50,
            max_long_polls: 10_000,
            max_streams: 1_000,
            api_key_share_percent: 50,
            max_wait: Duration::from_mins(5),
            head_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            min_read_bytes_per_second: 8 << 10,
            request_timeout: Duration::from_secs(30),
            drain_timeout: Duration::from_secs(30),
            keep_alive_interval: Duration::from_secs(15),
            max_inline_payload_bytes: 64 << 10,
            is_loopback: false,
            requests_per_second: 5_000,
            skipped_lifecycles: BTreeMap::new(),
            file_versions: BTreeMap::new(),
            telemetry: Telemetry::new(),
        }
    }
}
