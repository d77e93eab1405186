//! The listening socket and the number of its connections.

use std::time::Duration;

use onceward_server::ServerConfig;
use rustix::net::sockopt::{set_socket_keepalive, set_tcp_keepcnt, set_tcp_keepidle, set_tcp_keepintvl};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;

/// An idle peer is probed after this time, and then at this interval. Long polls and streams have no other traffic from
/// the peer, so a machine that lost power would hold them.
const KEEPALIVE_IDLE: Duration = Duration::from_mins(1);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// Unanswered probes until a connection counts as dead: two minutes after its last traffic.
const MAX_KEEPALIVE_PROBES: u32 = 4;

/// Sets TCP keepalive. Accepted connections inherit it from the listener.
pub(super) fn set_keepalive(listener: &TcpListener) -> std::io::Result<()> {
    set_socket_keepalive(listener, true)?;
    set_tcp_keepidle(listener, KEEPALIVE_IDLE)?;
    set_tcp_keepintvl(listener, KEEPALIVE_INTERVAL)?;
    set_tcp_keepcnt(listener, MAX_KEEPALIVE_PROBES)?;
    Ok(())
}

/// File handles for the database, outgoing deliveries and the rest of the process; at most half of all.
const RESERVED_FILE_HANDLES: usize = 200;

/// Raises the limit on file handles, which is often 1,024 by default, and returns how many connections fit into it.
pub(super) fn max_connections() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised_limit = Rlimit { current: limit.maximum, maximum: limit.maximum };
    let available = if setrlimit(Resource::Nofile, raised_limit).is_ok() { limit.maximum } else { limit.current };
    let available = available.map_or(usize::MAX, |has| usize::try_from(has).unwrap_or(usize::MAX));
    connections_within(available).min(ServerConfig::default().max_connections)
}

fn connections_within(file_handles: usize) -> usize {
    file_handles.saturating_sub(RESERVED_FILE_HANDLES).max(file_handles / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_file_handles_to_the_rest_of_the_process() {
        assert_eq!([100, 400, 1_024, usize::MAX].map(connections_within), [50, 200, 824, usize::MAX - 200]);
    }
}
