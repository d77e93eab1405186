//! Tests transfers and balances.

use onceward_testkit::user;

use crate::new_simulator;

/// Such a transition is not a `NoOp`: the record's log has the transfer.
#[test]
fn transfer_only_transition_changes_balance_and_version() {
    let mut simulator = new_simulator(&[r#"
language = 1
lifecycle = "shop.till"
about = "a till"
asset = "coin"
outside = ["world"]
[states]
open = { about = "open", rest = true }
[[on.create]]
go = "-> open"
[[on.pay]]
go = "open"
move = [{ from = "world", to = "till", amount = "5" }]
"#]);
    let ann = user("ann");
    let till = simulator.create("shop.till", &ann).expect_ok();
    simulator.fire(till, "pay", &ann).expect_ok();
    assert_eq!(simulator.balance("coin", "till"), 5);
    assert_eq!(simulator.record(till).version, 2);
}

#[test]
fn balance_overflow_is_fault() {
    let mut simulator = new_simulator(&[r#"
language = 1
lifecycle = "bank.deposit"
about = "money comes in"
asset = "coin"
outside = ["world"]
[states]
done = { about = "done", rest = true }
[fields]
amount = { type = "int", min = 0 }
[[on.create]]
go = "-> done"
take = ["amount"]
move = [{ from = "world", to = "vault", amount = "record.amount" }]
"#]);
    let ann = user("ann");
    simulator.create("bank.deposit", &ann).with("amount", i64::MAX).expect_ok();
    simulator.create("bank.deposit", &ann).with("amount", i64::MAX).expect_refusal(422, "fault");
    assert_eq!(simulator.balance("coin", "vault"), i64::MAX);
}
