//! Limits concurrent long polls, streams, body bytes and response bytes, and tracks in-flight requests for the drain.

mod response_memory;
mod slots;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use onceward_core::count_noun;
use tokio::sync::{Notify, watch};

use crate::config::ServerConfig;
use crate::problem::Problem;

use response_memory::ResponseMemory;
pub(crate) use response_memory::{ResponseReservation, exhausted, limit_response_memory};
pub use slots::{Slot, SlotError, SlotPool};

#[derive(Debug)]
pub(crate) struct Capacity {
    draining: watch::Sender<bool>,
    in_flight: AtomicUsize,
    /// Notified when the last in-flight request ends during a drain.
    idle: Notify,
    long_polls: Arc<SlotPool>,
    streams: Arc<SlotPool>,
    /// Body bytes of requests that are not answered yet.
    body_bytes: Arc<AtomicUsize>,
    max_body_bytes: usize,
    response_memory: ResponseMemory,
    connections: Arc<AtomicUsize>,
}

/// Current usage, for metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CapacityUsage {
    pub(crate) connections: usize,
    pub(crate) long_polls: usize,
    pub(crate) streams: usize,
    pub(crate) body_bytes: usize,
    pub(crate) response_bytes: usize,
}

impl Capacity {
    pub(crate) fn new(config: &ServerConfig) -> Self {
        let slot_pool = |count: usize| Arc::new(SlotPool::with_share(count, config.api_key_share_percent));
        Self {
            connections: Arc::default(),
            draining: watch::Sender::new(false),
            in_flight: AtomicUsize::new(0),
            idle: Notify::new(),
            long_polls: slot_pool(config.max_long_polls),
            streams: slot_pool(config.max_streams),
            body_bytes: Arc::default(),
            max_body_bytes: config.max_total_body_bytes,
            response_memory: ResponseMemory::new(config),
        }
    }

    pub(crate) fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    pub(crate) fn begin_drain(&self) {
        self.draining.send_replace(true);
        self.idle.notify_waiters();
    }

    /// Waits until the server starts to drain.
    pub(crate) async fn wait_drain(&self) {
        let mut draining = self.draining.subscribe();
        // Cannot fail: `self` owns the sender.
        let _ = draining.wait_for(|leaving| *leaving).await;
    }

    pub(crate) fn begin_request(&self) -> InFlightGuard<'_> {
        self.in_flight.fetch_add(1, Ordering::SeqCst);
        InFlightGuard(self)
    }

    /// Waits until no request is in flight.
    pub(crate) async fn wait_idle(&self) {
        loop {
            let idle = self.idle.notified();
            if self.in_flight.load(Ordering::SeqCst) == 0 {
                return;
            }
            idle.await;
        }
    }

    /// Reserves a slot for a long poll; the limit per API key applies.
    pub(crate) fn acquire_long_poll(&self, api_key: Option<&Arc<str>>) -> Result<Slot, Problem> {
        self.long_polls.try_acquire(api_key).map_err(|full| match full {
            SlotError::Exhausted => Problem::new(
                503,
                "too_many_long_polls",
                "the server reached its limit of waiting lease calls; retry, or lease without `wait_ms`",
            ),
            SlotError::ShareExceeded(used) => api_key_share_exceeded(count_noun(
                used,
                "lease call of the API key is waiting, which is its limit",
                "lease calls of the API key are waiting, which is its limit",
            )),
        })
    }

    /// Reserves a slot for a stream; the limit per API key applies.
    pub(crate) fn acquire_stream(&self, api_key: Option<&Arc<str>>) -> Result<Slot, Problem> {
        self.streams.try_acquire(api_key).map_err(|full| match full {
            SlotError::Exhausted => {
                Problem::new(503, "too_many_streams", "the server reached its limit of open streams; retry later")
            }
            SlotError::ShareExceeded(used) => api_key_share_exceeded(count_noun(
                used,
                "stream of the API key is open, which is its limit",
                "streams of the API key are open, which is its limit",
            )),
        })
    }

    /// Counts a connection until the guard is dropped.
    pub(crate) fn register_connection(&self) -> ConnectionGuard {
        self.connections.fetch_add(1, Ordering::SeqCst);
        ConnectionGuard(Arc::clone(&self.connections))
    }

    pub(crate) fn usage(&self) -> CapacityUsage {
        CapacityUsage {
            connections: self.connections.load(Ordering::SeqCst),
            long_polls: self.long_polls.used(),
            streams: self.streams.used(),
            body_bytes: self.body_bytes.load(Ordering::SeqCst),
            response_bytes: self.response_memory.used_bytes(),
        }
    }

    pub(crate) fn response_memory(&self) -> &ResponseMemory {
        &self.response_memory
    }

    pub(crate) fn body_budget(&self) -> BodyBudget {
        BodyBudget {
            total_bytes: Arc::clone(&self.body_bytes),
            max_bytes: self.max_body_bytes,
            own_bytes: AtomicUsize::new(0),
        }
    }
}

/// The server has free slots, but this API key has used its share.
fn api_key_share_exceeded(detail: String) -> Problem {
    Problem::new(429, "api_key_share_exceeded", detail)
}

/// Counts one open connection until dropped.
#[derive(Debug)]
pub(crate) struct ConnectionGuard(Arc<AtomicUsize>);

impl Drop for ConnectionGuard {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Counts one in-flight request until dropped.
#[derive(Debug)]
pub(crate) struct InFlightGuard<'a>(&'a Capacity);

impl Drop for InFlightGuard<'_> {
    fn drop(&mut self) {
        if self.0.in_flight.fetch_sub(1, Ordering::SeqCst) == 1 && self.0.is_draining() {
            self.0.idle.notify_waiters();
        }
    }
}

/// Share of the total body budget that one request holds. Dropping it releases the bytes.
#[derive(Debug)]
pub(crate) struct BodyBudget {
    total_bytes: Arc<AtomicUsize>,
    max_bytes: usize,
    own_bytes: AtomicUsize,
}

impl BodyBudget {
    /// Reserves `bytes`, or returns `false` and reserves nothing, so that a rejected body does not cause other
    /// rejections. A body always fits if no other request holds bytes.
    pub(crate) fn try_reserve(&self, bytes: usize) -> bool {
        let own_bytes = self.own_bytes.load(Ordering::SeqCst);
        let fits = |all: usize| {
            let grown = all.saturating_add(bytes);
            (all <= own_bytes || grown <= self.max_bytes).then_some(grown)
        };
        let is_reserved = self.total_bytes.fetch_update(Ordering::SeqCst, Ordering::SeqCst, fits).is_ok();
        if is_reserved {
            self.own_bytes.store(own_bytes.saturating_add(bytes), Ordering::SeqCst);
        }
        is_reserved
    }
}

impl Drop for BodyBudget {
    fn drop(&mut self) {
        self.total_bytes.fetch_sub(self.own_bytes.load(Ordering::SeqCst), Ordering::SeqCst);
    }
}
