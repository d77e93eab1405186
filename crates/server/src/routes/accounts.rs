//! What named accounts hold and what moved there, for operators.

use axum::extract::State;
use axum::response::Response;
use onceward_core::decide::Account;
use onceward_core::value::RecordId;
use onceward_engine::{Line, Onward};
use onceward_store::{AccountName, AccountsQuery, Balance};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::App;
use crate::caller::Caller;
use crate::input::{Asked, At, limit};
use crate::problem::Problem;
use crate::shape::{Text, When, ok};

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(accounts)).routes(routes!(entries))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Which {
    /// The `next` of the page before.
    #[param(pattern = "^[^:%\\u0000]*(%(25|3A)[^:%\\u0000]*)*:[^\\u0000]*$")]
    cursor: Option<String>,
    #[param(minimum = 1, maximum = 1_000)]
    limit: Option<u32>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Part {
    /// The `next` of the part before.
    #[param(pattern = "^[0-9]{1,18}[.]-?[0-9]{1,18}$")]
    cursor: Option<String>,
    #[param(minimum = 1, maximum = 1_000)]
    limit: Option<u32>,
}

/// A page of accounts.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Accounts)]
struct AccountsShape<'a> {
    accounts: Vec<AccountShape<'a>>,
    /// Where the next page starts; none on the last.
    next: Option<String>,
}

/// A named account.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Account)]
struct AccountShape<'a> {
    /// Asset and name, with a colon between them.
    id: String,
    asset: &'a str,
    name: &'a str,
    /// It stands for the world outside, and may hold less than nothing.
    outside: bool,
    balance: i64,
}

impl<'a> AccountShape<'a> {
    fn of(balance: &'a Balance) -> Self {
        let AccountName { asset, name } = &balance.account;
        Self { id: id_of(asset, name), asset, name, outside: balance.outside, balance: balance.balance }
    }
}

/// A part of an account's statement, the newest first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Statement)]
struct StatementShape<'a> {
    /// As it stands now.
    account: AccountShape<'a>,
    entries: Vec<LineShape<'a>>,
    /// Where the older ones begin; none on the last part.
    next: Option<String>,
    /// On the last part: what the account held before its oldest entry. That is 0, or what records moved that were pruned
    /// since.
    carried_forward: Option<i64>,
}

/// A move on an account.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AccountEntry)]
struct LineShape<'a> {
    /// The place of its entry in the log.
    #[schema(minimum = 1)]
    seq: u64,
    #[schema(value_type = String, format = DateTime)]
    at: When,
    /// The record whose row moved it.
    #[schema(value_type = String, format = Uuid)]
    record: Text<RecordId>,
    event: &'a str,
    /// What came; less than nothing where it went.
    amount: i64,
    /// What the account held then.
    balance: i64,
    /// Where it came from or went to: an account, or what a record held.
    other: OtherShape,
}

/// The other side of a move: one of the two.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OtherSide)]
struct OtherShape {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    account: Option<String>,
    /// The record in whose hold it was, or is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = Uuid)]
    hold: Option<Text<RecordId>>,
}

impl<'a> LineShape<'a> {
    fn of(line: &'a Line) -> Self {
        let other = match &line.other {
            Account::Named { asset, name } => OtherShape { account: Some(id_of(asset, name)), hold: None },
            Account::Hold { record, .. } => OtherShape { account: None, hold: Some(Text(*record)) },
        };
        Self {
            seq: line.seq,
            at: When(line.at),
            record: Text(line.record),
            event: &line.event,
            amount: line.amount,
            balance: line.balance,
            other,
        }
    }
}

/// The asset before the first colon, with no colon of its own.
fn id_of(asset: &str, name: &str) -> String {
    format!("{}:{name}", asset.replace('%', "%25").replace(':', "%3A"))
}

fn named(id: &str) -> Option<AccountName> {
    let (asset, name) = id.split_once(':')?;
    let asset = asset.replace("%3A", ":").replace("%25", "%");
    let account = AccountName::new(&asset, name);
    // Of each account one id and no other; and no database has a NUL in a text.
    (id_of(&asset, name) == id && !id.contains('\0')).then_some(account)
}

/// List named accounts
///
/// By asset and name. For operators.
#[utoipa::path(
    get, path = "/v1/accounts", tag = "accounts", params(Which),
    responses((status = 200, description = "A page of them", body = AccountsShape))
)]
async fn accounts(State(app): State<App>, caller: Caller, Asked(which): Asked<Which>) -> Result<Response, Problem> {
    let limit = limit(which.limit)?;
    let after = which.cursor.as_deref().map(|text| named(text).ok_or_else(bad_cursor)).transpose()?;
    let found = app.engine().accounts(&caller.actor, &AccountsQuery { after, limit }).await?;
    // A full page may be the last; then the next one is empty.
    let next = found.last().filter(|_| found.len() >= limit).map(|last| id_of(&last.account.asset, &last.account.name));
    ok(&AccountsShape { accounts: found.iter().map(AccountShape::of).collect(), next })
}

/// Get an account's statement
///
/// What moved there, the newest first. For operators.
#[utoipa::path(
    get, path = "/v1/accounts/{id}/entries", tag = "accounts",
    params(("id" = String, Path, description = "As the list of accounts names it: asset and name with a colon between them"), Part),
    responses((status = 200, description = "A part of it", body = StatementShape))
)]
async fn entries(
    State(app): State<App>,
    caller: Caller,
    At(id): At<String>,
    Asked(part): Asked<Part>,
) -> Result<Response, Problem> {
    caller.must_be_operator()?;
    let limit = limit(part.limit)?;
    let none = || Problem::new(404, "not_found", "nothing ever moved on an account of this name");
    let account = named(&id).ok_or_else(none)?;
    let from = part.cursor.as_deref().map(|text| text.parse::<Onward>().map_err(|_| bad_cursor())).transpose()?;
    let found = app.engine().statement(&caller.actor, &account, from, limit).await?.ok_or_else(none)?;
    ok(&StatementShape {
        account: AccountShape::of(&found.now),
        entries: found.lines.iter().map(LineShape::of).collect(),
        next: found.next.map(|next| next.to_string()),
        carried_forward: found.carried,
    })
}

fn bad_cursor() -> Problem {
    Problem::bad_input("`cursor` is the `next` of the page before")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_account_has_one_id_and_it_is_read_again() {
        for (asset, name, id) in [
            ("credit", "user:ann", "credit:user:ann"),
            ("a:b", "c/d", "a%3Ab:c/d"),
            ("5%", "", "5%25:"),
            ("a%3Ab", "x", "a%253Ab:x"),
        ] {
            assert_eq!(id_of(asset, name), id);
            assert_eq!(named(id), Some(AccountName::new(asset, name)));
        }
        for id in ["", "credit", "5%:x", "a%3ab:x", "a%20b:x", "a:\0"] {
            assert_eq!(named(id), None, "{id}");
        }
    }
}
