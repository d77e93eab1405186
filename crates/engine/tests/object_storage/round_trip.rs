//! Objects round-trip unchanged until they are removed.

use std::sync::Arc;

use onceward_core::decide::CreateRecord;
use onceward_engine::{MAX_INLINE_PAYLOAD_BYTES, VerifyReport, verify_objects};
use onceward_store::{Clock, SqliteScanner};
use onceward_testkit::{TempDir, user};
use serde_json::Map;

use crate::support::{JOB_LIFECYCLE, open_engine, open_sqlite, start_time};
use crate::test_storage::{on_both_backends, payload_of, read_all, test_bytes};

/// Size of an upload part; smaller objects are sent in one request.
const UPLOAD_PART_BYTES: usize = 5 << 20;

/// As a whole and in chunks; no other file is left.
#[test]
fn payload_round_trips_at_every_size_bound() {
    on_both_backends(async |test_storage| {
        for (seed, length) in (0..).zip([
            0,
            1,
            MAX_INLINE_PAYLOAD_BYTES,
            UPLOAD_PART_BYTES - 1,
            UPLOAD_PART_BYTES,
            UPLOAD_PART_BYTES + 1,
            2 * UPLOAD_PART_BYTES,
            2 * UPLOAD_PART_BYTES + 77,
        ]) {
            let given = test_bytes(length, seed);
            let expected = payload_of(&given);
            assert!(test_storage.storage.get(&expected).await.unwrap().is_none());
            assert_eq!(test_storage.storage.object_size(&expected.sha256).await.unwrap(), None);
            let mut writer = test_storage.storage.writer().await.unwrap();
            for piece in given.chunks(777_777) {
                writer.write(piece.to_vec()).await.unwrap();
            }
            assert_eq!(writer.bytes(), expected.bytes);
            assert_eq!(writer.finish().await.unwrap(), expected);
            let name = test_storage.object_path(&expected.sha256);
            assert_eq!(std::fs::read(&name).expect("a file of its name"), *given);
            assert_eq!(test_storage.storage.object_size(&expected.sha256).await.unwrap(), Some(expected.bytes));
            let reader = test_storage.storage.get(&expected).await.unwrap().expect("it exists");
            assert_eq!(reader.payload(), expected);
            let (back, largest) = read_all(reader).await.unwrap();
            assert!(back == *given && largest <= 1 << 20, "{length} bytes, in pieces of up to {largest}");
            test_storage.remove(&expected.sha256);
            // As a whole; and again over itself.
            for _ in 0..2 {
                assert_eq!(test_storage.storage.put(Arc::clone(&given)).await.unwrap(), expected);
                assert!(std::fs::read(&name).unwrap() == *given);
            }
            test_storage.remove(&expected.sha256);
            assert_eq!(test_storage.list_files(), Vec::<String>::new(), "{length}");
        }
    });
}

/// The hash is verified on read.
#[test]
fn named_object_is_overwritten_read_and_removed() {
    on_both_backends(async |test_storage| {
        let (first, second) = (test_bytes(300_000, 1), test_bytes(17, 2));
        let named = "originals/0199-a.png";
        assert!(test_storage.storage.get_named(named, &payload_of(&first)).await.unwrap().is_none());
        for given in [&first, &second, &test_bytes(0, 0)] {
            test_storage.storage.put_named(named, Arc::clone(given)).await.unwrap();
            let reader = test_storage.storage.get_named(named, &payload_of(given)).await.unwrap().expect("it exists");
            assert!(read_all(reader).await.unwrap().0 == **given);
            assert_eq!(test_storage.list_files(), [format!("named/{named}")]);
        }
        let reader =
            test_storage.storage.get_named(named, &payload_of(&first)).await.unwrap().expect("the object exists");
        assert_eq!(read_all(reader).await.unwrap_err().code(), "object_damaged");
        assert!(
            test_storage.storage.get(&payload_of(&second)).await.unwrap().is_none(),
            "a named object is not found by hash"
        );
        for _ in 0..2 {
            test_storage.storage.remove_named(named).await.unwrap();
            assert_eq!(test_storage.list_files(), Vec::<String>::new());
        }
        for bad in ["", "..", "a/../../b", "/etc/passwd", "a//b", "a/", ".a"] {
            let code = |error: onceward_engine::ObjectError| error.code();
            assert_eq!(
                test_storage.storage.put_named(bad, test_bytes(1, 1)).await.map_err(code),
                Err("invalid_object_name")
            );
            let got = test_storage.storage.get_named(bad, &payload_of(b"")).await;
            assert_eq!(got.map(|reader| reader.is_some()).map_err(code), Err("invalid_object_name"));
            assert_eq!(test_storage.storage.remove_named(bad).await.map_err(code), Err("invalid_object_name"));
        }
    });
}

