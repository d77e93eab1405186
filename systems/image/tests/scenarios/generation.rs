//! IMG-2, IMG-3, IMG-6, IMG-7, IMG-8: generation, commits, assets, policy failures and blocks.

use onceward_core::time::Duration;
use onceward_testkit::{Simulator, operator, systems, user};
use serde_json::json;

use super::{
    alice, create_dead_letter, create_queued_job, create_running_job, grant_credits, image_result, new_simulator,
    order_image, user_credits, user_with_role, with_prompt_check,
};

/// IMG-2: the lease lasts one minute.
#[test]
fn lease_sets_started_at_and_heartbeat_extends_lease() {
    let mut stage = new_simulator();
    let id = create_queued_job(&mut stage);
    assert_eq!(stage.record(id).started_at, None);
    stage.advance("5s");
    let lease = stage.lease(id, "w1");
    assert_eq!(stage.state(id), "running");
    assert_eq!(stage.record(id).started_at, Some(stage.now()));
    assert_eq!(lease.execution.expires_at.duration_since(stage.now()), Some(Duration::from_secs(60)));
    stage.advance("59s");
    stage.heartbeat(&lease).expect_ok();
    stage.advance("59s");
    assert_eq!(stage.state(id), "running");
    stage.try_lease(id, "w2").expect_refusal(409, "already_leased");
}

/// IMG-3, IMG-13: in one operation.
#[test]
fn commit_completes_job_creates_asset_and_captures_credits() {
    let mut stage = new_simulator();
    let lease = create_running_job(&mut stage);
    let changes = stage.commit(&lease, image_result(&lease)).expect_changes();
    assert_eq!(changes.records.len(), 2, "job and asset in one operation");
    assert_eq!(stage.state(lease.record), "completed");
    assert_eq!(stage.field(lease.record, "resultUrl"), format!("originals/{}-1.png", lease.record));
    let assets = stage.linked_records(lease.record, "image.asset", "job");
    assert_eq!(assets.len(), 1);
    assert_eq!(stage.state(assets[0]), "stored");
    assert_eq!(*stage.record(assets[0]).owner, *"alice");
    assert_eq!(stage.field(assets[0], "url"), stage.field(lease.record, "resultUrl"));
    assert_eq!(stage.field(assets[0], "bytes"), 1024);
    assert_eq!(
        (user_credits(&stage, "alice"), stage.balance("credit", "revenue"), stage.hold_balance(lease.record)),
        (95, 5, 0)
    );
}

/// IMG-3: the result lacks a field or its name is outside `originals/`. The worker may commit again.
#[test]
fn commit_with_invalid_result_is_rejected() {
    let mut stage = new_simulator();
    let lease = create_running_job(&mut stage);
    let good = image_result(&lease);
    for (field, bad) in [
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
        result[field] = bad.clone();
        stage.commit(&lease, result).expect_bad_input();
        let mut incomplete = good.clone();
        incomplete.as_object_mut().expect("a JSON object").remove(field);
        stage.commit(&lease, incomplete).expect_bad_input();
    }
    stage.commit(&lease, json!(null)).expect_bad_input();
    assert_eq!(stage.state(lease.record), "running");
    assert!(stage.records_of("image.asset").is_empty());
    stage.commit(&lease, good).expect_ok();
}

/// IMG-3: otherwise the owner could read or delete the image of another job. The refusal changes nothing, and the
/// worker may commit again.
#[test]
fn commit_with_image_of_other_job_is_refused() {
    let mut stage = new_simulator();
    let completed = create_running_job(&mut stage);
    stage.commit(&completed, image_result(&completed)).expect_ok();
    grant_credits(&mut stage, "eve", 5);
    let id = stage.create("image.job", &user("eve")).payload(b"a dog").expect_ok();
    let lease = stage.lease(id, "w1");
    for url in
        [image_result(&completed)["url"].clone(), json!("originals/cat.png"), json!(format!("originals/x{id}.png"))]
    {
        let mut result = image_result(&lease);
        result["url"] = url;
        stage.commit(&lease, result.clone()).expect_refusal(422, "foreign_picture");
        stage.commit_only(&lease, result).expect_refusal(422, "foreign_picture");
        assert_eq!(
            (stage.state(id).as_str(), stage.hold_balance(id), stage.balance("credit", "revenue")),
            ("running", 5, 5)
        );
    }
    assert_eq!(stage.records_of("image.asset").len(), 1);
    stage.commit(&lease, image_result(&lease)).expect_ok();
    assert_eq!((stage.hold_balance(id), stage.balance("credit", "revenue")), (0, 10));
}

