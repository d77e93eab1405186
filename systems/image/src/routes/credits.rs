//! Credits: what a user has, what came and went, and an operator's grants.

use axum::extract::State;
use axum::response::Response;
use onceward_core::decide::Account;
use onceward_core::record::{Actor, Record};
use onceward_engine::{Line, Onward};
use onceward_server::{App, Asked, Caller, Given, Problem, ProblemShape, When, answer, limit, ok};
use onceward_store::AccountName;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::status;
use crate::{CREDIT, GRANT};

pub(super) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::default().routes(routes!(balance)).routes(routes!(entries)).routes(routes!(grant))
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct Whose {
    /// For operators: whose; the caller's own where it is left out
    #[param(min_length = 1, max_length = 1000)]
    user: Option<String>,
}

/// Characters of an owner's name.
const LONGEST: usize = 1_000;

/// Everybody's own account is theirs to look at, and an operator may look at all of them.
fn account(caller: &Caller, user: Option<&str>) -> Result<AccountName, Problem> {
    let user = user.unwrap_or(&caller.actor.id);
    if *user != *caller.actor.id {
        caller.must_be_operator()?;
    }
    if !(1..=LONGEST).contains(&user.chars().count()) || user.contains('\0') {
        return Err(Problem::bad_input("`user` has from 1 to 1000 characters, and no NUL among them"));
    }
    Ok(AccountName::new(CREDIT, &format!("user:{user}")))
}

/// What a user can spend.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ImageCredits)]
struct BalanceShape<'a> {
    user: &'a str,
    /// Without what orders that are under way have set aside.
    #[schema(minimum = 0)]
    balance: i64,
}

/// Look at one's credits
#[utoipa::path(
    get, path = "/image/credits", tag = "image", params(Whose),
    responses((status = 200, description = "What can be spent", body = BalanceShape))
)]
async fn balance(State(app): State<App>, caller: Caller, Asked(whose): Asked<Whose>) -> Result<Response, Problem> {
    let account = account(&caller, whose.user.as_deref())?;
    let held = app.engine().account(&Actor::engine(), &account).await?;
    let user = whose.user.as_deref().unwrap_or(&caller.actor.id);
    ok(&BalanceShape { user, balance: held.map_or(0, |held| held.balance) })
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
struct WhichEntries {
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
struct StatementShape<'a> {
    user: &'a str,
    /// What can be spent now.
    #[schema(minimum = 0)]
    balance: i64,
    entries: Vec<EntryShape<'a>>,
    /// Where the older ones begin; null on the last part.
    next: Option<String>,
    /// On the last part: what was there before the oldest entry. That is 0, or what came of jobs and grants that were pruned since.
    carried_forward: Option<i64>,
}

/// Credits that came or went.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ImageEntry)]
struct EntryShape<'a> {
    /// The place in the log.
    #[schema(minimum = 1)]
    seq: u64,
    #[schema(value_type = String, format = DateTime)]
    at: When,
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

impl EntryShape<'_> {
    fn of(line: &Line) -> Self {
        let what = match (&line.other, line.amount) {
            (Account::Hold { .. }, ..0) => "order",
            (Account::Hold { .. }, _) => "refund",
            (Account::Named { .. }, _) => "grant",
        };
        Self {
            seq: line.seq,
            at: When(line.at),
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
    get, path = "/image/credits/entries", tag = "image", params(WhichEntries),
    responses((status = 200, description = "A part of it", body = StatementShape))
)]
async fn entries(
    State(app): State<App>,
    caller: Caller,
    Asked(which): Asked<WhichEntries>,
) -> Result<Response, Problem> {
    let account = account(&caller, which.user.as_deref())?;
    let user = which.user.as_deref().unwrap_or(&caller.actor.id);
    let bad = |_| Problem::bad_input("`cursor` is the `next` of the page before");
    let from = which.cursor.as_deref().map(|text| text.parse::<Onward>().map_err(bad)).transpose()?;
    let found = app.engine().statement(&Actor::engine(), &account, from, limit(which.limit)?).await?;
    let Some(found) = found else {
        // Nothing ever came.
        return ok(&StatementShape { user, balance: 0, entries: Vec::new(), next: None, carried_forward: Some(0) });
    };
    ok(&StatementShape {
        user,
        balance: found.now.balance,
        entries: found.lines.iter().map(EntryShape::of).collect(),
        next: found.next.map(|next| next.to_string()),
        carried_forward: found.carried,
    })
}

/// Credits for a user.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewGrant)]
struct NewGrant {
    #[schema(min_length = 1, max_length = 200)]
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
struct GrantShape<'a> {
    #[schema(value_type = String, format = Uuid)]
    id: String,
    user: &'a str,
    #[schema(minimum = 1)]
    amount: i64,
    order: &'a str,
    #[schema(value_type = String, format = DateTime)]
    created_at: When,
}

impl<'a> GrantShape<'a> {
    fn of(grant: &'a Record) -> Self {
        Self {
            id: grant.id.to_string(),
            user: grant.text("user").unwrap_or_default(),
            amount: grant.int("amount").unwrap_or_default(),
            order: grant.text("order").unwrap_or_default(),
            created_at: When(grant.created_at),
        }
    }
}

/// Give a user credits
///
/// By an operator. 201 with the grant; 200 with the first one where its order was granted before.
#[utoipa::path(
    post, path = "/image/credits/grants", tag = "image",
    request_body = NewGrant,
    responses(
        (status = 201, description = "Granted", body = GrantShape),
        (status = 200, description = "It was granted before", body = GrantShape),
        (status = 410, description = "It was granted before, and is gone", body = ProblemShape, content_type = "application/problem+json"),
    )
)]
async fn grant(State(app): State<App>, caller: Caller, Given(new): Given<NewGrant>) -> Result<Response, Problem> {
    let NewGrant { user, amount, order } = new;
    let fields = [("user", json!(user)), ("amount", json!(amount)), ("order", json!(order))];
    let fields = fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    let made = app.engine().create(&caller.actor, GRANT, fields).await?;
    let grant = made.record.as_ref().ok_or_else(|| Problem::gone(made.subject))?;
    answer(status(&made), &GrantShape::of(grant))
}