/// Also with fewer or more bytes, and if the object is missing.
#[test]
fn damaged_object_is_reported_by_read_and_verify() {
    on_both_backends(async |test_storage| {
        let (folder, clock) = (TempDir::new(), Clock::manual(start_time()));
        let engine = open_engine(open_sqlite(&folder, &clock), test_storage.config()).await;
        let given = test_bytes(600_000, 9);
        let create = || CreateRecord {
            lifecycle: JOB_LIFECYCLE.into(),
            id: None,
            owner: None,
            fields: Map::new(),
            payload: None,
        };
        let id = engine.create_with_payload(&user("ann"), create(), Arc::clone(&given)).await.expect("a job").subject;
        let (payload, name) = (payload_of(&given), test_storage.object_path(&payload_of(&given).sha256));
        let verify_result = async |contents: bool| {
            let (view, mut report) = (SqliteScanner::open(folder.database_path()).unwrap(), VerifyReport::default());
            verify_objects(&view, Some(&test_storage.storage), contents, &mut (), &mut report).await.unwrap();
            (report.objects, report.differences.len())
        };
        assert_eq!(verify_result(true).await, (1, 0));
        for harm in [given[..599_999].to_vec(), [&given[..], b"x"].concat(), vec![0; 600_000]] {
            std::fs::write(&name, harm).unwrap();
            test_storage.notify_changed();
            let reader = test_storage.storage.get(&payload).await.unwrap().expect("the object exists");
            assert_eq!(read_all(reader).await.unwrap_err().code(), "object_damaged");
            assert_eq!(engine.payload(&user("ann"), id).await.unwrap_err().code(), "object_damaged");
            assert_eq!((verify_result(false).await, verify_result(true).await), ((1, 0), (1, 1)));
        }
        test_storage.remove(&payload.sha256);
        assert!(engine.payload(&user("ann"), id).await.unwrap().is_none());
        assert_eq!(verify_result(false).await, (1, 1));
        // Uploading it again repairs it.
        engine.create_with_payload(&user("ann"), create(), Arc::clone(&given)).await.expect("a job");
        assert_eq!(engine.payload(&user("ann"), id).await.unwrap().as_deref(), Some(&*given));
        assert_eq!(verify_result(true).await, (1, 0));
        engine.close().await;
    });
}

/// A client that only counts bytes notices the damage.
#[test]
fn last_chunk_is_withheld_until_hash_matches() {
    on_both_backends(async |test_storage| {
        for length in [1, 300_000, 600_000] {
            let given = test_bytes(length, 5);
            let payload = test_storage.storage.put(Arc::clone(&given)).await.unwrap();
            let mut harmed = given.to_vec();
            harmed[length / 2] ^= 1;
            std::fs::write(test_storage.object_path(&payload.sha256), harmed).unwrap();
            test_storage.notify_changed();
            let mut reader = test_storage.storage.get(&payload).await.unwrap().expect("the object exists");
            let mut bytes_read = 0;
            let error = loop {
                match reader.next_chunk().await {
                    Ok(piece) => bytes_read += piece.expect("the damaged read ends with an error").len(),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.code(), "object_damaged");
            assert!(bytes_read < length, "{bytes_read} of {length} bytes");
            assert_eq!(reader.next_chunk().await.unwrap_err().code(), "object_damaged", "later reads fail, too");
        }
    });
}

/// Bytes that the canceled read consumed would be missing.
#[test]
fn canceled_read_fails_instead_of_ending() {
    on_both_backends(async |test_storage| {
        let payload = test_storage.storage.put(test_bytes(600_000, 6)).await.unwrap();
        let mut reader = test_storage.storage.get(&payload).await.unwrap().expect("it exists");
        let mut left = Box::pin(reader.next_chunk());
        // Polled once and dropped: the bytes of a file or a bucket are not ready at once.
        let is_there = std::future::poll_fn(|context| std::task::Poll::Ready(left.as_mut().poll(context).is_ready()));
        let is_there = is_there.await;
        drop(left);
        if !is_there {
            assert_eq!(reader.next_chunk().await.unwrap_err().code(), "object_storage_unavailable");
        }
    });
}
