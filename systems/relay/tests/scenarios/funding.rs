//! REL-1, REL-18, REL-19, REL-21: deposits.

use onceward_testkit::{Simulator, operator, user};
use serde_json::json;

use super::{
    DEPOSITOR_ADDRESS, JOB_PRICE_MICRO_USDC, account_balance, alice, create_cancelled_job, create_open_job,
    depositor_balance, fund_job, new_simulator, post_job, total_balance, tx_hash,
};

/// REL-1, REL-18, REL-19: the job records depositor and transaction, and its hold contains the deposit.
#[test]
fn verified_deposit_funds_job() {
    let mut stage = new_simulator();
    let job = create_open_job(&mut stage);
    fund_job(&mut stage, job, &tx_hash(1, JOB_PRICE_MICRO_USDC)).expect_ok();
    assert_eq!(stage.state(job), "funded");
    assert_eq!(stage.field(job, "deposit_tx_hash"), tx_hash(1, JOB_PRICE_MICRO_USDC));
    assert_eq!(stage.field(job, "depositor_address"), DEPOSITOR_ADDRESS);
    assert_eq!((stage.field(job, "deposit"), stage.field(job, "on_chain")), (json!(JOB_PRICE_MICRO_USDC), json!(true)));
    assert_eq!(
        (stage.hold_balance(job), account_balance(&stage, "chain"), total_balance(&stage)),
        (JOB_PRICE_MICRO_USDC, -JOB_PRICE_MICRO_USDC, 0)
    );
}

/// REL-1, REL-19: one millionth of a USDC too little is short.
#[test]
fn unconfirmed_or_short_deposit_is_refused() {
    let mut stage = new_simulator();
    let job = create_open_job(&mut stage);
    fund_job(&mut stage, job, &tx_hash(1, 0)).expect_refusal(400, "deposit_not_verified");
    fund_job(&mut stage, job, &tx_hash(1, JOB_PRICE_MICRO_USDC - 1)).expect_refusal(400, "deposit_not_verified");
    let cancelled_job = create_open_job(&mut stage);
    stage.fire(cancelled_job, "cancel", &alice()).expect_ok();
    for job in [job, cancelled_job] {
        fund_job(&mut stage, job, "").expect_bad_input();
        for unknown_hash in ["x", &"x".repeat(200)] {
            fund_job(&mut stage, job, unknown_hash).expect_refusal(400, "deposit_not_verified");
        }
        fund_job(&mut stage, job, &"x".repeat(201)).expect_bad_input();
        stage.fire(job, "fund", &alice()).expect_bad_input();
    }
    assert_eq!((stage.state(job).as_str(), account_balance(&stage, "chain")), ("open", 0));
    fund_job(&mut stage, job, &tx_hash(1, JOB_PRICE_MICRO_USDC)).expect_ok();
}

/// REL-1, REL-19: the amount suffices, but the transaction failed or lacks confirmations.
#[test]
fn deposit_not_ok_on_chain_is_refused() {
    let mut stage = new_simulator().on_check("relay.job", "deposit", |question, _| {
        let amount = &question.arguments["at_least"];
        json!({ "ok": false, "on_chain": true, "amount": amount, "sender": DEPOSITOR_ADDRESS, "tx_hash": tx_hash(7, 7) })
    });
    let (job, cancelled_job) = (create_open_job(&mut stage), create_open_job(&mut stage));
    stage.fire(cancelled_job, "cancel", &alice()).expect_ok();
    for job in [job, cancelled_job] {
        fund_job(&mut stage, job, &tx_hash(7, 7)).expect_refusal(400, "deposit_not_verified");
    }
    assert_eq!(
        (stage.state(job).as_str(), account_balance(&stage, "chain"), depositor_balance(&stage)),
        ("open", 0, 0)
    );
}

/// REL-1: in dev mode the check accepts without a chain.
#[test]
fn off_chain_answer_funds_job() {
    let mut stage = new_simulator().on_check("relay.job", "deposit", |question, _| {
        let amount = &question.arguments["at_least"];
        json!({ "ok": true, "on_chain": false, "amount": amount, "sender": DEPOSITOR_ADDRESS, "tx_hash": tx_hash(7, 7) })
    });
    let job = create_open_job(&mut stage);
    fund_job(&mut stage, job, "whatever").expect_ok();
    assert_eq!((stage.state(job).as_str(), stage.hold_balance(job)), ("funded", JOB_PRICE_MICRO_USDC));
    assert_eq!(stage.field(job, "on_chain"), false, "the job records it");
}

