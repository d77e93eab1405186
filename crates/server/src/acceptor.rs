//! Accepts connections within the limits, and answers health checks even beyond them.
//!
//! The acceptor runs on the runtime of the listener. A connection waits there for its first bytes. Then it moves to the
//! engine's runtime, unless it asks for the server's health: a save that blocks the engine's runtime must not delay the
//! answer (decision 0020).

use std::fs::File;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::capacity::{ConnectionGuard, Slot, SlotPool};
use crate::connection::{close_with_response, serve_connection};
use crate::problem::Problem;
use crate::request_service::RequestService;

/// Delay after a failed `accept`. The usual cause is a lack of file handles, which needs time to pass.
const ACCEPT_RETRY_DELAY: Duration = Duration::from_millis(50);

/// Connections over a limit that are answered at the same time. The server closes further ones without a response.
const MAX_REJECTED_CONNECTIONS: usize = 64;

/// Time for a connection over a limit to send its first bytes, by which a health check is known.
const REJECTED_FIRST_BYTES_TIMEOUT: Duration = Duration::from_secs(1);

/// Beginnings of requests for the server's health.
const HEALTH_CHECKS: [&[u8]; 4] = [b"GET /livez", b"GET /readyz", b"HEAD /livez", b"HEAD /readyz"];

#[derive(Debug)]
pub(crate) struct Acceptor {
    service: RequestService,
    permits: Arc<Semaphore>,
    /// Limits the connections of one address.
    addresses: Arc<SlotPool>,
    rejection_permits: Arc<Semaphore>,
    spare_handle: SpareHandle,
}

/// What a connection holds while it is open.
#[derive(Debug)]
pub(crate) struct ConnectionPermits {
    _permit: OwnedSemaphorePermit,
    _address_slot: Slot,
    _guard: ConnectionGuard,
}

/// A file handle that is closed to accept one connection when no other handle is left. Otherwise the connection would
/// wait in the system's queue without an answer.
#[derive(Clone, Debug)]
struct SpareHandle(Arc<Mutex<Option<File>>>);

impl SpareHandle {
    fn open() -> Self {
        let spare = Self(Arc::default());
        spare.restore();
        spare
    }

    fn restore(&self) {
        let mut spare = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if spare.is_none() {
            *spare = File::open("/dev/null").ok();
        }
    }

