//! A job before it is paid for: what it says, and who may change it.

use onceward_testkit::{Stage, operator, user};
use serde_json::{Value, json};

use super::{PRICE, alice, claim, funded, later, open, post, register, stage, submit, won};

/// REL-3, REL-11: what a job is where its buyer says nothing: a threshold of 80, twenty submissions, three of one worker.
#[test]
fn a_job_is_posted_open() {
    let mut stage = stage();
    let job = open(&mut stage);
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
    assert_eq!((stage.hold(job), super::usdc(&stage, "chain")), (0, 0));
}

/// REL-9: only registered agents post.
#[test]
fn only_agents_post() {
    let mut stage = stage();
    let job = json!({ "title": "t", "description": "d", "price": PRICE });
    stage.create("relay.job", &user("mallory")).with_all(job.clone()).not_allowed();
    stage.create("relay.job", &operator("olga")).with_all(job.clone()).not_allowed();
    register(&mut stage, "mallory").ok();
    stage.create("relay.job", &user("mallory")).with_all(job).ok();
}

/// REL-18, REL-11, REL-10: amounts are whole and bounded, and so is everything else that a buyer gives.
#[test]
fn what_a_buyer_gives_is_bounded() {
    let (least, most) = (100_000_i64, 1_000_000_000_000_i64);
    let long = |length: usize| json!("x".repeat(length));
    let fits = |field: &str, value: &Value| {
        let mut stage = stage();
        let refusal = match post(&mut stage).with(field, value.clone()).outcome().decision {
            onceward_core::decide::Decision::Changes(_) => return true,
            onceward_core::decide::Decision::Refusal(refusal) => refusal,
            other => panic!("no answer: {other:?}"),
        };
        assert_eq!((refusal.status, &*refusal.code), (422, "bad_input"), "{field} = {value}");
        false
    };
    for (field, good, bad) in [
        ("price", json!([least, most]), json!([least - 1, most + 1, 0, -1, 0.5, "1", null])),
        ("title", json!([long(1), long(500)]), json!([long(0), long(501), null])),
        ("description", json!([long(1), long(50_000)]), json!([long(0), long(50_001), null])),
        ("rubric", json!([long(10_000), null]), json!([long(10_001)])),
        ("artifact_type", json!([long(1), long(20)]), json!([long(0), long(21)])),
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
        ("deposit", json!(PRICE)),
        ("deposit_tx_hash", json!("x")),
        ("depositor_address", json!("x")),
        ("on_chain", json!(false)),
        ("participants", json!(["bob"])),
        ("winner_id", json!("x")),
        ("refund_tx_hash", json!("x")),
    ] {
        assert!(!fits(field, &value), "nobody gives {field}");
    }
}

/// REL-4: an expiry lies in the future, at least by a moment.
#[test]
fn an_expiry_is_to_come() {
    let mut stage = stage();
    let now = later(&stage, "0s");
    post(&mut stage).with("expiry", now.clone()).refused(400, "expiry_past");
    let soon = later(&stage, "1us");
    post(&mut stage).with("expiry", soon).ok();
    post(&mut stage).with("expiry", Value::Null).ok();
    let job = open(&mut stage);
    stage.fire(job, "edit", &alice()).with("expiry", now).refused(400, "expiry_past");
}

/// REL-8: while it is open its buyer may change everything, and nobody else anything.
#[test]
fn an_open_job_can_be_edited() {
    let mut stage = stage();
    let job = open(&mut stage);
    let expiry = later(&stage, "2h");
    let all = json!({
        "title": "A sonnet", "description": "Fourteen lines", "rubric": "rhyme", "artifact_type": "POEM", "price": 2 * PRICE,
        "expiry": expiry, "threshold": 90, "max_submissions": 5, "max_retries": 1, "min_reputation": 0.5
    });
    stage.fire(job, "edit", &alice()).with_all(all.clone()).ok();
    for (field, value) in all.as_object().expect("an object") {
        assert_eq!(stage.field(job, field), *value, "{field}");
    }
    stage.fire(job, "edit", &alice()).with("expiry", Value::Null).ok();
    assert_eq!(stage.field(job, "expiry"), Value::Null);
    for who in [user("bob"), operator("olga")] {
        stage.fire(job, "edit", &who).with("title", "mine").not_allowed();
    }
    stage.fire(job, "edit", &alice()).with("deposit", 1).bad_input();
}

/// REL-8, REL-4: once it is funded only a later expiry can still be given, and the timer follows.
#[test]
fn a_funded_job_only_gets_more_time() {
    let mut stage = stage();
    let job = funded(&mut stage);
    for change in [json!({ "title": "x" }), json!({ "price": 2 * PRICE }), json!({ "threshold": 100 })] {
        stage.fire(job, "edit", &alice()).with_all(change).bad_input();
    }
    for expiry in [json!(later(&stage, "1d")), json!(later(&stage, "23h")), json!("2026-01-01T00:00:00Z"), Value::Null]
    {
        stage.fire(job, "edit", &alice()).with("expiry", expiry).refused(409, "only_a_later_expiry");
    }
    let expiry = later(&stage, "2d");
    for who in [user("bob"), operator("olga")] {
        stage.fire(job, "edit", &who).with("expiry", expiry.clone()).not_allowed();
    }
    stage.fire(job, "edit", &alice()).with("expiry", expiry).ok();
    stage.pass("47h");
    assert_eq!(stage.state(job), "funded");
    stage.pass("1h");
    assert_eq!(stage.state(job), "expired");
}

/// REL-8: a job that is over says what it said.
#[test]
fn nothing_is_edited_afterwards() {
    let ends = [super::cancelled, super::expired, |stage: &mut Stage| won(stage, "bob")];
    for end in ends {
        let mut stage = stage();
        let job = end(&mut stage);
        let over = stage.state(job);
        for change in [json!({ "title": "x" }), json!({ "expiry": later(&stage, "9d") })] {
            stage.fire(job, "edit", &alice()).with_all(change).wrong_state(&over, "edit");
        }
    }
}

/// REL-4: a job without an expiry has all the time there is; to give it one would be to shorten that.
#[test]
fn a_job_may_run_for_ever() {
    let mut stage = stage();
    let job = post(&mut stage).with("expiry", Value::Null).ok();
    super::pay(&mut stage, job);
    let expiry = later(&stage, "1d");
    stage.fire(job, "edit", &alice()).with("expiry", expiry).refused(409, "only_a_later_expiry");
    stage.pass("4000d");
    assert_eq!(stage.state(job), "funded");
    claim(&mut stage, job, "bob").ok();
}

/// REL-9, REL-11: an open job can neither be claimed nor answered.
#[test]
fn an_open_job_waits_for_its_deposit() {
    let mut stage = stage();
    let job = open(&mut stage);
    claim(&mut stage, job, "bob").wrong_state("open", "claim");
    stage.fire(job, "unclaim", &user("bob")).wrong_state("open", "unclaim");
    submit(&mut stage, job, "bob").refused(409, "job_not_funded");
}

/// Sixty a minute of one buyer, and then again.
#[test]
fn posting_is_rate_bounded() {
    let mut stage = stage().at("2026-11-15T20:00:00Z");
    for _ in 0..60 {
        open(&mut stage);
    }
    post(&mut stage).refused(429, "slow_down");
    let job = json!({ "title": "t", "description": "d", "price": PRICE });
    stage.create("relay.job", &user("bob")).with_all(job).ok();
    stage.pass("1m");
    open(&mut stage);
}
