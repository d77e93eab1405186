//! A database at a glance, for who looks after it.

use std::sync::Arc;

use onceward_core::time::Time;

use crate::query::StateCount;

/// Rows are counted up to here and no further: a look costs the same on a small and on a large database.
pub const MAX_COUNTED_ROWS: u64 = 10_000;

/// What is kept, read in one short transaction. Numbers of rows say "so many or more" from [`COUNTED`] on.
#[derive(Clone, Debug, PartialEq)]
pub struct DatabaseStatus {
    /// The database program and its version.
    pub server_version: String,
    pub schema_version: u32,
    /// By the database's clock; on SQLite that is the machine's.
    pub now: Time,
    pub database_bytes: u64,
    /// Of the WAL's file. PostgreSQL's is its own affair.
    pub wal_bytes: Option<u64>,
    /// The last place in the log, and when that was written.
    pub last_seq: u64,
    pub last_entry_at: Option<Time>,
    /// Records by lifecycle and state.
    pub state_counts: Vec<StateCount>,
    /// Jobs that may be leased now, by lifecycle.
    pub ready_backlogs: Vec<ReadyBacklog>,
    /// Jobs that wait behind others of their work key.
    pub waiting_behind_key: u64,
    /// Jobs whose time has not come.
    pub delayed: u64,
    pub overdue: OverdueSummary,
    /// Letters without an answer, where there is an inbox.
    pub inbox: Option<OverdueSummary>,
    /// Settings by which what was answered could be lost, or that keep the database from being cleaned up.
    pub settings: Vec<DatabaseSetting>,
    /// The oldest transaction that somebody has open, where the database tells.
    pub oldest_transaction: Option<Time>,
}

/// Jobs of a lifecycle that wait for a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadyBacklog {
    pub lifecycle: Arc<str>,
    pub count: u64,
    /// Since when the one has waited that has waited longest, of those that were counted.
    pub oldest_since: Option<Time>,
}

/// What should have happened by now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OverdueSummary {
    pub count: u64,
    pub oldest_due_at: Option<Time>,
    /// Of those: leases that have ended before a commit.
    pub expired_leases: u64,
    /// And executions that have committed and are not done.
    pub unfinished_commits: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseSetting {
    pub name: String,
    pub value: String,
    /// As a database in use should have it.
    pub is_recommended: bool,
}
