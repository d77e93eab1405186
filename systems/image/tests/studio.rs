//! The worker inside the process: draws, stores, then commits.

use std::sync::Arc;
use std::time::Duration;

use onceward_core::decide::{Create, ErrorReport};
use onceward_core::diagnostic::Files;
use onceward_core::hex;
use onceward_core::record::{Actor, Payload, Record, Token};
use onceward_core::value::{RecordId, Value};
use onceward_engine::{Checks, Config, Engine, Objects, Wanted};
use onceward_store::{AccountName, Clock, ListQuery, MemoryStore, Store as _};
use onceward_system_image::provider::Provider;
use onceward_system_image::{Guard, Studio, checks, clear_leftovers, open_clearing, open_studio};
use onceward_testkit::{Folder, operator, systems, user, worker};
use serde_json::{Map, json};

/// Longer than anything here takes: a test that waits so long has failed.
const LONG: Duration = Duration::from_mins(1);

struct House {
    engine: Engine<MemoryStore>,
    clock: Clock,
    objects: Objects,
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    runtime.expect("a runtime").block_on(future)
}

impl House {
    /// Ann has twenty credits.
    async fn open(objects: Objects) -> Self {
        Self::guarded_by(checks(Checks::default(), Guard::default()), objects).await
    }

    async fn guarded_by(checks: Checks, objects: Objects) -> Self {
        let clock = Clock::manual("2026-11-15T20:00:00Z".parse().expect("a time as we write them"));
        let config = Config { checks, objects: Some(objects.clone()), ..Config::default() };
        let engine = Engine::open(MemoryStore::new(clock.clone()), config);
        engine.define(&Files { files: systems::sources("image") }).await.expect("sound files");
        let fields = [("user", json!("ann")), ("amount", json!(20)), ("order", json!("first"))];
        let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
        engine.create(&operator("ops"), "image.grant", fields).await.expect("a grant");
        Self { engine, clock, objects }
    }

    fn draw(&self) {
        open_studio(&self.engine, &self.objects, Studio { provider: Provider::Local, at_once: 2 });
    }

    async fn order(&self, payload: &str) -> RecordId {
        let create = Create { lifecycle: "image.job".into(), id: None, owner: None, fields: Map::new(), payload: None };
        self.engine.create_with(&user("ann"), create, payload.as_bytes()).await.expect("an order").subject
    }

    /// The record, as soon as it is in this state.
    async fn until(&self, id: RecordId, state: &str) -> Arc<Record> {
        self.until_it(id, |record| **record.state_name() == *state).await
    }

    /// The record, as soon as it is so.
    async fn until_it(&self, id: RecordId, is_so: impl Fn(&Record) -> bool) -> Arc<Record> {
        let looking = async {
            loop {
                let record = self.engine.get(&operator("ops"), id).await.expect("reading").expect("it is there");
                if is_so(&record) {
                    return record;
                }
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        tokio::time::timeout(LONG, looking).await.expect("in time")
    }

    async fn assets(&self) -> Vec<Arc<Record>> {
        let query = ListQuery { lifecycle: Some("image.asset".into()), limit: 10, ..ListQuery::default() };
        self.engine.list(&user("ann"), &query).await.expect("a list").records
    }

    /// The bytes that an asset says are there.
    async fn picture(&self, asset: &Record) -> Option<Arc<[u8]>> {
        let (Some(Value::Text(url)), Some(Value::Text(sha256)), Some(Value::Int(bytes))) =
            (asset.field("url"), asset.field("sha256"), asset.field("bytes"))
        else {
            panic!("{asset:?}")
        };
        let payload = Payload { sha256: hex::decode(sha256).expect("a hash"), bytes: bytes.cast_unsigned() };
        let reader = self.objects.get_named(url, &payload).await.expect("a bucket")?;
        reader.whole(u64::MAX).await.expect("as it was stored")
    }

    async fn credits(&self) -> i64 {
        let account = AccountName::new("credit", "user:ann");
        self.engine.store().account(&account).await.expect("accounts").map_or(0, |account| account.balance)
    }
}

fn text<'a>(record: &'a Record, field: &str) -> &'a str {
    match record.field(field) {
        Some(Value::Text(text)) => text,
        other => panic!("{field} is {other:?}"),
    }
}

