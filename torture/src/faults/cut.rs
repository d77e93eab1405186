//! A connection to PostgreSQL that is cut in the middle of whatever goes over it, by a proxy between the two.

use std::io::{Read as _, Write as _};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use onceward_testkit::Folder;
use onceward_testkit::postgres::Server;
use onceward_testkit::random::Chance;

use super::Bench;

/// The socket's name in its folder.
const SOCKET: &str = ".s.PGSQL.5432";

/// Messages until the next cut, and cuts so far.
struct Scissors {
    chance: Chance,
    until: usize,
    cuts: usize,
    /// Once work is over everybody may speak.
    sharp: bool,
}

impl Scissors {
    /// Whether this message is the one that no longer gets through.
    fn cut(&mut self) -> bool {
        if !self.sharp {
            return false;
        }
        self.until = self.until.saturating_sub(1);
        if self.until == 0 {
            self.until = 20 + self.chance.below(150);
            self.cuts += 1;
            return true;
        }
        false
    }
}

fn locked(scissors: &Mutex<Scissors>) -> std::sync::MutexGuard<'_, Scissors> {
    scissors.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Passes on what it hears, until it is cut: then the message is lost, and both ends are closed.
fn pass_on(mut from: UnixStream, mut to: UnixStream, scissors: &Mutex<Scissors>) {
    let mut bytes = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut bytes) {
        if locked(scissors).cut() {
            // Half a message is the worst that can get through.
            let _ = to.write_all(&bytes[..read / 2]);
            break;
        }
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}

fn proxy(listener: UnixListener, server: PathBuf, scissors: Arc<Mutex<Scissors>>) {
    std::thread::spawn(move || {
        for client in listener.incoming().map_while(Result::ok) {
            let Ok(server) = UnixStream::connect(&server) else { continue };
            let (Ok(client_too), Ok(server_too)) = (client.try_clone(), server.try_clone()) else { continue };
            let (there, back) = (Arc::clone(&scissors), Arc::clone(&scissors));
            std::thread::spawn(move || pass_on(client, server, &there));
            std::thread::spawn(move || pass_on(server_too, client_too, &back));
        }
    });
}

/// Messages both ways are lost at random, some of them in the middle: questions that never came, and answers that never came back.
pub(super) fn connection(seed: u64) -> Result<String> {
    let server = Server::start();
    let url = server.database();
    let folder = Folder::new();
    let own = folder.file().parent().context("a folder")?.to_owned();
    let host = server.url().split('@').nth(1).context("a host")?.replace("%2F", "/");
    let scissors = Scissors { chance: Chance::new(seed), until: 50, cuts: 0, sharp: false };
    let scissors = Arc::new(Mutex::new(scissors));
    proxy(UnixListener::bind(own.join(SOCKET))?, Path::new(&host).join(SOCKET), Arc::clone(&scissors));
    let through =
        url.replace(server.url(), &format!("postgres://onceward@{}", own.display().to_string().replace('/', "%2F")));
    let mut bench = Bench::new(&through, &[], seed)?;
    // It comes up first.
    bench.work(20, "", usize::MAX)?;
    locked(&scissors).sharp = true;
    let cut = bench.work(800, "cannot be reached", usize::MAX)?;
    locked(&scissors).sharp = false;
    let cuts = locked(&scissors).cuts;
    ensure!(cuts > 10 && cut.unknown > 0, "{cuts} cuts, and {cut:?}");
    let after = bench.work(50, "cannot be reached", usize::MAX)?;
    ensure!(after.done > 20, "it did not go on: {after:?}");
    let ended = bench.end()?;
    Ok(format!("{cuts} cuts, {} left in doubt, {} done; {ended}", cut.unknown, cut.done + after.done))
}
