//! Large payloads: durable in object storage before their record, and collected when no record references them.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration as Length;

use onceward_core::decide::{Call, CreateRecord};
use onceward_core::record::{Actor, PayloadRef};
use onceward_core::time::Duration;
use onceward_core::value::RecordId;
use onceward_engine::{
    Engine, EngineConfig, LeaseRequest, MAX_INLINE_PAYLOAD_BYTES, ObjectStorage, PruneOptions, RetentionPolicy,
    Submission, VerifyReport, collect_orphans, verify_objects,
};
use onceward_store::{AnyStore, Clock, PayloadBytes, SqliteScanner, Store};
use onceward_testkit::{TempDir, user, worker};
use serde_json::{Map, json};
use sha2::{Digest, Sha256};

use crate::support::{JOB_LIFECYCLE, on_each_store, open_engine, open_sqlite, start_time};

fn open_object_storage(folder: &TempDir) -> ObjectStorage {
    ObjectStorage::folder(folder.database_path().with_extension("objects"))
}

fn config_with_storage(objects: &ObjectStorage) -> EngineConfig {
    EngineConfig { object_storage: Some(objects.clone()), ..EngineConfig::default() }
}

fn new_create() -> CreateRecord {
    CreateRecord { lifecycle: JOB_LIFECYCLE.into(), id: None, owner: None, fields: Map::new(), payload: None }
}

fn test_bytes(length: usize, seed: u8) -> Arc<[u8]> {
    (0..length).map(|at| u8::try_from(at % 251).unwrap() ^ seed).collect()
}

async fn create_job_with_payload(engine: &Engine<AnyStore>, bytes: &Arc<[u8]>) -> RecordId {
    engine.create_with_payload(&user("ann"), new_create(), Arc::clone(bytes)).await.expect("a job").subject
}

