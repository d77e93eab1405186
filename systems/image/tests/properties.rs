//! Invariants of jobs, assets and credits under random operations of users, strangers, moderators, operators and
//! workers. `ONCEWARD_SEED=…` replays one case.

use std::collections::BTreeMap;

use onceward_core::time::Duration;
use onceward_testkit::random::RandomWalk;
use onceward_testkit::{Simulator, operator, systems, user, user_with_roles};
use serde_json::{Value, json};

fn new_simulator() -> Simulator {
    let stage = systems::new_simulator("image");
    let mut stage = stage.on_check("image.job", "prompt", |_, prompt| {
        let prompt = String::from_utf8_lossy(prompt.expect("the check gets the prompt")).into_owned();
        let letter = if prompt.contains("cat") { "a" } else { "b" };
        json!({ "readable": !prompt.is_empty(), "pass": !prompt.contains("nude"), "sha256": letter.repeat(64) })
    });
    for name in ["alice", "bob"] {
        let grant_fields = json!({ "user": name, "amount": 30, "order": format!("first-{name}") });
        stage.create("image.grant", &operator("olga")).with_all(grant_fields).expect_ok();
    }
    stage
}

/// IMG-3, IMG-5, IMG-8, IMG-9, IMG-13, IMG-14, INV-7: credits are where the jobs say; every completed job and no other
/// has one asset; an owner has one active job; failures are counted and bounded.
#[test]
fn random_operations_keep_credits_assets_and_jobs_consistent() {
    RandomWalk::with_actors(&[
        user_with_roles("alice", &["user"]),
        user("bob"),
        user_with_roles("mo", &["moderator"]),
        operator("olga"),
    ])
    .error_codes(&["500", "429", "timeout", "500", "400", "policy"])
    .values_for("user", [json!("alice"), json!("bob")])
    .values_for(
        "url",
        [json!("originals/{id}-1.png"), json!("originals/{id}-2.png"), json!("originals/a.png"), json!("tmp/c.png")],
    )
    .values_for("sha256", [json!("c".repeat(64))])
    .values_for("bytes", [json!(1), json!(7)])
    .payloads(&["a cat", "a dog", "a nude"])
    .run("image", 12, 160, new_simulator, assert_invariants);
}

fn assert_invariants(stage: &Simulator) {
    let mut accounts: BTreeMap<String, i64> = BTreeMap::new();
    for grant in stage.records_of("image.grant") {
        let field = |name: &str| stage.field(grant.id, name);
        *accounts.entry(format!("user:{}", field("user").as_str().expect("a name"))).or_default() +=
            field("amount").as_i64().expect("a number");
    }
    let mut active: BTreeMap<String, u32> = BTreeMap::new();
    for job in stage.records_of("image.job") {
        let field = |name: &str| stage.field(job.id, name);
        let failures = field("retryCount").as_u64().expect("a number");
        let owner = format!("user:{}", job.owner);
        let mut charge = |to: &str| {
            *accounts.entry(owner.clone()).or_default() -= 5;
            *accounts.entry(to.to_owned()).or_default() += 5;
        };
        let assets = stage.linked_records(job.id, "image.asset", "job");
        let mut held = 0;
        match &**job.state_name() {
            "queued" | "running" | "failed" => {
                charge("held");
                held = 5;
                *active.entry(owner.clone()).or_default() += 1;
                assert!(failures <= 3, "IMG-5: the fourth failure is the last");
            }
            "completed" => {
                charge("revenue");
                assert!(field("lastError") == Value::Null && field("resultUrl") != Value::Null);
                assert_eq!(stage.field(assets[0], "url"), field("resultUrl"), "IMG-3");
                let prefix = format!("originals/{}-", job.id);
                assert!(
                    field("resultUrl").as_str().is_some_and(|url| url.starts_with(&prefix)),
                    "IMG-3: the job's own asset"
                );
            }
            "rejected" => {
                charge("penalties");
                assert_eq!(field("lastError"), "policy violation");
            }
            "dead_letter" => assert!(
                failures == 4 || field("retryable") == json!(false) || field("lastError") == "withdrawn",
                "IMG-5"
            ),
            other => panic!("no such state: {other}"),
        }
        if &**job.state_name() == "failed" {
            assert_eq!(
                stage.next_timer_due(job.id).map(|due| due.to_string()),
                field("retryAt").as_str().map(str::to_owned)
            );
            assert!(stage.time_until(job.id, "retryAt") <= Duration::from_secs(101), "IMG-11: the delay is bounded");
        }
        assert_eq!(job.hold, held, "IMG-13: the hold has the cost while the job is active");
        assert_eq!(assets.len(), usize::from(&**job.state_name() == "completed"), "IMG-3");
        assert!(job.attempt >= failures && job.attempt <= failures + 1, "one attempt per failure");
    }
    assert!(active.values().all(|count| *count == 1), "IMG-14: one active job");
    accounts.remove("held");
    for (name, credits) in accounts {
        assert_eq!(stage.balance("credit", &name), credits, "IMG-13: {name}");
    }
}
