//! IMG-2, IMG-3, IMG-6, IMG-7, IMG-8: drawing, and being stopped from it.

use onceward_core::time::Duration;
use onceward_testkit::{Stage, operator, systems, user};
use serde_json::json;

use super::{alice, credits, dead, dressed, grant, image, order, queued, running, stage, user_role};

/// IMG-2: a worker takes it, the time is kept, and heartbeats keep the lease of a minute.
#[test]
fn a_worker_takes_it() {
    let mut stage = stage();
    let id = queued(&mut stage);
    assert_eq!(stage.record(id).started_at, None);
    stage.pass("5s");
    let lease = stage.lease(id, "w1");
    assert_eq!(stage.state(id), "running");
    assert_eq!(stage.record(id).started_at, Some(stage.now()));
    assert_eq!(lease.execution.expires_at.since(stage.now()), Some(Duration::from_secs(60)));
    stage.pass("59s");
    stage.heartbeat(&lease).ok();
    stage.pass("59s");
    assert_eq!(stage.state(id), "running");
    stage.try_lease(id, "w2").refused(409, "already_leased");
}

/// IMG-3, IMG-13: the commit completes the job, sets its address, makes the asset and captures the credits, all in one.
#[test]
fn the_image_arrives() {
    let mut stage = stage();
    let lease = running(&mut stage);
    let changes = stage.commit(&lease, image(&lease)).changes();
    assert_eq!(changes.records.len(), 2, "the job and its asset, in one operation");
    assert_eq!(stage.state(lease.record), "completed");
    assert_eq!(stage.field(lease.record, "resultUrl"), format!("originals/{}-1.png", lease.record));
    let assets = stage.linked(lease.record, "image.asset", "job");
    assert_eq!(assets.len(), 1);
    assert_eq!(stage.state(assets[0]), "stored");
    assert_eq!(*stage.record(assets[0]).owner, *"alice");
    assert_eq!(stage.field(assets[0], "url"), stage.field(lease.record, "resultUrl"));
    assert_eq!(stage.field(assets[0], "bytes"), 1024);
    assert_eq!((credits(&stage, "alice"), stage.balance("credit", "revenue"), stage.hold(lease.record)), (95, 5, 0));
}

/// IMG-3: no job completes without its image: a result that lacks it, or lies outside `originals/`, is refused, and the
/// worker may still do better.
#[test]
fn nothing_completes_without_its_image() {
    let mut stage = stage();
    let lease = running(&mut stage);
    let good = image(&lease);
    for (part, bad) in [
        ("url", json!(null)),
        ("url", json!("https://provider.example/tmp/cat.png")),
        ("url", json!("https://provider.example/originals/cat.png")),
        ("url", json!("../originals/cat.png")),
        ("url", json!("originals/")),
        ("url", json!("originals/.cat.png")),
        ("url", json!("originals/a cat.png")),
        ("url", json!(format!("originals/{}/cat.png", lease.record))),
        ("sha256", json!("ab")),
        ("sha256", json!("AB".repeat(32))),
        ("sha256", json!("xy".repeat(32))),
        ("bytes", json!(0)),
        ("bytes", json!("many")),
    ] {
        let mut result = good.clone();
        result[part] = bad.clone();
        stage.commit(&lease, result).bad_input();
        let mut without = good.clone();
        without.as_object_mut().expect("an object").remove(part);
        stage.commit(&lease, without).bad_input();
    }
    stage.commit(&lease, json!(null)).bad_input();
    assert_eq!(stage.state(lease.record), "running");
    assert!(stage.all("image.asset").is_empty());
    stage.commit(&lease, good).ok();
}

/// IMG-3: a picture that is not named by its job may be another's, to look at and to take away: such a commit is refused, changes nothing,
/// and the worker may still do better.
#[test]
fn no_job_completes_with_anothers_picture() {
    let mut stage = stage();
    let anns = running(&mut stage);
    stage.commit(&anns, image(&anns)).ok();
    grant(&mut stage, "eve", 5);
    let id = stage.create("image.job", &user("eve")).payload(b"a dog").ok();
    let lease = stage.lease(id, "w1");
    for url in [image(&anns)["url"].clone(), json!("originals/cat.png"), json!(format!("originals/x{id}.png"))] {
        let mut result = image(&lease);
        result["url"] = url;
        stage.commit(&lease, result.clone()).refused(422, "foreign_picture");
        stage.commit_only(&lease, result).refused(422, "foreign_picture");
        assert_eq!((stage.state(id).as_str(), stage.hold(id), stage.balance("credit", "revenue")), ("running", 5, 5));
    }
    assert_eq!(stage.all("image.asset").len(), 1);
    stage.commit(&lease, image(&lease)).ok();
    assert_eq!((stage.hold(id), stage.balance("credit", "revenue")), (0, 10));
}

