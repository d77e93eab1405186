//! Tests the limit on concurrent uploads per owner.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use onceward_testkit::http::{self, BINARY_CONTENT_TYPE, RawHttpResponse};
use onceward_testkit::server_process::DatabaseKind;

use crate::support::DocumentServer;

/// Starts an upload. The server's "100 Continue" shows that the upload has a slot; otherwise returns the refusal.
fn begin_upload(server: &DocumentServer, name: &str) -> Result<TcpStream, RawHttpResponse> {
    let head = [BINARY_CONTENT_TYPE, ("client-request-id", name), ("content-length", "10"), ("expect", "100-continue")];
    let mut stream = server.process.begin_request_as(&server.alice, "POST", "/document/upload", &head);
    let mut first = [0; 12];
    stream.peek(&mut first).expect("response");
    if &first != b"HTTP/1.1 100" {
        return Err(http::read_response(&stream));
    }
    let mut continue_head = [0; 25];
    stream.read_exact(&mut continue_head).expect("response");
    Ok(stream)
}

/// Other owners can upload meanwhile.
#[test]
fn one_owner_gets_at_most_a_quarter_of_upload_slots() {
    let server = DocumentServer::open(DatabaseKind::Sqlite);
    let mut uploads: Vec<TcpStream> =
        (0..4).map(|number| begin_upload(&server, &number.to_string()).expect("a place")).collect();
    let fifth = begin_upload(&server, "fifth").expect_err("id line");
    fifth.assert_problem(503, "too_many_uploads");
    assert!(fifth.header("retry-after").is_some());
    assert_eq!(server.upload(&server.bob, "his", b"x").status, 201);
    uploads[0].write_all(&[7; 10]).expect("read");
    assert_eq!(http::read_response(&uploads.remove(0)).status, 201);
    assert_eq!(server.upload(&server.alice, "fifth", b"x").status, 201, "a slot of hers is free");
}
