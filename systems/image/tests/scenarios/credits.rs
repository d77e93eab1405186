//! IMG-13 and IMG-17: grants, charges and refunds.

use onceward_testkit::{Simulator, operator, systems, user};
use serde_json::json;

use super::{
    alice, create_dead_letter, create_running_job, grant_credits, image_result, new_simulator, user_credits,
    with_prompt_check,
};

/// Returns the sum over all accounts and holds.
fn total_balance(stage: &Simulator) -> i64 {
    let named: i64 =
        ["shop", "revenue", "penalties", "user:alice"].iter().map(|name| stage.balance("credit", name)).sum();
    named + stage.records_of("image.job").iter().map(|job| job.hold).sum::<i64>()
}

/// IMG-17, IMG-13
#[test]
fn operator_grant_credits_user_and_debits_shop() {
    let mut stage = with_prompt_check(systems::new_simulator("image"));
    let id = grant_credits(&mut stage, "alice", 40);
    assert_eq!(stage.state(id), "granted");
    assert_eq!((user_credits(&stage, "alice"), stage.balance("credit", "shop")), (40, -40));
    assert_eq!(stage.field(id, "amount"), 40);
}

/// IMG-17: users cannot grant credits to themselves.
#[test]
fn grant_requires_operator() {
    let mut stage = with_prompt_check(systems::new_simulator("image"));
    let grant = json!({ "user": "mallory", "amount": 1000, "order": "o-1" });
    stage.create("image.grant", &user("mallory")).with_all(grant.clone()).expect_not_allowed();
    stage.create("image.grant", &super::user_with_role("mo", "moderator")).with_all(grant.clone()).expect_not_allowed();
    stage.create("image.grant", &onceward_testkit::worker("w1")).with_all(grant).expect_not_allowed();
    assert_eq!(user_credits(&stage, "mallory"), 0);
}

/// IMG-17
#[test]
fn repeated_purchase_order_returns_existing_grant() {
    let mut stage = with_prompt_check(systems::new_simulator("image"));
    let grant = json!({ "user": "alice", "amount": 10, "order": "o-1" });
    let first = stage.create("image.grant", &operator("olga")).with_all(grant.clone()).expect_ok();
    assert_eq!(stage.create("image.grant", &operator("otto")).with_all(grant).expect_existing(), first);
    assert_eq!(user_credits(&stage, "alice"), 10);
}

/// IMG-17: the refusal tells the caller that nothing was granted.
#[test]
fn purchase_order_of_other_user_or_amount_is_refused() {
    let mut stage = with_prompt_check(systems::new_simulator("image"));
    let grant = |user: &str, amount: i64, order: &str| json!({ "user": user, "amount": amount, "order": order });
    let first = stage.create("image.grant", &operator("olga")).with_all(grant("alice", 10, "o-1")).expect_ok();
    for other in [grant("eve", 10, "o-1"), grant("alice", 11, "o-1"), grant("eve", 999, "o-1")] {
        stage.create("image.grant", &operator("olga")).with_all(other).expect_refusal(409, "order_taken");
    }
    assert_eq!(
        (user_credits(&stage, "alice"), user_credits(&stage, "eve"), stage.records_of("image.grant").len()),
        (10, 0, 1)
    );
    stage.create("image.grant", &operator("olga")).with_all(grant("eve", 10, "o-2")).expect_ok();
    stage.create("image.grant", &operator("olga")).with_all(grant("alice", 10, "o-3")).expect_ok();
    assert_eq!(
        stage.create("image.grant", &operator("olga")).with_all(grant("alice", 10, "o-1")).expect_existing(),
        first
    );
    assert_eq!((user_credits(&stage, "alice"), user_credits(&stage, "eve")), (20, 10));
}

/// IMG-17: an integer from 1 to 1,000,000.
#[test]
fn grant_amount_is_bounded_and_fields_required() {
    let mut stage = with_prompt_check(systems::new_simulator("image"));
    for (amount, fits) in [
        (json!(0), false),
        (json!(-5), false),
        (json!(1.5), false),
        (json!(1_000_001), false),
        (json!(1), true),
        (json!(1_000_000), true),
    ] {
        let grant = json!({ "user": "alice", "amount": amount, "order": format!("o-{amount}") });
        let attempt = stage.create("image.grant", &operator("olga")).with_all(grant);
        if fits {
            attempt.expect_ok();
        } else {
            attempt.expect_bad_input();
        }
    }
    stage.create("image.grant", &operator("olga")).with_all(json!({ "user": "alice", "amount": 1 })).expect_bad_input();
    stage.create("image.grant", &operator("olga")).with_all(json!({ "amount": 1, "order": "o" })).expect_bad_input();
    stage
        .create("image.grant", &operator("olga"))
        .with_all(json!({ "user": "alice", "order": "o" }))
        .expect_bad_input();
}

/// IMG-13: for every kind of ending; an ended job holds nothing.
#[test]
fn ledger_total_is_zero_after_every_step() {
    let mut stage = new_simulator();
    assert_eq!(total_balance(&stage), 0);
    let completed = create_running_job(&mut stage);
    assert_eq!((total_balance(&stage), stage.hold_balance(completed.record)), (0, 5));
    stage.commit(&completed, image_result(&completed)).expect_ok();
    assert_eq!(total_balance(&stage), 0);
    stage.advance("1m");
    let rejected = create_running_job(&mut stage);
    stage.fail(&rejected, "policy").expect_ok();
    assert_eq!(total_balance(&stage), 0);
    stage.advance("1m");
    let blocked = super::create_queued_job(&mut stage);
    stage.fire(blocked, "block", &super::user_with_role("mo", "moderator")).expect_ok();
    assert_eq!((total_balance(&stage), stage.hold_balance(blocked)), (0, 0));
    stage.advance("1m");
    create_dead_letter(&mut stage);
    assert_eq!(total_balance(&stage), 0);
    assert!(stage.records_of("image.job").iter().all(|job| job.is_final() && job.hold == 0));
    assert_eq!(
        ["shop", "revenue", "penalties", "user:alice"].map(|name| stage.balance("credit", name)),
        [-100, 5, 10, 85]
    );
}

/// IMG-13
#[test]
fn retries_keep_one_hold_and_charge_once() {
    let mut stage = new_simulator();
    let lease = super::create_failed_job(&mut stage, 3);
    assert_eq!((user_credits(&stage, "alice"), stage.hold_balance(lease.record)), (95, 5));
    stage.advance("10s");
    let lease = stage.lease(lease.record, "w1");
    stage.commit(&lease, image_result(&lease)).expect_ok();
    assert_eq!((user_credits(&stage, "alice"), stage.balance("credit", "revenue")), (95, 5));
}

/// IMG-13: at once or after the last retry.
#[test]
fn dead_letter_refunds_credits() {
    let mut stage = new_simulator();
    create_dead_letter(&mut stage);
    assert_eq!(user_credits(&stage, "alice"), 100);
    stage.advance("1m");
    let lease = super::create_failed_job(&mut stage, 4);
    assert_eq!(stage.state(lease.record), "dead_letter");
    assert_eq!(user_credits(&stage, "alice"), 100);
    assert_eq!((stage.balance("credit", "revenue"), stage.balance("credit", "penalties")), (0, 0));
}

/// IMG-17
#[test]
fn grant_is_visible_only_to_its_user() {
    let mut stage = with_prompt_check(systems::new_simulator("image"));
    let id = grant_credits(&mut stage, "alice", 40);
    stage.fire(id, "undo", &alice()).expect_refusal(404, "unknown_event");
    stage.fire(id, "undo", &user("mallory")).expect_not_found();
}
