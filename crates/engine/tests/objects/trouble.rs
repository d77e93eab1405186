//! A bucket that is not there, does not answer, or does not let one in; and how much memory it takes.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::Create;
use onceward_engine::{LARGE, Objects, collect};
use onceward_store::{Clock, ListQuery, Store as _};
use onceward_testkit::s3::{SECRET, Server};
use onceward_testkit::{Folder, user};
use serde_json::Map;

use crate::again::{self, Again};
use crate::spot::{Spot, bytes, on_both, payload, read, server};
use crate::stage::{JOB, open, sqlite, start, wait};

fn create() -> Create {
    Create { lifecycle: JOB.into(), id: None, owner: None, fields: Map::new(), payload: None }
}

/// While the bucket is down, what needs it is answered 503 and nothing is made; what does not need it goes on. When it is back, so
/// is everything.
#[test]
fn a_bucket_that_is_down() {
    let server = Server::start();
    wait(async {
        let spot = Spot::in_bucket(&server).await;
        let (folder, clock) = (Folder::new(), Clock::manual(start()));
        let engine = open(sqlite(&folder, &clock), spot.config()).await;
        let (large, small) = (bytes(LARGE + 1, 1), bytes(LARGE, 2));
        let id = engine.create_with(&user("ann"), create(), Arc::clone(&large)).await.expect("a job").subject;
        // In the middle of an upload, and of a read.
        let mut writer = spot.objects.writer().await.unwrap();
        writer.write(bytes(6 << 20, 3)).await.unwrap();
        server.kill();
        let error = writer.write(bytes(6 << 20, 3)).await.unwrap_err();
        assert_eq!((error.status(), error.code()), (503, "objects_unavailable"), "{error}");
        assert_eq!(writer.finish().await.unwrap_err().code(), "objects_unavailable");
        let refused = engine.create_with(&user("ann"), create(), bytes(LARGE + 1, 4)).await.unwrap_err();
        assert_eq!((refused.status(), refused.code()), (503, "objects_unavailable"), "{refused}");
        assert_eq!(engine.payload(&user("ann"), id).await.unwrap_err().code(), "objects_unavailable");
        let made = engine.create_with(&user("ann"), create(), small).await;
        assert!(made.is_ok(), "this one stands in the database");
        let all = engine.store().list(&ListQuery { limit: 10, ..ListQuery::default() }).await.unwrap();
        assert_eq!(all.records.len(), 2);
        server.start_again();
        assert_eq!(engine.payload(&user("ann"), id).await.unwrap().as_deref(), Some(&*large));
        engine.create_with(&user("ann"), create(), bytes(LARGE + 1, 4)).await.expect("a job");
        // What the upload had sent is no object, and is nobody's: the note of it goes, though the server knows of no upload.
        assert!(spot.objects.get(&payload(&bytes(12 << 20, 3))).await.unwrap().is_none());
        let drafts = || {
            // The server's own, which it hides and leaves behind when it is killed.
            let is_ours = |name: &String| name.starts_with("drafts/") && !name.contains(".rclone_temp_");
            spot.files().into_iter().filter(is_ours).count()
        };
        assert_eq!(drafts(), 1, "{:?}", spot.files());
        spot.age(Duration::from_hours(2));
        collect(engine.store(), &spot.objects, Duration::from_hours(1)).await.unwrap();
        assert_eq!(drafts(), 0, "{:?}", spot.files());
        assert_eq!(engine.payload(&user("ann"), id).await.unwrap().as_deref(), Some(&*large));
        engine.close().await;
    });
}

/// A bucket that takes a question and never answers is given up in time. The clock of the waits is the test's.
#[test]
fn a_bucket_that_does_not_answer() {
    let server = Server::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let spot = Spot::in_bucket(&server).await;
        server.hold();
        tokio::time::pause();
        let began = tokio::time::Instant::now();
        let error = spot.objects.put(bytes(LARGE, 1)).await.unwrap_err();
        assert_eq!(error.code(), "objects_unavailable");
        assert!(error.to_string().contains("does not answer"), "{error}");
        // Four tries: how long they may take together is measured by the machine's clock, which stands still here.
        let waited = began.elapsed().as_secs();
        assert!((20..90).contains(&waited), "{waited} s");
        tokio::time::resume();
        server.resume();
        spot.objects.put(bytes(LARGE, 1)).await.expect("it goes on");
    });
}

