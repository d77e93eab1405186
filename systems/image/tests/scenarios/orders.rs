//! IMG-1, IMG-9, IMG-14, IMG-15, IMG-16: creating a job.

use onceward_core::time::Duration;
use onceward_testkit::{Simulator, operator, systems, user};
use serde_json::json;

use super::{
    create_queued_job, create_running_job, grant_credits, image_result, new_simulator, order_image, user_credits,
    user_with_role, with_prompt_check,
};

/// Blocks the job at once, so that it counts in the hourly quota but is not active.
fn create_and_block_job(stage: &mut Simulator, user: &str, role: &str, prompt: &str) {
    let id = stage.create("image.job", &user_with_role(user, role)).payload(prompt.as_bytes()).expect_ok();
    stage.fire(id, "block", &user_with_role("mo", "moderator")).expect_ok();
}

/// IMG-1, IMG-13
#[test]
fn accepted_job_is_queued_and_credits_reserved() {
    let mut stage = new_simulator();
    let changes = order_image(&mut stage, "a cat").expect_changes();
    let id = changes.subject;
    assert_eq!(stage.state(id), "queued");
    assert_eq!(changes.transfers.len(), 1, "reserved in the same operation");
    assert_eq!((user_credits(&stage, "alice"), stage.hold_balance(id)), (95, 5));
    assert_eq!(stage.field(id, "role"), "user");
    assert_eq!(stage.field(id, "cost"), 5);
    assert_eq!(stage.field(id, "retryCount"), 0);
}

/// IMG-1, IMG-15: nothing is charged.
#[test]
fn flagged_prompt_creates_no_job() {
    let mut stage = new_simulator();
    order_image(&mut stage, "a nude").expect_refusal(422, "policy_violation");
    assert!(stage.records_of("image.job").is_empty());
    assert_eq!(user_credits(&stage, "alice"), 100);
}

/// IMG-1, IMG-15: also if it contains a flagged word; nothing is charged or audited.
#[test]
fn unreadable_payload_creates_no_job() {
    let mut stage = new_simulator();
    let refusal = order_image(&mut stage, "{a nude").expect_refusal(422, "bad_order");
    assert_eq!(refusal.audit, None);
    order_image(&mut stage, "{a cat").expect_refusal(422, "bad_order");
    assert!(stage.records_of("image.job").is_empty() && stage.audit_tags().is_empty());
    assert_eq!(user_credits(&stage, "alice"), 100);
}

/// IMG-15, IMG-16: the refusal says only that the policy is violated.
#[test]
fn prompt_is_logged_only_by_hash() {
    let mut stage = new_simulator();
    let refusal = order_image(&mut stage, "a nude by the window").expect_refusal(422, "policy_violation");
    assert_eq!(refusal.reason, "policy violation");
    assert_eq!(refusal.audit.as_deref(), Some("JOB_BLOCKED"));
    let all_output = stage.visible_text();
    assert!(!all_output.contains("window"));
    // printf 'a nude by the window' | sha256sum
    assert!(all_output.contains("6cbafc4e2a3f7f8527460f9fac98fe8bc62df49a1f6a3b13b6f4267a0ccedf37"), "{all_output}");
    order_image(&mut stage, "a cat by the window").expect_ok();
    assert!(!stage.visible_text().contains("window"), "nor is an accepted prompt");
}

/// IMG-15: from 1 byte to 32 KB.
#[test]
fn prompt_size_is_bounded() {
    let mut stage = new_simulator();
    stage.create("image.job", &user("alice")).expect_bad_input();
    order_image(&mut stage, "").expect_bad_input();
    stage.create("image.job", &user("alice")).payload_of_size(32 * 1024 + 1).expect_bad_input();
    order_image(&mut stage, &"x".repeat(32 * 1024)).expect_ok();
}

/// IMG-1
#[test]
fn fields_in_create_are_rejected() {
    let mut stage = new_simulator();
    let dead = super::create_dead_letter(&mut stage);
    for (name, value) in [
        ("role", json!("pro")),
        ("cost", json!(0)),
        ("promptHash", json!("ab")),
        ("retryCount", json!(0)),
        ("replayOf", json!(dead.to_string())),
    ] {
        order_image(&mut stage, "a dog").with(name, value).expect_bad_input();
    }
}

/// IMG-9: nothing is charged again.
#[test]
fn same_prompt_in_same_minute_returns_existing_job() {
    let mut stage = new_simulator().starting_at("2026-11-15T20:00:10Z");
    let id = create_queued_job(&mut stage);
    stage.advance("49s");
    assert_eq!(order_image(&mut stage, "a cat").expect_existing(), id);
    assert_eq!(user_credits(&stage, "alice"), 95);
    assert_eq!(stage.records_of("image.job").len(), 1);
}

