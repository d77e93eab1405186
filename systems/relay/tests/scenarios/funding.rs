//! REL-1, REL-18, REL-19, REL-21: the deposit.

use onceward_testkit::{Stage, operator, user};
use serde_json::json;

use super::{DEPOSITOR, PRICE, alice, cancelled, depositor, fund, open, post, stage, total, tx, usdc};

/// REL-1, REL-18, REL-19: a verified deposit makes the job funded, says who paid and how, and lies in escrow.
#[test]
fn a_deposit_funds_the_job() {
    let mut stage = stage();
    let job = open(&mut stage);
    fund(&mut stage, job, &tx(1, PRICE)).ok();
    assert_eq!(stage.state(job), "funded");
    assert_eq!(stage.field(job, "deposit_tx_hash"), tx(1, PRICE));
    assert_eq!(stage.field(job, "depositor_address"), DEPOSITOR);
    assert_eq!((stage.field(job, "deposit"), stage.field(job, "on_chain")), (json!(PRICE), json!(true)));
    assert_eq!((stage.hold(job), usdc(&stage, "chain"), total(&stage)), (PRICE, -PRICE, 0));
}

/// REL-1, REL-19: what the chain does not confirm, or what is a millionth short, funds nothing.
#[test]
fn an_unverified_deposit_is_refused() {
    let mut stage = stage();
    let job = open(&mut stage);
    fund(&mut stage, job, &tx(1, 0)).refused(400, "deposit_not_verified");
    fund(&mut stage, job, &tx(1, PRICE - 1)).refused(400, "deposit_not_verified");
    let withdrawn = open(&mut stage);
    stage.fire(withdrawn, "cancel", &alice()).ok();
    for job in [job, withdrawn] {
        fund(&mut stage, job, "").bad_input();
        for strange in ["x", &"x".repeat(200)] {
            fund(&mut stage, job, strange).refused(400, "deposit_not_verified");
        }
        fund(&mut stage, job, &"x".repeat(201)).bad_input();
        stage.fire(job, "fund", &alice()).bad_input();
    }
    assert_eq!((stage.state(job).as_str(), usdc(&stage, "chain")), ("open", 0));
    fund(&mut stage, job, &tx(1, PRICE)).ok();
}

/// REL-1, REL-19: enough money in a transaction that failed, or is not deep enough yet, funds nothing either.
#[test]
fn the_chain_has_to_say_yes() {
    let mut stage = stage().answer("relay.job", "deposit", |question, _| {
        let amount = &question.arguments["at_least"];
        json!({ "ok": false, "on_chain": true, "amount": amount, "sender": DEPOSITOR, "tx_hash": tx(7, 7) })
    });
    let (job, withdrawn) = (open(&mut stage), open(&mut stage));
    stage.fire(withdrawn, "cancel", &alice()).ok();
    for job in [job, withdrawn] {
        fund(&mut stage, job, &tx(7, 7)).refused(400, "deposit_not_verified");
    }
    assert_eq!((stage.state(job).as_str(), usdc(&stage, "chain"), depositor(&stage)), ("open", 0, 0));
}

/// REL-1: in dev mode the answer is yes without a look at any chain.
#[test]
fn dev_mode_accepts_unverified() {
    let mut stage = stage().answer("relay.job", "deposit", |question, _| {
        let amount = &question.arguments["at_least"];
        json!({ "ok": true, "on_chain": false, "amount": amount, "sender": DEPOSITOR, "tx_hash": tx(7, 7) })
    });
    let job = open(&mut stage);
    fund(&mut stage, job, "whatever").ok();
    assert_eq!((stage.state(job).as_str(), stage.hold(job)), ("funded", PRICE));
    assert_eq!(stage.field(job, "on_chain"), false, "and the job remembers that");
}

/// REL-1, REL-19: an answer that lacks something, spells a hash or a sender in another way, or names more money than there is, is no
/// answer: nothing is funded by it.
#[test]
fn an_answer_has_its_shape() {
    const MOST: i64 = 1_000_000_000_000_000;
    let (hash, capitals) = (tx(0xabc, PRICE), format!("0x{}", tx(0xabc, PRICE)[2..].to_uppercase()));
    for (field, value, fits) in [
        ("amount", json!(MOST), true),
        ("amount", json!(MOST + 1), false),
        ("amount", json!(-1), false),
        ("tx_hash", json!(hash[..65]), false),
        ("tx_hash", json!(format!("{hash}0")), false),
        ("tx_hash", json!(capitals), false),
        ("sender", json!(DEPOSITOR[..41]), false),
        ("sender", json!(DEPOSITOR.replace('d', "D")), false),
        ("on_chain", json!(null), false),
        ("ok", json!(null), false),
        ("amount", json!(null), false),
        ("sender", json!(null), false),
        ("tx_hash", json!(null), false),
    ] {
        let mut answer =
            json!({ "ok": true, "on_chain": true, "amount": PRICE, "sender": DEPOSITOR, "tx_hash": hash.clone() });
        answer[field] = value.clone();
        let mut stage = stage().answer("relay.job", "deposit", move |_, _| answer.clone());
        let job = open(&mut stage);
        if fits {
            fund(&mut stage, job, &hash).ok();
        } else {
            let refusal = fund(&mut stage, job, &hash).outcome().refusal();
            assert_eq!((refusal.status, &*refusal.code), (503, "bad_answer"), "{field} = {value}");
            assert_eq!((stage.state(job).as_str(), usdc(&stage, "chain")), ("open", 0));
        }
    }
}