fn sha256_of(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Counts the files with an object's name, and the drafts.
fn count_files(root: &Path) -> (usize, usize) {
    let count = |path: &Path| std::fs::read_dir(path).map_or(0, Iterator::count);
    let folders = std::fs::read_dir(root).expect("the folder").map(|entry| entry.expect("an entry").path());
    folders.fold((0, 0), |(objects, drafts), path| {
        let inside = count(&path);
        if path.ends_with("drafts") { (objects, drafts + inside) } else { (objects + inside, drafts) }
    })
}

/// The owner and the lease holder read both, in chunks or at once.
#[test]
fn payload_over_inline_limit_goes_to_object_storage() {
    let folder = TempDir::new();
    let objects = open_object_storage(&folder);
    on_each_store(config_with_storage(&objects), async |engine, _| {
        for (length, is_beside) in
            [(0, false), (MAX_INLINE_PAYLOAD_BYTES, false), (MAX_INLINE_PAYLOAD_BYTES + 1, true), (1 << 20, true)]
        {
            let given = test_bytes(length, 7);
            let id = create_job_with_payload(engine, &given).await;
            let sha256 = sha256_of(&given);
            assert_eq!(engine.store().payload(&sha256).await.unwrap().is_some(), !is_beside, "{length}");
            assert_eq!(objects.object_size(&sha256).await.unwrap().is_some(), is_beside, "{length}");
            assert_eq!(engine.payload(&user("ann"), id).await.unwrap().as_deref(), Some(&*given), "{length}");
            assert!(engine.payload(&user("eve"), id).await.unwrap().is_none());
            let mut reader = engine.payload_reader(&user("ann"), id).await.unwrap().expect("it exists");
            assert_eq!(reader.payload(), PayloadRef { sha256, bytes: u64::try_from(length).unwrap() });
            let (mut read, mut pieces) = (Vec::new(), 0);
            while let Some(piece) = reader.next_chunk().await.unwrap() {
                read.extend_from_slice(&piece);
                pieces += 1;
            }
            assert_eq!(read, *given);
            assert!(pieces > 1 || length < (1 << 19), "{length} bytes in {pieces} pieces");
            assert!(reader.next_chunk().await.unwrap().is_none(), "no chunk follows the end");
            let held = engine
                .lease(&worker("bob"), &LeaseRequest::single_job(JOB_LIFECYCLE, "w"))
                .await
                .unwrap()
                .pop()
                .expect("the job");
            assert_eq!(engine.payload(&worker("bob"), held.record.id).await.unwrap().as_deref(), Some(&*given));
            engine.commit(&worker("bob"), id, held.token, json!(1), true).await.expect("done");
        }
    });
}

/// Otherwise any caller with a key could fill the disk.
#[test]
fn refused_create_leaves_no_payload_in_object_storage() {
    let folder = TempDir::new();
    let objects = open_object_storage(&folder);
    on_each_store(config_with_storage(&objects), async |engine, _| {
        let large = |lifecycle: &str, seed: u8| {
            let bytes = test_bytes(MAX_INLINE_PAYLOAD_BYTES + 1, seed);
            let payload = PayloadRef { sha256: sha256_of(&bytes), bytes: u64::try_from(bytes.len()).unwrap() };
            let call =
                Call::Create(CreateRecord { payload: Some(payload), lifecycle: lifecycle.into(), ..new_create() });
            Submission { payloads: vec![PayloadBytes { payload, bytes }], ..Submission::new(&user("ann"), call) }
        };
        let viewer = Actor::new("eve", &["viewer"]);
        let refused = engine.submit(Submission { actor: viewer.clone(), ..large(JOB_LIFECYCLE, 1) }).await;
        assert_eq!(refused.expect_err("a viewer may not create").status(), 403);
        let small = Submission::new(&user("ann"), Call::Create(new_create()));
        let calls = vec![
            Submission { actor: viewer, ..large(JOB_LIFECYCLE, 2) },
            small.clone(),
            large("no.such", 3),
            large(JOB_LIFECYCLE, 4),
            small,
        ];
        let replies = engine.submit_all(calls).await.unwrap();
        let statuses: Vec<u16> = replies
            .iter()
            .map(|reply| reply.as_ref().map_or_else(onceward_engine::EngineError::status, |_| 200))
            .collect();
        assert_eq!(statuses, [403, 200, 404, 200, 200]);
        for (seed, is_there) in [(1, false), (2, false), (3, false), (4, true)] {
            let found = objects.object_size(&sha256_of(&test_bytes(MAX_INLINE_PAYLOAD_BYTES + 1, seed))).await.unwrap();
            assert_eq!(found.is_some(), is_there, "{seed}");
        }
    });
}

#[test]
fn written_object_is_accepted_as_payload_and_mismatch_rejected() {
    let folder = TempDir::new();
    let objects = open_object_storage(&folder);
    on_each_store(config_with_storage(&objects), async |engine, _| {
        let whole = test_bytes(300_000, 3);
        let mut writer = engine.object_storage().expect("object storage is configured").writer().await.unwrap();
        for piece in whole.chunks(70_000) {
            writer.write(piece.to_vec()).await.unwrap();
        }
        assert_eq!(writer.bytes(), 300_000);
        let payload = writer.finish().await.unwrap();
        assert_eq!(payload, PayloadRef { sha256: sha256_of(&whole), bytes: 300_000 });
        let call = Call::Create(CreateRecord { payload: Some(payload), ..new_create() });
        let id = engine.submit(Submission::new(&user("ann"), call)).await.unwrap().subject;
        assert_eq!(engine.payload(&user("ann"), id).await.unwrap().as_deref(), Some(&*whole));
        // A dropped writer leaves no draft.
        let (_, before) = count_files(&folder.database_path().with_extension("objects"));
        let mut writer = objects.writer().await.unwrap();
        writer.write(whole.to_vec()).await.unwrap();
        drop(writer);
        assert_eq!((before, count_files(&folder.database_path().with_extension("objects")).1), (0, 0));
        let lie = PayloadRef { sha256: [7; 32], bytes: 300_000 };
        for (declared, named) in [(lie, lie), (payload, lie), (PayloadRef { bytes: 1, ..payload }, payload)] {
            let call = Call::Create(CreateRecord { payload: Some(named), ..new_create() });
            let contents = vec![PayloadBytes { payload: declared, bytes: Arc::clone(&whole) }];
            let reply = engine.submit(Submission { payloads: contents, ..Submission::new(&user("ann"), call) }).await;
            assert_eq!(reply.map(|answer| answer.subject).unwrap_err().code(), "payload_mismatch");
        }
    });
}

/// The size need not be known in advance. A dropped upload leaves nothing.
#[test]
fn payload_upload_offloads_only_large_payloads() {
    let folder = TempDir::new();
    let (objects, root) = (open_object_storage(&folder), folder.database_path().with_extension("objects"));
    on_each_store(config_with_storage(&objects), async |engine, _| {
        let all = [
            (0, 1, false),
            (MAX_INLINE_PAYLOAD_BYTES, 1_000, false),
            (MAX_INLINE_PAYLOAD_BYTES, MAX_INLINE_PAYLOAD_BYTES, false),
            (MAX_INLINE_PAYLOAD_BYTES + 1, MAX_INLINE_PAYLOAD_BYTES + 1, true),
        ];
        for (length, piece, is_beside) in all
            .into_iter()
            .chain([(MAX_INLINE_PAYLOAD_BYTES + 1, MAX_INLINE_PAYLOAD_BYTES, true), (1_000_000, 7_001, true)])
        {
            let whole = test_bytes(length, 11);
            let mut arriving = engine.begin_payload();
            for piece in whole.chunks(piece) {
                arriving = arriving.push(piece.to_vec()).await.expect("room");
            }
            assert_eq!(arriving.bytes(), u64::try_from(length).unwrap());
            let arrived = arriving.finish().await.expect("room");
            assert_eq!(objects.object_size(&sha256_of(&whole)).await.unwrap().is_some(), is_beside, "{length}");
            let submission = Submission::new(&user("ann"), Call::Create(new_create())).with_payload(arrived);
            let id = engine.submit(submission).await.expect("a job").subject;
            assert_eq!(engine.payload(&user("ann"), id).await.unwrap().as_deref(), Some(&*whole), "{length}");
            assert_eq!(engine.store().payload(&sha256_of(&whole)).await.unwrap().is_some(), !is_beside, "{length}");
        }
        let before = count_files(&root);
        let mut arriving =
            engine.begin_payload().push(test_bytes(MAX_INLINE_PAYLOAD_BYTES + 1, 12)).await.expect("room");
        assert_eq!(count_files(&root).1, 1, "the upload is written while it arrives");
        // Single bytes are combined into larger writes.
        let written = || {
            let drafts = std::fs::read_dir(root.join("drafts")).expect("a folder").flatten();
            drafts.map(|draft| draft.metadata().expect("it exists").len()).sum::<u64>()
        };
        let before_them = written();
        for byte in 0..100 {
            arriving = arriving.push([byte]).await.expect("room");
        }
        assert_eq!(
            (written(), arriving.bytes()),
            (before_them, u64::try_from(MAX_INLINE_PAYLOAD_BYTES + 101).unwrap())
        );
        arriving = arriving.push(test_bytes(MAX_INLINE_PAYLOAD_BYTES, 14)).await.expect("room");
        assert_eq!(written(), before_them + 100);
        drop(arriving);
        assert_eq!((count_files(&root), before.1), (before, 0));
    });
    // Without object storage the database stores everything.
    on_each_store(EngineConfig::default(), async |engine, _| {
        let whole = test_bytes(3 * MAX_INLINE_PAYLOAD_BYTES, 13);
        let mut arriving = engine.begin_payload();
        for piece in whole.chunks(50_000) {
            arriving = arriving.push(piece.to_vec()).await.expect("room");
        }
        let arrived = arriving.finish().await.expect("room");
        let submission = Submission::new(&user("ann"), Call::Create(new_create())).with_payload(arrived);
        let id = engine.submit(submission).await.expect("a job").subject;
        assert_eq!(engine.payload(&user("ann"), id).await.unwrap().as_deref(), Some(&*whole));
    });
}

#[test]
fn orphaned_objects_are_collected_after_ttl_and_prune() {
    on_each_store(EngineConfig::default(), async |plain, clock| {
        let folder = TempDir::new();
        let objects = open_object_storage(&folder);
        let root = folder.database_path().with_extension("objects");
        let engine = &Engine::open(
            plain.store().clone(),
            EngineConfig { orphan_ttl: Length::ZERO, ..config_with_storage(&objects) },
        );
        let (referenced, orphan) =
            (test_bytes(MAX_INLINE_PAYLOAD_BYTES + 1, 1), test_bytes(MAX_INLINE_PAYLOAD_BYTES + 2, 2));
        let (first, second) =
            (create_job_with_payload(engine, &referenced).await, create_job_with_payload(engine, &referenced).await);
        objects.put(Arc::clone(&orphan)).await.unwrap();
        assert_eq!(count_files(&root), (2, 0));
        let young = collect_orphans(engine.store(), &objects, Length::from_hours(1)).await.unwrap();
        assert_eq!((young.objects, count_files(&root).0), (0, 2), "a create call may still name the young object");
        let gone = collect_orphans(engine.store(), &objects, Length::ZERO).await.unwrap();
        assert_eq!((gone.objects, gone.bytes, count_files(&root)), (1, u64::try_from(orphan.len()).unwrap(), (1, 0)));
        // Prunes one of the two records that reference it, then the other.
        for (id, left) in [(first, 1), (second, 0)] {
            let held = engine
                .lease(&worker("bob"), &LeaseRequest::single_job(JOB_LIFECYCLE, "w"))
                .await
                .unwrap()
                .pop()
                .expect("a job");
            assert_eq!(held.record.id, id);
            engine.commit(&worker("bob"), id, held.token, json!(1), true).await.expect("done");
            let later = clock.now().checked_add(Duration::from_secs(10)).unwrap();
            clock.set(later);
            let retention = RetentionPolicy { records_ttl: Some(Length::from_secs(5)), ..RetentionPolicy::default() };
            let pruned = engine.prune(&PruneOptions { retention, ..PruneOptions::default() }).await.unwrap();
            assert_eq!((pruned.records, count_files(&root).0), (1, left));
        }
        assert!(clock.now() > start_time());
        engine.close().await;
    });
}

#[test]
fn damaged_object_returns_object_damaged() {
    let folder = TempDir::new();
    let objects = open_object_storage(&folder);
    on_each_store(config_with_storage(&objects), async |engine, _| {
        let given = test_bytes(600_000, 9);
        let id = create_job_with_payload(engine, &given).await;
        let name = onceward_core::hex::encode(&sha256_of(&given));
        let path = folder.database_path().with_extension("objects").join(&name[..2]).join(&name[2..]);
        let actor: Actor = user("ann");
        for harm in [given[..599_999].to_vec(), [&given[..], b"x"].concat(), vec![0; 600_000]] {
            std::fs::write(&path, harm).unwrap();
            assert_eq!(engine.payload(&actor, id).await.unwrap_err().code(), "object_damaged");
        }
        std::fs::remove_file(&path).unwrap();
        assert!(engine.payload(&actor, id).await.unwrap().is_none());
        // Uploading it again repairs it.
        create_job_with_payload(engine, &given).await;
        assert_eq!(engine.payload(&actor, id).await.unwrap().as_deref(), Some(&*given));
    });
}

/// The bytes are checked only on request.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn verify_reports_missing_and_damaged_objects() {
    let (folder, clock) = (TempDir::new(), Clock::manual(start_time()));
    let objects = open_object_storage(&folder);
    let found = async |contents: bool| {
        let (view, mut report) = (SqliteScanner::open(folder.database_path()).unwrap(), VerifyReport::default());
        verify_objects(&view, Some(&objects), contents, &mut (), &mut report).await.unwrap();
        (report.objects, report.differences.iter().map(|one| one.key.clone()).collect::<Vec<_>>())
    };
    let engine = open_engine(open_sqlite(&folder, &clock), config_with_storage(&objects)).await;
    let given = [
        test_bytes(MAX_INLINE_PAYLOAD_BYTES + 1, 1),
        test_bytes(MAX_INLINE_PAYLOAD_BYTES + 1, 2),
        test_bytes(10, 3),
        test_bytes(0, 0),
    ];
    for bytes in &given {
        create_job_with_payload(&engine, bytes).await;
    }
    assert_eq!(found(true).await, (2, vec![]));
    let path = |bytes: &[u8]| {
        let name = onceward_core::hex::encode(&sha256_of(bytes));
        (folder.database_path().with_extension("objects").join(&name[..2]).join(&name[2..]), name)
    };
    std::fs::write(path(&given[0]).0, "other bytes").unwrap();
    assert_eq!(found(false).await, (2, vec![]), "without `verify_bytes` only existence is checked");
    assert_eq!(found(true).await, (2, vec![path(&given[0]).1]));
    std::fs::remove_file(path(&given[1]).0).unwrap();
    assert_eq!(found(false).await, (2, vec![path(&given[1]).1]));
    engine.close().await;
}

