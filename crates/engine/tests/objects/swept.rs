//! What nobody has goes; what somebody has, or may be about to name, stays.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::Create;
use onceward_engine::{LARGE, collect};
use onceward_store::Clock;
use onceward_testkit::{Folder, user};
use serde_json::Map;

use crate::again::{self, Again};
use crate::spot::{bytes, on_both, payload};
use crate::stage::{JOB, LONG, open, sqlite, start};

const HOUR: Duration = Duration::from_hours(1);

/// Orphans go when they are old, page by page; what a record has, and what a system has named, does not.
#[test]
fn orphans_are_collected() {
    on_both(async |spot| {
        let (folder, clock) = (Folder::new(), Clock::manual(start()));
        let engine = open(sqlite(&folder, &clock), spot.config()).await;
        let kept = bytes(LARGE + 1, 1);
        let create = Create { lifecycle: JOB.into(), id: None, owner: None, fields: Map::new(), payload: None };
        engine.create_with(&user("ann"), create, Arc::clone(&kept)).await.expect("a job");
        spot.objects.put_named("originals/1.png", bytes(3, 3)).await.unwrap();
        // Named so that it could be taken for a payload.
        let looks = format!("ab/{}", "c".repeat(62));
        spot.objects.put_named(&looks, bytes(3, 3)).await.unwrap();
        // A page of a bucket has a thousand.
        for number in 0..1_050_u32 {
            let sha256 = payload(&number.to_be_bytes()).sha256;
            std::fs::create_dir_all(spot.file(&sha256).parent().unwrap()).unwrap();
            std::fs::write(spot.file(&sha256), b"four").unwrap();
        }
        spot.changed();
        let young = collect(engine.store(), &spot.objects, HOUR).await.unwrap();
        assert_eq!((young.objects, spot.files().len()), (0, 1_053), "somebody may be about to name it");
        spot.age(2 * HOUR);
        // Brought again, it is young again.
        let again = spot.objects.put(Arc::from(1_u32.to_be_bytes())).await.unwrap();
        let gone = collect(engine.store(), &spot.objects, HOUR).await.unwrap();
        assert_eq!((gone.objects, gone.bytes), (1_049, 4 * 1_049));
        let name = |sha256: &[u8; 32]| spot.file(sha256).strip_prefix(&spot.root).unwrap().display().to_string();
        let mut left = vec![name(&payload(&kept).sha256), name(&again.sha256)];
        left.extend(["named/originals/1.png".to_owned(), format!("named/{looks}")]);
        left.sort();
        assert_eq!(spot.files(), left);
        engine.close().await;
    });
}

/// A system is shown what lies under a name of its own and is old: that, nothing beside it and nothing below, in parts.
#[test]
fn old_names_are_shown() {
    on_both(async |spot| {
        let shown = async || {
            let mut walk = spot.objects.old_names("originals", HOUR).await.unwrap();
            let (mut names, mut parts) = (Vec::new(), 0);
            while let Some(some) = walk.next().await.unwrap() {
                names.extend(some);
                parts += 1;
            }
            names.sort();
            (names, parts)
        };
        assert_eq!(shown().await.0, [""; 0], "there is nothing");
        for name in ["originals/2.png", "originals/1.png", "originals/deep/3.png", "originals2/4.png", "5.png"] {
            spot.objects.put_named(name, bytes(3, 3)).await.unwrap();
        }
        spot.objects.put(bytes(3, 3)).await.unwrap();
        assert_eq!(shown().await.0, [""; 0], "it is young");
        spot.age(2 * HOUR);
        spot.objects.put_named("originals/2.png", bytes(3, 3)).await.unwrap();
        assert_eq!(shown().await.0, ["originals/1.png"]);
        for number in 0..1_100 {
            std::fs::write(spot.root.join(format!("named/originals/{number}.jpg")), b"four").unwrap();
        }
        spot.age(2 * HOUR);
        let (names, parts) = shown().await;
        assert!(names.len() == 1_102 && parts > 2, "{} in {parts}", names.len());
        spot.objects.old_names("../x", HOUR).await.err().expect("no name");
    });
}

/// Whoever gives up in the middle leaves nothing.
#[test]
fn what_is_given_up_is_taken_back() {
    on_both(async |spot| {
        for length in [1, 12 << 20] {
            let mut writer = spot.objects.writer().await.unwrap();
            writer.write(bytes(length, 5)).await.unwrap();
            drop(writer);
            // A bucket is told of it by and by.
            let until = tokio::time::Instant::now() + LONG;
            while !spot.files().is_empty() {
                assert!(tokio::time::Instant::now() < until, "{:?} is left", spot.files());
                tokio::task::yield_now().await;
            }
        }
    });
}

/// The process that is killed: this very test, run again by the other one.
#[test]
fn uploads_until_killed() {
    again::run(async |objects| {
        loop {
            let mut writer = objects.writer().await.unwrap();
            // Three parts, and a bit.
            for piece in 0..30 {
                writer.write(vec![piece; 600_000]).await.unwrap();
                println!("\nwritten");
            }
            writer.finish().await.unwrap();
            println!("\nfinished");
        }
    });
}

/// Whenever a process is killed while it writes, what it leaves is an object of its hash or will be collected.
#[test]
fn what_the_dead_leave_is_collected() {
    on_both(async |spot| {
        let (folder, clock) = (Folder::new(), Clock::manual(start()));
        let store = sqlite(&folder, &clock);
        // Before the first part, in the middle, before the end, and after it.
        for lines in [3, 12, 20, 30, 31, 45] {
            let mut process = Again::start("swept::uploads_until_killed", spot);
            process.hear(lines);
            process.kill();
            println!("killed after {lines}: {:?}", spot.files());
            // A server may still be about to notice that somebody hung up.
            let until = tokio::time::Instant::now() + LONG;
            loop {
                spot.age(2 * HOUR);
                collect(&store, &spot.objects, HOUR).await.unwrap();
                let left = spot.files();
                if left.is_empty() {
                    break;
                }
                assert!(tokio::time::Instant::now() < until, "{left:?} is left");
            }
        }
    });
}