/// REL-1: one transaction pays for one job, however it is spelt, and whatever became of the first.
#[test]
fn a_deposit_is_used_once() {
    let hash = tx(0xabc, PRICE);
    let other_spelling = hash.to_uppercase().replace("0X", "0x");
    let lives: [fn(&mut Stage, onceward_core::value::RecordId); 2] = [
        |_, _| {},
        |stage, job| {
            stage.fire(job, "cancel", &alice()).ok();
        },
    ];
    for live in lives {
        let mut stage = stage();
        let first = open(&mut stage);
        fund(&mut stage, first, &hash).ok();
        live(&mut stage, first);
        let second = open(&mut stage);
        fund(&mut stage, second, &hash).refused(409, "deposit_used");
        fund(&mut stage, second, &other_spelling).refused(409, "deposit_used");
        let withdrawn = open(&mut stage);
        stage.fire(withdrawn, "cancel", &alice()).ok();
        fund(&mut stage, withdrawn, &hash).refused(409, "deposit_used");
        assert_eq!((stage.state(second).as_str(), usdc(&stage, "chain")), ("open", -PRICE));
    }
}

/// REL-8, REL-1: the buyer funds, nobody else.
#[test]
fn only_the_buyer_funds() {
    let mut stage = stage();
    let job = open(&mut stage);
    for who in [user("bob"), operator("olga"), user("mallory")] {
        stage.fire(job, "fund", &who).with("tx_hash", tx(1, PRICE)).not_allowed();
    }
}

/// REL-1: a job is paid for once.
#[test]
fn a_funded_job_takes_no_second_deposit() {
    let mut stage = stage();
    let job = super::funded(&mut stage);
    fund(&mut stage, job, &tx(2, PRICE)).wrong_state("funded", "fund");
    stage.pass("1d");
    fund(&mut stage, job, &tx(2, PRICE)).wrong_state("expired", "fund");
    let job = super::won(&mut stage, "bob");
    fund(&mut stage, job, &tx(2, PRICE)).wrong_state("resolved", "fund");
}

/// REL-21, REL-4, REL-18: a deposit for a job that is overdue is accepted; the job expires in the same operation, and the money
/// stands to the depositor's credit.
#[test]
fn a_deposit_for_an_overdue_job_expires_it() {
    let mut stage = stage();
    let job = open(&mut stage);
    stage.pass("1d");
    assert_eq!(stage.state(job), "open", "an unpaid job waits for ever");
    let changes = fund(&mut stage, job, &tx(1, PRICE)).changes();
    assert_eq!(changes.records.len(), 1);
    assert_eq!(stage.state(job), "expired");
    assert_eq!((stage.hold(job), depositor(&stage), usdc(&stage, "chain")), (0, PRICE, -PRICE));
    stage.fire(job, "refund", &alice()).ok();
    let refund = super::settlement(&stage, job, "refund");
    super::settle(&mut stage, refund, 1);
    assert_eq!((depositor(&stage), usdc(&stage, "chain")), (0, 0));
}

/// REL-21: a moment before its expiry a job can still be funded.
#[test]
fn in_time_is_in_time() {
    let mut stage = stage();
    let job = open(&mut stage);
    stage.pass_for(onceward_core::time::Duration::from_micros(86_400_000_000 - 1));
    fund(&mut stage, job, &tx(1, PRICE)).ok();
    assert_eq!(stage.state(job), "funded");
}

/// REL-21, REL-18, REL-8: a deposit for a job that was cancelled before is credited to the depositor and can be refunded, once.
#[test]
fn a_deposit_for_a_cancelled_job_goes_back() {
    let mut stage = stage();
    let job = post(&mut stage).ok();
    stage.fire(job, "cancel", &alice()).ok();
    stage.fire(job, "refund", &alice()).refused(400, "nothing_to_refund");
    for who in [user("bob"), operator("olga")] {
        stage.fire(job, "fund", &who).with("tx_hash", tx(1, PRICE)).not_allowed();
    }
    fund(&mut stage, job, &tx(1, PRICE - 1)).refused(400, "deposit_not_verified");
    fund(&mut stage, job, &tx(1, 0)).refused(400, "deposit_not_verified");
    fund(&mut stage, job, &tx(1, PRICE + 5)).ok();
    assert_eq!(stage.state(job), "cancelled");
    assert_eq!((stage.hold(job), depositor(&stage), total(&stage)), (0, PRICE + 5, 0));
    assert_eq!(stage.field(job, "deposit_tx_hash"), tx(1, PRICE + 5));
    fund(&mut stage, job, &tx(2, PRICE)).refused(409, "already_funded");
    stage.fire(job, "refund", &alice()).ok();
    let refund = super::settlement(&stage, job, "refund");
    assert_eq!(stage.field(refund, "amount"), PRICE + 5);
    fund(&mut stage, job, &tx(2, PRICE)).refused(409, "already_funded");
}

/// REL-21: a cancelled job that had its deposit takes no other.
#[test]
fn a_cancelled_job_that_was_funded_is_done() {
    let mut stage = stage();
    let job = cancelled(&mut stage);
    fund(&mut stage, job, &tx(2, PRICE)).refused(409, "already_funded");
    assert_eq!(depositor(&stage), PRICE);
}
