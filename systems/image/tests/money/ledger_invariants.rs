//! Ledger invariants that hold after every step.

use std::collections::BTreeMap;
use std::sync::Arc;

use onceward_core::record::Record;
use onceward_core::value::Value;
use onceward_engine::{AccountStatement, StatementCursor};
use onceward_store::{AccountBalance, AccountName, AccountsQuery, Store};
use onceward_testkit::operator;

use crate::random_market::{RandomMarket, USERS};

fn int_field(record: &Record, field: &str) -> i64 {
    match record.field(field) {
        Some(Value::Int(int)) => *int,
        other => panic!("{field} is {other:?}"),
    }
}

/// All records and accounts at one `seq`.
struct LedgerSnapshot {
    jobs: Vec<Arc<Record>>,
    grants: Vec<Arc<Record>>,
    assets: Vec<Arc<Record>>,
    accounts: Vec<AccountBalance>,
    statements: Vec<(&'static str, Vec<AccountStatement>)>,
}

impl LedgerSnapshot {
    /// Reads a consistent snapshot: it repeats the read until the log has not grown meanwhile, because PostgreSQL may
    /// still execute statements of a dropped engine.
    async fn read<S: Store + 'static>(market: &RandomMarket<S>) -> Self {
        let last_seq = async || market.engine().store().last_seq().await.expect("the log's end");
        loop {
            let before = last_seq().await;
            let (jobs, grants) = (market.records("image.job").await, market.records("image.grant").await);
            let assets = market.records("image.asset").await;
            let query = AccountsQuery { after: None, limit: 1_000 };
            let accounts = market.engine().store().accounts(&query).await.expect("accounts");
            let mut statements = Vec::new();
            for user in USERS {
                statements.push((user, read_statement(market, user).await));
            }
            if last_seq().await == before {
                return Self { jobs, grants, assets, accounts, statements };
            }
        }
    }
}

pub(crate) async fn assert_balanced<S: Store + 'static>(market: &RandomMarket<S>) {
    let LedgerSnapshot { jobs, grants, assets, accounts: all, statements } = LedgerSnapshot::read(market).await;
    let mut accounts: BTreeMap<String, i64> = BTreeMap::new();
    for account in all {
        assert_eq!(&*account.account.asset, "credit");
        assert!(account.is_outside || account.balance >= 0, "{account:?} is negative");
        accounts.insert(account.account.name.to_string(), account.balance);
    }
    let held: i64 = jobs.iter().map(|job| job.hold).sum();
    assert_eq!(accounts.values().sum::<i64>() + held, 0, "sum of all accounts and holds: {accounts:?}, {held} held");

    // The balances must follow from the records.
    let mut expected: BTreeMap<String, i64> = BTreeMap::new();
    for grant in &grants {
        let Some(Value::Text(name)) = grant.field("user") else { panic!("a grant without a user") };
        *expected.entry(format!("user:{name}")).or_default() += int_field(grant, "amount");
        *expected.entry("shop".to_owned()).or_default() -= int_field(grant, "amount");
    }
    for job in &jobs {
        let (to, holds) = match &**job.state_name() {
            "queued" | "running" | "failed" => (None, 5),
            "completed" => (Some("revenue".to_owned()), 0),
            "rejected" => (Some("penalties".to_owned()), 0),
            "dead_letter" => (Some(format!("user:{}", job.owner)), 0),
            other => panic!("no such state: {other}"),
        };
        assert_eq!(job.hold, holds, "a job in {} holds {}", job.state_name(), job.hold);
        *expected.entry(format!("user:{}", job.owner)).or_default() -= 5;
        if let Some(to) = to {
            *expected.entry(to).or_default() += 5;
        }
        let pictures = assets.iter().filter(|asset| asset.field("job") == Some(&Value::Ref(job.id))).count();
        assert_eq!(pictures, usize::from(&**job.state_name() == "completed"), "assets of a job");
    }
    expected.retain(|_, amount| *amount != 0);
    accounts.retain(|_, amount| *amount != 0);
    assert_eq!(accounts, expected);
    for (user, parts) in &statements {
        assert_statement_adds_up(user, parts);
    }
}

/// Reads a statement to its beginning, in small pages.
async fn read_statement<S: Store + 'static>(market: &RandomMarket<S>, user: &str) -> Vec<AccountStatement> {
    let account = AccountName::new("credit", &format!("user:{user}"));
    let (mut from, mut parts): (Option<StatementCursor>, Vec<AccountStatement>) = (None, Vec::new());
    loop {
        let part = market.engine().statement(&operator("olga"), &account, from, 7).await.expect("a statement");
        let Some(part) = part else { return parts };
        from = part.next;
        parts.push(part);
        if from.is_none() {
            return parts;
        }
    }
}

/// Asserts that the amounts add up to the balance and that every line's balance is correct.
fn assert_statement_adds_up(user: &str, parts: &[AccountStatement]) {
    let Some(last) = parts.last() else { return };
    assert_eq!(last.opening_balance, Some(0), "nothing was pruned");
    let now = last.current.balance;
    assert!(parts.iter().all(|part| part.current.balance == now), "one balance of {user}");
    let lines: Vec<(i64, i64)> =
        parts.iter().flat_map(|part| part.lines.iter().map(|line| (line.amount, line.balance))).collect();
    assert_eq!(lines.iter().map(|(amount, _)| amount).sum::<i64>(), now, "the statement of {user} adds up");
    let mut running = 0;
    for (amount, balance) in lines.into_iter().rev() {
        running += amount;
        assert_eq!(running, balance, "every line of {user}'s statement has the balance after it");
    }
}
