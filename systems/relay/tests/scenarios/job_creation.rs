//! Creation and edits of jobs.

use onceward_testkit::{Simulator, operator, user};
use serde_json::{Value, json};

use super::{
    JOB_PRICE_MICRO_USDC, alice, claim_job, create_funded_job, create_open_job, create_won_job, new_simulator,
    post_job, register_agent, submit_work, time_from_now,
};

/// REL-3, REL-11: a threshold of 80, 20 submissions per job, 3 per worker.
#[test]
fn new_job_is_open_with_defaults() {
    let mut stage = new_simulator();
    let job = create_open_job(&mut stage);
    assert_eq!(stage.state(job), "open");
    for (field, value) in [
        ("artifact_type", json!("GENERAL")),
        ("threshold", json!(80)),
        ("max_submissions", json!(20)),
        ("max_retries", json!(3)),
        ("min_reputation", json!(0.0)),
        ("participants", json!([])),
        ("deposit", json!(0)),
        ("on_chain", json!(true)),
        ("refund_tx_hash", json!(null)),
        ("winner_id", json!(null)),
    ] {
        assert_eq!(stage.field(job, field), value, "{field}");
    }
    assert_eq!((stage.hold_balance(job), super::account_balance(&stage, "chain")), (0, 0));
}

/// REL-9
#[test]
fn job_creation_requires_registered_agent() {
    let mut stage = new_simulator();
    let job = json!({ "title": "t", "description": "d", "price": JOB_PRICE_MICRO_USDC });
    stage.create("relay.job", &user("mallory")).with_all(job.clone()).expect_not_allowed();
    stage.create("relay.job", &operator("olga")).with_all(job.clone()).expect_not_allowed();
    register_agent(&mut stage, "mallory").expect_ok();
    stage.create("relay.job", &user("mallory")).with_all(job).expect_ok();
}

/// REL-18, REL-11, REL-10: amounts are bounded integers.
#[test]
fn job_fields_are_bounded() {
    let (min_price, max_price) = (100_000_i64, 1_000_000_000_000_i64);
    let text_of_length = |length: usize| json!("x".repeat(length));
    let fits = |field: &str, value: &Value| {
        let mut stage = new_simulator();
        let refusal = match post_job(&mut stage).with(field, value.clone()).run().decision {
            onceward_core::decide::Decision::Changes(_) => return true,
            onceward_core::decide::Decision::Refusal(refusal) => refusal,
            other => panic!("no answer: {other:?}"),
        };
        assert_eq!((refusal.status, &*refusal.code), (422, "invalid_input"), "{field} = {value}");
        false
    };
    for (field, good, bad) in [
        ("price", json!([min_price, max_price]), json!([min_price - 1, max_price + 1, 0, -1, 0.5, "1", null])),
        (
            "title",
            json!([text_of_length(1), text_of_length(500)]),
            json!([text_of_length(0), text_of_length(501), null]),
        ),
        (
            "description",
            json!([text_of_length(1), text_of_length(50_000)]),
            json!([text_of_length(0), text_of_length(50_001), null]),
        ),
        ("rubric", json!([text_of_length(10_000), null]), json!([text_of_length(10_001)])),
        (
            "artifact_type",
            json!([text_of_length(1), text_of_length(20)]),
            json!([text_of_length(0), text_of_length(21)]),
        ),
        ("threshold", json!([1, 100]), json!([0, 101])),
        ("max_submissions", json!([1, 100]), json!([0, 101])),
        ("max_retries", json!([1, 10]), json!([0, 11])),
        ("min_reputation", json!([0.0, 1.0]), json!([-0.1, 1.1])),
    ] {
        for (values, fit) in [(good, true), (bad, false)] {
            for value in values.as_array().expect("a list") {
                assert_eq!(fits(field, value), fit, "{field} = {value}");
            }
        }
    }
    for (field, value) in [
        ("state", json!("funded")),
        ("deposit", json!(JOB_PRICE_MICRO_USDC)),
        ("deposit_tx_hash", json!("x")),
        ("depositor_address", json!("x")),
        ("on_chain", json!(false)),
        ("participants", json!(["bob"])),
        ("winner_id", json!("x")),
        ("refund_tx_hash", json!("x")),
    ] {
        assert!(!fits(field, &value), "the caller cannot set {field}");
    }
}

/// REL-4
#[test]
fn expiry_in_the_past_is_refused() {
    let mut stage = new_simulator();
    let now = time_from_now(&stage, "0s");
    post_job(&mut stage).with("expiry", now.clone()).expect_refusal(400, "expiry_past");
    let soon = time_from_now(&stage, "1us");
    post_job(&mut stage).with("expiry", soon).expect_ok();
    post_job(&mut stage).with("expiry", Value::Null).expect_ok();
    let job = create_open_job(&mut stage);
    stage.fire(job, "edit", &alice()).with("expiry", now).expect_refusal(400, "expiry_past");
}

