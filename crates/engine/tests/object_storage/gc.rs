//! Garbage collection deletes orphans, and keeps referenced and recent objects.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use onceward_core::decide::CreateRecord;
use onceward_engine::{MAX_INLINE_PAYLOAD_BYTES, ObjectStorage, collect_orphans};
use onceward_store::Clock;
use onceward_testkit::{TempDir, user};
use serde_json::Map;

use crate::child_process::{self, ChildTest};
use crate::support::{JOB_LIFECYCLE, TEST_TIMEOUT, open_engine, open_sqlite, start_time};
use crate::test_storage::{TestStorage, on_both_backends, payload_of, shared_server, test_bytes};

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

/// Two processes share a bucket: one collects an orphan while the other writes the same bytes again.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn object_rewritten_during_deletion_by_other_process_survives_in_bucket() {
    let test_storage = TestStorage::in_bucket(shared_server()).await;
    let bytes = test_bytes(MAX_INLINE_PAYLOAD_BYTES + 1, 7);
    let payload = test_storage.storage.put(Arc::clone(&bytes)).await.unwrap();
    test_storage.set_age(2 * ONE_HOUR);
    let path = test_storage.object_path(&payload.sha256);
    let (endpoint, held, release) = start_proxy_that_holds_deletion(&shared_server().endpoint(), &path);
    let settings = test_storage.settings.iter().cloned().chain([("AWS_ENDPOINT_URL".to_owned(), endpoint)]);
    let collector = ObjectStorage::open_with(&test_storage.url, settings).await.expect("a bucket");
    let (folder, clock) = (TempDir::new(), Clock::manual(start_time()));
    let store = open_sqlite(&folder, &clock);
    let collection = tokio::spawn(async move { collect_orphans(&store, &collector, ONE_HOUR).await });
    tokio::task::block_in_place(|| held.recv_timeout(TEST_TIMEOUT)).expect("the deletion is on its way");
    let writer = test_storage.storage.clone();
    let rewrite = tokio::spawn(async move { writer.put(bytes).await });
    let deadline = tokio::time::Instant::now() + TEST_TIMEOUT;
    // The server may replace the file by removing it first.
    let age = || std::fs::metadata(&path).ok().and_then(|about| about.modified().ok()?.elapsed().ok());
    while age().is_none_or(|age| age > ONE_HOUR) {
        assert!(tokio::time::Instant::now() < deadline, "the object is not rewritten");
        tokio::task::yield_now().await;
    }
    // A writer that does not wait for the deletion returns about now, before the object is deleted.
    release.send(()).unwrap();
    assert_eq!(collection.await.unwrap().unwrap().objects, 1, "the deletion arrived after the rewrite");
    rewrite.await.unwrap().unwrap();
    test_storage.notify_changed();
    assert!(test_storage.storage.get(&payload).await.unwrap().is_some(), "the rewritten object exists");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn marker_of_dead_process_delays_no_write() {
    let test_storage = TestStorage::in_bucket(shared_server()).await;
    let marker = test_storage.root.join("drafts/deletions/dead");
    std::fs::create_dir_all(marker.parent().unwrap()).unwrap();
    std::fs::write(marker, b"").unwrap();
    test_storage.set_age(ONE_HOUR);
    let write = tokio::time::timeout(TEST_TIMEOUT, test_storage.storage.put(test_bytes(3, 9)));
    write.await.expect("the writer does not wait for the dead process").unwrap();
}

/// Starts a proxy of an S3 server that holds the request that deletes this object until it is released.
fn start_proxy_that_holds_deletion(endpoint: &str, object: &Path) -> (String, Receiver<()>, Sender<()>) {
    let name = object.file_name().unwrap().to_str().unwrap().to_owned();
    let target = endpoint.strip_prefix("http://").unwrap().to_owned();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let ((held, on_held), (release, on_release)) = (mpsc::channel(), mpsc::channel());
    let on_release = Arc::new(Mutex::new(on_release));
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut server) = (client.unwrap(), TcpStream::connect(&target).unwrap());
            let (mut replies, mut receiver) = (server.try_clone().unwrap(), client.try_clone().unwrap());
            std::thread::spawn(move || std::io::copy(&mut replies, &mut receiver));
            let (held, on_release, name) = (held.clone(), Arc::clone(&on_release), name.clone());
            std::thread::spawn(move || {
                let mut buffer = vec![0; 64 << 10];
                while let Ok(read) = client.read(&mut buffer)
                    && read > 0
                {
                    let head = String::from_utf8_lossy(&buffer[..read]);
                    if head.starts_with("DELETE ") && head.lines().next().unwrap().contains(&name) {
                        held.send(()).unwrap();
                        on_release.lock().unwrap().recv().unwrap();
                    }
                    if server.write_all(&buffer[..read]).is_err() {
                        break;
                    }
                }
            });
        }
    });
    (address, on_held, release)
}

/// Garbage collection holds the lock exclusively while it checks and deletes an object, in this or another process.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn folder_write_waits_for_deletion_by_other_process() {
    let test_storage = TestStorage::in_folder().await;
    test_storage.storage.put(test_bytes(3, 1)).await.unwrap();
    let lock = std::fs::File::options().write(true).open(test_storage.root.join("lock")).expect("the lock file");
    lock.lock().unwrap();
    let writer = test_storage.storage.clone();
    let write = tokio::spawn(async move { writer.put(test_bytes(3, 2)).await });
    // The kernel lists the writer as waiting for the lock.
    let inode = format!(":{} ", lock.metadata().unwrap().ino());
    let deadline = tokio::time::Instant::now() + TEST_TIMEOUT;
    let is_waiting = |line: &str| line.contains("->") && line.contains(&inode);
    while !std::fs::read_to_string("/proc/locks").unwrap().lines().any(is_waiting) {
        assert!(tokio::time::Instant::now() < deadline && !write.is_finished(), "the writer does not wait");
        tokio::task::yield_now().await;
    }
    drop(lock);
    let payload = write.await.unwrap().unwrap();
    assert!(test_storage.storage.get(&payload).await.unwrap().is_some());
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
