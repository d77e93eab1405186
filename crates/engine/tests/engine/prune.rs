//! Pruning deletes ended records after their retention, and nothing else.

use std::time::Duration as Length;

use onceward_core::decide::Call;
use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::time::Duration;
use onceward_core::value::RecordId;
use onceward_engine::{
    Engine, EngineConfig, EngineError, LeaseRequest, ProgressObserver, PruneOptions, RetentionPolicy, Submission,
    prune_with_progress,
};
use onceward_store::{AnyStore, Clock};
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::support::{
    JOB_LIFECYCLE, TEST_TIMEOUT, config_without_polling, create_job, json_object, lease_one, new_job_submission,
    on_each_store, operator_actor, state_of,
};

fn advance_days(clock: &Clock, days: i64) {
    clock.set(clock.now().checked_add(Duration::from_secs(days * 86_400)).expect("a time"));
}

/// Makes everything that has ended prunable at once.
fn prune_everything() -> PruneOptions {
    let retention = RetentionPolicy {
        records_ttl: Some(Length::ZERO),
        idempotency_keys_ttl: Some(Length::ZERO),
        ..RetentionPolicy::default()
    };
    PruneOptions { retention, ..PruneOptions::default() }
}

async fn finished_job(engine: &Engine<AnyStore>) -> RecordId {
    let id = create_job(engine).await;
    let held = lease_one(engine).await.expect("the job");
    assert_eq!(held.record.id, id);
    engine.commit(&worker("bob"), id, held.token, json!(1), true).await.expect("committed");
    id
}

#[test]
fn prune_reports_progress() {
    #[derive(Default)]
    struct ProgressRecorder(Vec<(u64, u64)>);
    impl ProgressObserver for ProgressRecorder {
        fn on_progress(&mut self, what: &'static str, done: u64, all: u64) {
            assert_eq!(what, "records");
            self.0.push((done, all));
        }
    }
    on_each_store(config_without_polling(), async |engine, _| {
        for _ in 0..3 {
            finished_job(engine).await;
        }
        create_job(engine).await;
        let mut seen = ProgressRecorder::default();
        let pruned = prune_with_progress(engine.store(), &prune_everything(), &mut seen).await.unwrap();
        assert_eq!(pruned.records, 3);
        assert_eq!(seen.0, [(0, 4), (1, 4), (2, 4), (4, 4)]);
    });
}

/// Prunes by the policy, with no other options.
async fn pruned_records(engine: &Engine<AnyStore>, retention: &RetentionPolicy) -> u64 {
    let options = PruneOptions { retention: retention.clone(), ..PruneOptions::default() };
    engine.prune(&options).await.expect("pruning").records
}

const RETURN_LIFECYCLE: &str = r#"
language  = 1
lifecycle = "race.return"
about     = "Goods that a customer sent back"
[states]
sent   = { about = "on the way", rest = true }
unpaid = { about = "the customer has not asked for the money", final = true, keep = true }
[[on.create]]
go = "-> sent"
[[on.arrive]]
go = "sent -> unpaid"
"#;

/// `keep` is outside the version hash, so that a changed file protects the records that exist.
#[test]
fn records_in_kept_state_are_never_pruned() {
    on_each_store(config_without_polling(), async |engine, clock| {
        let put = async |text: &str| {
            let files = vec![InputFile { name: "return.toml".to_owned(), text: text.into() }];
            let catalog = engine.put_lifecycles(&InputFiles { files }).await.expect("a valid file");
            catalog.definitions.get("race.return").expect("the lifecycle").hash.clone()
        };
        let unprotected = RETURN_LIFECYCLE.replace(", keep = true", "");
        let hash = put(&unprotected).await;
        let id = engine.create(&user("ann"), "race.return", json_object(json!({}))).await.unwrap().subject;
        engine.fire(&user("ann"), id, "arrive", json_object(json!({}))).await.unwrap();
        advance_days(clock, 400);
        let everything = prune_everything().retention;
        assert_eq!(put(RETURN_LIFECYCLE).await, hash, "the same version");
        assert_eq!(pruned_records(engine, &everything).await, 0);
        let named = everything.clone().with_lifecycle("race.return", Some(Length::ZERO));
        assert_eq!(pruned_records(engine, &named).await, 0, "no option overrides the file");
        put(&unprotected).await;
        assert_eq!(pruned_records(engine, &everything).await, 1);
    });
}

