//! Limits on slow and concurrent uploads, tested against an in-process server with low limits.

use std::time::Duration;

use onceward_core::diagnostic::InputFiles;
use onceward_engine::{Engine, EngineConfig, ObjectStorage};
use onceward_server::{ServerConfig, serve};
use onceward_store::{AnyStore, Clock, SqliteStore};
use onceward_system_document::{MinRate, UploadLimits, system_routes};
use onceward_testkit::{TempDir, systems};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// Longer than any test takes.
const UNREACHED_TIMEOUT: Duration = Duration::from_hours(1);

/// Runs a test against a server with these limits.
fn with_server(limits: UploadLimits, test: impl AsyncFnOnce(&UploadServer)) {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let folder = TempDir::new();
        let object_folder = folder.database_path().with_extension("objects");
        let store =
            AnyStore::Sqlite(SqliteStore::open(folder.database_path(), Clock::machine()).expect("a new database file"));
        let config =
            EngineConfig { object_storage: Some(ObjectStorage::folder(&object_folder)), ..EngineConfig::default() };
        let engine = Engine::open(store, config);
        engine
            .put_lifecycles(&InputFiles { files: systems::source_files("document") })
            .await
            .expect("valid lifecycle files");
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("a URL").to_string();
        let (shutdown_sender, shutdown_receiver) = oneshot::channel::<()>();
        let shutdown = async {
            let _ = shutdown_receiver.await;
        };
        let server_task =
            tokio::spawn(serve(listener, engine, ServerConfig::default(), vec![system_routes(limits)], shutdown));
        test(&UploadServer { address }).await;
        // The server finishes a write that was in progress at the timeout before it removes the draft.
        let count_drafts = || std::fs::read_dir(object_folder.join("drafts")).map_or(0, Iterator::count);
        let drafts_removed = async {
            while count_drafts() > 0 {
                tokio::task::yield_now().await;
            }
        };
        let left = "an interrupted upload leaves nothing";
        tokio::time::timeout(Duration::from_mins(1), drafts_removed).await.expect(left);
        let _ = shutdown_sender.send(());
        server_task.await.expect("the process ends").expect("no error");
    });
}

struct UploadServer {
    address: String,
}

impl UploadServer {
    /// Starts an upload and sends its first `sent_bytes` bytes.
    async fn start_upload(&self, name: &str, length: usize, sent_bytes: usize) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).await.expect("the server listens");
        let head = format!(
            "POST /document/upload HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/octet-stream\r\n\
             client-request-id: {name}\r\ncontent-length: {length}\r\n\r\n",
            self.address
        );
        stream.write_all(head.as_bytes()).await.expect("the server reads");
        stream.write_all(&vec![7; sent_bytes]).await.expect("the server reads");
        stream
    }

    /// Starts an upload that has a slot: the server has asked for its body with 100 Continue.
    async fn start_accepted_upload(&self, name: &str) -> TcpStream {
        let mut stream = TcpStream::connect(&self.address).await.expect("the server listens");
        let head = format!(
            "POST /document/upload HTTP/1.1\r\nhost: {}\r\nconnection: close\r\ncontent-type: application/octet-stream\r\n\
             client-request-id: {name}\r\ncontent-length: 100000\r\nexpect: 100-continue\r\n\r\n",
            self.address
        );
        stream.write_all(head.as_bytes()).await.expect("the server reads");
        let mut continue_response = [0; 25];
        stream.read_exact(&mut continue_response).await.expect("an answer");
        assert_eq!(&continue_response, b"HTTP/1.1 100 Continue\r\n\r\n");
        stream
    }
}

async fn read_response(mut stream: TcpStream) -> (u16, String) {
    let mut all = Vec::new();
    // If the server closes the connection with unread data, the read may fail after the response.
    let _ = stream.read_to_end(&mut all).await;
    let text = String::from_utf8(all).expect("text");
    let status = text.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or_else(|| panic!("{text}"));
    (status, text)
}

/// Applies to small and large documents.
#[test]
fn missing_chunk_returns_408_and_frees_request_id() {
    let limits = UploadLimits {
        chunk_timeout: Duration::from_secs(1),
        total_timeout: UNREACHED_TIMEOUT,
        ..UploadLimits::default()
    };
    with_server(limits, async |server| {
        for sent_bytes in [0, 10, 200_000] {
            let (status, text) = read_response(server.start_upload("a", 1_000_000, sent_bytes).await).await;
            assert!(status == 408 && text.contains("request_body_timeout"), "{text}");
        }
        let (status, text) = read_response(server.start_upload("a", 200_000, 200_000).await).await;
        assert_eq!(status, 201, "the request id is still free: {text}");
    });
}

#[test]
fn upload_over_total_timeout_returns_408() {
    let limits = UploadLimits {
        chunk_timeout: UNREACHED_TIMEOUT,
        total_timeout: Duration::from_millis(50),
        ..UploadLimits::default()
    };
    with_server(limits, async |server| {
        let (status, text) = read_response(server.start_upload("a", 1_000_000, 200_000).await).await;
        assert!(status == 408 && text.contains("request_body_timeout"), "{text}");
    });
}

/// No rate is sufficient in this test.
#[test]
fn upload_below_min_rate_returns_408() {
    let min_rate = MinRate { grace_period: Duration::ZERO, window: Duration::ZERO, bytes_per_window: u64::MAX };
    let limits = UploadLimits {
        chunk_timeout: UNREACHED_TIMEOUT,
        total_timeout: UNREACHED_TIMEOUT,
        min_rate,
        ..UploadLimits::default()
    };
    with_server(limits, async |server| {
        for sent_bytes in [1, 200_000] {
            let (status, text) = read_response(server.start_upload("a", 1_000_000, sent_bytes).await).await;
            assert!(status == 408 && text.contains("request_body_timeout"), "{text}");
        }
    });
}

/// The other uploads continue and free their slots when they end.
#[test]
fn upload_over_concurrency_limit_returns_503() {
    with_server(UploadLimits { max_concurrent: 2, ..UploadLimits::default() }, async |server| {
        let mut uploads = vec![server.start_accepted_upload("a").await, server.start_accepted_upload("b").await];
        let full = read_response(server.start_upload("c", 1, 1).await).await;
        assert!(full.0 == 503 && full.1.contains("too_many_uploads") && full.1.contains("retry-after"), "{full:?}");
        for stream in &mut uploads {
            stream.write_all(&vec![7; 100_000]).await.expect("the server reads");
        }
        for stream in uploads {
            let (status, text) = read_response(stream).await;
            assert_eq!(status, 201, "{text}");
        }
        let (status, text) = read_response(server.start_upload("d", 1, 1).await).await;
        assert_eq!(status, 201, "{text}");
    });
}
