//! IMG-13 and IMG-17: where credits come from and where they go.

use onceward_testkit::{Stage, operator, systems, user};
use serde_json::json;

use super::{alice, credits, dead, dressed, grant, image, running, stage};

/// Every account that the image system knows, with what jobs hold.
fn total(stage: &Stage) -> i64 {
    let named: i64 =
        ["shop", "revenue", "penalties", "user:alice"].iter().map(|name| stage.balance("credit", name)).sum();
    named + stage.all("image.job").iter().map(|job| job.hold).sum::<i64>()
}

/// IMG-17, IMG-13: an operator grants credits; the shop's account goes below zero by as much.
#[test]
fn credits_come_by_grant() {
    let mut stage = dressed(systems::stage("image"));
    let id = grant(&mut stage, "alice", 40);
    assert_eq!(stage.state(id), "granted");
    assert_eq!((credits(&stage, "alice"), stage.balance("credit", "shop")), (40, -40));
    assert_eq!(stage.field(id, "amount"), 40);
}

/// IMG-17: nobody else grants, least of all to themselves.
#[test]
fn only_operators_grant() {
    let mut stage = dressed(systems::stage("image"));
    let gift = json!({ "user": "mallory", "amount": 1000, "order": "o-1" });
    stage.create("image.grant", &user("mallory")).with_all(gift.clone()).not_allowed();
    stage.create("image.grant", &super::user_role("mo", "moderator")).with_all(gift.clone()).not_allowed();
    stage.create("image.grant", &onceward_testkit::worker("w1")).with_all(gift).not_allowed();
    assert_eq!(credits(&stage, "mallory"), 0);
}

/// IMG-17: an order is granted once, however often it is told.
#[test]
fn an_order_is_granted_once() {
    let mut stage = dressed(systems::stage("image"));
    let gift = json!({ "user": "alice", "amount": 10, "order": "o-1" });
    let first = stage.create("image.grant", &operator("olga")).with_all(gift.clone()).ok();
    assert_eq!(stage.create("image.grant", &operator("otto")).with_all(gift).holder(), first);
    assert_eq!(credits(&stage, "alice"), 10);
}

/// IMG-17: an order that was granted to somebody else, or with another amount, is taken: whoever tells of it hears that nothing was granted.
#[test]
fn an_order_is_one_purchase() {
    let mut stage = dressed(systems::stage("image"));
    let gift = |user: &str, amount: i64, order: &str| json!({ "user": user, "amount": amount, "order": order });
    let first = stage.create("image.grant", &operator("olga")).with_all(gift("alice", 10, "o-1")).ok();
    for other in [gift("eve", 10, "o-1"), gift("alice", 11, "o-1"), gift("eve", 999, "o-1")] {
        stage.create("image.grant", &operator("olga")).with_all(other).refused(409, "order_taken");
    }
    assert_eq!((credits(&stage, "alice"), credits(&stage, "eve"), stage.all("image.grant").len()), (10, 0, 1));
    stage.create("image.grant", &operator("olga")).with_all(gift("eve", 10, "o-2")).ok();
    stage.create("image.grant", &operator("olga")).with_all(gift("alice", 10, "o-3")).ok();
    assert_eq!(stage.create("image.grant", &operator("olga")).with_all(gift("alice", 10, "o-1")).holder(), first);
    assert_eq!((credits(&stage, "alice"), credits(&stage, "eve")), (20, 10));
}

/// IMG-17: an amount is a whole number from one to a million, and all three parts are needed.
#[test]
fn a_grant_is_bounded() {
    let mut stage = dressed(systems::stage("image"));
    for (amount, fits) in [
        (json!(0), false),
        (json!(-5), false),
        (json!(1.5), false),
        (json!(1_000_001), false),
        (json!(1), true),
        (json!(1_000_000), true),
    ] {
        let gift = json!({ "user": "alice", "amount": amount, "order": format!("o-{amount}") });
        let attempt = stage.create("image.grant", &operator("olga")).with_all(gift);
        if fits {
            attempt.ok();
        } else {
            attempt.bad_input();
        }
    }
    stage.create("image.grant", &operator("olga")).with_all(json!({ "user": "alice", "amount": 1 })).bad_input();
    stage.create("image.grant", &operator("olga")).with_all(json!({ "amount": 1, "order": "o" })).bad_input();
    stage.create("image.grant", &operator("olga")).with_all(json!({ "user": "alice", "order": "o" })).bad_input();
}

/// IMG-13: through every kind of end the accounts cancel out, step by step, and what has ended holds nothing.
#[test]
fn the_sum_is_zero_at_every_moment() {
    let mut stage = stage();
    assert_eq!(total(&stage), 0);
    let completed = running(&mut stage);
    assert_eq!((total(&stage), stage.hold(completed.record)), (0, 5));
    stage.commit(&completed, image(&completed)).ok();
    assert_eq!(total(&stage), 0);
    stage.pass("1m");
    let rejected = running(&mut stage);
    stage.fail(&rejected, "policy").ok();
    assert_eq!(total(&stage), 0);
    stage.pass("1m");
    let blocked = super::queued(&mut stage);
    stage.fire(blocked, "block", &super::user_role("mo", "moderator")).ok();
    assert_eq!((total(&stage), stage.hold(blocked)), (0, 0));
    stage.pass("1m");
    dead(&mut stage);
    assert_eq!(total(&stage), 0);
    assert!(stage.all("image.job").iter().all(|job| job.is_final() && job.hold == 0));
    assert_eq!(
        ["shop", "revenue", "penalties", "user:alice"].map(|name| stage.balance("credit", name)),
        [-100, 5, 10, 85]
    );
}

/// IMG-13: a job that waits out its backoff keeps its hold: it is charged once for all its retries.
#[test]
fn retries_are_charged_once() {
    let mut stage = stage();
    let lease = super::failed(&mut stage, 3);
    assert_eq!((credits(&stage, "alice"), stage.hold(lease.record)), (95, 5));
    stage.pass("10s");
    let lease = stage.lease(lease.record, "w1");
    stage.commit(&lease, image(&lease)).ok();
    assert_eq!((credits(&stage, "alice"), stage.balance("credit", "revenue")), (95, 5));
}

/// IMG-13: `dead_letter` gives back what was reserved, whether at once or after the last retry.
#[test]
fn a_dead_letter_is_refunded() {
    let mut stage = stage();
    dead(&mut stage);
    assert_eq!(credits(&stage, "alice"), 100);
    stage.pass("1m");
    let lease = super::failed(&mut stage, 4);
    assert_eq!(stage.state(lease.record), "dead_letter");
    assert_eq!(credits(&stage, "alice"), 100);
    assert_eq!((stage.balance("credit", "revenue"), stage.balance("credit", "penalties")), (0, 0));
}

/// IMG-17: a grant is final, and the user it was made to may see it; others may not.
#[test]
fn a_grant_is_shown_to_its_user() {
    let mut stage = dressed(systems::stage("image"));
    let id = grant(&mut stage, "alice", 40);
    stage.fire(id, "undo", &alice()).refused(404, "no_such_event");
    stage.fire(id, "undo", &user("mallory")).not_found();
}
