//! In-process worker: generates, stores, then commits.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::{CreateRecord, FailureReport};
use onceward_core::diagnostic::InputFiles;
use onceward_core::hex;
use onceward_core::record::{Actor, FencingToken, PayloadRef, Record};
use onceward_core::value::{RecordId, Value};
use onceward_engine::{CheckRegistry, Engine, EngineConfig, LeaseRequest, ObjectStorage};
use onceward_store::{AccountName, Clock, ListQuery, MemoryStore, Store as _};
use onceward_system_image::provider::ImageProvider;
use onceward_system_image::{
    ImageWorkerConfig, PromptFilter, delete_orphaned_images, register_prompt_check, start_cleanup, start_image_worker,
};
use onceward_testkit::{TempDir, operator, systems, user, worker};
use serde_json::{Map, json};

/// Longer than any step takes; a test that waits this long has failed.
const TEST_TIMEOUT: Duration = Duration::from_mins(1);

struct WorkerHarness {
    engine: Engine<MemoryStore>,
    clock: Clock,
    objects: ObjectStorage,
}

impl WorkerHarness {
    /// Opens an engine in which Ann has twenty credits.
    async fn open(objects: ObjectStorage) -> Self {
        Self::open_with_checks(register_prompt_check(CheckRegistry::default(), PromptFilter::default()), objects).await
    }

    async fn open_with_checks(checks: CheckRegistry, objects: ObjectStorage) -> Self {
        let clock = Clock::manual("2026-11-15T20:00:00Z".parse().expect("a valid time"));
        let config = EngineConfig { checks, object_storage: Some(objects.clone()), ..EngineConfig::default() };
        let engine = Engine::open(MemoryStore::new(clock.clone()), config);
        engine
            .put_lifecycles(&InputFiles { files: systems::source_files("image") })
            .await
            .expect("valid lifecycle files");
        let fields = [("user", json!("ann")), ("amount", json!(20)), ("order", json!("first"))];
        let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        engine.create(&operator("ops"), "image.grant", fields).await.expect("a grant");
        Self { engine, clock, objects }
    }

    fn start_worker(&self) {
        start_image_worker(
            &self.engine,
            &self.objects,
            ImageWorkerConfig { provider: ImageProvider::Local, concurrency: 2 },
        );
    }

    async fn create_job(&self, payload: &str) -> RecordId {
        let create =
            CreateRecord { lifecycle: "image.job".into(), id: None, owner: None, fields: Map::new(), payload: None };
        self.engine
            .create_with_payload(&user("ann"), create, payload.as_bytes())
            .await
            .expect("an accepted order")
            .subject
    }

    async fn wait_for_state(&self, id: RecordId, state: &str) -> Arc<Record> {
        self.wait_until(id, |record| **record.state_name() == *state).await
    }

