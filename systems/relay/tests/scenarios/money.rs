//! REL-18: every way that the money of a job can go, in one ledger.

use serde_json::json;

use super::{PRICE, agent, alice, depositor, fund, judged, open, settle, settlement, stage, total, tx, usdc, verdict};

/// REL-18, REL-20, REL-21: six jobs with six ends. Step by step all accounts and holds together are nothing, no job that ended
/// holds anything, and at last all that stays with us is the fees.
#[test]
fn every_end_and_nothing_lost() {
    let mut stage = stage();
    let jobs: Vec<_> = (0..6)
        .map(|number| {
            let job = open(&mut stage);
            if number == 5 {
                stage.fire(job, "cancel", &alice()).ok();
            }
            fund(&mut stage, job, &tx(100 + number, PRICE + i64::from(number))).ok();
            assert_eq!(total(&stage), 0);
            job
        })
        .collect();
    let paid_in = 6 * PRICE + 15;
    assert_eq!((usdc(&stage, "chain"), depositor(&stage)), (-paid_in, PRICE + 5));
    for (job, who) in [(jobs[0], "bob"), (jobs[1], "carol"), (jobs[2], "dave")] {
        let lease = judged(&mut stage, job, who);
        stage.commit(&lease, verdict(88)).ok();
        assert_eq!((stage.hold(job), total(&stage)), (0, 0));
    }
    stage.fire(jobs[3], "cancel", &alice()).ok();
    assert_eq!((depositor(&stage), total(&stage)), (2 * PRICE + 8, 0));
    stage.pass("1d");
    assert_eq!((depositor(&stage), total(&stage)), (3 * PRICE + 12, 0));
    for job in &jobs[3..] {
        stage.fire(*job, "refund", &alice()).ok();
        assert_eq!(total(&stage), 0);
    }
    let dave = agent(&stage, "dave");
    stage.fire(dave, "edit", &onceward_testkit::user("dave")).with("wallet", super::WALLET).ok();
    for (nonce, leaving) in (1..).zip(stage.all("relay.settlement")) {
        settle(&mut stage, leaving.id, nonce);
        assert_eq!(total(&stage), 0);
    }
    for kind in ["relay.job", "relay.agent", "relay.settlement"] {
        assert!(stage.all(kind).iter().all(|record| record.hold == 0), "a {kind} still holds money");
    }
    assert_eq!((usdc(&stage, "fee"), usdc(&stage, "chain"), depositor(&stage)), (6_000_000, -6_000_000, 0));
    assert_eq!(stage.field(settlement(&stage, jobs[2], "overpaid"), "amount"), json!(2));
}

/// REL-18: each of these moves is in the ledger's own log, in double entry.
#[test]
fn the_moves_of_a_resolve() {
    let mut stage = stage();
    let job = open(&mut stage);
    fund(&mut stage, job, &tx(1, PRICE + 1)).ok();
    let lease = judged(&mut stage, job, "bob");
    let changes = stage.commit(&lease, verdict(80)).changes();
    let amounts: Vec<i64> = changes.moves.iter().map(|entry| entry.amount).collect();
    assert_eq!(
        amounts,
        [8_000_000, 2_000_000, 1, 1, 8_000_000],
        "worker, fee, depositor; then into the two settlements"
    );
}