/// A stream from before the checkpoint gets the oldest available seq.
#[test]
fn prune_deletes_records_past_their_retention_only() {
    on_each_store(config_without_polling(), async |engine, clock| {
        let old = finished_job(engine).await;
        let waiting = create_job(engine).await;
        advance_days(clock, 29);
        let retention =
            RetentionPolicy { records_ttl: Some(Length::from_hours(30 * 24)), ..RetentionPolicy::default() };
        let options = PruneOptions { retention, ..PruneOptions::default() };
        assert_eq!(engine.prune(&options).await.unwrap().records, 0);
        advance_days(clock, 1);
        assert_eq!(
            pruned_records(engine, &RetentionPolicy::default()).await,
            0,
            "by default, records are kept forever"
        );
        let dry = engine.prune(&PruneOptions { dry_run: true, ..options.clone() }).await.unwrap();
        assert_eq!((dry.records, dry.entries, dry.checkpoint_seq), (1, 3, None));
        assert!(engine.get(&operator_actor(), old).await.unwrap().is_some());
        let pruned = engine.prune(&options).await.unwrap();
        assert_eq!((pruned.records, pruned.entries, pruned.checkpoint_seq), (1, 3, Some(5)));
        let share = &pruned.shares[0];
        assert_eq!(
            (&*share.lifecycle, &*share.owner, &*share.state, share.records),
            (JOB_LIFECYCLE, "ann", "SUCCEEDED", 1)
        );
        assert!(engine.get(&operator_actor(), old).await.unwrap().is_none());
        assert_eq!(state_of(engine, waiting).await, "PENDING");
        for after in [0, 2] {
            let gone = engine.stream(&operator_actor(), after).next().await.unwrap_err();
            assert!(matches!(gone, EngineError::Pruned { oldest_seq: 3 }), "{gone}");
            assert_eq!((gone.status(), gone.code()), (410, "pruned"));
        }
        let mut stream = engine.stream(&operator_actor(), 3);
        assert_eq!(stream.next().await.unwrap().unwrap().record, Some(waiting));
        let checkpoint = stream.next().await.unwrap().unwrap();
        assert_eq!((checkpoint.seq, checkpoint.record), (5, None));
        // Only operators see the checkpoint.
        let mut own = engine.stream(&user("ann"), 3);
        assert_eq!(own.next().await.unwrap().unwrap().record, Some(waiting));
        let next = create_job(engine).await;
        assert_eq!(own.next().await.unwrap().unwrap().record, Some(next));
    });
}

#[test]
fn lifecycle_retention_overrides_the_default() {
    on_each_store(config_without_polling(), async |engine, clock| {
        let record = finished_job(engine).await;
        advance_days(clock, 400);
        let forever = RetentionPolicy::keep_forever();
        for retention in [forever.clone(), RetentionPolicy::default().with_lifecycle(JOB_LIFECYCLE, None)] {
            let pruned = engine.prune(&PruneOptions { retention, ..PruneOptions::default() }).await.unwrap();
            assert_eq!((pruned.records, pruned.checkpoint_seq), (0, None));
        }
        let other = forever.with_lifecycle("race.prize", Some(Length::ZERO));
        let options = |retention| PruneOptions { retention, ..PruneOptions::default() };
        assert_eq!(engine.prune(&options(other.clone())).await.unwrap().records, 0);
        let own = other.with_lifecycle(JOB_LIFECYCLE, Some(Length::from_hours(24)));
        assert_eq!(engine.prune(&options(own)).await.unwrap().records, 1);
        assert!(engine.get(&operator_actor(), record).await.unwrap().is_none());
    });
}

#[test]
fn engine_prunes_periodically() {
    let retention = RetentionPolicy {
        records_ttl: Some(Length::ZERO),
        prune_interval: Length::from_millis(1),
        ..RetentionPolicy::default()
    };
    on_each_store(EngineConfig { retention, ..config_without_polling() }, async |engine, _| {
        let id = finished_job(engine).await;
        let next = async {
            // Earlier entries may be pruned meanwhile.
            let mut after = 0;
            loop {
                match engine.stream(&operator_actor(), after).next().await {
                    Ok(Some(entry)) if entry.body().unwrap().checkpoint.is_some() => return entry,
                    Ok(Some(entry)) => after = entry.seq,
                    Err(EngineError::Pruned { oldest_seq: oldest }) => after = oldest,
                    other => panic!("{other:?}"),
                }
            }
        };
        let entry = tokio::time::timeout(TEST_TIMEOUT, next).await.expect("no timeout");
        assert_eq!(entry.body().unwrap().checkpoint.unwrap().pruned_records(), 1);
        assert!(engine.get(&operator_actor(), id).await.unwrap().is_none());
    });
}

