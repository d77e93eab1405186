//! REL-6, REL-7, REL-8: refunds to the depositor.

use onceward_testkit::{operator, user};
use serde_json::{Value, json};

use super::{
    DEPOSITOR_ADDRESS, JOB_PRICE_MICRO_USDC, account_balance, alice, confirm_settlement, create_cancelled_job,
    create_expired_job, create_open_job, depositor_balance, find_settlement, fund_job, new_simulator, sign_settlement,
    signature_input, total_balance, tx_hash,
};

/// REL-6, REL-18, REL-20: for expired and cancelled jobs; the job's state does not change.
#[test]
fn refund_is_pending_until_transaction_is_confirmed() {
    for ending in [create_expired_job, create_cancelled_job] {
        let mut stage = new_simulator();
        let job = ending(&mut stage);
        let end_state = stage.state(job);
        assert_eq!(
            (stage.field(job, "refund_tx_hash"), depositor_balance(&stage)),
            (Value::Null, JOB_PRICE_MICRO_USDC)
        );
        stage.fire(job, "refund", &alice()).expect_ok();
        let refund = find_settlement(&stage, job, "refund");
        assert_eq!(stage.field(job, "refund_tx_hash"), "pending");
        assert_eq!(
            (depositor_balance(&stage), stage.hold_balance(refund), account_balance(&stage, "chain")),
            (0, JOB_PRICE_MICRO_USDC, -JOB_PRICE_MICRO_USDC)
        );
        assert_eq!(
            (stage.field(refund, "address"), stage.field(refund, "amount")),
            (json!(DEPOSITOR_ADDRESS), json!(JOB_PRICE_MICRO_USDC))
        );
        let lease = stage.lease(refund, "w1");
        sign_settlement(&mut stage, &lease, 4).expect_ok();
        assert_eq!(stage.field(job, "refund_tx_hash"), "pending", "a signature is no confirmation");
        confirm_settlement(&mut stage, &lease, 4).expect_ok();
        assert_eq!(stage.field(job, "refund_tx_hash"), signature_input(4)["tx_hash"]);
        assert_eq!(stage.state(job), end_state);
        assert_eq!((stage.hold_balance(refund), account_balance(&stage, "chain"), total_balance(&stage)), (0, 0, 0));
    }
}

/// REL-6: also after the refund is done. Concurrent requests: crates/engine/tests/engine/relay.rs.
#[test]
fn second_refund_request_is_refused() {
    for ending in [create_expired_job, create_cancelled_job] {
        let mut stage = new_simulator();
        let job = ending(&mut stage);
        stage.fire(job, "refund", &alice()).expect_ok();
        stage.fire(job, "refund", &alice()).expect_refusal(409, "already_refunded");
        let refund = find_settlement(&stage, job, "refund");
        super::send_settlement(&mut stage, refund, 1);
        stage.fire(job, "refund", &alice()).expect_refusal(409, "already_refunded");
        assert_eq!(stage.records_of("relay.settlement").len(), 1);
    }
}

/// REL-6, REL-19
#[test]
fn refund_returns_whole_overpaid_deposit() {
    let mut stage = new_simulator();
    let job = create_open_job(&mut stage);
    fund_job(&mut stage, job, &tx_hash(1, JOB_PRICE_MICRO_USDC + 77)).expect_ok();
    stage.fire(job, "cancel", &alice()).expect_ok();
    stage.fire(job, "refund", &alice()).expect_ok();
    assert_eq!(stage.hold_balance(find_settlement(&stage, job, "refund")), JOB_PRICE_MICRO_USDC + 77);
}

/// REL-6
#[test]
fn refunds_of_same_depositor_stay_separate() {
    let mut stage = new_simulator();
    let small = create_open_job(&mut stage);
    fund_job(&mut stage, small, &tx_hash(1, JOB_PRICE_MICRO_USDC)).expect_ok();
    let large = create_open_job(&mut stage);
    fund_job(&mut stage, large, &tx_hash(2, 3 * JOB_PRICE_MICRO_USDC)).expect_ok();
    for job in [small, large] {
        stage.fire(job, "cancel", &alice()).expect_ok();
    }
    assert_eq!(depositor_balance(&stage), 4 * JOB_PRICE_MICRO_USDC);
    stage.fire(large, "refund", &alice()).expect_ok();
    assert_eq!(depositor_balance(&stage), JOB_PRICE_MICRO_USDC);
    stage.fire(small, "refund", &alice()).expect_ok();
    assert_eq!(depositor_balance(&stage), 0);
}

/// REL-7, REL-6: until it is confirmed, without a limit on retries.
#[test]
fn failed_refund_stays_pending_and_is_retried() {
    let mut stage = new_simulator();
    let job = create_expired_job(&mut stage);
    stage.fire(job, "refund", &alice()).expect_ok();
    let refund = find_settlement(&stage, job, "refund");
    for tries in 1..=50 {
        let lease = stage.lease(refund, "w1");
        stage.fail(&lease, "503").retryable(false).expect_ok();
        assert_eq!((stage.state(refund).as_str(), stage.field(refund, "tries")), ("due", json!(tries)));
        assert_eq!(
            (stage.field(job, "refund_tx_hash"), stage.hold_balance(refund)),
            (json!("pending"), JOB_PRICE_MICRO_USDC)
        );
        stage.advance_by(stage.time_until(refund, "ready_at"));
    }
    super::send_settlement(&mut stage, refund, 9);
    assert_eq!(stage.field(job, "refund_tx_hash"), signature_input(9)["tx_hash"]);
}

/// REL-7
#[test]
fn refund_of_unfunded_or_live_job_is_refused() {
    let mut stage = new_simulator();
    let job = create_open_job(&mut stage);
    stage.fire(job, "refund", &alice()).expect_wrong_state("open", "refund");
    stage.fire(job, "cancel", &alice()).expect_ok();
    stage.fire(job, "refund", &alice()).expect_refusal(400, "nothing_to_refund");
    let job = super::create_funded_job(&mut stage);
    stage.fire(job, "refund", &alice()).expect_wrong_state("funded", "refund");
    let job = super::create_won_job(&mut stage, "bob");
    stage.fire(job, "refund", &alice()).expect_wrong_state("resolved", "refund");
}

/// REL-8, REL-6: only the settlement reports that the refund was sent.
#[test]
fn refund_requires_buyer() {
    let mut stage = new_simulator();
    let job = create_expired_job(&mut stage);
    for caller in [user("bob"), user("mallory"), operator("olga")] {
        stage.fire(job, "refund", &caller).expect_not_allowed();
    }
    for caller in [alice(), operator("olga")] {
        stage.fire(job, "refund_sent", &caller).with("tx_hash", "off-chain").expect_not_allowed();
    }
}