    fn release(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

impl Acceptor {
    pub(crate) fn new(service: RequestService) -> Self {
        let config = service.app.config();
        let max_connections = config.max_connections.min(Semaphore::MAX_PERMITS);
        Self {
            permits: Arc::new(Semaphore::new(max_connections)),
            addresses: Arc::new(SlotPool::with_share(max_connections, config.address_share_percent)),
            rejection_permits: Arc::new(Semaphore::new(MAX_REJECTED_CONNECTIONS)),
            spare_handle: SpareHandle::open(),
            service,
        }
    }

    /// Handles the result of an `accept` of the listener.
    pub(crate) async fn handle(&self, accepted: io::Result<(TcpStream, SocketAddr)>, listener: &TcpListener) {
        match accepted {
            Ok((stream, peer)) => self.admit(stream, peer.ip()),
            Err(error) => {
                tracing::warn!(%error, "accepting a connection failed");
                self.spare_handle.release();
                if let Some(Ok((stream, _))) = listener.accept().now_or_never() {
                    self.reject(stream, too_many_connections());
                } else {
                    self.spare_handle.restore();
                }
                tokio::time::sleep(ACCEPT_RETRY_DELAY).await;
            }
        }
    }

    /// Waits until all connections are closed.
    pub(crate) async fn wait_closed(&self) {
        let max_connections = self.service.app.config().max_connections.min(Semaphore::MAX_PERMITS);
        let _ = self.permits.acquire_many(u32::try_from(max_connections).unwrap_or(u32::MAX)).await;
    }

    fn admit(&self, stream: TcpStream, peer: IpAddr) {
        let Ok(permit) = Arc::clone(&self.permits).try_acquire_owned() else {
            return self.reject(stream, too_many_connections());
        };
        let Ok(address_slot) = self.addresses.try_acquire(Some(&limited_address(peer))) else {
            let detail = "the address has its share of the server's connections; close unused ones, or retry later";
            return self.reject(stream, Problem::new(429, "address_share_exceeded", detail));
        };
        // A response is one write; Nagle's algorithm would only delay it.
        let _ = stream.set_nodelay(true);
        // Count before spawning, so that a later request for metrics sees all earlier connections.
        let guard = self.service.app.capacity().register_connection();
        let permits = ConnectionPermits { _permit: permit, _address_slot: address_slot, _guard: guard };
        tokio::spawn(dispatch(self.service.clone(), stream, permits));
    }

    /// Answers a connection over a limit: a health check as usual, other requests with the problem.
    fn reject(&self, stream: TcpStream, problem: Problem) {
        let (service, spare_handle) = (self.service.clone(), self.spare_handle.clone());
        let Ok(permit) = Arc::clone(&self.rejection_permits).try_acquire_owned() else {
            drop(stream);
            return spare_handle.restore();
        };
        tokio::spawn(async move {
            match timeout(REJECTED_FIRST_BYTES_TIMEOUT, is_health_check(&stream)).await {
                Ok(Ok(true)) => serve_connection(service.closing(), stream).await,
                _ => close_with_response(stream, &problem.to_http_response()).await,
            }
            spare_handle.restore();
            drop(permit);
        });
    }
}

fn too_many_connections() -> Problem {
    Problem::new(503, "too_many_connections", "the server reached its limit of connections; retry later")
}

/// Waits for the first bytes of a connection, then serves it on the runtime that suits them.
async fn dispatch(service: RequestService, stream: TcpStream, permits: ConnectionPermits) {
    let app = service.app.clone();
    let opened_while_draining = app.capacity().is_draining();
    let shutdown = async {
        if opened_while_draining {
            app.capacity().wait_idle().await;
        } else {
            app.capacity().wait_drain().await;
        }
    };
    let first_bytes = tokio::select! {
        biased;
        first_bytes = timeout(app.config().head_timeout, is_health_check(&stream)) => first_bytes,
        // An idle connection is closed without a response.
        () = shutdown => return,
    };
    match first_bytes {
        Ok(Ok(true)) => serve_connection(service.forwarding(), stream).await,
        Ok(Ok(false)) => {
            let Ok(stream) = stream.into_std() else { return };
            app.engine().runtime().spawn(async move {
                if let Ok(stream) = TcpStream::from_std(stream) {
                    serve_connection(service, stream).await;
                }
                drop(permits);
            });
        }
        Err(_) => close_with_response(stream, &[]).await,
        Ok(Err(_)) => {}
    }
}

/// Returns whether the first bytes ask for the server's health. Waits for them.
async fn is_health_check(stream: &TcpStream) -> io::Result<bool> {
    let mut first_bytes = [0; 16];
    let read = stream.peek(&mut first_bytes).await?;
    Ok(HEALTH_CHECKS.iter().any(|check| first_bytes[..read].starts_with(check)))
}

/// Returns the address that a limit counts: on IPv6 the network, because one machine has all addresses of it.
fn limited_address(peer: IpAddr) -> Arc<str> {
    match peer.to_canonical() {
        IpAddr::V4(address) => address.to_string().into(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            format!("{a:x}:{b:x}:{c:x}:{d:x}::/64").into()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limit_counts_ipv4_addresses_and_ipv6_networks() {
        for (peer, expected) in [
            ("192.0.2.7", "192.0.2.7"),
            ("::ffff:192.0.2.7", "192.0.2.7"),
            ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
            ("2001:db8:1:2::1", "2001:db8:1:2::/64"),
            ("::1", "0:0:0:0::/64"),
        ] {
            assert_eq!(&*limited_address(peer.parse().expect("an address")), expected);
        }
    }
}