    /// Waits until the record satisfies the predicate.
    async fn wait_until(&self, id: RecordId, predicate: impl Fn(&Record) -> bool) -> Arc<Record> {
        let poll = async {
            loop {
                let record = self.engine.get(&operator("ops"), id).await.expect("reading").expect("the record exists");
                if predicate(&record) {
                    return record;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(TEST_TIMEOUT, poll).await.expect("in time")
    }

    async fn assets(&self) -> Vec<Arc<Record>> {
        let query = ListQuery { lifecycle: Some("image.asset".into()), limit: 10, ..ListQuery::default() };
        self.engine.list(&user("ann"), &query).await.expect("a list").records
    }

    /// Returns the bytes that the asset references.
    async fn read_image(&self, asset: &Record) -> Option<Arc<[u8]>> {
        let (Some(Value::Text(url)), Some(Value::Text(sha256)), Some(Value::Int(bytes))) =
            (asset.field("url"), asset.field("sha256"), asset.field("bytes"))
        else {
            panic!("{asset:?}")
        };
        let payload = PayloadRef { sha256: hex::decode(sha256).expect("a hash"), bytes: bytes.cast_unsigned() };
        let reader = self.objects.get_named(url, &payload).await.expect("a bucket")?;
        reader.read_all(u64::MAX).await.expect("unchanged")
    }

    async fn credits(&self) -> i64 {
        let account = AccountName::new("credit", "user:ann");
        self.engine.store().account(&account).await.expect("accounts").map_or(0, |account| account.balance)
    }
}

fn text_field<'a>(record: &'a Record, field: &str) -> &'a str {
    match record.field(field) {
        Some(Value::Text(text)) => text,
        other => panic!("{field} is {other:?}"),
    }
}

/// IMG-3: the image is complete and its name is under `originals/`; one asset references it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn image_is_stored_before_commit() {
    let folder = TempDir::new();
    let harness = WorkerHarness::open(ObjectStorage::folder(folder.database_path())).await;
    harness.start_worker();
    let id = harness.create_job(r#"{"prompt":"a lighthouse","size":"256x256"}"#).await;
    let job = harness.wait_for_state(id, "completed").await;
    let assets = harness.assets().await;
    assert_eq!(assets.len(), 1);
    assert_eq!(text_field(&job, "resultUrl"), text_field(&assets[0], "url"));
    assert_eq!(text_field(&job, "resultUrl"), format!("originals/{id}-1.png"));
    let picture = harness.read_image(&assets[0]).await.expect("the image is in the bucket");
    assert!(picture.starts_with(b"\x89PNG"));
    harness.engine.close().await;
}

/// IMG-3
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn storage_failure_fails_job_and_retries() {
    let folder = TempDir::new();
    // A file is in the place of the bucket's folder.
    std::fs::write(folder.database_path(), "the file blocks the folder").expect("a file");
    let harness = WorkerHarness::open(ObjectStorage::folder(folder.database_path())).await;
    harness.start_worker();
    let id = harness.create_job(r#"{"prompt":"a lighthouse","size":"256x256"}"#).await;
    let job = harness.wait_for_state(id, "failed").await;
    assert_eq!(text_field(&job, "lastError"), "the image could not be stored");
    assert!(harness.assets().await.is_empty());
    std::fs::remove_file(folder.database_path()).expect("removed");
    harness.clock.set(harness.clock.now().checked_add(onceward_core::time::Duration::from_secs(10)).expect("a time"));
    harness.engine.wake_all();
    harness.wait_for_state(id, "completed").await;
    assert!(harness.read_image(&harness.assets().await[0]).await.is_some());
    assert_eq!(harness.credits().await, 15);
    harness.engine.close().await;
}

/// IMG-3: each attempt has its own object name, and the next attempt deletes the leftover.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leftover_image_of_failed_attempt_is_deleted() {
    let folder = TempDir::new();
    let harness = WorkerHarness::open(ObjectStorage::folder(folder.database_path())).await;
    let id = harness.create_job(r#"{"prompt":"a lighthouse","size":"256x256"}"#).await;
    let bob = worker("bob");
    let leased =
        harness.engine.lease(&bob, &LeaseRequest::single_job("image.job", "w")).await.expect("leasing").remove(0);
    assert_eq!(leased.token, FencingToken(1));
    let leftover = format!("originals/{id}-1.jpg");
    harness.objects.put_named(&leftover, Arc::from(*b"an incomplete image")).await.expect("a bucket");
    harness.engine.fail(&bob, id, leased.token, FailureReport::new("timeout", "")).await.expect("a failure");
    harness.clock.set(harness.clock.now().checked_add(onceward_core::time::Duration::from_secs(10)).expect("a time"));
    harness.start_worker();
    let job = harness.wait_for_state(id, "completed").await;
    assert_eq!(text_field(&job, "resultUrl"), format!("originals/{id}-2.png"));
    let gone = PayloadRef { sha256: [0; 32], bytes: 10 };
    assert!(harness.objects.get_named(&leftover, &gone).await.expect("a bucket").is_none());
    harness.engine.close().await;
}

/// Applies to every way of removing an asset, also if no worker runs at that time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn image_of_removed_asset_is_deleted_after_retries() {
    let folder = TempDir::new();
    let harness = WorkerHarness::open(ObjectStorage::folder(folder.database_path())).await;
    harness.start_worker();
    let id = harness.create_job(r#"{"prompt":"a lighthouse","size":"256x256"}"#).await;
    harness.wait_for_state(id, "completed").await;
    let asset = harness.assets().await.remove(0);
    harness.engine.fire(&user("ann"), asset.id, "remove", Map::new()).await.expect("the owner removes it");
    assert!(harness.read_image(&asset).await.is_some(), "the image is not deleted yet");

    // A folder in the place of the image makes the deletion fail.
    let image_file = folder.database_path().join("named").join(text_field(&asset, "url"));
    let moved_file = image_file.with_extension("away");
    std::fs::rename(&image_file, &moved_file).expect("the record exists");
    std::fs::create_dir(&image_file).expect("a folder in its place");
    start_cleanup(&harness.engine, &harness.objects);
    let failed = harness.wait_until(asset.id, |asset| asset.int_field("tries") == Some(1)).await;
    assert_eq!(&**failed.state_name(), "removing");
    std::fs::remove_dir(&image_file).expect("removed");
    std::fs::rename(&moved_file, &image_file).expect("restored");
    assert!(harness.read_image(&asset).await.is_some());
    harness.clock.set(harness.clock.now().checked_add(onceward_core::time::Duration::from_secs(10)).expect("a time"));
    harness.engine.wake_all();
    harness.wait_for_state(asset.id, "removed").await;
    assert!(harness.read_image(&asset).await.is_none());
    harness.engine.close().await;
}

/// A lost worker stored it after another one had committed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn late_image_of_lost_attempt_is_deleted_with_asset() {
    let folder = TempDir::new();
    let harness = WorkerHarness::open(ObjectStorage::folder(folder.database_path())).await;
    let (ann, bob) = (user("ann"), worker("bob"));
    let id = harness.create_job("a cat").await;
    let lease = || async {
        harness.engine.lease(&bob, &LeaseRequest::single_job("image.job", "w")).await.expect("a job").remove(0)
    };
    let first = lease().await;
    harness.engine.fail(&bob, id, first.token, FailureReport::new("timeout", "")).await.expect("a failure");
    harness.clock.set(harness.clock.now().checked_add(onceward_core::time::Duration::from_secs(10)).expect("a time"));
    harness.wait_for_state(id, "queued").await;
    let second = lease().await;
    let names = [format!("originals/{id}-2.png"), format!("originals/{id}-1.webp")];
    for name in &names {
        harness.objects.put_named(name, Arc::from(*b"a picture")).await.expect("a bucket");
    }
    let result = json!({ "url": names[0], "sha256": "ab".repeat(32), "bytes": 9 });
    harness.engine.commit(&bob, id, second.token, result, true).await.expect("a picture");
    let asset = harness.assets().await.remove(0);
    start_cleanup(&harness.engine, &harness.objects);
    harness.engine.fire(&ann, asset.id, "remove", Map::new()).await.expect("the owner removes it");
    harness.wait_for_state(asset.id, "removed").await;
    let left = std::fs::read_dir(folder.database_path().join("named/originals")).expect("a folder").count();
    assert_eq!(left, 0, "both images are deleted");
    harness.engine.close().await;
}

/// Images that are referenced, or may still be committed, stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_old_orphaned_images_are_deleted() {
    const ONE_DAY: Duration = Duration::from_hours(24);
    let folder = TempDir::new();
    let harness = WorkerHarness::open(ObjectStorage::folder(folder.database_path())).await;
    let (ann, bob) = (user("ann"), worker("bob"));
    let store_image = |name: String| {
        let objects = &harness.objects;
        async move {
            objects.put_named(&name, Arc::from(*b"a picture")).await.expect("a bucket");
            name
        }
    };
    let lease = || async {
        harness.engine.lease(&bob, &LeaseRequest::single_job("image.job", "w")).await.expect("a job").remove(0)
    };
    // Stored by a worker that died; the job was withdrawn before a retry.
    let withdrawn = harness.create_job("a cat").await;
    let held = lease().await;
    let leftover = store_image(format!("originals/{withdrawn}-1.png")).await;
    harness.engine.fail(&bob, withdrawn, held.token, FailureReport::new("timeout", "")).await.expect("a failure");
    harness.engine.fire(&ann, withdrawn, "withdraw", Map::new()).await.expect("withdrawn");
    // Committed by the second attempt and then removed by its owner; the first attempt stores late.
    let completed = harness.create_job("a dog").await;
    let held = lease().await;
    let committed = store_image(format!("originals/{completed}-2.png")).await;
    let result = json!({ "url": committed, "sha256": "ab".repeat(32), "bytes": 9 });
    harness.engine.commit(&bob, completed, held.token, result, true).await.expect("a picture");
    let late = store_image(format!("originals/{completed}-1.png")).await;
    // Stored but not yet committed.
    let running = harness.create_job("a bird").await;
    lease().await;
    let uncommitted = store_image(format!("originals/{running}-1.png")).await;
    let of_missing_job = store_image("originals/01936f0e-0000-7000-8000-000000000001-1.png".to_owned()).await;
    let foreign = store_image("originals/hands-off.png".to_owned()).await;

