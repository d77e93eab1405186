//! What is put somewhere is there, whole, until it is taken out.

use std::sync::Arc;

use onceward_core::decide::Create;
use onceward_engine::{LARGE, Report, verify_objects};
use onceward_store::{Clock, SqliteView};
use onceward_testkit::{Folder, user};
use serde_json::Map;

use crate::spot::{bytes, on_both, payload, read};
use crate::stage::{JOB, open, sqlite, start};

/// A part of an upload, and so the bound below which there is none.
const PART: usize = 5 << 20;

/// Of every length around the bounds, as a whole and piece by piece: under its hash, nothing beside it, and the same when read.
#[test]
fn a_payload_comes_back() {
    on_both(async |spot| {
        for (seed, length) in (0..).zip([0, 1, LARGE, PART - 1, PART, PART + 1, 2 * PART, 2 * PART + 77]) {
            let given = bytes(length, seed);
            let expected = payload(&given);
            assert!(spot.objects.get(&expected).await.unwrap().is_none());
            assert_eq!(spot.objects.size(&expected.sha256).await.unwrap(), None);
            let mut writer = spot.objects.writer().await.unwrap();
            for piece in given.chunks(777_777) {
                writer.write(piece.to_vec()).await.unwrap();
            }
            assert_eq!(writer.bytes(), expected.bytes);
            assert_eq!(writer.finish().await.unwrap(), expected);
            let name = spot.file(&expected.sha256);
            assert_eq!(std::fs::read(&name).expect("a file of its name"), *given);
            assert_eq!(spot.objects.size(&expected.sha256).await.unwrap(), Some(expected.bytes));
            let reader = spot.objects.get(&expected).await.unwrap().expect("it is there");
            assert_eq!(reader.payload(), expected);
            let (back, largest) = read(reader).await.unwrap();
            assert!(back == *given && largest <= 1 << 20, "{length} bytes, in pieces of up to {largest}");
            spot.remove(&expected.sha256);
            // The same, as a whole; and once more over itself.
            for _ in 0..2 {
                assert_eq!(spot.objects.put(Arc::clone(&given)).await.unwrap(), expected);
                assert!(std::fs::read(&name).unwrap() == *given);
            }
            spot.remove(&expected.sha256);
            assert_eq!(spot.files(), Vec::<String>::new(), "{length}");
        }
    });
}

/// What a system names is there under that name, is written over by the next, and is looked at on the way out.
#[test]
fn a_name_of_ones_own() {
    on_both(async |spot| {
        let (first, second) = (bytes(300_000, 1), bytes(17, 2));
        let named = "originals/0199-a.png";
        assert!(spot.objects.get_named(named, &payload(&first)).await.unwrap().is_none());
        for given in [&first, &second, &bytes(0, 0)] {
            spot.objects.put_named(named, Arc::clone(given)).await.unwrap();
            let reader = spot.objects.get_named(named, &payload(given)).await.unwrap().expect("it is there");
            assert!(read(reader).await.unwrap().0 == **given);
            assert_eq!(spot.files(), [format!("named/{named}")]);
        }
        let reader = spot.objects.get_named(named, &payload(&first)).await.unwrap().expect("something is there");
        assert_eq!(read(reader).await.unwrap_err().code(), "object_damaged");
        assert!(spot.objects.get(&payload(&second)).await.unwrap().is_none(), "a name is no hash");
        for _ in 0..2 {
            spot.objects.remove_named(named).await.unwrap();
            assert_eq!(spot.files(), Vec::<String>::new());
        }
        for bad in ["", "..", "a/../../b", "/etc/passwd", "a//b", "a/", ".a"] {
            let code = |error: onceward_engine::ObjectError| error.code();
            assert_eq!(spot.objects.put_named(bad, bytes(1, 1)).await.map_err(code), Err("bad_object_name"));
            let got = spot.objects.get_named(bad, &payload(b"")).await;
            assert_eq!(got.map(|reader| reader.is_some()).map_err(code), Err("bad_object_name"));
            assert_eq!(spot.objects.remove_named(bad).await.map_err(code), Err("bad_object_name"));
        }
    });
}

