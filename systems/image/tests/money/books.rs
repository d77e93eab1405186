//! What must hold of all credits at every moment.

use std::collections::BTreeMap;

use onceward_core::record::Record;
use onceward_core::value::Value;
use onceward_engine::Onward;
use onceward_store::{AccountName, AccountsQuery, Store};
use onceward_testkit::operator;

use crate::house::{House, USERS};

fn int(record: &Record, field: &str) -> i64 {
    match record.field(field) {
        Some(Value::Int(int)) => *int,
        other => panic!("{field} is {other:?}"),
    }
}

pub(crate) async fn balance<S: Store + 'static>(house: &House<S>) {
    let (jobs, grants, assets) =
        (house.records("image.job").await, house.records("image.grant").await, house.records("image.asset").await);
    let mut accounts: BTreeMap<String, i64> = BTreeMap::new();
    for account in
        house.engine().store().accounts(&AccountsQuery { after: None, limit: 1_000 }).await.expect("accounts")
    {
        assert_eq!(&*account.account.asset, "credit");
        assert!(account.outside || account.balance >= 0, "{account:?} is below nothing");
        accounts.insert(account.account.name.to_string(), account.balance);
    }
    let held: i64 = jobs.iter().map(|job| job.hold).sum();
    assert_eq!(accounts.values().sum::<i64>() + held, 0, "all accounts and holds together: {accounts:?}, {held} held");

    // What the records say is what the accounts hold.
    let mut said: BTreeMap<String, i64> = BTreeMap::new();
    for grant in &grants {
        let Some(Value::Text(name)) = grant.field("user") else { panic!("a grant for nobody") };
        *said.entry(format!("user:{name}")).or_default() += int(grant, "amount");
        *said.entry("shop".to_owned()).or_default() -= int(grant, "amount");
    }
    for job in &jobs {
        let (to, holds) = match &**job.state_name() {
            "queued" | "running" | "failed" => (None, 5),
            "completed" => (Some("revenue".to_owned()), 0),
            "rejected" => (Some("penalties".to_owned()), 0),
            "dead_letter" => (Some(format!("user:{}", job.owner)), 0),
            other => panic!("no such state: {other}"),
        };
        assert_eq!(job.hold, holds, "a job that is {} holds {}", job.state_name(), job.hold);
        *said.entry(format!("user:{}", job.owner)).or_default() -= 5;
        if let Some(to) = to {
            *said.entry(to).or_default() += 5;
        }
        let pictures = assets.iter().filter(|asset| asset.field("job") == Some(&Value::Ref(job.id))).count();
        assert_eq!(pictures, usize::from(&**job.state_name() == "completed"), "pictures of a job");
    }
    said.retain(|_, amount| *amount != 0);
    accounts.retain(|_, amount| *amount != 0);
    assert_eq!(accounts, said);
    for user in USERS {
        statement(house, user).await;
    }
}

/// A statement, read to its beginning in small parts: all amounts together are the balance, and every line's own balance is right.
async fn statement<S: Store + 'static>(house: &House<S>, user: &str) {
    let account = AccountName::new("credit", &format!("user:{user}"));
    let (mut from, mut sum, mut lines): (Option<Onward>, i64, Vec<(i64, i64)>) = (None, 0, Vec::new());
    let mut now = None;
    loop {
        let part = house.engine().statement(&operator("olga"), &account, from, 7).await.expect("a statement");
        let Some(part) = part else { return };
        assert_eq!(*now.get_or_insert(part.now.balance), part.now.balance);
        for line in &part.lines {
            sum += line.amount;
            lines.push((line.amount, line.balance));
        }
        from = part.next;
        if from.is_none() {
            assert_eq!(part.carried, Some(0), "nothing was pruned");
            break;
        }
    }
    assert_eq!(Some(sum), now, "the statement of {user} adds up");
    let mut running = 0;
    for (amount, balance) in lines.into_iter().rev() {
        running += amount;
        assert_eq!(running, balance, "each line of {user}'s statement says what was there then");
    }
}
