//! A bucket that is missing, unresponsive or forbidden; and memory use.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::CreateRecord;
use onceward_engine::{MAX_INLINE_PAYLOAD_BYTES, ObjectStorage, collect_orphans};
use onceward_store::{Clock, ListQuery, Store as _};
use onceward_testkit::s3::{S3Server, SECRET_ACCESS_KEY};
use onceward_testkit::{TempDir, user};
use serde_json::Map;

use crate::child_process::{self, ChildTest};
use crate::support::{JOB_LIFECYCLE, open_engine, open_sqlite, start_time};
use crate::test_storage::{TestStorage, on_both_backends, payload_of, read_all, shared_server, test_bytes};

fn new_create() -> CreateRecord {
    CreateRecord { lifecycle: JOB_LIFECYCLE.into(), id: None, owner: None, fields: Map::new(), payload: None }
}

/// Calls that do not need the bucket continue.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn unreachable_bucket_returns_unavailable_and_recovers() {
    let server = S3Server::start();
    let test_storage = TestStorage::in_bucket(&server).await;
    let (folder, clock) = (TempDir::new(), Clock::manual(start_time()));
    let engine = open_engine(open_sqlite(&folder, &clock), test_storage.config()).await;
    let (large, small) = (test_bytes(MAX_INLINE_PAYLOAD_BYTES + 1, 1), test_bytes(MAX_INLINE_PAYLOAD_BYTES, 2));
    let id = engine.create_with_payload(&user("ann"), new_create(), Arc::clone(&large)).await.expect("a job").subject;
    // In the middle of an upload, and of a read.
    let mut writer = test_storage.storage.writer().await.unwrap();
    writer.write(test_bytes(6 << 20, 3)).await.unwrap();
    server.kill();
    let error = writer.write(test_bytes(6 << 20, 3)).await.unwrap_err();
    assert_eq!((error.status(), error.code()), (503, "object_storage_unavailable"), "{error}");
    assert_eq!(writer.finish().await.unwrap_err().code(), "object_storage_unavailable");
    let refused = engine
        .create_with_payload(&user("ann"), new_create(), test_bytes(MAX_INLINE_PAYLOAD_BYTES + 1, 4))
        .await
        .unwrap_err();
    assert_eq!((refused.status(), refused.code()), (503, "object_storage_unavailable"), "{refused}");
    assert_eq!(engine.payload(&user("ann"), id).await.unwrap_err().code(), "object_storage_unavailable");
    let made = engine.create_with_payload(&user("ann"), new_create(), small).await;
    assert!(made.is_ok(), "a small payload is stored in the database");
    let all = engine.store().list(&ListQuery { limit: 10, ..ListQuery::default() }).await.unwrap();
    assert_eq!(all.records.len(), 2);
    server.restart();
    assert_eq!(engine.payload(&user("ann"), id).await.unwrap().as_deref(), Some(&*large));
    engine
        .create_with_payload(&user("ann"), new_create(), test_bytes(MAX_INLINE_PAYLOAD_BYTES + 1, 4))
        .await
        .expect("a job");
    // The uploaded parts form no object. Garbage collection deletes the note, although the server has forgotten the
    // upload.
    assert!(test_storage.storage.get(&payload_of(&test_bytes(12 << 20, 3))).await.unwrap().is_none());
    let drafts = || {
        // The server leaves hidden temporary files behind when it is killed.
        let is_ours = |name: &String| name.starts_with("drafts/") && !name.contains(".rclone_temp_");
        test_storage.list_files().into_iter().filter(is_ours).count()
    };
    assert_eq!(drafts(), 1, "{:?}", test_storage.list_files());
    test_storage.set_age(Duration::from_hours(2));
    collect_orphans(engine.store(), &test_storage.storage, Duration::from_hours(1)).await.unwrap();
    assert_eq!(drafts(), 0, "{:?}", test_storage.list_files());
    assert_eq!(engine.payload(&user("ann"), id).await.unwrap().as_deref(), Some(&*large));
    engine.close().await;
}