    let stored_names = || {
        let entries = std::fs::read_dir(folder.database_path().join("named/originals")).expect("a folder").flatten();
        let mut names: Vec<String> =
            entries.map(|entry| format!("originals/{}", entry.file_name().to_string_lossy())).collect();
        names.sort();
        names
    };
    let store = harness.engine.store();
    assert_eq!(
        (delete_orphaned_images(store, &harness.objects, ONE_DAY).await.expect("a look"), stored_names().len()),
        (0, 6)
    );
    for name in stored_names() {
        let file =
            std::fs::File::options().write(true).open(folder.database_path().join("named").join(name)).expect("a file");
        file.set_modified(std::time::SystemTime::now() - 2 * ONE_DAY).expect("an older modification time");
    }
    let asset = harness.assets().await.remove(0);
    harness.engine.fire(&ann, asset.id, "remove", Map::new()).await.expect("the owner removes it");
    assert_eq!(delete_orphaned_images(store, &harness.objects, ONE_DAY).await.expect("a look"), 3);
    let mut expected = vec![uncommitted, foreign, committed];
    expected.sort();
    assert_eq!(stored_names(), expected, "{leftover}, {late} and {of_missing_job} are deleted");
    start_cleanup(&harness.engine, &harness.objects);
    harness.wait_for_state(asset.id, "removed").await;
    assert_eq!(stored_names().len(), 2, "the removed image is deleted");
    harness.engine.close().await;
}

