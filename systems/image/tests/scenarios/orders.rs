//! IMG-1, IMG-9, IMG-14, IMG-15, IMG-16: what it takes to place an order.

use onceward_core::time::Duration;
use onceward_testkit::{Stage, operator, systems, user};
use serde_json::json;

use super::{credits, dressed, grant, image, order, queued, running, stage, user_role};

/// Take the active job out of the way, so that only the hour counts.
fn order_and_block(stage: &mut Stage, who: &str, role: &str, prompt: &str) {
    let id = stage.create("image.job", &user_role(who, role)).payload(prompt.as_bytes()).ok();
    stage.fire(id, "block", &user_role("mo", "moderator")).ok();
}

/// IMG-1, IMG-13: an order that passes everything is queued, and its credits are reserved with it.
#[test]
fn an_order_is_queued_and_paid_for() {
    let mut stage = stage();
    let changes = order(&mut stage, "a cat").changes();
    let id = changes.subject;
    assert_eq!(stage.state(id), "queued");
    assert_eq!(changes.moves.len(), 1, "reserved in the same operation");
    assert_eq!((credits(&stage, "alice"), stage.hold(id)), (95, 5));
    assert_eq!(stage.field(id, "role"), "user");
    assert_eq!(stage.field(id, "cost"), 5);
    assert_eq!(stage.field(id, "retryCount"), 0);
}

/// IMG-1, IMG-15: a prompt that the guard blocks makes no job and costs nothing.
#[test]
fn a_blocked_prompt_makes_no_job() {
    let mut stage = stage();
    order(&mut stage, "a nude").refused(422, "policy_violation");
    assert!(stage.all("image.job").is_empty());
    assert_eq!(credits(&stage, "alice"), 100);
}

/// IMG-15, IMG-16: the refusal says that the policy is violated and no more; the prompt is in no log, only its hash.
#[test]
fn a_blocked_prompt_is_never_logged() {
    let mut stage = stage();
    let refusal = order(&mut stage, "a nude by the window").refused(422, "policy_violation");
    assert_eq!(refusal.reason, "policy violation");
    assert_eq!(refusal.audit.as_deref(), Some("JOB_BLOCKED"));
    let said = stage.everything_said();
    assert!(!said.contains("window"));
    // printf 'a nude by the window' | sha256sum
    assert!(said.contains("6cbafc4e2a3f7f8527460f9fac98fe8bc62df49a1f6a3b13b6f4267a0ccedf37"), "{said}");
    order(&mut stage, "a cat by the window").ok();
    assert!(!stage.everything_said().contains("window"), "nor is one that passes");
}

/// IMG-15: a prompt is there, and no longer than 32 KB.
#[test]
fn a_prompt_is_bounded() {
    let mut stage = stage();
    stage.create("image.job", &user("alice")).bad_input();
    order(&mut stage, "").bad_input();
    stage.create("image.job", &user("alice")).payload_of_size(32 * 1024 + 1).bad_input();
    order(&mut stage, &"x".repeat(32 * 1024)).ok();
}

/// IMG-1: what an order is made of is not the caller's to say.
#[test]
fn callers_give_the_prompt_and_nothing_else() {
    let mut stage = stage();
    let dead = super::dead(&mut stage);
    for (name, value) in [
        ("role", json!("pro")),
        ("cost", json!(0)),
        ("promptHash", json!("ab")),
        ("retryCount", json!(0)),
        ("replayOf", json!(dead.to_string())),
    ] {
        order(&mut stage, "a dog").with(name, value).bad_input();
    }
}

/// IMG-9: the same user, prompt and minute is the same job: its id comes back, and nothing is deducted again.
#[test]
fn an_order_repeated_within_its_minute_is_one_order() {
    let mut stage = stage().at("2026-11-15T20:00:10Z");
    let id = queued(&mut stage);
    stage.pass("49s");
    assert_eq!(order(&mut stage, "a cat").holder(), id);
    assert_eq!(credits(&stage, "alice"), 95);
    assert_eq!(stage.all("image.job").len(), 1);
}