/// IMG-3: neither a second commit, a second worker nor a caller creates another asset.
#[test]
fn job_has_at_most_one_asset() {
    let mut stage = new_simulator();
    let slow = create_running_job(&mut stage);
    stage.advance("60s");
    stage.advance("5s");
    let quick = stage.lease(slow.record, "w2");
    stage.commit(&quick, image_result(&quick)).expect_ok();
    stage.commit(&quick, image_result(&quick)).expect_repeated();
    stage.commit(&slow, image_result(&slow)).expect_already_committed(&quick);
    let by_hand = json!({ "job": quick.record.to_string(), "url": "x", "sha256": "y", "bytes": 1 });
    for caller in [alice(), operator("olga")] {
        stage.create("image.asset", &caller).with_all(by_hand.clone()).expect_not_allowed();
    }
    assert_eq!(stage.records_of("image.asset").len(), 1);
}

/// A record that spawns an asset of a job.
const ASSET_MAKER_LIFECYCLE: &str = r#"
language  = 1
lifecycle = "test.maker"
about     = "Spawns assets"

[states]
there = { about = "open", rest = true }

[fields]
job = { type = "ref", to = "image.job" }

[[on.create]]
go   = "-> there"
take = ["job"]

[[on.make]]
go    = "there"
spawn = [{ lifecycle = "image.asset", fields = { job = "record.job", url = "'x'", sha256 = "'y'", bytes = "1" } }]
"#;

/// IMG-3: even if the existing asset was removed.
#[test]
fn spawned_second_asset_returns_existing_asset() {
    let mut stage =
        with_prompt_check(Simulator::new(systems::load_with_files("image", &[("maker.toml", ASSET_MAKER_LIFECYCLE)])));
    grant_credits(&mut stage, "alice", 5);
    let lease = create_running_job(&mut stage);
    stage.commit(&lease, image_result(&lease)).expect_ok();
    let maker = stage.create("test.maker", &alice()).with("job", lease.record.to_string()).expect_ok();
    stage.fire(maker, "make", &alice()).expect_unchanged();
    let asset = stage.linked_records(lease.record, "image.asset", "job")[0];
    stage.fire(asset, "remove", &alice()).expect_ok();
    stage.fire(maker, "make", &alice()).expect_unchanged();
    assert_eq!(stage.records_of("image.asset").len(), 1);
}

/// IMG-3: to other users the asset does not exist.
#[test]
fn only_owner_removes_asset() {
    let mut stage = new_simulator();
    let lease = create_running_job(&mut stage);
    stage.commit(&lease, image_result(&lease)).expect_ok();
    let asset = stage.linked_records(lease.record, "image.asset", "job")[0];
    stage.fire(asset, "remove", &user("mallory")).expect_not_found();
    stage.fire(asset, "remove", &operator("olga")).expect_not_allowed();
    stage.fire(asset, "remove", &alice()).expect_ok();
    stage.fire(asset, "remove", &alice()).expect_wrong_state("removing", "remove");
    assert_eq!(stage.state(lease.record), "completed");
}

/// The backoff doubles up to ten minutes.
#[test]
fn asset_removal_is_retried_until_committed() {
    let mut stage = new_simulator();
    let lease = create_running_job(&mut stage);
    stage.commit(&lease, image_result(&lease)).expect_ok();
    let asset = stage.linked_records(lease.record, "image.asset", "job")[0];
    stage.try_lease(asset, "w1").expect_not_leasable();
    stage.fire(asset, "remove", &alice()).expect_ok();
    let mut wait = 2;
    for failure in 1..=12 {
        let lease = stage.lease(asset, "w1");
        assert_eq!(stage.state(asset), "clearing");
        match failure % 3 {
            0 => stage.yield_job(&lease).expect_ok(),
            1 => stage.fail(&lease, "503").retryable(false).expect_ok(),
            _ => {
                stage.advance("60s");
                asset
            }
        };
        assert_eq!((stage.state(asset).as_str(), stage.field(asset, "tries")), ("removing", json!(failure)));
        let backoff = stage.time_until(asset, "clearAt");
        assert!(Duration::from_secs(wait) <= backoff && backoff < Duration::from_secs(wait + 1), "{backoff}");
        stage.try_lease(asset, "w1").expect_not_leasable();
        stage.advance_by(backoff);
        wait = (2 * wait).min(600);
    }
    let lease = stage.lease(asset, "w1");
    stage.commit(&lease, json!({})).expect_ok();
    assert_eq!(stage.state(asset), "removed");
    assert!(stage.record(asset).is_final());
    stage.fire(asset, "remove", &alice()).expect_wrong_state("removed", "remove");
}