/// What is wrong with the settings is told when the place is opened, in words that help and without secrets.
#[test]
fn what_is_wrong_is_told_at_the_start() {
    wait(async {
        let server = server();
        let (good, _) = server.bucket();
        let tried = async |url: &str, changed: &[(&str, &str)]| {
            let mut settings = server.settings();
            settings.extend(changed.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
            let opened = async { Objects::open_with(url, settings).await?.try_writing().await };
            let error = opened.await.expect_err("it is wrong");
            assert_eq!(error.code(), "objects_misconfigured", "{error}");
            let text = error.to_string();
            assert!(text.starts_with(url) && !text.contains(SECRET) && !text.contains("hidden"), "{text}");
            println!("{text}");
            text
        };
        let text = tried("s3://no-such-bucket/a", &[]).await;
        assert!(text.contains("404 NoSuchBucket; make the bucket first"), "{text}");
        let text = tried(&good, &[("AWS_SECRET_ACCESS_KEY", "hidden")]).await;
        assert!(text.contains("403") && text.contains("look at AWS_ACCESS_KEY_ID"), "{text}");
        let text = tried(&good, &[("AWS_ACCESS_KEY_ID", "nobody")]).await;
        assert!(text.contains("403") && text.contains("look at AWS_ACCESS_KEY_ID"), "{text}");
        let nobody = std::net::TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
        let text = tried(&good, &[("AWS_ENDPOINT_URL", &format!("http://{}", nobody.unwrap()))]).await;
        assert!(text.contains("cannot be reached") && text.contains("look at AWS_ENDPOINT_URL"), "{text}");
        Objects::open_with(&good, server.settings()).await.unwrap().try_writing().await.expect("this is right");
        let folder = Folder::new();
        std::fs::write(folder.file(), "no folder").unwrap();
        let objects = Objects::open_with(&folder.file().display().to_string(), []).await.unwrap();
        assert_eq!(objects.try_writing().await.unwrap_err().code(), "objects_misconfigured");
    });
}

/// Bytes of the object that is weighed.
const HEAVY: usize = 60 << 20;

/// The process that is weighed: this very test, run again by the other one.
#[test]
fn carries_a_heavy_object() {
    again::run(async |objects| {
        // What any object takes is there by then.
        let light = objects.put(bytes(LARGE, 1)).await.unwrap();
        read(objects.get(&light).await.unwrap().unwrap()).await.unwrap();
        let before = most_memory();
        let mut writer = objects.writer().await.unwrap();
        for piece in 0..HEAVY >> 16 {
            writer.write(vec![u8::try_from(piece % 251).unwrap(); 1 << 16]).await.unwrap();
        }
        let heavy = writer.finish().await.unwrap();
        let mut reader = objects.get(&heavy).await.unwrap().expect("it is there");
        let mut read = 0;
        while let Some(piece) = reader.next().await.unwrap() {
            read += piece.len();
        }
        assert_eq!(read, HEAVY);
        println!("\ngrew {}", most_memory() - before);
    });
}

/// The most that this process ever had, in KB.
fn most_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("a line");
    line.split_whitespace().next().and_then(|number| number.parse().ok()).expect("a number")
}

/// An object of 60 MB, in and out again, takes a process a fraction of that.
#[test]
fn a_heavy_object_is_not_held_in_memory() {
    on_both(async |spot| {
        let mut process = Again::start("trouble::carries_a_heavy_object", spot);
        let grown: u64 = process.word(&["grew "]).parse().expect("a number");
        println!("{grown} KB");
        assert!(grown < 24 << 10, "{grown} KB");
        process.ended();
    });
}