/// REL-8
#[test]
fn only_buyer_edits_open_job() {
    let mut stage = new_simulator();
    let job = create_open_job(&mut stage);
    let expiry = time_from_now(&stage, "2h");
    let all = json!({
        "title": "A sonnet", "description": "Fourteen lines", "rubric": "rhyme", "artifact_type": "POEM", "price": 2 * JOB_PRICE_MICRO_USDC,
        "expiry": expiry, "threshold": 90, "max_submissions": 5, "max_retries": 1, "min_reputation": 0.5
    });
    stage.fire(job, "edit", &alice()).with_all(all.clone()).expect_ok();
    for (field, value) in all.as_object().expect("a JSON object") {
        assert_eq!(stage.field(job, field), *value, "{field}");
    }
    stage.fire(job, "edit", &alice()).with("expiry", Value::Null).expect_ok();
    assert_eq!(stage.field(job, "expiry"), Value::Null);
    for caller in [user("bob"), operator("olga")] {
        stage.fire(job, "edit", &caller).with("title", "mine").expect_not_allowed();
    }
    stage.fire(job, "edit", &alice()).with("deposit", 1).expect_bad_input();
}

/// REL-8, REL-4: the expiry timer follows.
#[test]
fn edit_of_funded_job_only_extends_expiry() {
    let mut stage = new_simulator();
    let job = create_funded_job(&mut stage);
    for change in [json!({ "title": "x" }), json!({ "price": 2 * JOB_PRICE_MICRO_USDC }), json!({ "threshold": 100 })] {
        stage.fire(job, "edit", &alice()).with_all(change).expect_bad_input();
    }
    for expiry in [
        json!(time_from_now(&stage, "1d")),
        json!(time_from_now(&stage, "23h")),
        json!("2026-01-01T00:00:00Z"),
        Value::Null,
    ] {
        stage.fire(job, "edit", &alice()).with("expiry", expiry).expect_refusal(409, "only_a_later_expiry");
    }
    let expiry = time_from_now(&stage, "2d");
    for caller in [user("bob"), operator("olga")] {
        stage.fire(job, "edit", &caller).with("expiry", expiry.clone()).expect_not_allowed();
    }
    stage.fire(job, "edit", &alice()).with("expiry", expiry).expect_ok();
    stage.advance("47h");
    assert_eq!(stage.state(job), "funded");
    stage.advance("1h");
    assert_eq!(stage.state(job), "expired");
}

/// REL-8
#[test]
fn edit_of_ended_job_is_refused() {
    let endings =
        [super::create_cancelled_job, super::create_expired_job, |stage: &mut Simulator| create_won_job(stage, "bob")];
    for ending in endings {
        let mut stage = new_simulator();
        let job = ending(&mut stage);
        let end_state = stage.state(job);
        for change in [json!({ "title": "x" }), json!({ "expiry": time_from_now(&stage, "9d") })] {
            stage.fire(job, "edit", &alice()).with_all(change).expect_wrong_state(&end_state, "edit");
        }
    }
}

/// REL-4: an expiry would shorten the time of a job that has none.
#[test]
fn job_without_expiry_cannot_get_one_when_funded() {
    let mut stage = new_simulator();
    let job = post_job(&mut stage).with("expiry", Value::Null).expect_ok();
    super::fund_exactly(&mut stage, job);
    let expiry = time_from_now(&stage, "1d");
    stage.fire(job, "edit", &alice()).with("expiry", expiry).expect_refusal(409, "only_a_later_expiry");
    stage.advance("4000d");
    assert_eq!(stage.state(job), "funded");
    claim_job(&mut stage, job, "bob").expect_ok();
}

/// REL-9, REL-11
#[test]
fn claim_or_submit_on_open_job_is_refused() {
    let mut stage = new_simulator();
    let job = create_open_job(&mut stage);
    claim_job(&mut stage, job, "bob").expect_wrong_state("open", "claim");
    stage.fire(job, "unclaim", &user("bob")).expect_wrong_state("open", "unclaim");
    submit_work(&mut stage, job, "bob").expect_refusal(409, "job_not_funded");
}

/// The limit is per buyer and starts again in the next minute.
#[test]
fn more_than_60_jobs_per_minute_are_refused() {
    let mut stage = new_simulator().starting_at("2026-11-15T20:00:00Z");
    for _ in 0..60 {
        create_open_job(&mut stage);
    }
    post_job(&mut stage).expect_refusal(429, "slow_down");
    let job = json!({ "title": "t", "description": "d", "price": JOB_PRICE_MICRO_USDC });
    stage.create("relay.job", &user("bob")).with_all(job).expect_ok();
    stage.advance("1m");
    create_open_job(&mut stage);
}