#[test]
fn reference_group_is_pruned_together_or_kept() {
    on_each_store(config_without_polling(), async |engine, _| {
        let ann = user("ann");
        let prize = engine.create(&ann, "race.prize", json_object(json!({}))).await.unwrap().subject;
        let mut entries = Vec::new();
        for _ in 0..3 {
            let fields = json_object(json!({ "prize": prize.to_string() }));
            entries.push(engine.create(&ann, "race.entry", fields).await.unwrap().subject);
        }
        let wanted = LeaseRequest { max_jobs: 2, ..LeaseRequest::single_job("race.entry", "w") };
        for held in engine.lease(&worker("bob"), &wanted).await.unwrap() {
            engine.commit(&worker("bob"), held.record.id, held.token, json!({}), true).await.unwrap();
        }
        assert_eq!(state_of(engine, prize).await, "won");
        // The late entry references the prize, and no record references it; the winner and the prize reference each
        // other.
        let pruned = engine.prune(&prune_everything()).await.unwrap();
        assert_eq!((pruned.records, pruned.held_back), (1, 2), "{pruned:?}");
        assert_eq!(state_of(engine, prize).await, "won");
        let held = engine.lease(&worker("bob"), &wanted).await.unwrap().pop().expect("the last one");
        engine.commit(&worker("bob"), held.record.id, held.token, json!({}), true).await.unwrap();
        let pruned = engine.prune(&prune_everything()).await.unwrap();
        assert_eq!((pruned.records, pruned.held_back), (3, 0), "{pruned:?}");
        // Too many for one transaction: they stay.
        let prize = engine.create(&ann, "race.prize", json_object(json!({}))).await.unwrap().subject;
        for _ in 0..3 {
            let fields = json_object(json!({ "prize": prize.to_string() }));
            let id = engine.create(&ann, "race.entry", fields).await.unwrap().subject;
            let held = engine.lease(&worker("bob"), &wanted).await.unwrap().pop().expect("it");
            engine.commit(&worker("bob"), id, held.token, json!({}), true).await.unwrap();
        }
        let small = RetentionPolicy { max_batch_records: 3, ..prune_everything().retention };
        let small_batch_options = PruneOptions { retention: small, ..PruneOptions::default() };
        let pruned = engine.prune(&small_batch_options).await.unwrap();
        assert_eq!((pruned.records, pruned.held_back), (2, 2), "only the two losers are pruned: {pruned:?}");
        assert_eq!(engine.prune(&small_batch_options).await.unwrap().records, 2);
    });
}

#[test]
fn idempotency_key_expires_after_seven_days() {
    on_each_store(config_without_polling(), async |engine, clock| {
        let call = || new_job_submission().with_idempotency_key("the key");
        let first = engine.submit(call()).await.unwrap();
        advance_days(clock, 6);
        assert_eq!(engine.prune(&PruneOptions::default()).await.unwrap().idempotency_keys, 0);
        let again = engine.submit(call()).await.unwrap();
        assert_eq!((again.subject, again.replayed), (first.subject, true));
        advance_days(clock, 1);
        assert_eq!(engine.prune(&PruneOptions::default()).await.unwrap().idempotency_keys, 1);
        let new = engine.submit(call()).await.unwrap();
        assert!(new.subject != first.subject && !new.replayed);
    });
}

#[test]
fn prune_is_safe_beside_concurrent_callers() {
    const JOBS_PER_CALLER: usize = 15;
    on_each_store(EngineConfig::default(), async |engine, _| {
        let mut callers = Vec::new();
        for caller in 0..6 {
            let engine = engine.clone();
            callers.push(tokio::spawn(async move {
                let mut made = 0;
                for _ in 0..JOBS_PER_CALLER {
                    let id = engine.submit(new_job_submission()).await.expect("a job").subject;
                    let call = Call::Lease { record: id, worker: "w".into(), lease: None, start: true };
                    // Other workers lease ready jobs, including this one's.
                    let Ok(answer) = engine.submit(Submission::new(&worker("bob"), call)).await else { continue };
                    let token = answer.token.expect("a lease");
                    engine.commit(&worker("bob"), id, token, json!(caller), true).await.expect("committed");
                    made += 1;
                }
                made
            }));
        }
        let mut pruned = 0;
        while callers.iter().any(|caller| !caller.is_finished()) {
            pruned += engine.prune(&prune_everything()).await.expect("pruning").records;
        }
        let mut made = 0;
        for caller in callers {
            made += caller.await.expect("no caller fails");
        }
        pruned += engine.prune(&prune_everything()).await.expect("pruning").records;
        assert_eq!((pruned, made), (made, 6 * u64::try_from(JOBS_PER_CALLER).unwrap()));
        assert_eq!(engine.counts(&operator_actor()).await.unwrap(), []);
    });
}
