//! What is kept of orders for those who must answer for them, and how long.

use onceward_core::decide::Create;
use onceward_core::diagnostic::Files;
use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use onceward_engine::{Checks, Config, Engine, EngineError, PruneOptions, Retention};
use onceward_store::{Clock, Entry, MemoryStore, Store as _, StoreError};
use onceward_system_image::{Guard, checks};
use onceward_testkit::{operator, systems, user};
use serde_json::{Map, json};

async fn order(engine: &Engine<MemoryStore>, prompt: &str) -> Result<RecordId, EngineError> {
    let create = Create { lifecycle: "image.job".into(), id: None, owner: None, fields: Map::new(), payload: None };
    Ok(engine.create_with(&user("ann"), create, prompt.as_bytes()).await?.subject)
}

/// Marks of the audit among entries.
fn marks(entries: &[Entry]) -> Vec<String> {
    let bodies = entries.iter().map(|entry| entry.body().expect("an entry"));
    bodies.flat_map(|body| body.audit).map(|mark| mark.to_string()).collect()
}

/// IMG-16: what the audit has once said it says for ever, whatever happens after it. What it says of a job goes with the job, as long after its end as is
/// set, and not before; what it says of an order that never was one stays.
#[test]
fn the_audit_grows_and_goes_with_its_job() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let clock = Clock::manual("2026-11-15T20:00:00Z".parse().expect("a time as we write them"));
        let config = Config { checks: checks(Checks::default(), Guard::default()), ..Config::default() };
        let engine = Engine::open(MemoryStore::new(clock.clone()), config);
        engine.define(&Files { files: systems::sources("image") }).await.expect("sound files");
        let grant = json!({ "user": "ann", "amount": 20, "order": "first" });
        let grant = grant.as_object().cloned().unwrap_or_default();
        engine.create(&operator("ops"), "image.grant", grant).await.expect("a grant");
        let moderator = Actor::new("mo", &["moderator"]);

        let blocked = order(&engine, "a cat").await.expect("an order");
        engine.fire(&moderator, blocked, "block", Map::new()).await.expect("it waits");
        assert_eq!(order(&engine, "p o r n").await.expect_err("flagged").code(), "policy_violation");
        let store = engine.store();
        let before = store.log(0, 1_000).await.expect("the log");
        assert_eq!(marks(&before), ["JOB_CREATED", "SAFE_BLOCK", "JOB_BLOCKED"]);

        engine.fire(&moderator, blocked, "block", Map::new()).await.expect_err("it is over");
        let other = order(&engine, "a dog").await.expect("another order");
        engine.fire(&user("ann"), other, "withdraw", Map::new()).await.expect("it waits");
        order(&engine, "p o r n").await.expect_err("flagged again");
        let after = store.log(0, 1_000).await.expect("the log");
        assert_eq!(after[..before.len()], before[..], "nothing of it is another");
        assert_eq!(marks(&after[before.len()..]), ["JOB_CREATED", "JOB_BLOCKED"]);

        let later = |days: i64| {
            let length = onceward_core::time::Duration::from_secs(days * 24 * 3600);
            clock.set(clock.now().checked_add(length).expect("a time"));
        };
        let prune = |retention: Retention| {
            let options = PruneOptions { retention, ..PruneOptions::default() };
            let engine = &engine;
            async move { engine.prune(&options).await.expect("pruning") }
        };
        let audit = async || marks(&store.history(blocked, 0, 100).await.expect("its log"));
        later(29);
        prune(Retention::default()).await;
        assert_eq!(audit().await, ["JOB_CREATED", "SAFE_BLOCK"], "not before its time");
        later(2);
        prune(Retention::default().lifecycle("image.job", None)).await;
        assert_eq!(audit().await, ["JOB_CREATED", "SAFE_BLOCK"], "it is set to be kept for ever");
        prune(Retention::default()).await;
        assert_eq!(audit().await, [""; 0]);
        assert!(store.record(blocked).await.expect("a store").is_none(), "with its job");
        // After the last place that was taken, nothing is missing.
        let Err(StoreError::Pruned { oldest }) = store.log(0, 1).await else { panic!("something was taken") };
        let left = store.log(oldest, 1_000).await.expect("the rest");
        assert_eq!((marks(&left), left.first()), (vec!["JOB_BLOCKED".to_owned()], after.last()));
        engine.close().await;
    });
}