/// IMG-3: the asset has already left the library; the worker keeps its lease.
#[test]
fn remove_during_clearing_is_refused() {
    let mut stage = new_simulator();
    let lease = create_running_job(&mut stage);
    stage.commit(&lease, image_result(&lease)).expect_ok();
    let asset = stage.linked_records(lease.record, "image.asset", "job")[0];
    stage.fire(asset, "remove", &alice()).expect_ok();
    let lease = stage.lease(asset, "w1");
    let version = stage.record(asset).version;
    stage.fire(asset, "remove", &alice()).expect_wrong_state("clearing", "remove");
    assert_eq!((stage.state(asset).as_str(), stage.record(asset).version), ("clearing", version));
    stage.commit(&lease, json!({})).expect_ok();
    assert_eq!(stage.state(asset), "removed");
}

/// IMG-6, IMG-16, IMG-12: the hold becomes a penalty and the log gets `SAFE_BLOCK`, without the provider's message,
/// which may quote the prompt.
#[test]
fn provider_policy_failure_rejects_job_and_keeps_credits() {
    let mut stage = new_simulator();
    let lease = create_running_job(&mut stage);
    stage.fail(&lease, "policy").message("your prompt 'a cat' is unsafe").retryable(true).expect_ok();
    assert_eq!(stage.state(lease.record), "rejected");
    assert_eq!(
        (user_credits(&stage, "alice"), stage.balance("credit", "penalties"), stage.hold_balance(lease.record)),
        (95, 5, 0)
    );
    assert_eq!(stage.audit_tags(), ["JOB_CREATED", "SAFE_BLOCK"]);
    assert_eq!(stage.field(lease.record, "lastError"), "policy violation");
    assert_eq!(stage.field(lease.record, "retryCount"), 0);
}

/// IMG-6
#[test]
fn policy_failure_after_retry_rejects_job() {
    let mut stage = new_simulator();
    let lease = super::create_failed_job(&mut stage, 1);
    stage.advance("10s");
    let lease = stage.lease(lease.record, "w1");
    stage.fail(&lease, "policy").expect_ok();
    assert_eq!(stage.state(lease.record), "rejected");
    assert_eq!(stage.balance("credit", "penalties"), 5);
}

/// IMG-7, IMG-16: with the same penalty and audit entry as a policy failure.
#[test]
fn moderator_block_rejects_queued_job_and_keeps_credits() {
    let mut stage = new_simulator();
    let id = create_queued_job(&mut stage);
    stage.fire(id, "block", &user_with_role("mo", "moderator")).expect_ok();
    assert_eq!(stage.state(id), "rejected");
    assert_eq!(
        (user_credits(&stage, "alice"), stage.balance("credit", "penalties"), stage.hold_balance(id)),
        (95, 5, 0)
    );
    assert_eq!(stage.audit_tags(), ["JOB_CREATED", "SAFE_BLOCK"]);
    assert_eq!(stage.field(id, "lastError"), "policy violation");
    stage.try_lease(id, "w1").expect_not_leasable();
}

/// IMG-7
#[test]
fn block_requires_moderator_and_queued_state() {
    let mut stage = new_simulator();
    let id = create_queued_job(&mut stage);
    stage.fire(id, "block", &alice()).expect_not_allowed();
    stage.fire(id, "block", &operator("olga")).expect_not_allowed();
    stage.fire(id, "block", &user("mallory")).expect_not_found();
    let lease = stage.lease(id, "w1");
    stage.fire(id, "block", &user_with_role("mo", "moderator")).expect_wrong_state("running", "block");
    stage.fail(&lease, "500").expect_ok();
    stage.fire(id, "block", &user_with_role("mo", "moderator")).expect_wrong_state("failed", "block");
}

/// IMG-8: for all three final states.
#[test]
fn event_on_final_job_is_refused() {
    let mut stage = new_simulator();
    let completed = create_running_job(&mut stage);
    stage.commit(&completed, image_result(&completed)).expect_ok();
    let rejected = order_image(&mut stage, "a dog").expect_ok();
    stage.fire(rejected, "block", &user_with_role("mo", "moderator")).expect_ok();
    stage.advance("1m");
    let dead = create_dead_letter(&mut stage);
    for (id, state) in [(completed.record, "completed"), (rejected, "rejected"), (dead, "dead_letter")] {
        assert_eq!(stage.state(id), state);
        stage.try_lease(id, "w1").expect_not_leasable();
        stage.fire(id, "block", &user_with_role("mo", "moderator")).expect_wrong_state(state, "block");
        stage.advance("1h");
        assert_eq!(stage.state(id), state);
        assert!(stage.record(id).is_final(), "{state} is declared final");
        assert_eq!(stage.hold_balance(id), 0);
    }
    stage.fire(completed.record, "replay", &alice()).expect_wrong_state("completed", "replay");
    stage.fire(rejected, "replay", &alice()).expect_wrong_state("rejected", "replay");
}
