//! A worker is paused beyond its lease, wakes, knows nothing of it, and commits. Meanwhile another has the job.

use onceward_core::value::RecordId;
use serde_json::json;

use crate::stage::books::{charged, effects, whole};
use crate::stage::play::{Play, on_each, on_sqlite};
use crate::stage::process;

/// What the zombie and the one that holds the lease are told.
async fn told(play: &Play) -> (RecordId, [String; 2]) {
    let id = play.charge().await;
    let paused = play.lease("A", "lab.charge", 30).await.expect("the job");
    // A stands still. B has the job.
    play.at(30);
    assert_eq!(play.state(id).await, "waiting");
    let holding = play.lease("B", "lab.charge", 30).await.expect("the job again");
    assert!(holding.token > paused.token);
    let a = play.commit("A", &paused, "stale").await;
    let b = play.commit("B", &holding, "fresh").await;
    (id, [a, b])
}

/// The same with a process that is stopped by SIGSTOP while it works, and goes on by SIGCONT.
async fn told_to_processes(play: &Play) -> (RecordId, [String; 2]) {
    let id = play.charge().await;
    let (mut a, mut b) = (process::worker("A"), process::worker("B"));
    play.serve_lease(&mut a, "A", "lab.charge", 30, "good").await.expect("the job");
    a.must_say("working");
    a.pause();
    // Its work is done, for all it knows: it will read this when it wakes.
    a.say("stale");
    play.at(30);
    assert_eq!(play.state(id).await, "waiting");
    play.serve_lease(&mut b, "B", "lab.charge", 30, "good").await.expect("the job again");
    b.must_say("working");
    a.wake();
    let told_a = play.serve_commit(&mut a, "A").await;
    b.say("fresh");
    let told_b = play.serve_commit(&mut b, "B").await;
    (id, [told_a, told_b])
}

/// Without the fence the zombie's stale result lands, and the worker that holds the lease is told that all is well.
#[test]
#[ignore = "the damage: run by `cargo xtask lab`"]
fn damage_the_stale_result_lands() {
    on_each(async |play| {
        let (id, told) = told(play).await;
        assert_eq!(told, ["ok", "ok"]);
        assert_eq!(play.landed(id).await, Some(json!("stale")));
    });
    println!("lab: the zombie's result landed; the holder was told ok, and its result is nowhere");
}

#[test]
#[ignore = "the damage: run by `cargo xtask lab`"]
fn damage_by_a_process() {
    on_sqlite(async |play| {
        let (id, told) = told_to_processes(play).await;
        assert_eq!(told, ["ok", "ok"]);
        assert_eq!(play.landed(id).await, Some(json!("stale")));
    });
    println!("lab: a process woken by SIGCONT has landed its stale result");
}

/// FM-5: the token of a lease that was lost is worth nothing, and says so.
#[test]
fn prevented_by_the_token() {
    on_each(async |play| {
        let (id, told) = told(play).await;
        assert_eq!(told, ["lease_lost", "ok"]);
        assert_eq!(play.landed(id).await, Some(json!("fresh")));
        assert_eq!((effects(play.store(), id).await, charged(play.store()).await), (1, 1));
        whole(play.store()).await.expect("whole");
    });
    println!("lab: the zombie is told lease_lost; the holder's result landed");
}

/// FM-5: a commit too late is refused also where nobody took the job over.
#[test]
fn prevented_though_nobody_took_over() {
    on_each(async |play| {
        let id = play.charge().await;
        let paused = play.lease("A", "lab.charge", 30).await.expect("the job");
        play.at(30);
        assert_eq!(play.commit("A", &paused, "stale").await, "lease_lost");
        assert_eq!(play.landed(id).await, None);
        assert_eq!(effects(play.store(), id).await, 0);
    });
    println!("lab: too late is too late, though nobody took over");
}

/// FM-5: with a process that was really paused.
#[test]
fn prevented_with_a_paused_process() {
    on_sqlite(async |play| {
        let (id, told) = told_to_processes(play).await;
        assert_eq!(told, ["lease_lost", "ok"]);
        assert_eq!(play.landed(id).await, Some(json!("fresh")));
        whole(play.store()).await.expect("whole");
    });
    println!("lab: SIGSTOP, SIGCONT, lease_lost");
}

/// FM-5: the zombie is no outcast: it asks again and works on.
#[test]
fn recovered_the_zombie_works_on() {
    on_each(async |play| {
        let (_, told) = told(play).await;
        assert_eq!(told[0], "lease_lost");
        let next = play.charge().await;
        let held = play.lease("A", "lab.charge", 30).await.expect("the next job");
        assert_eq!(held.record.id, next);
        assert_eq!(play.commit("A", &held, "fresh").await, "ok");
        assert_eq!(play.landed(next).await, Some(json!("fresh")));
    });
    println!("lab: the former zombie does the next job");
}
