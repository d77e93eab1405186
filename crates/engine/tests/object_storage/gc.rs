//! Garbage collection deletes orphans, and keeps referenced and recent objects.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::CreateRecord;
use onceward_engine::{MAX_INLINE_PAYLOAD_BYTES, collect_orphans};
use onceward_store::Clock;
use onceward_testkit::{TempDir, user};
use serde_json::Map;

use crate::child_process::{self, ChildTest};
use crate::support::{JOB_LIFECYCLE, TEST_TIMEOUT, open_engine, open_sqlite, start_time};
use crate::test_storage::{on_both_backends, payload_of, test_bytes};

const ONE_HOUR: Duration = Duration::from_hours(1);

/// Named objects stay too.
#[test]
fn old_orphans_are_collected_and_referenced_objects_kept() {
    on_both_backends(async |test_storage| {
        let (folder, clock) = (TempDir::new(), Clock::manual(start_time()));
        let engine = open_engine(open_sqlite(&folder, &clock), test_storage.config()).await;
        let referenced = test_bytes(MAX_INLINE_PAYLOAD_BYTES + 1, 1);
        let create =
            CreateRecord { lifecycle: JOB_LIFECYCLE.into(), id: None, owner: None, fields: Map::new(), payload: None };
        engine.create_with_payload(&user("ann"), create, Arc::clone(&referenced)).await.expect("a job");
        test_storage.storage.put_named("originals/1.png", test_bytes(3, 3)).await.unwrap();
        // A name that resembles a payload's path.
        let looks = format!("ab/{}", "c".repeat(62));
        test_storage.storage.put_named(&looks, test_bytes(3, 3)).await.unwrap();
        // A page of a bucket has a thousand objects.
        for number in 0..1_050_u32 {
            let sha256 = payload_of(&number.to_be_bytes()).sha256;
            std::fs::create_dir_all(test_storage.object_path(&sha256).parent().unwrap()).unwrap();
            std::fs::write(test_storage.object_path(&sha256), b"four").unwrap();
        }
        test_storage.notify_changed();
        let young = collect_orphans(engine.store(), &test_storage.storage, ONE_HOUR).await.unwrap();
        assert_eq!(
            (young.objects, test_storage.list_files().len()),
            (0, 1_053),
            "a create call may still name the young object"
        );
        test_storage.set_age(2 * ONE_HOUR);
        // Writing it again renews its age.
        let again = test_storage.storage.put(Arc::from(1_u32.to_be_bytes())).await.unwrap();
        let gone = collect_orphans(engine.store(), &test_storage.storage, ONE_HOUR).await.unwrap();
        assert_eq!((gone.objects, gone.bytes), (1_049, 4 * 1_049));
        let name = |sha256: &[u8; 32]| {
            test_storage.object_path(sha256).strip_prefix(&test_storage.root).unwrap().display().to_string()
        };
        let mut left = vec![name(&payload_of(&referenced).sha256), name(&again.sha256)];
        left.extend(["named/originals/1.png".to_owned(), format!("named/{looks}")]);
        left.sort();
        assert_eq!(test_storage.list_files(), left);
        engine.close().await;
    });
}

#[test]
fn stale_names_lists_only_old_names_of_the_prefix() {
    on_both_backends(async |test_storage| {
        let shown = async || {
            let mut walk = test_storage.storage.stale_names("originals", ONE_HOUR).await.unwrap();
            let (mut names, mut parts) = (Vec::new(), 0);
            while let Some(some) = walk.next_batch().await.unwrap() {
                names.extend(some);
                parts += 1;
            }
            names.sort();
            (names, parts)
        };
        assert_eq!(shown().await.0, [""; 0], "the storage is empty");
        for name in ["originals/2.png", "originals/1.png", "originals/deep/3.png", "originals2/4.png", "5.png"] {
            test_storage.storage.put_named(name, test_bytes(3, 3)).await.unwrap();
        }
        test_storage.storage.put(test_bytes(3, 3)).await.unwrap();
        assert_eq!(shown().await.0, [""; 0], "a young object is kept");
        test_storage.set_age(2 * ONE_HOUR);
        test_storage.storage.put_named("originals/2.png", test_bytes(3, 3)).await.unwrap();
        assert_eq!(shown().await.0, ["originals/1.png"]);
        for number in 0..1_100 {
            std::fs::write(test_storage.root.join(format!("named/originals/{number}.jpg")), b"four").unwrap();
        }
        test_storage.set_age(2 * ONE_HOUR);
        let (names, parts) = shown().await;
        assert!(names.len() == 1_102 && parts > 2, "{} in {parts}", names.len());
        test_storage.storage.stale_names("../x", ONE_HOUR).await.err().expect("an invalid name is rejected");
    });
}

#[test]
fn dropped_writer_leaves_no_files() {
    on_both_backends(async |test_storage| {
        for length in [1, 12 << 20] {
            let mut writer = test_storage.storage.writer().await.unwrap();
            writer.write(test_bytes(length, 5)).await.unwrap();
            drop(writer);
            // The bucket is cleaned asynchronously.
            let deadline = tokio::time::Instant::now() + TEST_TIMEOUT;
            while !test_storage.list_files().is_empty() {
                assert!(tokio::time::Instant::now() < deadline, "{:?} is left", test_storage.list_files());
                tokio::task::yield_now().await;
            }
        }
    });
}

/// The child process, started by the other test.
#[test]
fn uploads_until_killed() {
    child_process::run_in_child(async |objects| {
        loop {
            let mut writer = objects.writer().await.unwrap();
            // Three parts and a remainder.
            for piece in 0..30 {
                writer.write(vec![piece; 600_000]).await.unwrap();
                println!("\nwritten");
            }
            writer.finish().await.unwrap();
            println!("\nfinished");
        }
    });
}

#[test]
fn uploads_of_killed_process_are_collected() {
    on_both_backends(async |test_storage| {
        let (folder, clock) = (TempDir::new(), Clock::manual(start_time()));
        let store = open_sqlite(&folder, &clock);
        // Before the first part, in the middle, before the end, and after it.
        for lines in [3, 12, 20, 30, 31, 45] {
            let mut process = ChildTest::start("gc::uploads_until_killed", test_storage);
            process.wait_for_lines(lines);
            process.kill();
            println!("killed after {lines}: {:?}", test_storage.list_files());
            // The server may not have noticed the closed connection yet.
            let deadline = tokio::time::Instant::now() + TEST_TIMEOUT;
            loop {
                test_storage.set_age(2 * ONE_HOUR);
                collect_orphans(&store, &test_storage.storage, ONE_HOUR).await.unwrap();
                let left = test_storage.list_files();
                if left.is_empty() {
                    break;
                }
                assert!(tokio::time::Instant::now() < deadline, "{left:?} is left");
            }
        }
    });
}