/// REL-1, REL-19: a field is missing, a hash or sender has another spelling, or the amount exceeds the maximum.
#[test]
fn malformed_check_answer_funds_nothing() {
    const MAX_DEPOSIT_MICRO_USDC: i64 = 1_000_000_000_000_000;
    let (hash, capitals) = (
        tx_hash(0xabc, JOB_PRICE_MICRO_USDC),
        format!("0x{}", tx_hash(0xabc, JOB_PRICE_MICRO_USDC)[2..].to_uppercase()),
    );
    for (field, value, fits) in [
        ("amount", json!(MAX_DEPOSIT_MICRO_USDC), true),
        ("amount", json!(MAX_DEPOSIT_MICRO_USDC + 1), false),
        ("amount", json!(-1), false),
        ("tx_hash", json!(hash[..65]), false),
        ("tx_hash", json!(format!("{hash}0")), false),
        ("tx_hash", json!(capitals), false),
        ("sender", json!(DEPOSITOR_ADDRESS[..41]), false),
        ("sender", json!(DEPOSITOR_ADDRESS.replace('d', "D")), false),
        ("on_chain", json!(null), false),
        ("ok", json!(null), false),
        ("amount", json!(null), false),
        ("sender", json!(null), false),
        ("tx_hash", json!(null), false),
    ] {
        let mut answer = json!({ "ok": true, "on_chain": true, "amount": JOB_PRICE_MICRO_USDC, "sender": DEPOSITOR_ADDRESS, "tx_hash": hash.clone() });
        answer[field] = value.clone();
        let mut stage = new_simulator().on_check("relay.job", "deposit", move |_, _| answer.clone());
        let job = create_open_job(&mut stage);
        if fits {
            fund_job(&mut stage, job, &hash).expect_ok();
        } else {
            let refusal = fund_job(&mut stage, job, &hash).run().expect_refusal();
            assert_eq!((refusal.status, &*refusal.code), (503, "invalid_check_answer"), "{field} = {value}");
            assert_eq!((stage.state(job).as_str(), account_balance(&stage, "chain")), ("open", 0));
        }
    }
}

/// REL-1: in any spelling, whatever the state of the first job.
#[test]
fn used_deposit_hash_is_refused() {
    let hash = tx_hash(0xabc, JOB_PRICE_MICRO_USDC);
    let other_spelling = hash.to_uppercase().replace("0X", "0x");
    let endings: [fn(&mut Simulator, onceward_core::value::RecordId); 2] = [
        |_, _| {},
        |stage, job| {
            stage.fire(job, "cancel", &alice()).expect_ok();
        },
    ];
    for ending in endings {
        let mut stage = new_simulator();
        let first = create_open_job(&mut stage);
        fund_job(&mut stage, first, &hash).expect_ok();
        ending(&mut stage, first);
        let second = create_open_job(&mut stage);
        fund_job(&mut stage, second, &hash).expect_refusal(409, "deposit_used");
        fund_job(&mut stage, second, &other_spelling).expect_refusal(409, "deposit_used");
        let cancelled_job = create_open_job(&mut stage);
        stage.fire(cancelled_job, "cancel", &alice()).expect_ok();
        fund_job(&mut stage, cancelled_job, &hash).expect_refusal(409, "deposit_used");
        assert_eq!((stage.state(second).as_str(), account_balance(&stage, "chain")), ("open", -JOB_PRICE_MICRO_USDC));
    }
}

/// REL-8, REL-1
#[test]
fn fund_requires_buyer() {
    let mut stage = new_simulator();
    let job = create_open_job(&mut stage);
    for caller in [user("bob"), operator("olga"), user("mallory")] {
        stage.fire(job, "fund", &caller).with("tx_hash", tx_hash(1, JOB_PRICE_MICRO_USDC)).expect_not_allowed();
    }
}