/// IMG-3: never two assets for one job: not by a second commit, not by a second worker, not by hand.
#[test]
fn one_job_one_asset() {
    let mut stage = stage();
    let slow = running(&mut stage);
    stage.pass("60s");
    stage.pass("5s");
    let quick = stage.lease(slow.record, "w2");
    stage.commit(&quick, image(&quick)).ok();
    stage.commit(&quick, image(&quick)).repeated();
    stage.commit(&slow, image(&slow)).already_committed(&quick);
    let by_hand = json!({ "job": quick.record.to_string(), "url": "x", "sha256": "y", "bytes": 1 });
    for who in [alice(), operator("olga")] {
        stage.create("image.asset", &who).with_all(by_hand.clone()).not_allowed();
    }
    assert_eq!(stage.all("image.asset").len(), 1);
}

/// A record that makes an asset of a job whenever it is told to.
const MAKER: &str = r#"
language  = 1
lifecycle = "test.maker"
about     = "Makes assets"

[states]
there = { about = "at hand", rest = true }

[fields]
job = { type = "ref", to = "image.job" }

[[on.create]]
go   = "-> there"
take = ["job"]

[[on.make]]
go    = "there"
spawn = [{ lifecycle = "image.asset", fields = { job = "record.job", url = "'x'", sha256 = "'y'", bytes = "1" } }]
"#;

/// IMG-3: nor by another record: it meets the asset that is there, even one that was taken out of the library.
#[test]
fn no_record_makes_a_second_asset() {
    let mut stage = dressed(Stage::new(systems::load_with("image", &[("maker.toml", MAKER)])));
    grant(&mut stage, "alice", 5);
    let lease = running(&mut stage);
    stage.commit(&lease, image(&lease)).ok();
    let maker = stage.create("test.maker", &alice()).with("job", lease.record.to_string()).ok();
    stage.fire(maker, "make", &alice()).unchanged();
    let asset = stage.linked(lease.record, "image.asset", "job")[0];
    stage.fire(asset, "remove", &alice()).ok();
    stage.fire(maker, "make", &alice()).unchanged();
    assert_eq!(stage.all("image.asset").len(), 1);
}

/// IMG-3: the asset is its owner's, who may take it out of the library; nobody else even sees it.
#[test]
fn an_asset_is_its_owners() {
    let mut stage = stage();
    let lease = running(&mut stage);
    stage.commit(&lease, image(&lease)).ok();
    let asset = stage.linked(lease.record, "image.asset", "job")[0];
    stage.fire(asset, "remove", &user("mallory")).not_found();
    stage.fire(asset, "remove", &operator("olga")).not_allowed();
    stage.fire(asset, "remove", &alice()).ok();
    stage.fire(asset, "remove", &alice()).wrong_state("removing", "remove");
    assert_eq!(stage.state(lease.record), "completed");
}

/// Whoever has its picture taken out of the bucket, an asset that is to go is a worker's until that is done, however often it fails.
#[test]
fn a_removed_picture_is_taken_out_in_the_end() {
    let mut stage = stage();
    let lease = running(&mut stage);
    stage.commit(&lease, image(&lease)).ok();
    let asset = stage.linked(lease.record, "image.asset", "job")[0];
    stage.try_lease(asset, "w1").not_leasable();
    stage.fire(asset, "remove", &alice()).ok();
    let mut wait = 2;
    for failure in 1..=12 {
        let lease = stage.lease(asset, "w1");
        assert_eq!(stage.state(asset), "clearing");
        match failure % 3 {
            0 => stage.give_back(&lease).ok(),
            1 => stage.fail(&lease, "503").retryable(false).ok(),
            _ => {
                stage.pass("60s");
                asset
            }
        };
        assert_eq!((stage.state(asset).as_str(), stage.field(asset, "tries")), ("removing", json!(failure)));
        let pause = stage.until(asset, "clearAt");
        assert!(Duration::from_secs(wait) <= pause && pause < Duration::from_secs(wait + 1), "{pause}");
        stage.try_lease(asset, "w1").not_leasable();
        stage.pass_for(pause);
        wait = (2 * wait).min(600);
    }
    let lease = stage.lease(asset, "w1");
    stage.commit(&lease, json!({})).ok();
    assert_eq!(stage.state(asset), "removed");
    assert!(stage.record(asset).is_final());
    stage.fire(asset, "remove", &alice()).wrong_state("removed", "remove");
}

