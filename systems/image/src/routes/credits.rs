//! Routes of credits: balance, statement, and grants by operators.

use axum::extract::State;
use axum::response::Response;
use onceward_core::decide::Account;
use onceward_core::record::{Actor, Record};
use onceward_engine::{StatementCursor, StatementLine};
use onceward_server::{
    AppState, Caller, JsonBody, Problem, ProblemBody, QueryParams, Rfc3339, json_ok, json_response, validate_limit,
};
use onceward_store::AccountName;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::created_or_ok;
use crate::{CREDIT_ASSET, GRANT_LIFECYCLE};

pub(super) fn routes() -> OpenApiRouter<AppState> {
    OpenApiRouter::default().routes(routes!(balance)).routes(routes!(entries)).routes(routes!(grant))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct CreditBalanceQuery {
    /// For operators: the user to read; default is the caller
    #[param(min_length = 1, max_length = 1000, pattern = "^[^\\u0000]*$")]
    user: Option<String>,
}

/// Maximum length of an owner's name.
const MAX_USER_CHARS: usize = 1_000;

/// Returns the account to read. Users may read their own account, operators every account.
fn credit_account(caller: &Caller, user: Option<&str>) -> Result<AccountName, Problem> {
    let user = user.unwrap_or(&caller.actor.id);
    if *user != *caller.actor.id {
        caller.require_operator()?;
    }
    if !(1..=MAX_USER_CHARS).contains(&user.chars().count()) || user.contains('\0') {
        return Err(Problem::invalid_input("`user` must have 1 to 1000 characters and no NUL"));
    }
    Ok(AccountName::new(CREDIT_ASSET, &format!("user:{user}")))
}

/// A user's available credits.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ImageCredits)]
struct CreditBalanceJson<'a> {
    user: &'a str,
    /// Available credits, without those reserved for jobs in progress.
    #[schema(minimum = 0)]
    balance: i64,
}

/// Get a credit balance
#[utoipa::path(
    get, path = "/image/credits", operation_id = "get_credit_balance", tag = "image", params(CreditBalanceQuery),
    responses((status = 200, description = "The balance", body = CreditBalanceJson))
)]
async fn balance(
    State(app): State<AppState>,
    caller: Caller,
    QueryParams(query): QueryParams<CreditBalanceQuery>,
) -> Result<Response, Problem> {
    let account = credit_account(&caller, query.user.as_deref())?;
    let account_state = app.engine().account(&Actor::engine(), &account).await?;
    let user = query.user.as_deref().unwrap_or(&caller.actor.id);
    json_ok(&CreditBalanceJson { user, balance: account_state.map_or(0, |state| state.balance) })
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct CreditStatementQuery {
    /// For operators: the user to read; default is the caller
    #[param(min_length = 1, max_length = 1000, pattern = "^[^\\u0000]*$")]
    user: Option<String>,
    /// Maximum number of log entries; default 100
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the previous page
    #[param(pattern = "^[0-9]{1,18}[.]-?[0-9]{1,18}$")]
    cursor: Option<String>,
}

/// A page of a user's statement, newest first. The amounts of all pages plus `carriedForward` add up to the balance.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ImageStatement)]
struct CreditStatementJson<'a> {
    user: &'a str,
    /// Available credits now.
    #[schema(minimum = 0)]
    balance: i64,
    entries: Vec<CreditEntryJson<'a>>,
    /// Cursor of the next, older page; null on the last page.
    next: Option<String>,
    /// On the last page: the balance before the oldest entry. It is 0 unless jobs or grants have been pruned.
    carried_forward: Option<i64>,
}

/// A statement line: credits added to or taken from the account.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ImageEntry)]
struct CreditEntryJson<'a> {
    /// Position in the log.
    #[schema(minimum = 1)]
    seq: u64,
    #[schema(value_type = String, format = DateTime)]
    at: Rfc3339,
    /// `grant`, `order` or `refund`.
    what: &'a str,
    /// The grant or job that caused the transfer.
    #[schema(value_type = String, format = Uuid)]
    record: String,
    /// Credits added; negative if they were taken.
    amount: i64,
    /// Balance after the transfer.
    balance: i64,
}

