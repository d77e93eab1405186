//! Large payloads live beside the database, are durable before their record, and go when nobody has them any more.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration as Length;

use onceward_core::decide::{Call, Create};
use onceward_core::record::{Actor, Payload};
use onceward_core::time::Duration;
use onceward_core::value::RecordId;
use onceward_engine::{
    Config, Engine, LARGE, Objects, PruneOptions, Report, Retention, Submission, Wanted, collect, verify_objects,
};
use onceward_store::{AnyStore, Clock, Content, SqliteView, Store};
use onceward_testkit::{Folder, user, worker};
use serde_json::{Map, json};
use sha2::{Digest, Sha256};

use crate::stage::{JOB, on_each, open, sqlite, start, wait};

fn beside(folder: &Folder) -> Objects {
    Objects::folder(folder.file().with_extension("objects"))
}

fn with(objects: &Objects) -> Config {
    Config { objects: Some(objects.clone()), ..Config::default() }
}

fn create() -> Create {
    Create { lifecycle: JOB.into(), id: None, owner: None, fields: Map::new(), payload: None }
}

fn bytes(length: usize, seed: u8) -> Arc<[u8]> {
    (0..length).map(|at| u8::try_from(at % 251).unwrap() ^ seed).collect()
}

async fn made(engine: &Engine<AnyStore>, bytes: &Arc<[u8]>) -> RecordId {
    engine.create_with(&user("ann"), create(), Arc::clone(bytes)).await.expect("a job").subject
}

