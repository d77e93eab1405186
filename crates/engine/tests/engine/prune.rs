//! What has ended goes when its time is over, and nothing else does.

use std::time::Duration as Length;

use onceward_core::decide::Call;
use onceward_core::time::Duration;
use onceward_core::value::RecordId;
use onceward_engine::{Config, Engine, EngineError, PruneOptions, Retention, Submission, Wanted, Watch, prune_watched};
use onceward_store::{AnyStore, Clock};
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::stage::{JOB, LONG, job, leased, new_job, object, on_each, ops, state, unpolled};

fn after_days(clock: &Clock, days: i64) {
    clock.set(clock.now().checked_add(Duration::from_secs(days * 86_400)).expect("a time"));
}

/// Everything that has ended is over at once.
fn at_once() -> PruneOptions {
    let retention = Retention { records: Some(Length::ZERO), requests: Some(Length::ZERO), ..Retention::default() };
    PruneOptions { retention, ..PruneOptions::default() }
}

async fn done(engine: &Engine<AnyStore>) -> RecordId {
    let id = job(engine).await;
    let held = leased(engine).await.expect("the job");
    assert_eq!(held.record.id, id);
    engine.commit(&worker("bob"), id, held.token, json!(1), true).await.expect("committed");
    id
}

/// Who looks on sees it get on, from little to all.
#[test]
fn pruning_tells_how_far_it_is() {
    #[derive(Default)]
    struct Seen(Vec<(u64, u64)>);
    impl Watch for Seen {
        fn progress(&mut self, what: &'static str, done: u64, all: u64) {
            assert_eq!(what, "records");
            self.0.push((done, all));
        }
    }
    on_each(unpolled(), async |engine, _| {
        for _ in 0..3 {
            done(engine).await;
        }
        job(engine).await;
        let mut seen = Seen::default();
        let pruned = prune_watched(engine.store(), &at_once(), &mut seen).await.unwrap();
        assert_eq!(pruned.records, 3);
        assert_eq!(seen.0, [(0, 4), (1, 4), (2, 4), (4, 4)]);
    });
}

/// By default a record goes thirty days after its end. Whoever then follows the log from before is told from where on it can be
/// had.
#[test]
fn what_ended_thirty_days_ago_goes() {
    on_each(unpolled(), async |engine, clock| {
        let old = done(engine).await;
        let waiting = job(engine).await;
        after_days(clock, 29);
        let options = PruneOptions::default();
        assert_eq!(engine.prune(&options).await.unwrap().records, 0);
        after_days(clock, 1);
        let dry = engine.prune(&PruneOptions { dry_run: true, ..options.clone() }).await.unwrap();
        assert_eq!((dry.records, dry.entries, dry.checkpoint), (1, 3, None));
        assert!(engine.get(&ops(), old).await.unwrap().is_some());
        let pruned = engine.prune(&options).await.unwrap();
        assert_eq!((pruned.records, pruned.entries, pruned.checkpoint), (1, 3, Some(5)));
        let share = &pruned.shares[0];
        assert_eq!((&*share.lifecycle, &*share.owner, &*share.state, share.records), (JOB, "ann", "SUCCEEDED", 1));
        assert!(engine.get(&ops(), old).await.unwrap().is_none());
        assert_eq!(state(engine, waiting).await, "PENDING");
        for after in [0, 2] {
            let gone = engine.stream(&ops(), after).next().await.unwrap_err();
            assert!(matches!(gone, EngineError::Pruned { oldest: 3 }), "{gone}");
            assert_eq!((gone.status(), gone.code()), (410, "pruned"));
        }
        let mut stream = engine.stream(&ops(), 3);
        assert_eq!(stream.next().await.unwrap().unwrap().record, Some(waiting));
        let checkpoint = stream.next().await.unwrap().unwrap();
        assert_eq!((checkpoint.seq, checkpoint.record), (5, None));
        // Only operators are told what went.
        let mut own = engine.stream(&user("ann"), 3);
        assert_eq!(own.next().await.unwrap().unwrap().record, Some(waiting));
        let next = job(engine).await;
        assert_eq!(own.next().await.unwrap().unwrap().record, Some(next));
    });
}

/// A lifecycle may have a time of its own, or none.
#[test]
fn a_lifecycle_may_be_kept_longer_or_for_ever() {
    on_each(unpolled(), async |engine, clock| {
        let record = done(engine).await;
        after_days(clock, 400);
        let forever = Retention::for_ever();
        for kept in [forever.clone(), Retention::default().lifecycle(JOB, None)] {
            let pruned = engine.prune(&PruneOptions { retention: kept, ..PruneOptions::default() }).await.unwrap();
            assert_eq!((pruned.records, pruned.checkpoint), (0, None));
        }
        let other = forever.lifecycle("race.prize", Some(Length::ZERO));
        let options = |retention| PruneOptions { retention, ..PruneOptions::default() };
        assert_eq!(engine.prune(&options(other.clone())).await.unwrap().records, 0);
        let own = other.lifecycle(JOB, Some(Length::from_hours(24)));
        assert_eq!(engine.prune(&options(own)).await.unwrap().records, 1);
        assert!(engine.get(&ops(), record).await.unwrap().is_none());
    });
}