/// IMG-9
#[test]
fn other_prompt_user_or_minute_creates_new_job() {
    let mut stage = new_simulator().starting_at("2026-11-15T20:00:59.999999Z");
    grant_credits(&mut stage, "bob", 10);
    let lease = create_running_job(&mut stage);
    let id = lease.record;
    stage.commit(&lease, image_result(&lease)).expect_ok();
    let dog = order_image(&mut stage, "a dog").expect_ok();
    let bobs_job = stage.create("image.job", &user("bob")).payload(b"a cat").expect_ok();
    stage.fire(dog, "block", &user_with_role("mo", "moderator")).expect_ok();
    assert_eq!(order_image(&mut stage, "a cat").expect_existing(), id);
    stage.advance_by(Duration::from_micros(1));
    let later = order_image(&mut stage, "a cat").expect_ok();
    assert!(id != later && id != bobs_job && bobs_job != later);
}

/// Ends a running job.
type JobEnding = fn(&mut Simulator, &onceward_testkit::SimulatedLease);

/// IMG-9: also by failed, completed and rejected jobs.
#[test]
fn idempotency_key_is_held_until_dead_letter() {
    let same_minute = |end: JobEnding| {
        let mut stage = new_simulator();
        let lease = create_running_job(&mut stage);
        end(&mut stage, &lease);
        let before = user_credits(&stage, "alice");
        let repeated = order_image(&mut stage, "a cat").run();
        (stage.state(lease.record), repeated.decision, before - user_credits(&stage, "alice"))
    };
    let ends: [(&str, JobEnding); 4] = [
        ("running", |_, _| {}),
        ("failed", |stage, lease| {
            stage.fail(lease, "500").expect_ok();
        }),
        ("completed", |stage, lease| {
            stage.commit(lease, image_result(lease)).expect_ok();
        }),
        ("rejected", |stage, lease| {
            stage.fail(lease, "policy").expect_ok();
        }),
    ];
    for (state, end) in ends {
        let (reached, decision, charged) = same_minute(end);
        assert_eq!(reached, state);
        assert!(matches!(decision, onceward_core::decide::Decision::NoOp(_)), "{state}: {decision:?}");
        assert_eq!(charged, 0, "{state}");
    }
    let (reached, decision, charged) = same_minute(|stage, lease| {
        stage.fail(lease, "400").expect_ok();
    });
    assert_eq!(reached, "dead_letter");
    assert!(matches!(decision, onceward_core::decide::Decision::Changes(_)), "a dead letter frees the key");
    assert_eq!(charged, 5);
}

/// IMG-9, IMG-14
#[test]
fn repeated_job_is_returned_before_limits() {
    let mut stage = with_prompt_check(systems::new_simulator("image"));
    grant_credits(&mut stage, "alice", 5);
    let id = create_queued_job(&mut stage);
    assert_eq!(user_credits(&stage, "alice"), 0);
    assert_eq!(order_image(&mut stage, "a cat").expect_existing(), id);
}

/// IMG-14, INV-7: while the first is queued, running or failed; nothing is reserved.
#[test]
fn second_active_job_is_refused() {
    let mut stage = new_simulator();
    grant_credits(&mut stage, "bob", 10);
    let id = create_queued_job(&mut stage);
    order_image(&mut stage, "a dog").expect_refusal(429, "one_active_job");
    let lease = stage.lease(id, "w1");
    order_image(&mut stage, "a dog").expect_refusal(429, "one_active_job");
    stage.fail(&lease, "500").expect_ok();
    order_image(&mut stage, "a dog").expect_refusal(429, "one_active_job");
    assert_eq!(user_credits(&stage, "alice"), 95);
    stage.create("image.job", &user("bob")).payload(b"a dog").expect_ok();
    stage.advance("10s");
    let lease = stage.lease(id, "w1");
    stage.commit(&lease, image_result(&lease)).expect_ok();
    order_image(&mut stage, "a dog").expect_ok();
}

/// IMG-14, INV-7: 5, 50 and 500 jobs an hour for guest, user and pro; a refused job costs nothing.
#[test]
fn hourly_quota_depends_on_role() {
    for (role, quota) in [("guest", 5), ("user", 50), ("pro", 500)] {
        let mut stage = with_prompt_check(systems::new_simulator("image")).starting_at("2026-11-15T20:00:00Z");
        grant_credits(&mut stage, "zoe", 5_000);
        for number in 1..=quota {
            create_and_block_job(&mut stage, "zoe", role, &format!("image {number}"));
        }
        let left = user_credits(&stage, "zoe");
        stage.create("image.job", &user_with_role("zoe", role)).payload(b"one more").expect_refusal(429, "quota");
        assert_eq!(user_credits(&stage, "zoe"), left);
    }
}

