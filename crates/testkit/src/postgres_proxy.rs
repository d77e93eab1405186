//! A proxy between a program and PostgreSQL that can drop messages.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError};

use crate::TempDir;
use crate::postgres::PostgresServer;

const SOCKET_FILE_NAME: &str = ".s.PGSQL.5432";

/// A message on one of the connections, in either direction.
#[derive(Clone, Copy, Debug)]
pub struct ProxiedMessage<'a> {
    pub connection: usize,
    pub bytes: &'a [u8],
}

/// What the proxy does with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageFate {
    Forward,
    /// Forwards half of the message, then closes both ends.
    Cut,
    /// Drops the message and everything after it in that direction. The connection stays open.
    Swallow,
}

/// Decides the fate of each message in both directions, one at a time.
type FateDecider = Mutex<Box<dyn FnMut(ProxiedMessage) -> MessageFate + Send>>;

/// Forwards messages in both directions, until one has another fate. Other connections are not affected.
#[derive(Debug)]
pub struct PostgresProxy {
    folder: TempDir,
    server: String,
}

impl PostgresProxy {
    /// Starts a proxy for a server with a socket. Cuts the messages that `is_cut` selects.
    pub fn cutting(server: &PostgresServer, mut is_cut: impl FnMut(ProxiedMessage) -> bool + Send + 'static) -> Self {
        Self::with_fates(server, move |passing| if is_cut(passing) { MessageFate::Cut } else { MessageFate::Forward })
    }

    /// Like [`Self::cutting`], but with any fate.
    pub fn with_fates(
        server: &PostgresServer,
        fate: impl FnMut(ProxiedMessage) -> MessageFate + Send + 'static,
    ) -> Self {
        let folder = TempDir::new();
        let (server_socket, decider) = (server.socket_dir().join(SOCKET_FILE_NAME), FateDecider::new(Box::new(fate)));
        let (listener, decider) =
            (UnixListener::bind(folder.join(SOCKET_FILE_NAME)).expect("a socket"), Arc::new(decider));
        std::thread::spawn(move || {
            for (connection, client) in listener.incoming().map_while(Result::ok).enumerate() {
                // If the server is down, the client's connection closes.
                let Ok(server) = UnixStream::connect(&server_socket) else { continue };
                let (Ok(client_too), Ok(server_too)) = (client.try_clone(), server.try_clone()) else { continue };
                let (there, back) = (Arc::clone(&decider), Arc::clone(&decider));
                std::thread::spawn(move || forward_messages((client, server), connection, &there));
                std::thread::spawn(move || forward_messages((server_too, client_too), connection, &back));
            }
        });
        Self { folder, server: server.url().to_owned() }
    }

    /// Returns the URL of a server's database through the proxy.
    pub fn url(&self, database: &str) -> String {
        let own = self.folder.join("").display().to_string().trim_end_matches('/').replace('/', "%2F");
        database.replace(&self.server, &format!("postgres://onceward@{own}"))
    }
}

fn forward_messages((mut from, mut to): (UnixStream, UnixStream), connection: usize, decider: &FateDecider) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        let passing = ProxiedMessage { connection, bytes: &bytes[..read] };
        let fate = decider.lock().unwrap_or_else(PoisonError::into_inner)(passing);
        let sent = match fate {
            MessageFate::Forward => to.write_all(&bytes[..read]).is_ok(),
            MessageFate::Cut => {
                // A partial message is the worst case for the receiver.
                let _ = to.write_all(&bytes[..read / 2]);
                false
            }
            MessageFate::Swallow => {
                while let Ok(1..) = from.read(&mut bytes) {}
                false
            }
        };
        if !sent {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

#[cfg(test)]
mod tests {
    use std::sync::OnceLock;
    use std::time::Duration;

    use super::*;
    use crate::postgres::psql;

    const LAST_MESSAGE: &[u8] = b"the last message";

    /// Far less than the minute that PostgreSQL waits for authentication.
    const STOP_TIMEOUT: Duration = Duration::from_secs(30);

    /// The test stops the server while the proxy holds back the authentication of a new connection. The server must not
    /// wait for it.
    #[test]
    fn server_stops_while_unauthenticated_connection_is_held() {
        static SERVER: OnceLock<PostgresServer> = OnceLock::new();
        let server = SERVER.get_or_init(PostgresServer::start);
        // The server accepts connections until its processes have ended. This one is suspended and does not end.
        let deaf = psql(
            &format!("{}/postgres", server.url()),
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'",
        );
        assert!(std::process::Command::new("kill").args(["-STOP", &deaf]).status().expect("a signal").success());
        let (stopped, stops) = std::sync::mpsc::channel();
        let proxy = PostgresProxy::cutting(server, move |passing| {
            let is_cut = passing.bytes == LAST_MESSAGE;
            if is_cut {
                server.stop_immediately();
                stopped.send(()).expect("the test waits");
            }
            is_cut
        });
        let connect = || UnixStream::connect(proxy.folder.join(SOCKET_FILE_NAME)).expect("a connection");
        connect().write_all(LAST_MESSAGE).expect("the message is sent");
        let log = || std::fs::read_to_string(server.socket_dir().join("log")).expect("a log");
        while !log().contains("received immediate shutdown request") {
            std::thread::yield_now();
        }
        let mut newcomer = connect();
        newcomer.write_all(b"hello").expect("the message is sent");
        stops.recv_timeout(STOP_TIMEOUT).expect("the server stops");
    }
}
