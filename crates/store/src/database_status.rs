//! A status summary of a database for operators.

use std::sync::Arc;

use onceward_core::time::Time;

use crate::query::StateCount;

/// Limit for row counts, so that the summary costs the same on a small and on a large database.
pub const MAX_COUNTED_ROWS: u64 = 10_000;

/// Status of a database, read in one short transaction. A row count of [`MAX_COUNTED_ROWS`] means "that many or more".
#[derive(Clone, Debug, PartialEq)]
pub struct DatabaseStatus {
    /// Name and version of the database software.
    pub server_version: String,
    pub schema_version: u32,
    /// Time by the database's clock. For SQLite that is the machine's clock.
    pub now: Time,
    pub database_bytes: u64,
    /// Size of SQLite's WAL file; `None` for PostgreSQL.
    pub wal_bytes: Option<u64>,
    pub last_seq: u64,
    pub last_entry_at: Option<Time>,
    pub state_counts: Vec<StateCount>,
    /// Jobs that can be leased now, by lifecycle.
    pub ready_backlogs: Vec<ReadyBacklog>,
    /// Jobs that wait for other jobs with the same concurrency key.
    pub waiting_behind_key: u64,
    /// Jobs that become ready at a later time.
    pub delayed: u64,
    pub overdue: OverdueSummary,
    /// Unanswered inbox calls; `None` if the store has no inbox.
    pub inbox: Option<OverdueSummary>,
    /// Settings that affect durability or cleanup.
    pub settings: Vec<DatabaseSetting>,
    /// Start of the oldest open transaction, if the database reports it.
    pub oldest_transaction: Option<Time>,
}

/// Ready jobs of a lifecycle.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyBacklog {
    pub lifecycle: Arc<str>,
    pub count: u64,
    /// Since when the oldest of the counted jobs has been ready.
    pub oldest_since: Option<Time>,
}

/// Records with an overdue timer or lease, or unanswered inbox calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverdueSummary {
    pub count: u64,
    pub oldest_due_at: Option<Time>,
    /// How many of `count` are leases that expired before a commit.
    pub expired_leases: u64,
    /// How many of `count` are executions that committed but did not finish.
    pub unfinished_commits: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseSetting {
    pub name: String,
    pub value: String,
    /// Whether the value is the one recommended for production.
    pub is_recommended: bool,
}