/// IMG-9: another prompt, another user or another minute is another order.
#[test]
fn what_differs_is_another_order() {
    let mut stage = stage().at("2026-11-15T20:00:59.999999Z");
    grant(&mut stage, "bob", 10);
    let lease = running(&mut stage);
    let id = lease.record;
    stage.commit(&lease, image()).ok();
    let dog = order(&mut stage, "a dog").ok();
    let bobs = stage.create("image.job", &user("bob")).payload(b"a cat").ok();
    stage.fire(dog, "block", &user_role("mo", "moderator")).ok();
    assert_eq!(order(&mut stage, "a cat").holder(), id);
    stage.pass_for(Duration::from_micros(1));
    let later = order(&mut stage, "a cat").ok();
    assert!(id != later && id != bobs && bobs != later);
}

/// What becomes of a running job.
type End = fn(&mut Stage, &onceward_testkit::Lease);

/// IMG-9: whatever has become of the first, short of `dead_letter`, it holds the key: also waiting out its backoff,
/// completed and rejected.
#[test]
fn the_key_is_held_until_the_job_is_dead() {
    let same_minute = |end: End| {
        let mut stage = stage();
        let lease = running(&mut stage);
        end(&mut stage, &lease);
        let before = credits(&stage, "alice");
        let again = order(&mut stage, "a cat").outcome();
        (stage.state(lease.record), again.decision, before - credits(&stage, "alice"))
    };
    let ends: [(&str, End); 4] = [
        ("running", |_, _| {}),
        ("failed", |stage, lease| {
            stage.fail(lease, "500").ok();
        }),
        ("completed", |stage, lease| {
            stage.commit(lease, image()).ok();
        }),
        ("rejected", |stage, lease| {
            stage.fail(lease, "policy").ok();
        }),
    ];
    for (state, end) in ends {
        let (reached, decision, charged) = same_minute(end);
        assert_eq!(reached, state);
        assert!(matches!(decision, onceward_core::decide::Decision::NoOp(_)), "{state}: {decision:?}");
        assert_eq!(charged, 0, "{state}");
    }
    let (reached, decision, charged) = same_minute(|stage, lease| {
        stage.fail(lease, "400").ok();
    });
    assert_eq!(reached, "dead_letter");
    assert!(matches!(decision, onceward_core::decide::Decision::Changes(_)), "a dead letter lets the key go");
    assert_eq!(charged, 5);
}

/// IMG-9, IMG-14: the repeated order is answered before limits and money are looked at.
#[test]
fn a_repeated_order_meets_no_limit() {
    let mut stage = dressed(systems::stage("image"));
    grant(&mut stage, "alice", 5);
    let id = queued(&mut stage);
    assert_eq!(credits(&stage, "alice"), 0);
    assert_eq!(order(&mut stage, "a cat").holder(), id);
}

/// IMG-14, INV-7: one active job: a second is refused while the first is queued, running or failed, and nothing is reserved.
#[test]
fn one_active_job_per_user() {
    let mut stage = stage();
    grant(&mut stage, "bob", 10);
    let id = queued(&mut stage);
    order(&mut stage, "a dog").refused(429, "one_active_job");
    let lease = stage.lease(id, "w1");
    order(&mut stage, "a dog").refused(429, "one_active_job");
    stage.fail(&lease, "500").ok();
    order(&mut stage, "a dog").refused(429, "one_active_job");
    assert_eq!(credits(&stage, "alice"), 95);
    stage.create("image.job", &user("bob")).payload(b"a dog").ok();
    stage.pass("10s");
    let lease = stage.lease(id, "w1");
    stage.commit(&lease, image()).ok();
    order(&mut stage, "a dog").ok();
}

/// IMG-14, INV-7: exactly 5, 50 and 500 orders an hour for guest, user and pro; the next is refused and costs nothing.
#[test]
fn the_hourly_quota_goes_by_role() {
    for (role, quota) in [("nobody", 5), ("user", 50), ("pro", 500)] {
        let mut stage = dressed(systems::stage("image")).at("2026-11-15T20:00:00Z");
        grant(&mut stage, "zoe", 5_000);
        for number in 1..=quota {
            order_and_block(&mut stage, "zoe", role, &format!("picture {number}"));
        }
        let left = credits(&stage, "zoe");
        stage.create("image.job", &user_role("zoe", role)).payload(b"one more").refused(429, "quota");
        assert_eq!(credits(&stage, "zoe"), left);
    }
}

