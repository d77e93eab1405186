//! Amounts that move.

use onceward_testkit::user;

use crate::stage;

/// A row that moves money and changes nothing else is no `NoOp`: the money moves, and its record logs it.
#[test]
fn a_row_that_only_moves_money_moves_it() {
    let mut stage = stage(&[r#"
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
    let till = stage.create("shop.till", &ann).ok();
    stage.fire(till, "pay", &ann).ok();
    assert_eq!(stage.balance("coin", "till"), 5);
    assert_eq!(stage.record(till).version, 2);
}

/// The ledger is in checked integers: too much money is a fault, not a wrong balance.
#[test]
fn a_balance_that_does_not_fit_is_a_fault() {
    let mut stage = stage(&[r#"
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
    stage.create("bank.deposit", &ann).with("amount", i64::MAX).ok();
    stage.create("bank.deposit", &ann).with("amount", i64::MAX).refused(422, "fault");
    assert_eq!(stage.balance("coin", "vault"), i64::MAX);
}
