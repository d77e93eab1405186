//! What named accounts hold and what moved there, for operators.

use axum::extract::State;
use axum::response::Response;
use onceward_core::decide::Account;
use onceward_core::value::RecordId;
use onceward_engine::{StatementCursor, StatementLine};
use onceward_store::{AccountBalance, AccountName, AccountsQuery};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::caller::Caller;
use crate::extract::{PathParams, QueryParams, parse_limit};
use crate::problem::Problem;
use crate::response::{DisplayText, Rfc3339, json_ok};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(accounts)).routes(routes!(entries))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AccountsParams {
    /// The `next` of the page before.
    #[param(pattern = "^[^:%\\u0000]*(%(25|3A)[^:%\\u0000]*)*:[^\\u0000]*$")]
    cursor: Option<String>,
    #[param(minimum = 1, maximum = 1_000)]
    limit: Option<u32>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct StatementParams {
    /// The `next` of the part before.
    #[param(pattern = "^[0-9]{1,18}[.]-?[0-9]{1,18}$")]
    cursor: Option<String>,
    #[param(minimum = 1, maximum = 1_000)]
    limit: Option<u32>,
}

/// A page of accounts.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Accounts)]
struct AccountPageJson<'a> {
    accounts: Vec<AccountJson<'a>>,
    /// Where the next page starts; none on the last.
    next: Option<String>,
}

/// A named account.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Account)]
struct AccountJson<'a> {
    /// Asset and name, with a colon between them.
    id: String,
    asset: &'a str,
    name: &'a str,
    /// It stands for the world outside, and may hold less than nothing.
    outside: bool,
    balance: i64,
}

impl<'a> AccountJson<'a> {
    fn new(balance: &'a AccountBalance) -> Self {
        let AccountName { asset, name } = &balance.account;
        Self { id: account_id(asset, name), asset, name, outside: balance.is_outside, balance: balance.balance }
    }
}

/// A part of an account's statement, the newest first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Statement)]
struct StatementJson<'a> {
    /// As it stands now.
    account: AccountJson<'a>,
    entries: Vec<StatementLineJson<'a>>,
    /// Where the older ones begin; none on the last part.
    next: Option<String>,
    /// On the last part: what the account held before its oldest entry. That is 0, or what records moved that were pruned
    /// since.
    carried_forward: Option<i64>,
}

/// A move on an account.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AccountEntry)]
struct StatementLineJson<'a> {
    /// The place of its entry in the log.
    #[schema(minimum = 1)]
    seq: u64,
    #[schema(value_type = String, format = DateTime)]
    at: Rfc3339,
    /// The record whose row moved it.
    #[schema(value_type = String, format = Uuid)]
    record: DisplayText<RecordId>,
    event: &'a str,
    /// What came; less than nothing where it went.
    amount: i64,
    /// What the account held then.
    balance: i64,
    /// Where it came from or went to: an account, or what a record held.
    other: OtherSideJson,
}

/// The other side of a move: one of the two.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Counterparty)]
struct OtherSideJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    account: Option<String>,
    /// The record in whose hold it was, or is.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, format = Uuid)]
    hold: Option<DisplayText<RecordId>>,
}

impl<'a> StatementLineJson<'a> {
    fn new(line: &'a StatementLine) -> Self {
        let other = match &line.counterparty {
            Account::Named { asset, name } => OtherSideJson { account: Some(account_id(asset, name)), hold: None },
            Account::Hold { record, .. } => OtherSideJson { account: None, hold: Some(DisplayText(*record)) },
        };
        Self {
            seq: line.seq,
            at: Rfc3339(line.logged_at),
            record: DisplayText(line.record),
            event: &line.event,
            amount: line.amount,
            balance: line.balance,
            other,
        }
    }
}

/// The asset before the first colon, with no colon of its own.
fn account_id(asset: &str, name: &str) -> String {
    format!("{}:{name}", asset.replace('%', "%25").replace(':', "%3A"))
}

fn parse_account_id(id: &str) -> Option<AccountName> {
    let (asset, name) = id.split_once(':')?;
    let asset = asset.replace("%3A", ":").replace("%25", "%");
    let account = AccountName::new(&asset, name);
    // Of each account one id and no other; and no database has a NUL in a text.
    (account_id(&asset, name) == id && !id.contains('\0')).then_some(account)
}

/// List named accounts
///
/// By asset and name. For operators.
#[utoipa::path(
    get, path = "/v1/accounts", tag = "accounts", params(AccountsParams),
    responses((status = 200, description = "A page of them", body = AccountPageJson))
)]
async fn accounts(
    State(app): State<AppState>,
    caller: Caller,
    QueryParams(params): QueryParams<AccountsParams>,
) -> Result<Response, Problem> {
    let limit = parse_limit(params.limit)?;
    let after = params.cursor.as_deref().map(|text| parse_account_id(text).ok_or_else(invalid_cursor)).transpose()?;
    let found = app.engine().accounts(&caller.actor, &AccountsQuery { after, limit }).await?;
    // A full page may be the last; then the next one is empty.
    let next =
        found.last().filter(|_| found.len() >= limit).map(|last| account_id(&last.account.asset, &last.account.name));
    json_ok(&AccountPageJson { accounts: found.iter().map(AccountJson::new).collect(), next })
}

/// Get an account's statement
///
/// What moved there, the newest first. For operators.
#[utoipa::path(
    get, path = "/v1/accounts/{id}/entries", tag = "accounts",
    params(("id" = String, Path, description = "As the list of accounts names it: asset and name with a colon between them"), StatementParams),
    responses((status = 200, description = "A part of it", body = StatementJson))
)]
async fn entries(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(id): PathParams<String>,
    QueryParams(params): QueryParams<StatementParams>,
) -> Result<Response, Problem> {
    caller.require_operator()?;
    let limit = parse_limit(params.limit)?;
    let not_found = || Problem::new(404, "not_found", "nothing ever moved on an account of this name");
    let account = parse_account_id(&id).ok_or_else(not_found)?;
    let from = params
        .cursor
        .as_deref()
        .map(|text| text.parse::<StatementCursor>().map_err(|_| invalid_cursor()))
        .transpose()?;
    let found = app.engine().statement(&caller.actor, &account, from, limit).await?.ok_or_else(not_found)?;
    json_ok(&StatementJson {
        account: AccountJson::new(&found.current),
        entries: found.lines.iter().map(StatementLineJson::new).collect(),
        next: found.next.map(|next| next.to_string()),
        carried_forward: found.opening_balance,
    })
}

fn invalid_cursor() -> Problem {
    Problem::bad_input("`cursor` is the `next` of the page before")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn account_id_round_trips_and_other_spellings_are_rejected() {
        for (asset, name, id) in [
            ("credit", "user:ann", "credit:user:ann"),
            ("a:b", "c/d", "a%3Ab:c/d"),
            ("5%", "", "5%25:"),
            ("a%3Ab", "x", "a%253Ab:x"),
        ] {
            assert_eq!(account_id(asset, name), id);
            assert_eq!(parse_account_id(id), Some(AccountName::new(asset, name)));
        }
        for id in ["", "credit", "5%:x", "a%3ab:x", "a%20b:x", "a:\0"] {
            assert_eq!(parse_account_id(id), None, "{id}");
        }
    }
}
