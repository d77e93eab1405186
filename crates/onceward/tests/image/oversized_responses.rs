//! Tests a provider that sends oversized responses.

use onceward_testkit::fake_image_service::{FakeImageService, FakeResponse, RequestKind};
use onceward_testkit::server_process::DatabaseKind;
use serde_json::json;

use crate::support::ImageServer;

/// The largest accepted response to a request for a picture.
const RESPONSE_BYTES: usize = 20 << 20;

/// The response itself, twice while it is received, and its metadata. Parsing every item would take over ten times its
/// bytes.
const MAX_GROWTH_BYTES: u64 = 90 << 20;

fn peak_memory_bytes(server: &ImageServer) -> u64 {
    server.process().memory_kb("VmHWM") * 1024
}

/// Of millions of pictures only the first is parsed. A long refusal is truncated.
#[test]
fn oversized_provider_response_uses_bounded_memory() {
    let service = FakeImageService::start();
    let first = json!({ "url": format!("{}/pictures/1.png", service.url()) });
    let list = format!("{{\"data\":[{first}{}]}}", ",{}".repeat(RESPONSE_BYTES / 3));
    let server = ImageServer::with_keys(
        DatabaseKind::Sqlite,
        &["--image-url", &service.url(), "--image-time", "18446744073709551615"],
    );
    let ann = server.key("ann", &["user"]);
    server.grant("ann", 15);
    let job = server.place_order(&ann, "a boat at sea");
    server.wait_for_job(&ann, &job, "completed");
    let before = peak_memory_bytes(&server);
    service.respond_next(RequestKind::Generation, FakeResponse::success_text(&list));
    let job = server.place_order(&ann, "a boat on land");
    server.wait_for_job(&ann, &job, "completed");
    let zeros = json!({ "code": "x", "e": vec![0; RESPONSE_BYTES / 2] });
    service.respond_next(RequestKind::Generation, FakeResponse::error_status(400).error(zeros));
    let job = server.place_order(&ann, "a boat in the air");
    server.wait_for_job(&ann, &job, "dead_letter");
    let grown = peak_memory_bytes(&server) - before;
    assert!(grown < MAX_GROWTH_BYTES, "the server grew by {grown} bytes");
    println!("{} bytes of response; the server grew by {grown} bytes", list.len());
}
