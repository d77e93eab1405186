//! Accounts and their statements.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A page of accounts.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Accounts {
    pub accounts: Vec<Account>,
    /// Cursor of the next page; null on the last page.
    pub next: Option<String>,
}

/// A named account.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Account {
    /// Asset and name, separated by a colon.
    pub id: String,
    pub asset: String,
    pub name: String,
    /// Whether the account represents the outside world. Its balance may be negative.
    pub outside: bool,
    pub balance: i64,
}

/// A page of an account's statement, newest line first.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Statement {
    /// The account with its current balance.
    pub account: Account,
    pub entries: Vec<AccountEntry>,
    /// Cursor of the next, older page; null on the last page.
    pub next: Option<String>,
    /// Only on the last page: the balance before the oldest line. Not 0 if records with earlier transfers were
    /// pruned.
    pub carried_forward: Option<i64>,
}

/// A line of an account's statement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AccountEntry {
    /// Position of its log entry.
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub seq: u64,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub at: Timestamp,
    /// The record whose transition made the transfer.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = Uuid))]
    pub record: Uuid,
    pub event: String,
    /// The amount; negative if it left the account.
    pub amount: i64,
    /// The balance after the transfer.
    pub balance: i64,
    /// The other side of the transfer.
    pub other: Counterparty,
}

/// The other side of a transfer: an account or a record's hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Counterparty {
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub account: Option<String>,
    /// The record that holds or held the amount.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = Uuid))]
    pub hold: Option<Uuid>,
}