/// Other bytes than those of the hash, fewer or more: an error in place of the end; and `verify` names it, and what is missing.
#[test]
fn damage_is_noticed() {
    on_both(async |spot| {
        let (folder, clock) = (Folder::new(), Clock::manual(start()));
        let engine = open(sqlite(&folder, &clock), spot.config()).await;
        let given = bytes(600_000, 9);
        let create = || Create { lifecycle: JOB.into(), id: None, owner: None, fields: Map::new(), payload: None };
        let id = engine.create_with(&user("ann"), create(), Arc::clone(&given)).await.expect("a job").subject;
        let (kept, name) = (payload(&given), spot.file(&payload(&given).sha256));
        let found = async |contents: bool| {
            let (view, mut report) = (SqliteView::open(folder.file()).unwrap(), Report::default());
            verify_objects(&view, &spot.objects, contents, &mut (), &mut report).await.unwrap();
            (report.objects, report.differences.len())
        };
        assert_eq!(found(true).await, (1, 0));
        for harm in [given[..599_999].to_vec(), [&given[..], b"x"].concat(), vec![0; 600_000]] {
            std::fs::write(&name, harm).unwrap();
            spot.changed();
            let reader = spot.objects.get(&kept).await.unwrap().expect("something is there");
            assert_eq!(read(reader).await.unwrap_err().code(), "object_damaged");
            assert_eq!(engine.payload(&user("ann"), id).await.unwrap_err().code(), "object_damaged");
            assert_eq!((found(false).await, found(true).await), ((1, 0), (1, 1)));
        }
        spot.remove(&kept.sha256);
        assert!(engine.payload(&user("ann"), id).await.unwrap().is_none());
        assert_eq!(found(false).await, (1, 1));
        // Brought again, it is there again.
        engine.create_with(&user("ann"), create(), Arc::clone(&given)).await.expect("a job");
        assert_eq!(engine.payload(&user("ann"), id).await.unwrap().as_deref(), Some(&*given));
        assert_eq!(found(true).await, (1, 0));
        engine.close().await;
    });
}

/// Whoever counts the bytes that come, and looks at no more than that, sees that they are not all: the last of them are kept back.
#[test]
fn the_last_piece_is_given_when_all_are_right() {
    on_both(async |spot| {
        for length in [1, 300_000, 600_000] {
            let given = bytes(length, 5);
            let kept = spot.objects.put(Arc::clone(&given)).await.unwrap();
            let mut harmed = given.to_vec();
            harmed[length / 2] ^= 1;
            std::fs::write(spot.file(&kept.sha256), harmed).unwrap();
            spot.changed();
            let mut reader = spot.objects.get(&kept).await.unwrap().expect("something is there");
            let mut came = 0;
            let error = loop {
                match reader.next().await {
                    Ok(piece) => came += piece.expect("no end without an error").len(),
                    Err(error) => break error,
                }
            };
            assert_eq!(error.code(), "object_damaged");
            assert!(came < length, "{came} of {length} bytes");
            assert_eq!(reader.next().await.unwrap_err().code(), "object_damaged", "and it stays so");
        }
    });
}

/// A read that was left in the middle is not gone on with: what it had read may be missing from what comes next.
#[test]
fn a_read_that_was_left_is_no_end() {
    on_both(async |spot| {
        let kept = spot.objects.put(bytes(600_000, 6)).await.unwrap();
        let mut reader = spot.objects.get(&kept).await.unwrap().expect("it is there");
        let mut left = Box::pin(reader.next());
        // Asked once, and dropped: a file's bytes, and a bucket's, are not there at once.
        let is_there = std::future::poll_fn(|context| std::task::Poll::Ready(left.as_mut().poll(context).is_ready()));
        let is_there = is_there.await;
        drop(left);
        if !is_there {
            assert_eq!(reader.next().await.unwrap_err().code(), "objects_unavailable");
        }
    });
}
