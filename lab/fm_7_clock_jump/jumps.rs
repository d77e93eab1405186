//! The clock steps far forward and back again, while leases are held and timers wait.

use onceward_store::Store as _;
use serde_json::json;

use crate::stage::books::whole;
use crate::stage::play::{LONG, Play, on_each, on_sqlite, time};

const YEAR: i64 = 365 * 86_400;

/// A leases; the clock jumps a year ahead, the lease is over and B has the job; the clock is set right again, and by it A's lease
/// would still last. What both are told.
async fn forward_and_back(play: &Play) -> [String; 2] {
    let id = play.charge().await;
    let a = play.lease("A", "lab.charge", 30).await.expect("the job");
    play.at(YEAR);
    assert_eq!(play.state(id).await, "waiting");
    let b = play.lease("B", "lab.charge", 30).await.expect("the job again");
    assert_eq!((b.record.id, b.token.0), (id, 2));
    play.at(10);
    [play.heartbeat("A", &a).await, play.heartbeat("B", &b).await]
}

/// Where a lease is judged by the clock alone, the step back makes a lost one good again: two workers hold one job.
#[test]
#[ignore = "the damage: run by `cargo xtask lab`"]
fn damage_two_holders() {
    on_each(async |play| assert_eq!(forward_and_back(play).await, ["ok", "ok"]));
    println!("lab: 2 workers hold one job");
}

/// A job came to wait while the clock was ahead; the one before it in its lane is done after the clock was set back. Whether it
/// can be leased when its time has come again.
async fn after_the_one_before(play: &Play) -> bool {
    let first = play.create("lab.lane", json!({ "lane": "a" })).await;
    play.at(100);
    let second = play.create("lab.lane", json!({ "lane": "a" })).await;
    play.at(10);
    let held = play.lease("A", "lab.lane", 30).await.expect("the first");
    assert_eq!(held.record.id, first);
    assert_eq!(play.commit("A", &held, "done").await, "ok");
    play.at(1_000);
    play.lease("B", "lab.lane", 30).await.is_some_and(|held| held.record.id == second)
}

/// Where lanes are settled by a clock that went back, a job whose time has not come again is passed over, and stays so.
#[test]
#[ignore = "the damage: run by `cargo xtask lab`"]
fn damage_a_job_is_forgotten() {
    on_sqlite(async |play| assert!(!after_the_one_before(play).await));
    println!("lab: a waiting job is passed over, and never handed out");
}

/// FM-7: a lease that was lost stays lost, whatever the clock says later.
#[test]
fn prevented_one_holder() {
    on_each(async |play| {
        assert_eq!(forward_and_back(play).await, ["lease_lost", "ok"]);
        assert!(play.lease("C", "lab.charge", 30).await.is_none(), "nor does a third get it");
        whole(play.store()).await.expect("whole");
    });
    println!("lab: 1 worker holds the job; the other: lease_lost");
}

/// FM-7: nobody else gets the job of a live lease when the clock goes back.
#[test]
fn prevented_a_lease_outlives_a_step_back() {
    on_each(async |play| {
        play.at(YEAR);
        let id = play.charge().await;
        let held = play.lease("A", "lab.charge", 30).await.expect("the job");
        play.at(0);
        assert!(play.lease("B", "lab.charge", 30).await.is_none());
        assert_eq!(play.commit("A", &held, "A").await, "ok");
        assert_eq!(play.landed(id).await, Some(json!("A")));
        whole(play.store()).await.expect("whole");
    });
    println!("lab: a live lease outlives a step back of a year");
}

/// FM-7: no job is passed over for having come while the clock was ahead.
#[test]
fn prevented_no_job_is_forgotten() {
    on_each(async |play| assert!(after_the_one_before(play).await));
    println!("lab: the job is handed out when its time has come again");
}

/// FM-7, INV-3: a record's log goes forward in time whatever the clock does.
#[test]
fn prevented_the_log_goes_forward() {
    on_each(async |play| {
        let id = play.charge().await;
        for (seconds, who) in [(YEAR, "A"), (10, "B"), (2 * YEAR, "C"), (0, "D")] {
            play.at(seconds);
            play.state(id).await;
            play.lease(who, "lab.charge", 30).await;
        }
        let history = play.engine.history(id, 0, 100).await.expect("its history");
        assert!(history.len() > 3);
        assert!(history.is_sorted_by_key(|entry| entry.at), "time runs back in a log");
        assert!(history.is_sorted_by_key(|entry| entry.version));
        whole(play.store()).await.expect("whole");
    });
    println!("lab: every record's log goes forward");
}

/// Where an operation is decided before the record's own log, that log runs backwards.
#[test]
#[ignore = "the damage: run by `cargo xtask lab`"]
fn damage_a_log_runs_backwards() {
    on_each(async |play| {
        play.at(YEAR);
        let id = play.charge().await;
        play.at(10);
        play.engine.store().record(id).await.expect("reading").expect("it is there");
        let call = onceward_core::decide::Call::Lease { record: id, worker: "A".into(), lease: None, start: true };
        // Not ready by the clock that went back: so at the record's own time only.
        assert_eq!(play.report("A", call).await, "ok");
        let history = play.engine.history(id, 0, 100).await.expect("its history");
        assert!(!history.is_sorted_by_key(|entry| entry.at));
    });
    println!("lab: a record's log runs back by a year");
}

/// FM-7: alarms, some of them set while the clock was wrong, all ring, each once.
#[test]
fn recovered_every_alarm_rings() {
    on_each(async |play| {
        let mut alarms = Vec::new();
        for (now, at) in [(0, 60), (YEAR, YEAR + 60), (0, 120), (-YEAR, 30), (10, YEAR + 60)] {
            play.at(now);
            alarms.push(play.create("lab.alarm", json!({ "at": time(at).to_string() })).await);
        }
        // Far ahead, back, and there at last: whoever rang must not ring again, and nobody is left out.
        for now in [100, 0, 2 * YEAR, 50, 2 * YEAR] {
            play.at(now);
            play.engine.wake();
            for id in &alarms {
                play.state(*id).await;
            }
        }
        let mut stream = play.engine.stream(0);
        let mut rang = std::collections::BTreeMap::<_, usize>::new();
        while rang.values().sum::<usize>() < alarms.len() {
            let entry = tokio::time::timeout(LONG, stream.next()).await.expect("in time").expect("reading").expect("open");
            if entry.version > 1 {
                *rang.entry(entry.record).or_default() += 1;
            }
        }
        assert_eq!(rang.len(), alarms.len(), "each once: {rang:?}");
        for id in alarms {
            assert_eq!(play.state(id).await, "rang");
        }
        whole(play.store()).await.expect("whole");
    });
    println!("lab: 5 of 5 timers rang, each once, after 5 jumps");
}