/// IMG-14, INV-7: a quota refusal says how long the caller must wait; other refusals do not.
#[test]
fn hourly_quota_resets_on_the_hour() {
    let mut stage = new_simulator().starting_at("2026-11-15T20:10:00Z");
    for number in 1..=5 {
        create_and_block_job(&mut stage, "alice", "guest", &format!("image {number}"));
    }
    stage.advance_by(Duration::from_micros(50 * 60 * 1_000_000 - 1));
    let refused = stage.create("image.job", &user("alice")).payload(b"late").expect_refusal(429, "quota");
    assert_eq!(refused.retry_after, Some(Duration::from_micros(1)));
    stage.advance_by(Duration::from_micros(1));
    stage.create("image.job", &user("alice")).payload(b"early").expect_ok();
    let refused = stage.create("image.job", &user("alice")).payload(b"second").expect_refusal(429, "one_active_job");
    assert_eq!(refused.retry_after, None);
}

/// Includes roles that only decide the value of a field; API keys and open servers use this list.
#[test]
fn lifecycle_lists_its_roles() {
    let lifecycles = systems::load_system("image");
    let job = lifecycles.get("image.job").expect("the lifecycle is shipped");
    let roles: Vec<String> = job.referenced_roles().iter().map(ToString::to_string).collect();
    assert_eq!(roles, ["moderator", "pro", "user"]);
}

/// IMG-14
#[test]
fn refused_jobs_do_not_count_against_quota() {
    let mut stage = new_simulator();
    for _ in 0..10 {
        order_image(&mut stage, "a nude").expect_refusal(422, "policy_violation");
        stage.create("image.job", &user("alice")).payload(b"a nude").expect_refusal(422, "policy_violation");
    }
    for number in 1..=5 {
        create_and_block_job(&mut stage, "alice", "guest", &format!("image {number}"));
    }
}

/// IMG-14: the cost is five credits.
#[test]
fn job_requires_balance_of_its_cost() {
    for (balance, enough) in [(0, false), (4, false), (5, true)] {
        let mut stage = with_prompt_check(systems::new_simulator("image"));
        if balance > 0 {
            grant_credits(&mut stage, "alice", balance);
        }
        if enough {
            let id = create_queued_job(&mut stage);
            assert_eq!((user_credits(&stage, "alice"), stage.hold_balance(id)), (0, 5));
        } else {
            order_image(&mut stage, "a cat").expect_refusal(402, "insufficient_credits");
            assert_eq!(user_credits(&stage, "alice"), balance);
            assert!(stage.records_of("image.job").is_empty());
        }
    }
}

/// IMG-14: a key without a role is a guest.
#[test]
fn role_is_highest_role_of_api_key() {
    for (roles, role) in [(vec![], "guest"), (vec!["user"], "user"), (vec!["user", "pro"], "pro"), (vec!["pro"], "pro")]
    {
        let mut stage = new_simulator();
        let id = stage
            .create("image.job", &onceward_testkit::user_with_roles("alice", &roles))
            .payload(b"a cat")
            .expect_ok();
        assert_eq!(stage.field(id, "role"), role);
    }
}

/// IMG-1
#[test]
fn operator_creates_job_for_user_who_pays() {
    let mut stage = new_simulator();
    let id = stage.create("image.job", &operator("olga")).owner("alice").payload(b"a cat").expect_ok();
    assert_eq!(*stage.record(id).owner, *"alice");
    assert_eq!(user_credits(&stage, "alice"), 95);
    stage.create("image.job", &user("mallory")).owner("alice").payload(b"a cat").expect_refusal(403, "not_allowed");
}

/// IMG-16
#[test]
fn created_and_blocked_jobs_are_audited_once() {
    let mut stage = new_simulator();
    create_queued_job(&mut stage);
    assert_eq!(stage.audit_tags(), ["JOB_CREATED"]);
    order_image(&mut stage, "a cat").expect_existing();
    assert_eq!(stage.audit_tags(), ["JOB_CREATED"]);
    order_image(&mut stage, "a nude").expect_refusal(422, "policy_violation");
    assert_eq!(stage.audit_tags(), ["JOB_CREATED", "JOB_BLOCKED"]);
    order_image(&mut stage, "a dog").expect_refusal(429, "one_active_job");
    assert_eq!(stage.audit_tags(), ["JOB_CREATED", "JOB_BLOCKED"]);
}
