//! A worker dies and comes back under the same name and with the same key. What it had leased before is not its own any more.

use onceward_core::value::RecordId;
use serde_json::json;

use crate::stage::books::{charged, effects, whole};
use crate::stage::play::{Play, on_each, on_sqlite};
use crate::stage::process;

/// bob leases and dies with a report on its way; his lease runs out; he returns and leases the same job. What the late report of his
/// first life is told, and what his second life is.
async fn told(play: &Play) -> (RecordId, [String; 2]) {
    let id = play.charge().await;
    let before = play.lease("bob", "lab.charge", 30).await.expect("the job");
    play.at(30);
    assert_eq!(play.state(id).await, "waiting");
    let after = play.lease("bob", "lab.charge", 30).await.expect("the job again");
    assert_eq!(after.record.id, id);
    let late = play.commit("bob", &before, "before").await;
    let own = play.commit("bob", &after, "after").await;
    (id, [late, own])
}

/// Where a lease is known by its holder's name, the dead one's report passes for the living one's.
#[test]
#[ignore = "the damage: run by `cargo xtask lab`"]
fn damage_the_dead_speaks() {
    on_each(async |play| {
        let (id, told) = told(play).await;
        assert_eq!(told, ["ok", "ok"]);
        assert_eq!(play.landed(id).await, Some(json!("before")));
    });
    println!("lab: the report of the first life landed by the lease of the second");
}

/// FM-8: a lease is known by its token; the name is the same, the token is not.
#[test]
fn prevented_by_the_token() {
    on_each(async |play| {
        let (id, told) = told(play).await;
        assert_eq!(told, ["lease_lost", "ok"]);
        assert_eq!(play.landed(id).await, Some(json!("after")));
        assert_eq!((effects(play.store(), id).await, charged(play.store()).await), (1, 1));
        whole(play.store()).await.expect("whole");
    });
    println!("lab: the first life is told lease_lost, the second one's result landed");
}

/// FM-8: back before his lease has run out, bob is not handed it again: nobody knows that it is he who died.
#[test]
fn recovered_when_the_lease_has_run_out() {
    on_sqlite(async |play| {
        let id = play.charge().await;
        let mut first = process::worker("bob");
        let held = play.serve_lease(&mut first, "bob", "lab.charge", 30, "good").await.expect("the job");
        first.must_say("working");
        first.kill();
        let mut second = process::worker("bob");
        assert!(play.serve_lease(&mut second, "bob", "lab.charge", 30, "good").await.is_none(), "not his to have");
        assert!(second.ended().success());
        play.at(30);
        assert_eq!(play.state(id).await, "waiting");
        let mut third = process::worker("bob");
        let again = play.serve_lease(&mut third, "bob", "lab.charge", 30, "good").await.expect("the job again");
        assert!(again.token > held.token);
        third.must_say("working");
        third.say("after");
        assert_eq!(play.serve_commit(&mut third, "bob").await, "ok");
        assert_eq!((effects(play.store(), id).await, charged(play.store()).await), (1, 1));
        whole(play.store()).await.expect("whole");
    });
    println!("lab: killed and back under its name: a new lease, a new token, 1 effect");
}
