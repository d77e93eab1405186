//! Balances and statements of named accounts, for operators.

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
use crate::extract::{PathParams, QueryParams, validate_limit};
use crate::problem::Problem;
use crate::response::{DisplayText, Rfc3339, json_ok};

pub(crate) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(accounts)).routes(routes!(entries))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct AccountsParams {
    /// The `next` of the previous page.
    #[param(pattern = "^[^:%\\u0000]*(%(25|3A)[^:%\\u0000]*)*:[^\\u0000]*$")]
    cursor: Option<String>,
    #[param(minimum = 1, maximum = 1_000)]
    limit: Option<u32>,
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct StatementParams {
    /// The `next` of the previous page.
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
    /// Cursor of the next page; null on the last page.
    next: Option<String>,
}

/// A named account.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Account)]
struct AccountJson<'a> {
    /// Asset and name, separated by a colon.
    id: String,
    asset: &'a str,
    name: &'a str,
    /// Whether the account represents the outside world. Its balance may be negative.
    outside: bool,
    balance: i64,
}

impl<'a> AccountJson<'a> {
    fn new(balance: &'a AccountBalance) -> Self {
        let AccountName { asset, name } = &balance.account;
        Self { id: account_id(asset, name), asset, name, outside: balance.is_outside, balance: balance.balance }
    }
}

/// A page of an account's statement, newest line first.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Statement)]
struct StatementJson<'a> {
    /// The account with its current balance.
    account: AccountJson<'a>,
    entries: Vec<StatementLineJson<'a>>,
    /// Cursor of the next, older page; null on the last page.
    next: Option<String>,
    /// Only on the last page: the balance before the oldest line. Not 0 if records with earlier transfers were
    /// pruned.
    carried_forward: Option<i64>,
}

/// A line of an account's statement.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AccountEntry)]
struct StatementLineJson<'a> {
    /// Position of its log entry.
    #[schema(minimum = 1)]
    seq: u64,
    #[schema(value_type = String, format = DateTime)]
    at: Rfc3339,
    /// The record whose transition made the transfer.
    #[schema(value_type = String, format = Uuid)]
    record: DisplayText<RecordId>,
    event: &'a str,
    /// The amount; negative if it left the account.
    amount: i64,
    /// The balance after the transfer.
    balance: i64,
    /// The other side of the transfer.
    other: OtherSideJson,
}

/// The other side of a transfer: an account or a record's hold.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Counterparty)]
struct OtherSideJson {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    account: Option<String>,
    /// The record that holds or held the amount.
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

/// Formats an account id. Colons in the asset are escaped, so the first colon separates asset and name.
fn account_id(asset: &str, name: &str) -> String {
    format!("{}:{name}", asset.replace('%', "%25").replace(':', "%3A"))
}

fn parse_account_id(id: &str) -> Option<AccountName> {
    let (asset, name) = id.split_once(':')?;
    let asset = asset.replace("%3A", ":").replace("%25", "%");
    let account = AccountName::new(&asset, name);
    // Each account has exactly one id, and databases cannot store NUL in text.
    (account_id(&asset, name) == id && !id.contains('\0')).then_some(account)
}

/// List accounts
///
/// Sorted by asset and name. For operators.
#[utoipa::path(
    get, path = "/v1/accounts", tag = "accounts", params(AccountsParams),
    responses((status = 200, description = "A page of them", body = AccountPageJson))
)]
async fn accounts(
    State(app): State<AppState>,
    caller: Caller,
    QueryParams(params): QueryParams<AccountsParams>,
) -> Result<Response, Problem> {
    let limit = validate_limit(params.limit)?;
    let after = params.cursor.as_deref().map(|text| parse_account_id(text).ok_or_else(invalid_cursor)).transpose()?;
    let found = app.engine().accounts(&caller.actor, &AccountsQuery { after, limit }).await?;
    // A full page may be the last one; the next page is then empty.
    let next =
        found.last().filter(|_| found.len() >= limit).map(|last| account_id(&last.account.asset, &last.account.name));
    json_ok(&AccountPageJson { accounts: found.iter().map(AccountJson::new).collect(), next })
}

/// Get an account's statement
///
/// Newest line first. For operators.
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
    let limit = validate_limit(params.limit)?;
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
    Problem::invalid_input("`cursor` is the `next` of the page before")
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