/// IMG-3: what a worker is taking out of the bucket is out of the library already: to remove it once more changes nothing, and the worker goes on.
#[test]
fn what_is_being_cleared_is_not_removed_again() {
    let mut stage = stage();
    let lease = running(&mut stage);
    stage.commit(&lease, image(&lease)).ok();
    let asset = stage.linked(lease.record, "image.asset", "job")[0];
    stage.fire(asset, "remove", &alice()).ok();
    let lease = stage.lease(asset, "w1");
    let version = stage.record(asset).version;
    stage.fire(asset, "remove", &alice()).wrong_state("clearing", "remove");
    assert_eq!((stage.state(asset).as_str(), stage.record(asset).version), ("clearing", version));
    stage.commit(&lease, json!({})).ok();
    assert_eq!(stage.state(asset), "removed");
}

/// IMG-6, IMG-16, IMG-12: the provider's filter rejects it: no refund, the hold becomes a penalty, `SAFE_BLOCK` is on record,
/// and the provider's words, which may quote the prompt, are not.
#[test]
fn the_providers_filter_rejects() {
    let mut stage = stage();
    let lease = running(&mut stage);
    stage.fail(&lease, "policy").message("your prompt 'a cat' is unsafe").retryable(true).ok();
    assert_eq!(stage.state(lease.record), "rejected");
    assert_eq!((credits(&stage, "alice"), stage.balance("credit", "penalties"), stage.hold(lease.record)), (95, 5, 0));
    assert_eq!(stage.audits(), ["JOB_CREATED", "SAFE_BLOCK"]);
    assert_eq!(stage.field(lease.record, "lastError"), "policy violation");
    assert_eq!(stage.field(lease.record, "retryCount"), 0);
}

/// IMG-6: after retries too.
#[test]
fn the_filter_may_reject_a_retry() {
    let mut stage = stage();
    let lease = super::failed(&mut stage, 1);
    stage.pass("10s");
    let lease = stage.lease(lease.record, "w1");
    stage.fail(&lease, "policy").ok();
    assert_eq!(stage.state(lease.record), "rejected");
    assert_eq!(stage.balance("credit", "penalties"), 5);
}

/// IMG-7, IMG-16: a moderator blocks it before it runs, with the same penalty and the same entry.
#[test]
fn moderation_blocks_a_queued_job() {
    let mut stage = stage();
    let id = queued(&mut stage);
    stage.fire(id, "block", &user_role("mo", "moderator")).ok();
    assert_eq!(stage.state(id), "rejected");
    assert_eq!((credits(&stage, "alice"), stage.balance("credit", "penalties"), stage.hold(id)), (95, 5, 0));
    assert_eq!(stage.audits(), ["JOB_CREATED", "SAFE_BLOCK"]);
    assert_eq!(stage.field(id, "lastError"), "policy violation");
    stage.try_lease(id, "w1").not_leasable();
}

/// IMG-7: only a moderator, and only before it runs.
#[test]
fn only_moderation_blocks() {
    let mut stage = stage();
    let id = queued(&mut stage);
    stage.fire(id, "block", &alice()).not_allowed();
    stage.fire(id, "block", &operator("olga")).not_allowed();
    stage.fire(id, "block", &user("mallory")).not_found();
    let lease = stage.lease(id, "w1");
    stage.fire(id, "block", &user_role("mo", "moderator")).wrong_state("running", "block");
    stage.fail(&lease, "500").ok();
    stage.fire(id, "block", &user_role("mo", "moderator")).wrong_state("failed", "block");
}

/// IMG-8: nothing leads out of the three ends, whatever is tried.
#[test]
fn final_is_final() {
    let mut stage = stage();
    let completed = running(&mut stage);
    stage.commit(&completed, image(&completed)).ok();
    let rejected = order(&mut stage, "a dog").ok();
    stage.fire(rejected, "block", &user_role("mo", "moderator")).ok();
    stage.pass("1m");
    let dead = dead(&mut stage);
    for (id, state) in [(completed.record, "completed"), (rejected, "rejected"), (dead, "dead_letter")] {
        assert_eq!(stage.state(id), state);
        stage.try_lease(id, "w1").not_leasable();
        stage.fire(id, "block", &user_role("mo", "moderator")).wrong_state(state, "block");
        stage.pass("1h");
        assert_eq!(stage.state(id), state);
        assert!(stage.record(id).is_final(), "{state} is declared as an end");
        assert_eq!(stage.hold(id), 0);
    }
    stage.fire(completed.record, "replay", &alice()).wrong_state("completed", "replay");
    stage.fire(rejected, "replay", &alice()).wrong_state("rejected", "replay");
}
