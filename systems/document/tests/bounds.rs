//! Uploads that come too slowly, or too many at once. A server in this very process, with bounds that are soon reached.

use std::time::Duration;

use onceward_core::diagnostic::Files;
use onceward_engine::{Config, Engine, Objects};
use onceward_server::{Settings, serve};
use onceward_store::{AnyStore, Clock, SqliteStore};
use onceward_system_document::{Bounds, Pace, part};
use onceward_testkit::{Folder, systems};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// Longer than any test takes.
const NEVER: Duration = Duration::from_hours(1);

/// Runs a test against a server with these bounds.
fn serving(bounds: Bounds, test: impl AsyncFnOnce(&House)) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let folder = Folder::new();
        let objects = folder.file().with_extension("objects");
        let store = AnyStore::Sqlite(SqliteStore::open(folder.file(), Clock::machine()).expect("a new file"));
        let config = Config { objects: Some(Objects::folder(&objects)), ..Config::default() };
        let engine = Engine::open(store, config);
        engine.define(&Files { files: systems::sources("document") }).await.expect("sound files");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let (stop, stopped) = oneshot::channel::<()>();
        let until = async {
            let _ = stopped.await;
        };
        let served = tokio::spawn(serve(listener, engine, Settings::default(), vec![part(bounds)], until));
        test(&House { address }).await;
        // A piece that was being written when its time was over is done with first.
        let drafts = || std::fs::read_dir(objects.join("drafts")).map_or(0, Iterator::count);
        let gone = async {
            while drafts() > 0 {
                tokio::task::yield_now().await;
            }
        };
        let left = "nothing is left of what did not come to its end";
        tokio::time::timeout(Duration::from_mins(1), gone).await.expect(left);
        let _ = stop.send(());
        served.await.expect("it ends").expect("without an error");
    });
}

struct House {
    address: String,
}

impl House {
    /// An upload of which so much has come.
    async fn begun(&self, name: &str, length: usize, come: usize) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).await.expect("it listens");
        let head = format!(
            "POST /document/upload HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/octet-stream\r\n\
             client-request-id: {name}\r\ncontent-length: {length}\r\n\r\n",
            self.address
        );
        stream.write_all(head.as_bytes()).await.expect("it reads");
        stream.write_all(&vec![7; come]).await.expect("it reads");
        stream
    }

    /// An upload that has its place: its body is asked for.
    async fn held(&self, name: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).await.expect("it listens");
        let head = format!(
            "POST /document/upload HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/octet-stream\r\n\
             client-request-id: {name}\r\ncontent-length: 100000\r\nexpect: 100-continue\r\n\r\n",
            self.address
        );
        stream.write_all(head.as_bytes()).await.expect("it reads");
        let mut go_on = [0; 25];
        stream.read_exact(&mut go_on).await.expect("an answer");
        assert_eq!(&go_on, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream
    }
}

async fn answer(mut stream: TcpStream) -> (u16, String) {
    let mut all = Vec::new();
    // What was not read any more may cost the end of the connection, not the answer.
    let _ = stream.read_to_end(&mut all).await;
    let text = String::from_utf8(all).expect("text");
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{text}"));
    (status, text)
}

/// A document whose next piece does not come is given up; small or large.
#[test]
fn a_piece_has_its_time() {
    let bounds = Bounds { piece_time: Duration::from_secs(1), whole_time: NEVER, ..Bounds::default() };
    serving(bounds, async |house| {
        for come in [0, 10, 200_000] {
            let (status, text) = answer(house.begun("a", 1_000_000, come).await).await;
            assert!(status == 408 && text.contains("slow_body"), "{text}");
        }
        let (status, text) = answer(house.begun("a", 200_000, 200_000).await).await;
        assert_eq!(status, 201, "the name is still free: {text}");
    });
}

/// A document that goes on coming, but takes too long in all, is given up too.
#[test]
fn the_whole_has_its_time() {
    let bounds = Bounds { piece_time: NEVER, whole_time: Duration::from_millis(50), ..Bounds::default() };
    serving(bounds, async |house| {
        let (status, text) = answer(house.begun("a", 1_000_000, 200_000).await).await;
        assert!(status == 408 && text.contains("slow_body"), "{text}");
    });
}

/// A document that goes on coming, each piece in its time, but all too slowly, is given up as well. No pace is enough here.
#[test]
fn it_comes_at_a_least_pace() {
    let pace = Pace { after: Duration::ZERO, window: Duration::ZERO, bytes: u64::MAX };
    let bounds = Bounds { piece_time: NEVER, whole_time: NEVER, pace, ..Bounds::default() };
    serving(bounds, async |house| {
        for come in [1, 200_000] {
            let (status, text) = answer(house.begun("a", 1_000_000, come).await).await;
            assert!(status == 408 && text.contains("slow_body"), "{text}");
        }
    });
}

/// One more than may come at once is told to come back; the others go on, and their places are free when they are done.
#[test]
fn uploads_at_once_are_bounded() {
    serving(Bounds { at_once: 2, ..Bounds::default() }, async |house| {
        let mut coming = vec![house.held("a").await, house.held("b").await];
        let full = answer(house.begun("c", 1, 1).await).await;
        assert!(full.0 == 503 && full.1.contains("too_many_uploads") && full.1.contains("retry-after"), "{full:?}");
        for stream in &mut coming {
            stream.write_all(&vec![7; 100_000]).await.expect("it reads");
        }
        for stream in coming {
            let (status, text) = answer(stream).await;
            assert_eq!(status, 201, "{text}");
        }
        let (status, text) = answer(house.begun("d", 1, 1).await).await;
        assert_eq!(status, 201, "{text}");
    });
}