/// IMG-14, INV-7: the hour is the clock's: at its last microsecond the quota is full, at the next it is empty. Who is refused is told how long
/// that is from now; who is refused for another reason is not.
#[test]
fn the_quota_starts_again_with_the_hour() {
    let mut stage = stage().at("2026-11-15T20:10:00Z");
    for number in 1..=5 {
        order_and_block(&mut stage, "alice", "guest", &format!("picture {number}"));
    }
    stage.pass_for(Duration::from_micros(50 * 60 * 1_000_000 - 1));
    let refused = stage.create("image.job", &user("alice")).payload(b"late").refused(429, "quota");
    assert_eq!(refused.retry_after, Some(Duration::from_micros(1)));
    stage.pass_for(Duration::from_micros(1));
    stage.create("image.job", &user("alice")).payload(b"early").ok();
    let refused = stage.create("image.job", &user("alice")).payload(b"second").refused(429, "one_active_job");
    assert_eq!(refused.retry_after, None);
}

/// Whoever makes keys, and whoever serves everybody, knows these roles: also those that only decide what a row sets.
#[test]
fn the_roles_that_count_are_known() {
    let lifecycles = systems::load("image");
    let job = lifecycles.get("image.job").expect("it is shipped");
    let roles: Vec<String> = job.roles().iter().map(ToString::to_string).collect();
    assert_eq!(roles, ["moderator", "pro", "user"]);
}

/// IMG-14: what was refused does not count.
#[test]
fn refused_orders_do_not_count() {
    let mut stage = stage();
    for _ in 0..10 {
        order(&mut stage, "a nude").refused(422, "policy_violation");
        stage.create("image.job", &user("alice")).payload(b"a nude").refused(422, "policy_violation");
    }
    for number in 1..=5 {
        order_and_block(&mut stage, "alice", "guest", &format!("picture {number}"));
    }
}

/// IMG-14: the balance must cover five credits: four do not, five do.
#[test]
fn the_balance_must_cover_the_cost() {
    for (balance, enough) in [(0, false), (4, false), (5, true)] {
        let mut stage = dressed(systems::stage("image"));
        if balance > 0 {
            grant(&mut stage, "alice", balance);
        }
        if enough {
            let id = queued(&mut stage);
            assert_eq!((credits(&stage, "alice"), stage.hold(id)), (0, 5));
        } else {
            order(&mut stage, "a cat").refused(402, "insufficient_credits");
            assert_eq!(credits(&stage, "alice"), balance);
            assert!(stage.all("image.job").is_empty());
        }
    }
}

/// IMG-14: the role is the key's, the highest it has; no role is a guest.
#[test]
fn the_role_comes_from_the_key() {
    for (roles, role) in [(vec![], "guest"), (vec!["user"], "user"), (vec!["user", "pro"], "pro"), (vec!["pro"], "pro")]
    {
        let mut stage = stage();
        let id = stage.create("image.job", &onceward_testkit::user_with("alice", &roles)).payload(b"a cat").ok();
        assert_eq!(stage.field(id, "role"), role);
    }
}

/// IMG-1: an operator orders for a user: the user pays, and owns it.
#[test]
fn an_operator_orders_for_a_user() {
    let mut stage = stage();
    let id = stage.create("image.job", &operator("olga")).owner("alice").payload(b"a cat").ok();
    assert_eq!(*stage.record(id).owner, *"alice");
    assert_eq!(credits(&stage, "alice"), 95);
    stage.create("image.job", &user("mallory")).owner("alice").payload(b"a cat").refused(403, "not_allowed");
}

/// IMG-16: every order leaves `JOB_CREATED`, every blocked one `JOB_BLOCKED`; a repeated one leaves nothing new.
#[test]
fn orders_are_audited() {
    let mut stage = stage();
    queued(&mut stage);
    assert_eq!(stage.audits(), ["JOB_CREATED"]);
    order(&mut stage, "a cat").holder();
    assert_eq!(stage.audits(), ["JOB_CREATED"]);
    order(&mut stage, "a nude").refused(422, "policy_violation");
    assert_eq!(stage.audits(), ["JOB_CREATED", "JOB_BLOCKED"]);
    order(&mut stage, "a dog").refused(429, "one_active_job");
    assert_eq!(stage.audits(), ["JOB_CREATED", "JOB_BLOCKED"]);
}
