//! A provider that says far more than it was asked for.

use onceward_testkit::fake_image_service::{FakeImageService, FakeResponse, RequestKind};
use onceward_testkit::server_process::DatabaseKind;
use serde_json::json;

use crate::support::ImageServer;

/// Bytes of an answer: as many as are taken for a picture of the largest size.
const RESPONSE_BYTES: usize = 20 << 20;

/// What the server may take for it: the answer itself, twice while it comes, and what is said of the picture. Each of its
/// items would take more than ten times its bytes.
const MAX_GROWTH_BYTES: u64 = 90 << 20;

/// The most memory that the server has had so far.
fn peak_memory_bytes(server: &ImageServer) -> u64 {
    server.process().memory_kb("VmHWM") * 1024
}

/// Millions of pictures in place of one: the first is taken, and the others cost no memory. A refusal as long is cut off.
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
    println!("{} bytes of answer, and the server grew by {grown} bytes", list.len());
}
