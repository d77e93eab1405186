//! Credits: what a user has, what came and went, and an operator's grants.

use axum::extract::State;
use axum::response::Response;
use onceward_core::decide::Account;
use onceward_core::record::{Actor, Record};
use onceward_engine::{StatementCursor, StatementLine};
use onceward_server::{
    AppState, Caller, JsonBody, Problem, ProblemBody, QueryParams, Rfc3339, json_ok, json_response, parse_limit,
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
    /// For operators: whose; the caller's own where it is left out
    #[param(min_length = 1, max_length = 1000)]
    user: Option<String>,
}

/// Characters of an owner's name.
const MAX_USER_CHARS: usize = 1_000;

/// Everybody's own account is theirs to look at, and an operator may look at all of them.
fn credit_account(caller: &Caller, user: Option<&str>) -> Result<AccountName, Problem> {
    let user = user.unwrap_or(&caller.actor.id);
    if *user != *caller.actor.id {
        caller.require_operator()?;
    }
    if !(1..=MAX_USER_CHARS).contains(&user.chars().count()) || user.contains('\0') {
        return Err(Problem::bad_input("`user` has from 1 to 1000 characters, and no NUL among them"));
    }
    Ok(AccountName::new(CREDIT_ASSET, &format!("user:{user}")))
}

/// What a user can spend.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ImageCredits)]
struct CreditBalanceJson<'a> {
    user: &'a str,
    /// Without what orders that are under way have set aside.
    #[schema(minimum = 0)]
    balance: i64,
}

/// Look at one's credits
#[utoipa::path(
    get, path = "/image/credits", tag = "image", params(CreditBalanceQuery),
    responses((status = 200, description = "What can be spent", body = CreditBalanceJson))
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
    /// For operators: whose; the caller's own where it is left out
    #[param(min_length = 1, max_length = 1000)]
    user: Option<String>,
    /// At most so many entries of the log; 100 where it is left out
    #[param(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// The `next` of the page before
    #[param(pattern = "^[0-9]{1,18}[.]-?[0-9]{1,18}$")]
    cursor: Option<String>,
}

/// A part of a user's statement, the newest first. All amounts together, and what was carried forward, are the balance.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ImageStatement)]
struct CreditStatementJson<'a> {
    user: &'a str,
    /// What can be spent now.
    #[schema(minimum = 0)]
    balance: i64,
    entries: Vec<CreditEntryJson<'a>>,
    /// Where the older ones begin; null on the last part.
    next: Option<String>,
    /// On the last part: what was there before the oldest entry. That is 0, or what came of jobs and grants that were pruned since.
    carried_forward: Option<i64>,
}

/// Credits that came or went.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ImageEntry)]
struct CreditEntryJson<'a> {
    /// The place in the log.
    #[schema(minimum = 1)]
    seq: u64,
    #[schema(value_type = String, format = DateTime)]
    at: Rfc3339,
    /// `grant`, `order` or `refund`.
    what: &'a str,
    /// The grant or the job that they came from or went to.
    #[schema(value_type = String, format = Uuid)]
    record: String,
    /// What came; less than nothing where it went.
    amount: i64,
    /// What was there then.
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

/// Get one's statement
///
/// What came and went, the newest first.
#[utoipa::path(
    get, path = "/image/credits/entries", tag = "image", params(CreditStatementQuery),
    responses((status = 200, description = "A part of it", body = CreditStatementJson))
)]
async fn entries(
    State(app): State<AppState>,
    caller: Caller,
    QueryParams(query): QueryParams<CreditStatementQuery>,
) -> Result<Response, Problem> {
    let account = credit_account(&caller, query.user.as_deref())?;
    let user = query.user.as_deref().unwrap_or(&caller.actor.id);
    let invalid_cursor = |_| Problem::bad_input("`cursor` is the `next` of the page before");
    let from =
        query.cursor.as_deref().map(|text| text.parse::<StatementCursor>().map_err(invalid_cursor)).transpose()?;
    let statement = app.engine().statement(&Actor::engine(), &account, from, parse_limit(query.limit)?).await?;
    let Some(statement) = statement else {
        // Nothing ever came.
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

/// Credits for a user.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewGrant)]
struct NewGrant {
    #[schema(min_length = 1, max_length = 1000)]
    user: String,
    #[schema(minimum = 1, maximum = 1_000_000)]
    amount: i64,
    /// The purchase; granted once, however often it is told.
    #[schema(min_length = 1, max_length = 200)]
    order: String,
}

/// Credits that were given.
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

/// Give a user credits
///
/// By an operator. 201 with the grant; 200 with the first one where its order was granted before. 409 `order_taken` where the order was granted
/// before to another user, or with another amount.
#[utoipa::path(
    post, path = "/image/credits/grants", tag = "image",
    request_body = NewGrant,
    responses(
        (status = 201, description = "Granted", body = CreditGrantJson),
        (status = 200, description = "It was granted before", body = CreditGrantJson),
        (status = 409, description = "The order was another's, or of another amount", body = ProblemBody, content_type = "application/problem+json"),
        (status = 410, description = "It was granted before, and is gone", body = ProblemBody, content_type = "application/problem+json"),
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
