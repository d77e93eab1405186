//! Audit entries of image jobs and their retention.

use std::time::Duration;

use onceward_core::decide::CreateRecord;
use onceward_core::diagnostic::InputFiles;
use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use onceward_engine::{CheckRegistry, Engine, EngineConfig, EngineError, PruneOptions, RetentionPolicy};
use onceward_store::{Clock, LogEntry, MemoryStore, Store as _, StoreError};
use onceward_system_image::{PromptFilter, register_prompt_check};
use onceward_testkit::{operator, systems, user};
use serde_json::{Map, json};

async fn create_job(engine: &Engine<MemoryStore>, prompt: &str) -> Result<RecordId, EngineError> {
    let create =
        CreateRecord { lifecycle: "image.job".into(), id: None, owner: None, fields: Map::new(), payload: None };
    Ok(engine.create_with_payload(&user("ann"), create, prompt.as_bytes()).await?.subject)
}

/// Returns the audit tags of log entries.
fn audit_tags(entries: &[LogEntry]) -> Vec<String> {
    let bodies = entries.iter().map(|entry| entry.body().expect("an entry"));
    bodies.flat_map(|body| body.audit).map(|mark| mark.to_string()).collect()
}

/// IMG-16: audit entries of a job are pruned with the job after its retention period. Entries of refused orders stay.
#[test]
fn audit_entries_are_append_only_and_pruned_with_their_job() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let clock = Clock::manual("2026-11-15T20:00:00Z".parse().expect("a valid time"));
        let config = EngineConfig {
            checks: register_prompt_check(CheckRegistry::default(), PromptFilter::default()),
            ..EngineConfig::default()
        };
        let engine = Engine::open(MemoryStore::new(clock.clone()), config);
        engine
            .put_lifecycles(&InputFiles { files: systems::source_files("image") })
            .await
            .expect("valid lifecycle files");
        let grant = json!({ "user": "ann", "amount": 20, "order": "first" });
        let grant = grant.as_object().cloned().unwrap_or_default();
        engine.create(&operator("ops"), "image.grant", grant).await.expect("a grant");
        let moderator = Actor::new("mo", &["moderator"]);

        let blocked = create_job(&engine, "a cat").await.expect("an accepted order");
        engine.fire(&moderator, blocked, "block", Map::new()).await.expect("the job is queued");
        assert_eq!(create_job(&engine, "p o r n").await.expect_err("flagged").code(), "policy_violation");
        let store = engine.store();
        let before = store.log(0, 1_000).await.expect("the log");
        assert_eq!(audit_tags(&before), ["JOB_CREATED", "SAFE_BLOCK", "JOB_BLOCKED"]);

        engine.fire(&moderator, blocked, "block", Map::new()).await.expect_err("the job ended");
        let other = create_job(&engine, "a dog").await.expect("another accepted order");
        engine.fire(&user("ann"), other, "withdraw", Map::new()).await.expect("the job is queued");
        create_job(&engine, "p o r n").await.expect_err("the prompt is flagged");
        let after = store.log(0, 1_000).await.expect("the log");
        assert_eq!(after[..before.len()], before[..], "no entry belongs to another job");
        assert_eq!(audit_tags(&after[before.len()..]), ["JOB_CREATED", "JOB_BLOCKED"]);

        let advance_days = |days: i64| {
            let length = onceward_core::time::Duration::from_secs(days * 24 * 3600);
            clock.set(clock.now().checked_add(length).expect("a time"));
        };
        let prune = |retention: RetentionPolicy| {
            let options = PruneOptions { retention, ..PruneOptions::default() };
            let engine = &engine;
            async move { engine.prune(&options).await.expect("pruning") }
        };
        let audit = async || audit_tags(&store.history(blocked, 0, 100).await.expect("its log"));
        let thirty_days =
            || RetentionPolicy { records_ttl: Some(Duration::from_hours(30 * 24)), ..RetentionPolicy::default() };
        advance_days(29);
        prune(thirty_days()).await;
        assert_eq!(audit().await, ["JOB_CREATED", "SAFE_BLOCK"], "not before the cutoff");
        advance_days(2);
        prune(RetentionPolicy::default()).await;
        assert_eq!(audit().await, ["JOB_CREATED", "SAFE_BLOCK"], "retention is unlimited");
        for audit_ttl in [None, Some(Duration::from_hours(365 * 24))] {
            prune(RetentionPolicy { audit_ttl: Some(audit_ttl), ..thirty_days() }).await;
            assert_eq!(audit().await, ["JOB_CREATED", "SAFE_BLOCK"], "audit entries have a longer retention");
        }
        prune(thirty_days()).await;
        assert_eq!(audit().await, [""; 0]);
        assert!(store.record(blocked).await.expect("a store").is_none(), "pruned with the job");
        // The log is complete after the last pruned position.
        let Err(StoreError::LogPruned { oldest }) = store.log(0, 1).await else { panic!("entries were pruned") };
        let remaining = store.log(oldest, 1_000).await.expect("the remaining entries");
        assert_eq!((audit_tags(&remaining), remaining.first()), (vec!["JOB_BLOCKED".to_owned()], after.last()));
        engine.close().await;
    });
}