/// The current version would refuse the call.
#[test]
fn idempotency_key_replays_large_create_after_version_change() {
    let folder = TempDir::new();
    let objects = open_object_storage(&folder);
    on_each_store(config_with_storage(&objects), async |engine, _| {
        let given = test_bytes(MAX_INLINE_PAYLOAD_BYTES + 1, 3);
        let sent = async |key: &str| {
            let content = PayloadBytes::from_bytes(Arc::clone(&given));
            let call = Call::Create(CreateRecord { payload: Some(content.payload), ..new_create() });
            let submission =
                Submission { payloads: vec![content], ..Submission::new(&user("ann"), call).with_idempotency_key(key) };
            engine.submit(submission).await
        };
        let first = sent("k").await.expect("a job");
        let mut files = crate::support::lifecycle_files();
        let job = files.files.iter_mut().find(|file| file.text.contains("\"execution.job\"")).expect("the job's file");
        assert!(job.text.contains("\n[states]"), "{}", job.text);
        job.text = job.text.replace("\n[states]", "\n[payload]\nmax = \"1 KB\"\n\n[states]").into();
        engine.put_lifecycles(&files).await.expect("valid files");
        let again = sent("k").await.expect("the stored reply is replayed");
        assert!(again.replayed && again.subject == first.subject, "{again:?}");
        assert!(sent("other").await.is_err(), "a new key is decided by the new version");
    });
}
