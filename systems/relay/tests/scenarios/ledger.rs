//! REL-18: the ledger over all endings of a job.

use serde_json::json;

use super::{
    JOB_PRICE_MICRO_USDC, account_balance, alice, create_open_job, depositor_balance, find_agent, find_settlement,
    fund_job, lease_submission, new_simulator, send_settlement, total_balance, tx_hash, verdict,
};

/// REL-18, REL-20, REL-21: after each step all accounts and holds add up to zero and no ended job has a hold. In the
/// end only the fees remain.
#[test]
fn all_job_endings_keep_ledger_balanced() {
    let mut stage = new_simulator();
    let jobs: Vec<_> = (0..6)
        .map(|number| {
            let job = create_open_job(&mut stage);
            if number == 5 {
                stage.fire(job, "cancel", &alice()).expect_ok();
            }
            fund_job(&mut stage, job, &tx_hash(100 + number, JOB_PRICE_MICRO_USDC + i64::from(number))).expect_ok();
            assert_eq!(total_balance(&stage), 0);
            job
        })
        .collect();
    let paid_in = 6 * JOB_PRICE_MICRO_USDC + 15;
    assert_eq!((account_balance(&stage, "chain"), depositor_balance(&stage)), (-paid_in, JOB_PRICE_MICRO_USDC + 5));
    for (job, agent_id) in [(jobs[0], "bob"), (jobs[1], "carol"), (jobs[2], "dave")] {
        let lease = lease_submission(&mut stage, job, agent_id);
        stage.commit(&lease, verdict(88)).expect_ok();
        assert_eq!((stage.hold_balance(job), total_balance(&stage)), (0, 0));
    }
    stage.fire(jobs[3], "cancel", &alice()).expect_ok();
    assert_eq!((depositor_balance(&stage), total_balance(&stage)), (2 * JOB_PRICE_MICRO_USDC + 8, 0));
    stage.advance("1d");
    assert_eq!((depositor_balance(&stage), total_balance(&stage)), (3 * JOB_PRICE_MICRO_USDC + 12, 0));
    for job in &jobs[3..] {
        stage.fire(*job, "refund", &alice()).expect_ok();
        assert_eq!(total_balance(&stage), 0);
    }
    let dave = find_agent(&stage, "dave");
    stage.fire(dave, "edit", &onceward_testkit::user("dave")).with("wallet", super::WALLET_ADDRESS).expect_ok();
    for (nonce, settlement) in (1..).zip(stage.records_of("relay.settlement")) {
        send_settlement(&mut stage, settlement.id, nonce);
        assert_eq!(total_balance(&stage), 0);
    }
    for kind in ["relay.job", "relay.agent", "relay.settlement"] {
        assert!(stage.records_of(kind).iter().all(|record| record.hold == 0), "a {kind} still has a hold");
    }
    assert_eq!(
        (account_balance(&stage, "fee"), account_balance(&stage, "chain"), depositor_balance(&stage)),
        (6_000_000, -6_000_000, 0)
    );
    assert_eq!(stage.field(find_settlement(&stage, jobs[2], "overpaid"), "amount"), json!(2));
}

/// REL-18: in double entry.
#[test]
fn resolve_logs_its_transfers() {
    let mut stage = new_simulator();
    let job = create_open_job(&mut stage);
    fund_job(&mut stage, job, &tx_hash(1, JOB_PRICE_MICRO_USDC + 1)).expect_ok();
    let lease = lease_submission(&mut stage, job, "bob");
    let changes = stage.commit(&lease, verdict(80)).expect_changes();
    let amounts: Vec<i64> = changes.transfers.iter().map(|entry| entry.amount).collect();
    assert_eq!(amounts, [8_000_000, 2_000_000, 1, 1, 8_000_000], "worker, fee, depositor; then two settlements");
}