/// Timeouts run on the test's clock.
#[test]
fn unresponsive_bucket_times_out() {
    let server = S3Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let test_storage = TestStorage::in_bucket(&server).await;
        server.pause();
        tokio::time::pause();
        let began = tokio::time::Instant::now();
        let error = test_storage.storage.put(test_bytes(MAX_INLINE_PAYLOAD_BYTES, 1)).await.unwrap_err();
        assert_eq!(error.code(), "object_storage_unavailable");
        assert!(error.to_string().contains("did not answer"), "{error}");
        // Four attempts: their total time uses the machine's clock, which the test does not advance.
        let waited = began.elapsed().as_secs();
        assert!((20..90).contains(&waited), "{waited} s");
        tokio::time::resume();
        server.resume();
        test_storage.storage.put(test_bytes(MAX_INLINE_PAYLOAD_BYTES, 1)).await.expect("the storage recovers");
    });
}

/// Without secrets.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn misconfigured_storage_is_reported_on_open() {
    let server = shared_server();
    let (good, _) = server.new_bucket();
    let open_error = async |url: &str, changed: &[(&str, &str)]| {
        let mut settings = server.env_vars();
        settings.extend(changed.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        let opened = async { ObjectStorage::open_with(url, settings).await?.probe_write().await };
        let error = opened.await.expect_err("the settings are wrong");
        assert_eq!(error.code(), "object_storage_misconfigured", "{error}");
        let text = error.to_string();
        assert!(text.starts_with(url) && !text.contains(SECRET_ACCESS_KEY) && !text.contains("hidden"), "{text}");
        println!("{text}");
        text
    };
    let text = open_error("s3://no-such-bucket/a", &[]).await;
    assert!(text.contains("404 NoSuchBucket; create the bucket"), "{text}");
    let text = open_error(&good, &[("AWS_SECRET_ACCESS_KEY", "hidden")]).await;
    assert!(text.contains("403") && text.contains("check AWS_ACCESS_KEY_ID"), "{text}");
    let text = open_error(&good, &[("AWS_ACCESS_KEY_ID", "unknown")]).await;
    assert!(text.contains("403") && text.contains("check AWS_ACCESS_KEY_ID"), "{text}");
    let unused_address = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    let text = open_error(&good, &[("AWS_ENDPOINT_URL", &format!("http://{}", unused_address.unwrap()))]).await;
    assert!(text.contains("cannot be reached") && text.contains("check AWS_ENDPOINT_URL"), "{text}");
    ObjectStorage::open_with(&good, server.env_vars())
        .await
        .unwrap()
        .probe_write()
        .await
        .expect("the settings are right");
    let folder = TempDir::new();
    std::fs::write(folder.database_path(), "no folder").unwrap();
    let objects = ObjectStorage::open_with(&folder.database_path().display().to_string(), []).await.unwrap();
    assert_eq!(objects.probe_write().await.unwrap_err().code(), "object_storage_misconfigured");
}

const LARGE_OBJECT_BYTES: usize = 60 << 20;

/// The child process, started by the other test.
#[test]
fn transfers_large_object_in_child_process() {
    child_process::run_in_child(async |objects| {
        // Afterwards the fixed memory of any object is allocated.
        let light = objects.put(test_bytes(MAX_INLINE_PAYLOAD_BYTES, 1)).await.unwrap();
        read_all(objects.get(&light).await.unwrap().unwrap()).await.unwrap();
        let before = peak_memory_kb();
        let mut writer = objects.writer().await.unwrap();
        for piece in 0..LARGE_OBJECT_BYTES >> 16 {
            writer.write(vec![u8::try_from(piece % 251).unwrap(); 1 << 16]).await.unwrap();
        }
        let heavy = writer.finish().await.unwrap();
        let mut reader = objects.get(&heavy).await.unwrap().expect("it exists");
        let mut read = 0;
        while let Some(piece) = reader.next_chunk().await.unwrap() {
            read += piece.len();
        }
        assert_eq!(read, LARGE_OBJECT_BYTES);
        println!("\ngrew {}", peak_memory_kb() - before);
    });
}

/// Returns the peak memory of this process.
fn peak_memory_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
    line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
}

/// An object of 60 MB needs a fraction of that.
#[test]
fn large_object_uses_bounded_memory() {
    on_both_backends(async |test_storage| {
        let mut process = ChildTest::start("storage_errors::transfers_large_object_in_child_process", test_storage);
        let grown: u64 = process.read_line_after(&["grew "]).parse().expect("a number");
        println!("{grown} KB");
        assert!(grown < 24 << 10, "{grown} KB");
        process.wait_for_success();
    });
}
