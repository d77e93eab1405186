//! What stands between a program and PostgreSQL, and loses a message where a test says so.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::{Arc, Mutex, PoisonError};

use crate::Folder;
use crate::postgres::Server;

/// The socket's name in its folder.
const SOCKET: &str = ".s.PGSQL.5432";

/// What is being said on one of the connections, in either direction.
#[derive(Clone, Copy, Debug)]
pub struct Passing<'a> {
    pub connection: usize,
    pub bytes: &'a [u8],
}

/// What becomes of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Passes,
    /// Half of it still gets through, then both ends are closed.
    IsCut,
    /// It does not get through, nor does whatever comes after it that way. The connection stays open.
    IsSwallowed,
}

/// The fate of a message; asked of each, both ways, one after the other.
type Judge = Mutex<Box<dyn FnMut(Passing) -> Fate + Send>>;

/// Passes on what is said both ways, until a message meets another fate. Other connections go on.
#[derive(Debug)]
pub struct Proxy {
    folder: Folder,
    server: String,
}

impl Proxy {
    /// In front of a server that is reached through a socket; some messages are cut.
    pub fn before(server: &Server, mut is_cut: impl FnMut(Passing) -> bool + Send + 'static) -> Self {
        Self::judging(server, move |passing| if is_cut(passing) { Fate::IsCut } else { Fate::Passes })
    }

    /// The same with any fate.
    pub fn judging(server: &Server, fate: impl FnMut(Passing) -> Fate + Send + 'static) -> Self {
        let folder = Folder::new();
        let (behind, judge) = (server.folder().join(SOCKET), Judge::new(Box::new(fate)));
        let (listener, judge) = (UnixListener::bind(folder.join(SOCKET)).expect("a socket"), Arc::new(judge));
        std::thread::spawn(move || {
            for (connection, client) in listener.incoming().map_while(Result::ok).enumerate() {
                // Where nobody is there the client finds its connection closed.
                let Ok(server) = UnixStream::connect(&behind) else { continue };
                let (Ok(client_too), Ok(server_too)) = (client.try_clone(), server.try_clone()) else { continue };
                let (there, back) = (Arc::clone(&judge), Arc::clone(&judge));
                std::thread::spawn(move || pass_on((client, server), connection, &there));
                std::thread::spawn(move || pass_on((server_too, client_too), connection, &back));
            }
        });
        Self { folder, server: server.url().to_owned() }
    }

    /// The way to one of the server's databases through here.
    pub fn url(&self, database: &str) -> String {
        let own = self.folder.join("").display().to_string().trim_end_matches('/').replace('/', "%2F");
        database.replace(&self.server, &format!("postgres://onceward@{own}"))
    }
}

fn pass_on((mut from, mut to): (UnixStream, UnixStream), connection: usize, judge: &Judge) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        let passing = Passing { connection, bytes: &bytes[..read] };
        let fate = judge.lock().unwrap_or_else(PoisonError::into_inner)(passing);
        let sent = match fate {
            Fate::Passes => to.write_all(&bytes[..read]).is_ok(),
            Fate::IsCut => {
                // Half a message is the worst that can get through.
                let _ = to.write_all(&bytes[..read / 2]);
                false
            }
            Fate::IsSwallowed => {
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

    const LAST: &[u8] = b"the last message";

    /// Far less than the minute for which PostgreSQL waits for somebody who has not said who they are.
    const SOON: Duration = Duration::from_secs(30);

    /// A server is stopped while a message is judged, and meanwhile somebody comes. What they say is not judged yet, so it does not get
    /// through; the server must not wait for it.
    #[test]
    fn a_newcomer_does_not_hold_up_a_server_that_stops() {
        static SERVER: OnceLock<Server> = OnceLock::new();
        let server = SERVER.get_or_init(Server::start);
        // It lets newcomers in until its own processes are gone; one of them does not hear that it is to go.
        let deaf = psql(
            &format!("{}/postgres", server.url()),
            "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'",
        );
        assert!(std::process::Command::new("kill").args(["-STOP", &deaf]).status().expect("a signal").success());
        let (stopped, stops) = std::sync::mpsc::channel();
        let proxy = Proxy::before(server, move |passing| {
            let is_cut = passing.bytes == LAST;
            if is_cut {
                server.stop();
                stopped.send(()).expect("somebody waits for it");
            }
            is_cut
        });
        let connect = || UnixStream::connect(proxy.folder.join(SOCKET)).expect("a connection");
        connect().write_all(LAST).expect("it is sent");
        let log = || std::fs::read_to_string(server.folder().join("log")).expect("a log");
        while !log().contains("received immediate shutdown request") {
            std::thread::yield_now();
        }
        let mut newcomer = connect();
        newcomer.write_all(b"hello").expect("it is sent");
        stops.recv_timeout(SOON).expect("it stops");
    }
}
