//! Several engines prune one database: nothing goes twice, and nobody waits for ever.

use std::time::Duration as Length;

use onceward_engine::{Config, PruneOptions, Retention, Wanted};
use onceward_store::Clock;
use onceward_testkit::postgres::Server;
use onceward_testkit::worker;
use serde_json::json;

use crate::stage::{JOB, job, ops, start, wait};
use crate::{engines, proven};

#[test]
fn what_is_over_goes_once() {
    const JOBS: usize = 90;
    wait(async {
        let url = Server::shared().database();
        let clock = Clock::manual(start());
        let engines = engines(3, &url, &clock, &Config::default()).await;
        for _ in 0..JOBS {
            job(&engines[0]).await;
        }
        let wanted = Wanted { most: JOBS, ..Wanted::one(JOB, "w") };
        for held in engines[1].lease(&worker("bob"), &wanted).await.unwrap() {
            engines[1].commit(&worker("bob"), held.record.id, held.token, json!(1), true).await.unwrap();
        }
        let retention = Retention { records: Some(Length::ZERO), batch: 7, ..Retention::default() };
        let options = PruneOptions { retention, ..PruneOptions::default() };
        let mut pruning = Vec::new();
        for engine in &engines {
            let (engine, options) = (engine.clone(), options.clone());
            pruning.push(tokio::spawn(async move { engine.prune(&options).await.expect("pruning").records }));
        }
        let mut pruned = 0;
        for records in pruning {
            pruned += records.await.unwrap();
        }
        // What one left to another that then did not get to it is found by the next look.
        pruned += engines[2].prune(&options).await.unwrap().records;
        assert_eq!(pruned, u64::try_from(JOBS).unwrap());
        assert_eq!(engines[0].counts(&ops()).await.unwrap(), []);
        job(&engines[1]).await;
        proven(&url, clock.now()).await;
    });
}