fn hash(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Files in the folder that have an object's name, and drafts.
fn files(root: &Path) -> (usize, usize) {
    let count = |path: &Path| std::fs::read_dir(path).map_or(0, Iterator::count);
    let folders = std::fs::read_dir(root).expect("the folder").map(|entry| entry.expect("an entry").path());
    folders.fold((0, 0), |(objects, drafts), path| {
        let inside = count(&path);
        if path.ends_with("drafts") { (objects, drafts + inside) } else { (objects + inside, drafts) }
    })
}

/// A payload of so many bytes stands in the database, one of more beside it; both come back whole, to their owner and to who
/// holds the lease, in pieces or at once.
#[test]
fn a_large_payload_lives_beside_the_database() {
    let folder = Folder::new();
    let objects = beside(&folder);
    on_each(with(&objects), async |engine, _| {
        for (length, is_beside) in [(0, false), (LARGE, false), (LARGE + 1, true), (1 << 20, true)] {
            let given = bytes(length, 7);
            let id = made(engine, &given).await;
            let sha256 = hash(&given);
            assert_eq!(engine.store().content(&sha256).await.unwrap().is_some(), !is_beside, "{length}");
            assert_eq!(objects.size(&sha256).await.unwrap().is_some(), is_beside, "{length}");
            assert_eq!(engine.payload(&user("ann"), id).await.unwrap().as_deref(), Some(&*given), "{length}");
            assert!(engine.payload(&user("eve"), id).await.unwrap().is_none());
            let mut reader = engine.payload_reader(&user("ann"), id).await.unwrap().expect("it is there");
            assert_eq!(reader.payload(), Payload { sha256, bytes: u64::try_from(length).unwrap() });
            let (mut read, mut pieces) = (Vec::new(), 0);
            while let Some(piece) = reader.next().await.unwrap() {
                read.extend_from_slice(&piece);
                pieces += 1;
            }
            assert_eq!(read, *given);
            assert!(pieces > 1 || length < (1 << 19), "{length} bytes in {pieces} pieces");
            assert!(reader.next().await.unwrap().is_none(), "the end is the end");
            let held = engine.lease(&worker("bob"), &Wanted::one(JOB, "w")).await.unwrap().pop().expect("the job");
            assert_eq!(engine.payload(&worker("bob"), held.record.id).await.unwrap().as_deref(), Some(&*given));
            engine.commit(&worker("bob"), id, held.token, json!(1), true).await.expect("done");
        }
    });
}

/// What is refused whatever is in the store leaves no bytes behind: else anybody with a key could fill the disk.
#[test]
fn who_may_make_nothing_fills_nothing() {
    let folder = Folder::new();
    let objects = beside(&folder);
    on_each(with(&objects), async |engine, _| {
        let large = |lifecycle: &str, seed: u8| {
            let bytes = bytes(LARGE + 1, seed);
            let payload = Payload { sha256: hash(&bytes), bytes: u64::try_from(bytes.len()).unwrap() };
            let call = Call::Create(Create { payload: Some(payload), lifecycle: lifecycle.into(), ..create() });
            Submission { contents: vec![Content { payload, bytes }], ..Submission::new(&user("ann"), call) }
        };
        let viewer = Actor::new("eve", &["viewer"]);
        let refused = engine.submit(Submission { actor: viewer.clone(), ..large(JOB, 1) }).await;
        assert_eq!(refused.expect_err("a viewer makes nothing").status(), 403);
        let small = Submission::new(&user("ann"), Call::Create(create()));
        let calls = vec![
            Submission { actor: viewer, ..large(JOB, 2) },
            small.clone(),
            large("no.such", 3),
            large(JOB, 4),
            small,
        ];
        let replies = engine.submit_all(calls).await.unwrap();
        let came: Vec<u16> = replies
            .iter()
            .map(|reply| reply.as_ref().map_or_else(onceward_engine::EngineError::status, |_| 200))
            .collect();
        assert_eq!(came, [403, 200, 404, 200, 200]);
        for (seed, is_there) in [(1, false), (2, false), (3, false), (4, true)] {
            let found = objects.size(&hash(&bytes(LARGE + 1, seed))).await.unwrap();
            assert_eq!(found.is_some(), is_there, "{seed}");
        }
    });
}

/// Bytes that came piece by piece, and a record that names them; and bytes that are not what a call says they are.
#[test]
fn bytes_may_come_piece_by_piece() {
    let folder = Folder::new();
    let objects = beside(&folder);
    on_each(with(&objects), async |engine, _| {
        let whole = bytes(300_000, 3);
        let mut writer = engine.objects().expect("a place").writer().await.unwrap();
        for piece in whole.chunks(70_000) {
            writer.write(piece.to_vec()).await.unwrap();
        }
        assert_eq!(writer.bytes(), 300_000);
        let payload = writer.finish().await.unwrap();
        assert_eq!(payload, Payload { sha256: hash(&whole), bytes: 300_000 });
        let call = Call::Create(Create { payload: Some(payload), ..create() });
        let id = engine.submit(Submission::new(&user("ann"), call)).await.unwrap().subject;
        assert_eq!(engine.payload(&user("ann"), id).await.unwrap().as_deref(), Some(&*whole));
        // Given up in the middle: nothing is left of it.
        let (_, before) = files(&folder.file().with_extension("objects"));
        let mut writer = objects.writer().await.unwrap();
        writer.write(whole.to_vec()).await.unwrap();
        drop(writer);
        assert_eq!((before, files(&folder.file().with_extension("objects")).1), (0, 0));
        let lie = Payload { sha256: [7; 32], bytes: 300_000 };
        for (said, named) in [(lie, lie), (payload, lie), (Payload { bytes: 1, ..payload }, payload)] {
            let call = Call::Create(Create { payload: Some(named), ..create() });
            let contents = vec![Content { payload: said, bytes: Arc::clone(&whole) }];
            let reply = engine.submit(Submission { contents, ..Submission::new(&user("ann"), call) }).await;
            assert_eq!(reply.map(|answer| answer.subject).unwrap_err().code(), "bad_content");
        }
    });
}

/// A payload that arrives in pieces: few bytes come with their record, many are there before it; nobody need know how many will come.
/// What is broken off leaves nothing.
#[test]
fn a_payload_arrives_in_pieces() {
    let folder = Folder::new();
    let (objects, root) = (beside(&folder), folder.file().with_extension("objects"));
    on_each(with(&objects), async |engine, _| {
        let all = [(0, 1, false), (LARGE, 1_000, false), (LARGE, LARGE, false), (LARGE + 1, LARGE + 1, true)];
        for (length, piece, is_beside) in all.into_iter().chain([(LARGE + 1, LARGE, true), (1_000_000, 7_001, true)]) {
            let whole = bytes(length, 11);
            let mut arriving = engine.arriving();
            for piece in whole.chunks(piece) {
                arriving = arriving.take(piece.to_vec()).await.expect("room");
            }
            assert_eq!(arriving.bytes(), u64::try_from(length).unwrap());
            let arrived = arriving.arrived().await.expect("room");
            assert_eq!(objects.size(&hash(&whole)).await.unwrap().is_some(), is_beside, "{length}");
            let submission = Submission::new(&user("ann"), Call::Create(create())).carrying(arrived);
            let id = engine.submit(submission).await.expect("a job").subject;
            assert_eq!(engine.payload(&user("ann"), id).await.unwrap().as_deref(), Some(&*whole), "{length}");
            assert_eq!(engine.store().content(&hash(&whole)).await.unwrap().is_some(), !is_beside, "{length}");
        }
        let before = files(&root);
        let mut arriving = engine.arriving().take(bytes(LARGE + 1, 12)).await.expect("room");
        assert_eq!(files(&root).1, 1, "it is written as it comes");
        // Byte by byte it comes at its sender's pace, and is not written so.
        let written = || {
            let drafts = std::fs::read_dir(root.join("drafts")).expect("a folder").flatten();
            drafts.map(|draft| draft.metadata().expect("it is there").len()).sum::<u64>()
        };
        let before_them = written();
        for byte in 0..100 {
            arriving = arriving.take([byte]).await.expect("room");
        }
        assert_eq!((written(), arriving.bytes()), (before_them, u64::try_from(LARGE + 101).unwrap()));
        arriving = arriving.take(bytes(LARGE, 14)).await.expect("room");
        assert_eq!(written(), before_them + 100);
        drop(arriving);
        assert_eq!((files(&root), before.1), (before, 0));
    });
    // Where there is no such place, the database has it all.
    on_each(Config::default(), async |engine, _| {
        let whole = bytes(3 * LARGE, 13);
        let mut arriving = engine.arriving();
        for piece in whole.chunks(50_000) {
            arriving = arriving.take(piece.to_vec()).await.expect("room");
        }
        let arrived = arriving.arrived().await.expect("room");
        let submission = Submission::new(&user("ann"), Call::Create(create())).carrying(arrived);
        let id = engine.submit(submission).await.expect("a job").subject;
        assert_eq!(engine.payload(&user("ann"), id).await.unwrap().as_deref(), Some(&*whole));
    });
}

/// What no record has goes when it is old enough; what one has stays, until the last of them is pruned.
#[test]
fn orphans_are_collected() {
    on_each(Config::default(), async |plain, clock| {
        let folder = Folder::new();
        let objects = beside(&folder);
        let root = folder.file().with_extension("objects");
        let engine = &Engine::open(plain.store().clone(), Config { orphans: Length::ZERO, ..with(&objects) });
        let (kept, orphan) = (bytes(LARGE + 1, 1), bytes(LARGE + 2, 2));
        let (first, second) = (made(engine, &kept).await, made(engine, &kept).await);
        objects.put(Arc::clone(&orphan)).await.unwrap();
        assert_eq!(files(&root), (2, 0));
        let young = collect(engine.store(), &objects, Length::from_hours(1)).await.unwrap();
        assert_eq!((young.objects, files(&root).0), (0, 2), "somebody may be about to name it");
        let gone = collect(engine.store(), &objects, Length::ZERO).await.unwrap();
        assert_eq!((gone.objects, gone.bytes, files(&root)), (1, u64::try_from(orphan.len()).unwrap(), (1, 0)));
        // One of the two that have it goes, then the other.
        for (id, left) in [(first, 1), (second, 0)] {
            let held = engine.lease(&worker("bob"), &Wanted::one(JOB, "w")).await.unwrap().pop().expect("a job");
            assert_eq!(held.record.id, id);
            engine.commit(&worker("bob"), id, held.token, json!(1), true).await.expect("done");
            let later = clock.now().checked_add(Duration::from_secs(10)).unwrap();
            clock.set(later);
            let retention = Retention { records: Some(Length::from_secs(5)), ..Retention::default() };
            let pruned = engine.prune(&PruneOptions { retention, ..PruneOptions::default() }).await.unwrap();
            assert_eq!((pruned.records, files(&root).0), (1, left));
        }
        assert!(clock.now() > start());
        engine.close().await;
    });
}

/// What turns out to be other bytes than those of the hash is an error, not an end.
#[test]
fn damage_is_noticed() {
    let folder = Folder::new();
    let objects = beside(&folder);
    on_each(with(&objects), async |engine, _| {
        let given = bytes(600_000, 9);
        let id = made(engine, &given).await;
        let name = onceward_core::hex::encode(&hash(&given));
        let path = folder.file().with_extension("objects").join(&name[..2]).join(&name[2..]);
        let actor: Actor = user("ann");
        for harm in [given[..599_999].to_vec(), [&given[..], b"x"].concat(), vec![0; 600_000]] {
            std::fs::write(&path, harm).unwrap();
            assert_eq!(engine.payload(&actor, id).await.unwrap_err().code(), "object_damaged");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(engine.payload(&actor, id).await.unwrap().is_none());
        // Brought again, it is there again.
        made(engine, &given).await;
        assert_eq!(engine.payload(&actor, id).await.unwrap().as_deref(), Some(&*given));
    });
}

/// `verify` misses what a record has and nobody kept; the bytes themselves it looks at where it is asked to.
#[test]
fn a_payload_that_is_gone_is_missed() {
    let (folder, clock) = (Folder::new(), Clock::manual(start()));
    let objects = beside(&folder);
    let found = async |contents: bool| {
        let (view, mut report) = (SqliteView::open(folder.file()).unwrap(), Report::default());
        verify_objects(&view, &objects, contents, &mut (), &mut report).await.unwrap();
        (report.objects, report.differences.iter().map(|one| one.key.clone()).collect::<Vec<_>>())
    };
    wait(async {
        let engine = open(sqlite(&folder, &clock), with(&objects)).await;
        let given = [bytes(LARGE + 1, 1), bytes(LARGE + 1, 2), bytes(10, 3), bytes(0, 0)];
        for bytes in &given {
            made(&engine, bytes).await;
        }
        assert_eq!(found(true).await, (2, vec![]));
        let path = |bytes: &[u8]| {
            let name = onceward_core::hex::encode(&hash(bytes));
            (folder.file().with_extension("objects").join(&name[..2]).join(&name[2..]), name)
        };
        std::fs::write(path(&given[0]).0, "other bytes").unwrap();
        assert_eq!(found(false).await, (2, vec![]), "that it is there is all that was asked");
        assert_eq!(found(true).await, (2, vec![path(&given[0]).1]));
        std::fs::remove_file(path(&given[1]).0).unwrap();
        assert_eq!(found(false).await, (2, vec![path(&given[1]).1]));
        engine.close().await;
    });
}

/// A key that was used is answered as it was, though a version that is current by now takes the call no more.
#[test]
fn a_large_call_is_answered_again_by_its_key() {
    let folder = Folder::new();
    let objects = beside(&folder);
    on_each(with(&objects), async |engine, _| {
        let given = bytes(LARGE + 1, 3);
        let sent = async |key: &str| {
            let content = Content::of(Arc::clone(&given));
            let call = Call::Create(Create { payload: Some(content.payload), ..create() });
            let submission = Submission { contents: vec![content], ..Submission::new(&user("ann"), call).once(key) };
            engine.submit(submission).await
        };
        let first = sent("k").await.expect("a job");
        let mut files = crate::stage::files();
        let job = files.files.iter_mut().find(|file| file.text.contains("\"execution.job\"")).expect("the job's file");
        assert!(job.text.contains("\n[states]"), "{}", job.text);
        job.text = job.text.replace("\n[states]", "\n[payload]\nmax = \"1 KB\"\n\n[states]").into();
        engine.define(&files).await.expect("sound files");
        let again = sent("k").await.expect("as it was");
        assert!(again.replayed && again.subject == first.subject, "{again:?}");
        assert!(sent("other").await.is_err(), "a new one is judged anew");
    });
}