/// IMG-15: whatever its encoding; no log contains it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_payload_is_refused_before_payment() {
    let folder = TempDir::new();
    let harness = WorkerHarness::open(ObjectStorage::folder(folder.database_path())).await;
    let before = harness.engine.store().log(0, 100).await.expect("the log").len();
    for payload in [
        r#"{"prompt":"x","prompt":"\u0070\u006f\u0072\u006e"}"#,
        r#"{"prompt":"\u0070orn","n":1}"#,
        r#"{"prompt":"\ud83d"}"#,
        r#"["\u0070orn"]"#,
        "\u{200b}",
    ] {
        let create =
            CreateRecord { lifecycle: "image.job".into(), id: None, owner: None, fields: Map::new(), payload: None };
        let refused = harness.engine.create_with_payload(&user("ann"), create, payload.as_bytes()).await;
        assert_eq!(refused.expect_err("not an image request").code(), "bad_order", "{payload}");
    }
    assert_eq!(harness.credits().await, 20);
    assert_eq!(harness.engine.store().log(0, 100).await.expect("the log").len(), before);
    harness.engine.close().await;
}

/// Uses a prompt check that accepts unreadable payloads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreadable_payload_past_check_is_dead_letter_and_refunded() {
    let folder = TempDir::new();
    let accept_all_checks = CheckRegistry::default().register("image.job", "prompt", |_| async {
        let answer = json!({ "readable": true, "pass": true, "sha256": "ab".repeat(32) });
        Ok(answer.as_object().cloned().unwrap_or_default())
    });
    let harness =
        WorkerHarness::open_with_checks(accept_all_checks, ObjectStorage::folder(folder.database_path())).await;
    harness.start_worker();
    let id = harness.create_job(r#"{"prompt":"a cat","colour":"blue"}"#).await;
    let job = harness.wait_for_state(id, "dead_letter").await;
    assert_eq!(text_field(&job, "lastError"), "the payload is not an image request");
    assert_eq!(harness.credits().await, 20);
    harness.engine.close().await;
}

/// IMG-9
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equivalent_payload_returns_existing_job() {
    let folder = TempDir::new();
    let harness = WorkerHarness::open(ObjectStorage::folder(folder.database_path())).await;
    let first = harness.create_job("a cat").await;
    assert_eq!(harness.create_job(r#"{ "size": "1024x1024", "prompt": "a cat" }"#).await, first);
    assert_eq!(harness.credits().await, 15);
    harness.engine.close().await;
}

/// IMG-15: the refusal contains only its code.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flagged_prompt_creates_no_job_and_is_not_logged() {
    let folder = TempDir::new();
    let harness = WorkerHarness::open(ObjectStorage::folder(folder.database_path())).await;
    let call = |actor: &Actor| {
        let create =
            CreateRecord { lifecycle: "image.job".into(), id: None, owner: None, fields: Map::new(), payload: None };
        let (engine, actor) = (harness.engine.clone(), actor.clone());
        async move { engine.create_with_payload(&actor, create, *b"p o r n").await }
    };
    let refused = call(&user("ann")).await.expect_err("the prompt is flagged");
    assert_eq!((refused.code(), refused.to_string().contains("p o")), ("policy_violation", false));
    assert_eq!(harness.credits().await, 20);
    let log = harness.engine.store().log(0, 100).await.expect("the log");
    assert!(!log.iter().any(|entry| format!("{entry:?}").contains("p o r n")));
    harness.engine.close().await;
}
