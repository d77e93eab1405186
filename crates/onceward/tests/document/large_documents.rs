//! Tests documents of the maximum size.

use std::io::{BufReader, Read as _, Write as _};

use onceward_testkit::http::{self, BINARY_CONTENT_TYPE};
use onceward_testkit::server_process::ALL_DATABASES;
use serde_json::json;

use crate::support::DocumentServer;

const MAX_DOCUMENT_BYTES: usize = 100 * 1024 * 1024;
const CHUNK_BYTES: usize = 1 << 20;

/// Limit for the server's memory growth during upload and download together.
const MAX_GROWTH_KILOBYTES: u64 = 40 * 1024;

/// Chunks differ, so that a swapped chunk is detected.
fn chunk(number: usize) -> Vec<u8> {
    let mut state = u64::try_from(number).expect("small") + 1;
    (0..CHUNK_BYTES / 8)
        .flat_map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            state.to_le_bytes()
        })
        .collect()
}

/// One byte more than 100 MB is refused and leaves no data.
#[test]
fn largest_document_is_streamed_in_bounded_memory() {
    for db in ALL_DATABASES {
        let server = DocumentServer::open(db);
        assert_eq!(server.upload(&server.alice, "first", b"x").status, 201);
        let before = server.process.memory_kb("VmHWM");
        let head =
            [BINARY_CONTENT_TYPE, ("client-request-id", "whole"), ("content-length", &*MAX_DOCUMENT_BYTES.to_string())];
        let mut stream = server.process.begin_request_as(&server.alice, "POST", "/document/upload", &head);
        for number in 0..MAX_DOCUMENT_BYTES / CHUNK_BYTES {
            stream.write_all(&chunk(number)).expect("read");
        }
        let made = http::read_response(&stream);
        assert_eq!(made.status, 201, "{}", made.text());
        let grown = server.process.memory_kb("VmHWM") - before;
        assert!(grown < MAX_GROWTH_KILOBYTES, "{db:?}: the server grew by {grown} KB during upload");
        let id = made.json()["jobId"].as_str().expect("id").to_owned();
        let submitted = server.post(&server.alice, &format!("/document/jobs/{id}/submit"), &json!({}));
        assert_eq!(submitted.status, 200);
        let leased = server.lease_job();
        assert_eq!(leased["record"]["payload"]["bytes"], MAX_DOCUMENT_BYTES);
        let last = [("connection", "close")];
        let stream =
            server.process.begin_request_as(&server.worker, "GET", &format!("/v1/records/{id}/payload"), &last);
        let mut stream = BufReader::new(stream);
        http::read_head(&mut stream);
        let mut read = vec![0; CHUNK_BYTES];
        for number in 0..MAX_DOCUMENT_BYTES / CHUNK_BYTES {
            stream.read_exact(&mut read).expect("all of it");
            assert!(read == chunk(number), "{db:?}: chunk {number} differs");
        }
        assert_eq!(stream.read(&mut read).expect("its end"), 0);
        let grown = server.process.memory_kb("VmHWM") - before;
        assert!(grown < MAX_GROWTH_KILOBYTES, "{db:?}: the server grew by {grown} KB during download");
        println!("{db:?}: {MAX_DOCUMENT_BYTES} bytes uploaded and downloaded; the server grew by {grown} KB");
        upload_one_byte_too_many(&server);
    }
}

/// Chunked, so that the server does not know the size in advance.
fn upload_one_byte_too_many(server: &DocumentServer) {
    let head = [BINARY_CONTENT_TYPE, ("client-request-id", "more"), ("transfer-encoding", "chunked")];
    let mut stream = server.process.begin_request_as(&server.alice, "POST", "/document/upload", &head);
    for number in 0..MAX_DOCUMENT_BYTES / CHUNK_BYTES {
        stream.write_all(format!("{CHUNK_BYTES:x}\r\n").as_bytes()).expect("read");
        stream.write_all(&chunk(number + 1)).expect("read");
        stream.write_all(b"\r\n").expect("read");
    }
    stream.write_all(b"1\r\nx\r\n").expect("read");
    http::read_response(&stream).assert_problem(413, "request_too_large");
    let jobs = server.get(&server.operator, "/v1/records?lifecycle=document.job").json();
    assert_eq!(jobs["records"].as_array().map(Vec::len), Some(2), "the first bytes and the whole document");
    let drafts = std::fs::read_dir(server.objects().join("drafts")).expect("folder").count();
    assert_eq!(drafts, 0);
}