/// IMG-3: what is committed is in the bucket, whole, under `originals/`; one asset says so.
#[test]
fn a_picture_is_stored_and_then_committed() {
    wait(async {
        let folder = Folder::new();
        let house = House::open(Objects::folder(folder.file())).await;
        house.draw();
        let id = house.order(r#"{"prompt":"a lighthouse","size":"256x256"}"#).await;
        let job = house.until(id, "completed").await;
        let assets = house.assets().await;
        assert_eq!(assets.len(), 1);
        assert_eq!(text(&job, "resultUrl"), text(&assets[0], "url"));
        assert_eq!(text(&job, "resultUrl"), format!("originals/{id}-1.png"));
        let picture = house.picture(&assets[0]).await.expect("it is in the bucket");
        assert!(picture.starts_with(b"\x89PNG"));
        house.engine.close().await;
    });
}

/// IMG-3: where it cannot be stored, nothing is committed; the order is tried again.
#[test]
fn what_cannot_be_stored_is_not_committed() {
    wait(async {
        let folder = Folder::new();
        // There is a file where the bucket's folder should be.
        std::fs::write(folder.file(), "in the way").expect("a file");
        let house = House::open(Objects::folder(folder.file())).await;
        house.draw();
        let id = house.order(r#"{"prompt":"a lighthouse","size":"256x256"}"#).await;
        let job = house.until(id, "failed").await;
        assert_eq!(text(&job, "lastError"), "the picture could not be stored");
        assert!(house.assets().await.is_empty());
        std::fs::remove_file(folder.file()).expect("out of the way");
        house.clock.set(house.clock.now().checked_add(onceward_core::time::Duration::from_secs(10)).expect("a time"));
        house.engine.wake();
        house.until(id, "completed").await;
        assert!(house.picture(&house.assets().await[0]).await.is_some());
        assert_eq!(house.credits().await, 15);
        house.engine.close().await;
    });
}

/// IMG-3: an attempt writes under a name of its own, and what one left behind is taken out by the next.
#[test]
fn what_a_dead_attempt_left_is_taken_out() {
    wait(async {
        let folder = Folder::new();
        let house = House::open(Objects::folder(folder.file())).await;
        let id = house.order(r#"{"prompt":"a lighthouse","size":"256x256"}"#).await;
        let bob = worker("bob");
        let held = house.engine.lease(&bob, &Wanted::one("image.job", "w")).await.expect("leasing").remove(0);
        assert_eq!(held.token, Token(1));
        let left = format!("originals/{id}-1.jpg");
        house.objects.put_named(&left, Arc::from(*b"half a job")).await.expect("a bucket");
        house.engine.fail(&bob, id, held.token, ErrorReport::new("timeout", "")).await.expect("a failure");
        house.clock.set(house.clock.now().checked_add(onceward_core::time::Duration::from_secs(10)).expect("a time"));
        house.draw();
        let job = house.until(id, "completed").await;
        assert_eq!(text(&job, "resultUrl"), format!("originals/{id}-2.png"));
        let gone = Payload { sha256: [0; 32], bytes: 10 };
        assert!(house.objects.get_named(&left, &gone).await.expect("a bucket").is_none());
        house.engine.close().await;
    });
}

/// A removed picture leaves the bucket, whoever asked for it and in whatever way, also where nobody was there to do it then, and where it cannot be
/// done at first.
#[test]
fn a_removed_picture_leaves_the_bucket() {
    wait(async {
        let folder = Folder::new();
        let house = House::open(Objects::folder(folder.file())).await;
        house.draw();
        let id = house.order(r#"{"prompt":"a lighthouse","size":"256x256"}"#).await;
        house.until(id, "completed").await;
        let asset = house.assets().await.remove(0);
        house.engine.fire(&user("ann"), asset.id, "remove", Map::new()).await.expect("its owner's word");
        assert!(house.picture(&asset).await.is_some(), "nobody has taken it out yet");

        // There is a folder where the picture should be, which cannot be taken out as one.
        let place = folder.file().join("named").join(text(&asset, "url"));
        let away = place.with_extension("away");
        std::fs::rename(&place, &away).expect("it is there");
        std::fs::create_dir(&place).expect("in its place");
        open_clearing(&house.engine, &house.objects);
        let failed = house.until_it(asset.id, |asset| asset.int("tries") == Some(1)).await;
        assert_eq!(&**failed.state_name(), "removing");
        std::fs::remove_dir(&place).expect("out of the way");
        std::fs::rename(&away, &place).expect("back again");
        assert!(house.picture(&asset).await.is_some());
        house.clock.set(house.clock.now().checked_add(onceward_core::time::Duration::from_secs(10)).expect("a time"));
        house.engine.wake();
        house.until(asset.id, "removed").await;
        assert!(house.picture(&asset).await.is_none());
        house.engine.close().await;
    });
}

/// What a lost worker stored late goes with the picture of the same order when its owner removes that.
#[test]
fn a_late_sibling_goes_with_its_picture() {
    wait(async {
        let folder = Folder::new();
        let house = House::open(Objects::folder(folder.file())).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let id = house.order("a cat").await;
        let lease =
            || async { house.engine.lease(&bob, &Wanted::one("image.job", "w")).await.expect("a job").remove(0) };
        let first = lease().await;
        house.engine.fail(&bob, id, first.token, ErrorReport::new("timeout", "")).await.expect("a failure");
        house.clock.set(house.clock.now().checked_add(onceward_core::time::Duration::from_secs(10)).expect("a time"));
        house.until(id, "queued").await;
        let second = lease().await;
        let names = [format!("originals/{id}-2.png"), format!("originals/{id}-1.webp")];
        for name in &names {
            house.objects.put_named(name, Arc::from(*b"a picture")).await.expect("a bucket");
        }
        let result = json!({ "url": names[0], "sha256": "ab".repeat(32), "bytes": 9 });
        house.engine.commit(&bob, id, second.token, result, true).await.expect("a picture");
        let asset = house.assets().await.remove(0);
        open_clearing(&house.engine, &house.objects);
        house.engine.fire(&ann, asset.id, "remove", Map::new()).await.expect("its owner's word");
        house.until(asset.id, "removed").await;
        let left = std::fs::read_dir(folder.file().join("named/originals")).expect("a folder").count();
        assert_eq!(left, 0, "neither of them");
        house.engine.close().await;
    });
}

/// What a job has left that ended without it, and what a lost worker stored late, goes after a day; whatever somebody has, or may still get, stays.
#[test]
fn what_nobody_has_leaves_the_bucket() {
    const DAY: Duration = Duration::from_hours(24);
    wait(async {
        let folder = Folder::new();
        let house = House::open(Objects::folder(folder.file())).await;
        let (ann, bob) = (user("ann"), worker("bob"));
        let put = |name: String| {
            let objects = &house.objects;
            async move {
                objects.put_named(&name, Arc::from(*b"a picture")).await.expect("a bucket");
                name
            }
        };
        let lease =
            || async { house.engine.lease(&bob, &Wanted::one("image.job", "w")).await.expect("a job").remove(0) };
        // Stored by a worker that died; taken back before anybody tried again.
        let withdrawn = house.order("a cat").await;
        let held = lease().await;
        let left = put(format!("originals/{withdrawn}-1.png")).await;
        house.engine.fail(&bob, withdrawn, held.token, ErrorReport::new("timeout", "")).await.expect("a failure");
        house.engine.fire(&ann, withdrawn, "withdraw", Map::new()).await.expect("taken back");
        // Committed by the second attempt, and then removed by its owner; the first comes late.
        let completed = house.order("a dog").await;
        let held = lease().await;
        let own = put(format!("originals/{completed}-2.png")).await;
        let result = json!({ "url": own, "sha256": "ab".repeat(32), "bytes": 9 });
        house.engine.commit(&bob, completed, held.token, result, true).await.expect("a picture");
        let late = put(format!("originals/{completed}-1.png")).await;
        // Stored, and not yet committed.
        let running = house.order("a bird").await;
        lease().await;
        let coming = put(format!("originals/{running}-1.png")).await;
        let gone = put("originals/01936f0e-0000-7000-8000-000000000001-1.png".to_owned()).await;
        let foreign = put("originals/hands-off.png".to_owned()).await;

        let here = || {
            let entries = std::fs::read_dir(folder.file().join("named/originals")).expect("a folder").flatten();
            let mut names: Vec<String> =
                entries.map(|entry| format!("originals/{}", entry.file_name().to_string_lossy())).collect();
            names.sort();
            names
        };
        let store = house.engine.store();
        assert_eq!((clear_leftovers(store, &house.objects, DAY).await.expect("a look"), here().len()), (0, 6));
        for name in here() {
            let file =
                std::fs::File::options().write(true).open(folder.file().join("named").join(name)).expect("a file");
            file.set_modified(std::time::SystemTime::now() - 2 * DAY).expect("an older time");
        }
        let asset = house.assets().await.remove(0);
        house.engine.fire(&ann, asset.id, "remove", Map::new()).await.expect("its owner's word");
        assert_eq!(clear_leftovers(store, &house.objects, DAY).await.expect("a look"), 3);
        let mut stays = vec![coming, foreign, own];
        stays.sort();
        assert_eq!(here(), stays, "not {left}, {late} and {gone}");
        open_clearing(&house.engine, &house.objects);
        house.until(asset.id, "removed").await;
        assert_eq!(here().len(), 2, "and nothing of what was removed is left");
        house.engine.close().await;
    });
}

/// IMG-15: what is no order is refused before anybody pays, however it is spelled; and no log has it.
#[test]
fn what_is_no_order_is_refused() {
    wait(async {
        let folder = Folder::new();
        let house = House::open(Objects::folder(folder.file())).await;
        let before = house.engine.store().log(0, 100).await.expect("the log").len();
        for payload in [
            r#"{"prompt":"x","prompt":"\u0070\u006f\u0072\u006e"}"#,
            r#"{"prompt":"\u0070orn","n":1}"#,
            r#"{"prompt":"\ud83d"}"#,
            r#"["\u0070orn"]"#,
            "\u{200b}",
        ] {
            let create =
                Create { lifecycle: "image.job".into(), id: None, owner: None, fields: Map::new(), payload: None };
            let refused = house.engine.create_with(&user("ann"), create, payload.as_bytes()).await;
            assert_eq!(refused.expect_err("it is no order").code(), "bad_order", "{payload}");
        }
        assert_eq!(house.credits().await, 20);
        assert_eq!(house.engine.store().log(0, 100).await.expect("the log").len(), before);
        house.engine.close().await;
    });
}

/// What is no order for a picture, and came past a guard that is not ours, is a dead letter, and costs nothing.
#[test]
fn what_cannot_be_read_is_refunded() {
    wait(async {
        let folder = Folder::new();
        let anything = Checks::default().on("image.job", "prompt", |_| async {
            let answer = json!({ "readable": true, "pass": true, "sha256": "ab".repeat(32) });
            Ok(answer.as_object().cloned().unwrap_or_default())
        });
        let house = House::guarded_by(anything, Objects::folder(folder.file())).await;
        house.draw();
        let id = house.order(r#"{"prompt":"a cat","colour":"blue"}"#).await;
        let job = house.until(id, "dead_letter").await;
        assert_eq!(text(&job, "lastError"), "this is no order for a picture");
        assert_eq!(house.credits().await, 20);
        house.engine.close().await;
    });
}

/// IMG-9: the same order, spelled otherwise, is the same order.
#[test]
fn an_order_is_known_however_it_is_spelled() {
    wait(async {
        let folder = Folder::new();
        let house = House::open(Objects::folder(folder.file())).await;
        let first = house.order("a cat").await;
        assert_eq!(house.order(r#"{ "size": "1024x1024", "prompt": "a cat" }"#).await, first);
        assert_eq!(house.credits().await, 15);
        house.engine.close().await;
    });
}

/// IMG-15: the guard stands before the engine: what it flags makes no job, and is told by its code alone.
#[test]
fn the_guard_stands_before_the_engine() {
    wait(async {
        let folder = Folder::new();
        let house = House::open(Objects::folder(folder.file())).await;
        let call = |actor: &Actor| {
            let create =
                Create { lifecycle: "image.job".into(), id: None, owner: None, fields: Map::new(), payload: None };
            let (engine, actor) = (house.engine.clone(), actor.clone());
            async move { engine.create_with(&actor, create, *b"p o r n").await }
        };
        let refused = call(&user("ann")).await.expect_err("it is flagged");
        assert_eq!((refused.code(), refused.to_string().contains("p o")), ("policy_violation", false));
        assert_eq!(house.credits().await, 20);
        let log = house.engine.store().log(0, 100).await.expect("the log");
        assert!(!log.iter().any(|entry| format!("{entry:?}").contains("p o r n")));
        house.engine.close().await;
    });
}
