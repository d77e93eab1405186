//! A jump of the clock ends no lease, delays no job and prunes nothing (FM-7, decision 0047).

use std::time::Duration;

use onceward_engine::{Engine, EngineError, PruneOptions, RetentionPolicy};
use onceward_store::{AnyStore, Clock, Store as _};
use onceward_testkit::postgres::PostgresServer;
use onceward_testkit::{TempDir, worker};
use serde_json::json;

use crate::support::{
    block_on, config_without_polling, create_job, lease_one, open_engine, open_postgres, open_sqlite, operator_actor,
    start_time, state_of,
};

const DAY: Duration = Duration::from_hours(24);

fn jump(clock: &Clock, days: i64) {
    let micros = start_time().micros() + days * 86_400_000_000;
    clock.set(onceward_core::time::Time::from_micros(micros));
}

/// Runs a test on SQLite and on PostgreSQL, with a guarded clock.
#[allow(clippy::needless_pass_by_value, reason = "callers pass closures")]
fn on_guarded_stores(test: impl AsyncFn(&Engine<AnyStore>, &Clock)) {
    println!("on SQLite");
    let (clock, folder) = (Clock::manual_guarded(start_time()), TempDir::new());
    block_on(async {
        let engine = open_engine(open_sqlite(&folder, &clock), config_without_polling()).await;
        test(&engine, &clock).await;
        engine.close().await;
    });
    println!("on PostgreSQL");
    let clock = Clock::manual_guarded(start_time());
    block_on(async {
        let store = open_postgres(&PostgresServer::shared().create_database(), &clock).await;
        let engine = open_engine(store, config_without_polling()).await;
        test(&engine, &clock).await;
        engine.close().await;
    });
}

/// FM-7
#[test]
fn year_ahead_for_two_seconds_ends_no_lease_and_prunes_nothing() {
    on_guarded_stores(async |engine, clock| {
        let ended = create_job(engine).await;
        let done = lease_one(engine).await.expect("the job");
        engine.commit(&worker("bob"), ended, done.token, json!(1), true).await.expect("committed");
        let id = create_job(engine).await;
        let held = lease_one(engine).await.expect("the job");
        jump(clock, 365);
        // Reading a record fires what is due.
        assert_eq!(state_of(engine, id).await, "RUNNING");
        let hold = engine.store().clock_status().hold.expect("a jump");
        assert!(hold.needs_operator);
        let all = RetentionPolicy { records_ttl: Some(Duration::ZERO), ..RetentionPolicy::default() };
        let options = PruneOptions { retention: all, ..PruneOptions::default() };
        let refused = engine.prune(&options).await.unwrap_err();
        assert_eq!((refused.status(), refused.code()), (503, "clock_held"));
        engine.heartbeat(&worker("bob"), id, held.token).await.expect("heartbeats go on");
        let created = create_job(engine).await;
        jump(clock, 0);
        clock.advance(Duration::from_secs(2));
        engine.commit(&worker("bob"), id, held.token, json!(1), true).await.expect("the lease is live");
        assert_eq!(engine.store().clock_status().hold, None);
        let record = engine.get(&operator_actor(), created).await.unwrap().expect("the record");
        assert!(record.updated_at <= engine.store().now().await.unwrap());
        assert_eq!(engine.prune(&options).await.expect("no hold").records, 2);
    });
}

#[test]
fn corrected_clock_is_followed_after_a_minute() {
    on_guarded_stores(async |engine, clock| {
        let id = create_job(engine).await;
        lease_one(engine).await.expect("the job");
        jump(clock, 1);
        assert_eq!(state_of(engine, id).await, "RUNNING");
        clock.advance(Duration::from_secs(20));
        assert_eq!(engine.store().now().await.unwrap().micros(), start_time().micros() + 20_000_000);
        clock.advance(Duration::from_secs(40));
        // The clock was a day behind, so the lease expired long ago.
        assert_eq!(state_of(engine, id).await, "PENDING");
        let status = engine.store().clock_status();
        assert_eq!((status.hold, status.since_jump), (None, Some(Duration::ZERO)));
    });
}

#[test]
fn operator_accepts_a_large_jump_for_all_processes() {
    let clock = Clock::manual_guarded(start_time());
    let other_clock = Clock::manual_guarded(start_time());
    block_on(async {
        let url = PostgresServer::shared().create_database();
        let engine = open_engine(open_postgres(&url, &clock).await, config_without_polling()).await;
        let other = open_postgres(&url, &other_clock).await;
        assert!(!engine.accept_clock().await.expect("no error"), "there is nothing to accept");
        for clock in [&clock, &other_clock] {
            jump(clock, 365);
            clock.advance(DAY);
        }
        let expected = engine.store().now().await.unwrap();
        assert_eq!(other.now().await.unwrap(), expected, "a large jump is never followed without an operator");
        assert!(engine.accept_clock().await.expect("accepted"));
        let followed = engine.store().now().await.unwrap();
        assert_eq!(followed.micros(), start_time().micros() + 366 * 86_400_000_000);
        assert_eq!(other.now().await.unwrap(), followed);
        engine.close().await;
    });
}

/// The clock was a year ahead when entries were logged, and is right now.
#[test]
fn future_log_entry_holds_the_clock_until_an_operator_accepts() {
    let folder = TempDir::new();
    block_on(async {
        let wrong = Clock::manual(start_time());
        jump(&wrong, 365);
        let engine = open_engine(open_sqlite(&folder, &wrong), config_without_polling()).await;
        create_job(&engine).await;
        engine.close().await;
        drop(engine);
        for is_accepted in [false, true] {
            let clock = Clock::manual_guarded(start_time());
            let engine = open_engine(open_sqlite(&folder, &clock), config_without_polling()).await;
            assert_eq!(engine.store().clock_status().hold.is_none(), is_accepted);
            if !is_accepted {
                let pruned = engine.prune(&PruneOptions::default()).await;
                assert!(matches!(pruned, Err(EngineError::Store(_))), "{pruned:?}");
                assert!(engine.accept_clock().await.expect("accepted"));
            }
            assert_eq!(engine.store().now().await.unwrap(), start_time());
            engine.close().await;
        }
    });
}