/// The engine does it by itself, now and then.
#[test]
fn the_engine_prunes_by_itself() {
    let retention = Retention { records: Some(Length::ZERO), every: Length::from_millis(1), ..Retention::default() };
    on_each(Config { retention, ..unpolled() }, async |engine, _| {
        let id = done(engine).await;
        let next = async {
            // Meanwhile what came before may be gone.
            let mut after = 0;
            loop {
                match engine.stream(&ops(), after).next().await {
                    Ok(Some(entry)) if entry.body().unwrap().pruned.is_some() => return entry,
                    Ok(Some(entry)) => after = entry.seq,
                    Err(EngineError::Pruned { oldest }) => after = oldest,
                    other => panic!("{other:?}"),
                }
            }
        };
        let entry = tokio::time::timeout(LONG, next).await.expect("in time");
        assert_eq!(entry.body().unwrap().pruned.unwrap().records(), 1);
        assert!(engine.get(&ops(), id).await.unwrap().is_none());
    });
}

/// Whoever points to a record that goes, goes with it, or both stay: a prize waits for the entries that were made for it.
#[test]
fn a_family_goes_together() {
    on_each(unpolled(), async |engine, _| {
        let ann = user("ann");
        let prize = engine.create(&ann, "race.prize", object(json!({}))).await.unwrap().subject;
        let mut entries = Vec::new();
        for _ in 0..3 {
            let fields = object(json!({ "prize": prize.to_string() }));
            entries.push(engine.create(&ann, "race.entry", fields).await.unwrap().subject);
        }
        let wanted = Wanted { most: 2, ..Wanted::one("race.entry", "w") };
        for held in engine.lease(&worker("bob"), &wanted).await.unwrap() {
            engine.commit(&worker("bob"), held.record.id, held.token, json!({}), true).await.unwrap();
        }
        assert_eq!(state(engine, prize).await, "won");
        // The one that came too late points to the prize, and nobody to it; the winner and the prize point to each other.
        let pruned = engine.prune(&at_once()).await.unwrap();
        assert_eq!((pruned.records, pruned.held), (1, 2), "{pruned:?}");
        assert_eq!(state(engine, prize).await, "won");
        let held = engine.lease(&worker("bob"), &wanted).await.unwrap().pop().expect("the last one");
        engine.commit(&worker("bob"), held.record.id, held.token, json!({}), true).await.unwrap();
        let pruned = engine.prune(&at_once()).await.unwrap();
        assert_eq!((pruned.records, pruned.held), (3, 0), "{pruned:?}");
        // Too many for one transaction: they stay.
        let prize = engine.create(&ann, "race.prize", object(json!({}))).await.unwrap().subject;
        for _ in 0..3 {
            let fields = object(json!({ "prize": prize.to_string() }));
            let id = engine.create(&ann, "race.entry", fields).await.unwrap().subject;
            let held = engine.lease(&worker("bob"), &wanted).await.unwrap().pop().expect("it");
            engine.commit(&worker("bob"), id, held.token, json!({}), true).await.unwrap();
        }
        let small = Retention { batch: 3, ..at_once().retention };
        let most = PruneOptions { retention: small, ..PruneOptions::default() };
        let pruned = engine.prune(&most).await.unwrap();
        assert_eq!((pruned.records, pruned.held), (2, 2), "the two that lost go alone: {pruned:?}");
        assert_eq!(engine.prune(&most).await.unwrap().records, 2);
    });
}

/// A call that is sent again after its answer is forgotten is a new one.
#[test]
fn a_key_is_remembered_for_a_week() {
    on_each(unpolled(), async |engine, clock| {
        let call = || new_job().once("the key");
        let first = engine.submit(call()).await.unwrap();
        after_days(clock, 6);
        assert_eq!(engine.prune(&PruneOptions::default()).await.unwrap().requests, 0);
        let again = engine.submit(call()).await.unwrap();
        assert_eq!((again.subject, again.replayed), (first.subject, true));
        after_days(clock, 1);
        assert_eq!(engine.prune(&PruneOptions::default()).await.unwrap().requests, 1);
        let new = engine.submit(call()).await.unwrap();
        assert!(new.subject != first.subject && !new.replayed);
    });
}

/// Pruning beside callers takes nothing that they still need, and loses none of their answers.
#[test]
fn pruning_goes_on_beside_callers() {
    const ROUNDS: usize = 15;
    on_each(Config::default(), async |engine, _| {
        let mut callers = Vec::new();
        for caller in 0..6 {
            let engine = engine.clone();
            callers.push(tokio::spawn(async move {
                let mut made = 0;
                for _ in 0..ROUNDS {
                    let id = engine.submit(new_job()).await.expect("a job").subject;
                    let call = Call::Lease { record: id, worker: "w".into(), lease: None, start: true };
                    // Others lease jobs that wait, this one's too.
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
            pruned += engine.prune(&at_once()).await.expect("pruning").records;
        }
        let mut made = 0;
        for caller in callers {
            made += caller.await.expect("no caller fails");
        }
        pruned += engine.prune(&at_once()).await.expect("pruning").records;
        assert_eq!((pruned, made), (made, 6 * u64::try_from(ROUNDS).unwrap()));
        assert_eq!(engine.counts(&ops()).await.unwrap(), []);
    });
}
