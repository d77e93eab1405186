//! Balances and statements of named accounts, for operators.

use axum::extract::State;
use axum::response::Response;
use onceward_api_types as wire;
use onceward_core::decide::Account;
use onceward_engine::{StatementCursor, StatementLine};
use onceward_store::{AccountBalance, AccountName, AccountsQuery};
use serde::Deserialize;
use utoipa::IntoParams;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::app::AppState;
use crate::caller::Caller;
use crate::extract::{PathParams, QueryParams, validate_limit};
use crate::problem::Problem;
use crate::response::{json_ok, timestamp};

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

fn account_json(balance: &AccountBalance) -> wire::Account {
    let AccountName { asset, name } = &balance.account;
    wire::Account {
        id: account_id(asset, name),
        asset: asset.to_string(),
        name: name.to_string(),
        outside: balance.is_outside,
        balance: balance.balance,
    }
}

fn statement_line_json(line: &StatementLine) -> wire::AccountEntry {
    let other = match &line.counterparty {
        Account::Named { asset, name } => wire::Counterparty { account: Some(account_id(asset, name)), hold: None },
        Account::Hold { record, .. } => wire::Counterparty { account: None, hold: Some(record.0) },
    };
    wire::AccountEntry {
        seq: line.seq,
        at: timestamp(line.logged_at),
        record: line.record.0,
        event: line.event.to_string(),
        amount: line.amount,
        balance: line.balance,
        other,
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
    get, path = "/v1/accounts", operation_id = "list_accounts", tag = "accounts", params(AccountsParams),
    responses((status = 200, description = "A page of accounts", body = wire::Accounts))
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
    json_ok(&wire::Accounts { accounts: found.iter().map(account_json).collect(), next })
}

/// Get an account's statement
///
/// Newest line first. For operators.
#[utoipa::path(
    get, path = "/v1/accounts/{id}/entries", operation_id = "get_account_statement", tag = "accounts",
    params(("id" = String, Path, description = "Id of the account: asset and name, separated by a colon"), StatementParams),
    responses((status = 200, description = "A page of the statement", body = wire::Statement))
)]
async fn entries(
    State(app): State<AppState>,
    caller: Caller,
    PathParams(id): PathParams<String>,
    QueryParams(params): QueryParams<StatementParams>,
) -> Result<Response, Problem> {
    caller.require_operator()?;
    let limit = validate_limit(params.limit)?;
    let not_found = || Problem::new(404, "not_found", "the account does not exist: no transfer ever used it");
    let account = parse_account_id(&id).ok_or_else(not_found)?;
    let from = params
        .cursor
        .as_deref()
        .map(|text| text.parse::<StatementCursor>().map_err(|_| invalid_cursor()))
        .transpose()?;
    let found = app.engine().statement(&caller.actor, &account, from, limit).await?.ok_or_else(not_found)?;
    json_ok(&wire::Statement {
        account: account_json(&found.current),
        entries: found.lines.iter().map(statement_line_json).collect(),
        next: found.next.map(|next| next.to_string()),
        carried_forward: found.opening_balance,
    })
}

fn invalid_cursor() -> Problem {
    Problem::invalid_input("`cursor` must be the `next` of the previous page")
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