/// REL-1
#[test]
fn second_deposit_is_refused() {
    let mut stage = new_simulator();
    let job = super::create_funded_job(&mut stage);
    fund_job(&mut stage, job, &tx_hash(2, JOB_PRICE_MICRO_USDC)).expect_wrong_state("funded", "fund");
    stage.advance("1d");
    fund_job(&mut stage, job, &tx_hash(2, JOB_PRICE_MICRO_USDC)).expect_wrong_state("expired", "fund");
    let job = super::create_won_job(&mut stage, "bob");
    fund_job(&mut stage, job, &tx_hash(2, JOB_PRICE_MICRO_USDC)).expect_wrong_state("resolved", "fund");
}

/// REL-21, REL-4, REL-18: in the same operation; the deposit is credited to the depositor.
#[test]
fn deposit_for_overdue_job_expires_it_at_once() {
    let mut stage = new_simulator();
    let job = create_open_job(&mut stage);
    stage.advance("1d");
    assert_eq!(stage.state(job), "open", "an unfunded job does not expire");
    let changes = fund_job(&mut stage, job, &tx_hash(1, JOB_PRICE_MICRO_USDC)).expect_changes();
    assert_eq!(changes.records.len(), 1);
    assert_eq!(stage.state(job), "expired");
    assert_eq!(
        (stage.hold_balance(job), depositor_balance(&stage), account_balance(&stage, "chain")),
        (0, JOB_PRICE_MICRO_USDC, -JOB_PRICE_MICRO_USDC)
    );
    stage.fire(job, "refund", &alice()).expect_ok();
    let refund = super::find_settlement(&stage, job, "refund");
    super::send_settlement(&mut stage, refund, 1);
    assert_eq!((depositor_balance(&stage), account_balance(&stage, "chain")), (0, 0));
}

/// REL-21
#[test]
fn deposit_just_before_expiry_funds_job() {
    let mut stage = new_simulator();
    let job = create_open_job(&mut stage);
    stage.advance_by(onceward_core::time::Duration::from_micros(86_400_000_000 - 1));
    fund_job(&mut stage, job, &tx_hash(1, JOB_PRICE_MICRO_USDC)).expect_ok();
    assert_eq!(stage.state(job), "funded");
}

/// REL-21, REL-18, REL-8: the deposit is credited to the depositor.
#[test]
fn deposit_for_cancelled_job_is_refundable_once() {
    let mut stage = new_simulator();
    let job = post_job(&mut stage).expect_ok();
    stage.fire(job, "cancel", &alice()).expect_ok();
    stage.fire(job, "refund", &alice()).expect_refusal(400, "nothing_to_refund");
    for caller in [user("bob"), operator("olga")] {
        stage.fire(job, "fund", &caller).with("tx_hash", tx_hash(1, JOB_PRICE_MICRO_USDC)).expect_not_allowed();
    }
    fund_job(&mut stage, job, &tx_hash(1, JOB_PRICE_MICRO_USDC - 1)).expect_refusal(400, "deposit_not_verified");
    fund_job(&mut stage, job, &tx_hash(1, 0)).expect_refusal(400, "deposit_not_verified");
    fund_job(&mut stage, job, &tx_hash(1, JOB_PRICE_MICRO_USDC + 5)).expect_ok();
    assert_eq!(stage.state(job), "cancelled");
    assert_eq!(
        (stage.hold_balance(job), depositor_balance(&stage), total_balance(&stage)),
        (0, JOB_PRICE_MICRO_USDC + 5, 0)
    );
    assert_eq!(stage.field(job, "deposit_tx_hash"), tx_hash(1, JOB_PRICE_MICRO_USDC + 5));
    fund_job(&mut stage, job, &tx_hash(2, JOB_PRICE_MICRO_USDC)).expect_refusal(409, "already_funded");
    stage.fire(job, "refund", &alice()).expect_ok();
    let refund = super::find_settlement(&stage, job, "refund");
    assert_eq!(stage.field(refund, "amount"), JOB_PRICE_MICRO_USDC + 5);
    fund_job(&mut stage, job, &tx_hash(2, JOB_PRICE_MICRO_USDC)).expect_refusal(409, "already_funded");
}

/// REL-21
#[test]
fn second_deposit_for_cancelled_job_is_refused() {
    let mut stage = new_simulator();
    let job = create_cancelled_job(&mut stage);
    fund_job(&mut stage, job, &tx_hash(2, JOB_PRICE_MICRO_USDC)).expect_refusal(409, "already_funded");
    assert_eq!(depositor_balance(&stage), JOB_PRICE_MICRO_USDC);
}