impl CreditEntryJson<'_> {
    fn from_statement_line(line: &StatementLine) -> Self {
        let what = match (&line.counterparty, line.amount) {
            (Account::Hold { .. }, ..0) => "order",
            (Account::Hold { .. }, _) => "refund",
            (Account::Named { .. }, _) => "grant",
        };
        Self {
            seq: line.seq,
            at: Rfc3339(line.logged_at),
            what,
            record: line.record.to_string(),
            amount: line.amount,
            balance: line.balance,
        }
    }
}

/// Get a credit statement
///
/// Lists the transfers of the account, newest first.
#[utoipa::path(
    get, path = "/image/credits/entries", operation_id = "get_credit_statement", tag = "image", params(CreditStatementQuery),
    responses((status = 200, description = "A page of the statement", body = CreditStatementJson))
)]
async fn entries(
    State(app): State<AppState>,
    caller: Caller,
    QueryParams(query): QueryParams<CreditStatementQuery>,
) -> Result<Response, Problem> {
    let account = credit_account(&caller, query.user.as_deref())?;
    let user = query.user.as_deref().unwrap_or(&caller.actor.id);
    let invalid_cursor = |_| Problem::invalid_input("`cursor` must be the `next` of the previous page");
    let from =
        query.cursor.as_deref().map(|text| text.parse::<StatementCursor>().map_err(invalid_cursor)).transpose()?;
    let statement = app.engine().statement(&Actor::engine(), &account, from, validate_limit(query.limit)?).await?;
    let Some(statement) = statement else {
        // The account has never been used.
        return json_ok(&CreditStatementJson {
            user,
            balance: 0,
            entries: Vec::new(),
            next: None,
            carried_forward: Some(0),
        });
    };
    json_ok(&CreditStatementJson {
        user,
        balance: statement.current.balance,
        entries: statement.lines.iter().map(CreditEntryJson::from_statement_line).collect(),
        next: statement.next.map(|next| next.to_string()),
        carried_forward: statement.opening_balance,
    })
}

/// A request to grant credits to a user.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewGrant)]
struct NewGrant {
    #[schema(min_length = 1, max_length = 1000, pattern = "^[^\\u0000]*$")]
    user: String,
    #[schema(minimum = 1, maximum = 1_000_000)]
    amount: i64,
    /// The purchase that the credits are for. The server grants credits once per `order`.
    #[schema(min_length = 1, max_length = 200)]
    order: String,
}

/// Credits granted to a user.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Grant)]
struct CreditGrantJson<'a> {
    #[schema(value_type = String, format = Uuid)]
    id: String,
    user: &'a str,
    #[schema(minimum = 1)]
    amount: i64,
    order: &'a str,
    #[schema(value_type = String, format = DateTime)]
    created_at: Rfc3339,
}

impl<'a> CreditGrantJson<'a> {
    fn from_record(grant: &'a Record) -> Self {
        Self {
            id: grant.id.to_string(),
            user: grant.text_field("user").unwrap_or_default(),
            amount: grant.int_field("amount").unwrap_or_default(),
            order: grant.text_field("order").unwrap_or_default(),
            created_at: Rfc3339(grant.created_at),
        }
    }
}

/// Grant credits
///
/// For operators. Answers 201 with the grant, or 200 with the existing grant if `order` was granted before. If it was
/// granted to another user or with another amount, the answer is 409 `order_taken`.
#[utoipa::path(
    post, path = "/image/credits/grants", operation_id = "grant_credits", tag = "image",
    request_body = NewGrant,
    responses(
        (status = 201, description = "Granted", body = CreditGrantJson),
        (status = 200, description = "Granted before", body = CreditGrantJson),
        (status = 409, description = "The order was granted to another user or with another amount", body = ProblemBody, content_type = "application/problem+json"),
        (status = 410, description = "The order was granted before, and its grant has been pruned", body = ProblemBody, content_type = "application/problem+json"),
    )
)]
async fn grant(
    State(app): State<AppState>,
    caller: Caller,
    JsonBody(new_grant): JsonBody<NewGrant>,
) -> Result<Response, Problem> {
    let NewGrant { user, amount, order } = new_grant;
    let fields = [("user", json!(user)), ("amount", json!(amount)), ("order", json!(order))];
    let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let receipt = app.engine().create(&caller.actor, GRANT_LIFECYCLE, fields).await?;
    let grant = receipt.record.as_ref().ok_or_else(|| Problem::gone(receipt.subject))?;
    json_response(created_or_ok(&receipt), &CreditGrantJson::from_record(grant))
}
