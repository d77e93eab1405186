//! Derives findings and advice from a health snapshot.

use std::borrow::Cow;

use onceward_core::count_noun;
use onceward_core::time::Time;
use onceward_engine::DELIVERY_LIFECYCLE;
use onceward_store::{DatabaseSetting, StoreError};

use super::HealthSnapshot;
use super::report::{count_at_least, format_age, format_size, oldest_prefix};

/// A running engine fires due timers at once. A timer that is later than this has no engine.
const MAX_OVERDUE_SECS: i64 = 10;

/// A running engine drains the inbox at least once a second. A call that is this old has no engine.
const MAX_INBOX_WAIT_SECS: i64 = 60;

/// A job that has been ready for an hour probably has no worker.
const MAX_READY_WAIT_SECS: i64 = 3_600;

/// An engine starts WAL checkpoints at 32 MB, and the file grows to about 130 MB. Twice that means that a reader blocks
/// them.
const MAX_WAL_BYTES: u64 = 256 << 20;

/// With less free disk space than this, the database may run out of it within hours.
const MIN_FREE_BYTES: u64 = 512 << 20;

/// A transaction this old keeps PostgreSQL from vacuuming, which slows down all leases.
const MAX_TRANSACTION_SECS: i64 = 300;

/// With a clock skew above this, times in replies visibly differ from local time.
const MAX_CLOCK_SKEW_MICROS: i64 = 2_000_000;

pub(crate) struct HealthFinding {
    /// A stable code for scripts.
    pub(crate) code: &'static str,
    pub(crate) is_error: bool,
    pub(crate) message: String,
    pub(crate) advice: Cow<'static, str>,
}

impl HealthFinding {
    fn error(code: &'static str, message: String, advice: &'static str) -> Self {
        Self { code, is_error: true, message, advice: advice.into() }
    }

    /// Creates a finding that is not an error.
    fn note(code: &'static str, message: String, advice: &'static str) -> Self {
        Self { is_error: false, ..Self::error(code, message, advice) }
    }

    /// Creates the finding for a database that could not be read.
    pub(crate) fn unreadable(error: &StoreError) -> Self {
        let (code, advice) = match error {
            StoreError::SchemaTooOld { .. } => ("schema", "make a backup, then run `onceward migrate`"),
            StoreError::SchemaTooNew { .. } => ("schema", "use the program version that wrote it, or a newer one"),
            _ => ("damaged", "restore a backup; `onceward verify` shows the damage"),
        };
        Self::error(code, error.to_string(), advice)
    }
}

pub(crate) fn find_problems(snapshot: &HealthSnapshot) -> Vec<HealthFinding> {
    let mut findings = Vec::new();
    findings.extend(snapshot.status.settings.iter().filter(|setting| !setting.is_recommended).map(setting_finding));
    add_work_findings(snapshot, &mut findings);
    add_space_findings(snapshot, &mut findings);
    add_clock_findings(snapshot, &mut findings);
    if let (examined, missing @ 1..) = snapshot.object_sample {
        let message = format!("objects are missing: {missing} of the {examined} that were sampled");
        let advice = "put the objects back, or name their place with `--objects`; `onceward verify` lists all";
        findings.push(HealthFinding::error("objects", message, advice));
    }
    findings.extend(snapshot.inactive_files.iter().map(|file| HealthFinding {
        code: "inactive-file",
        is_error: false,
        message: file.to_string(),
        advice: format!("to activate the file's version, run `{}`", file.command()).into(),
    }));
    findings
}

fn setting_finding(setting: &DatabaseSetting) -> HealthFinding {
    let DatabaseSetting { name, value, .. } = setting;
    let message = format!("{name} is {value}");
    let (code, advice) = match name.as_str() {
        "autovacuum" => ("autovacuum", "turn it on; without it, the queue tables only grow"),
        "journal_mode" => {
            ("durability", "open the database with an engine, which sets `wal`, and let no other program write it")
        }
        "zero_damaged_pages" => ("durability", "turn it off; it silently discards damaged pages"),
        _ => ("durability", "turn it on; without it, a power failure can lose acknowledged writes"),
    };
    HealthFinding::error(code, message, advice)
}

fn add_work_findings(snapshot: &HealthSnapshot, findings: &mut Vec<HealthFinding>) {
    let status = &snapshot.status;
    let lateness_secs = |first: Option<Time>| first.map_or(0, |first| status.now.secs() - first.secs());
    let overdue = status.overdue;
    if lateness_secs(overdue.oldest_due_at) > MAX_OVERDUE_SECS {
        let of_them = match (overdue.expired_leases, overdue.unfinished_commits) {
            (0, 0) => String::new(),
            (leases, committed) => format!(
                "; {}, {}",
                count_noun(leases, "lease has expired", "leases have expired"),
                count_noun(committed, "commit is unfinished", "commits are unfinished")
            ),
        };
        let count = count_at_least(overdue.count, "record is overdue", "records are overdue");
        let since = format!("{}by {}", oldest_prefix(overdue.count), format_age(lateness_secs(overdue.oldest_due_at)));
        let advice = match (&snapshot.engine, snapshot.is_embedded) {
            (None, true) => {
                "start a server: no engine has the database open, and overdue timers fire only while one runs"
            }
            (Some(_), _) => "the engine hangs or is overloaded: read its log and restart it",
            (None, false) => "start a server, or read the logs of the running ones",
        };
        findings.push(HealthFinding::error("overdue", format!("{count}, {since}{of_them}"), advice));
    }
    if let Some(inbox) = status.inbox.filter(|inbox| lateness_secs(inbox.oldest_due_at) > MAX_INBOX_WAIT_SECS) {
        let count = count_at_least(inbox.count, "inbox call is unanswered", "inbox calls are unanswered");
        let message =
            format!("{count}, {}for {}", oldest_prefix(inbox.count), format_age(lateness_secs(inbox.oldest_due_at)));
        findings.push(HealthFinding::error("inbox", message, "start a server that has the lifecycles of these calls"));
    }
    for waiting in
        status.ready_backlogs.iter().filter(|waiting| lateness_secs(waiting.oldest_since) > MAX_READY_WAIT_SECS)
    {
        let (one, many) =
            (format!("job of {} is waiting", waiting.lifecycle), format!("jobs of {} are waiting", waiting.lifecycle));
        let count = count_at_least(waiting.count, &one, &many);
        let message =
            format!("{count}, {}for {}", oldest_prefix(waiting.count), format_age(lateness_secs(waiting.oldest_since)));
        findings.push(HealthFinding::note("waiting", message, "check that enough workers run for the lifecycle"));
    }
    let dead =
        status.state_counts.iter().find(|count| &*count.lifecycle == DELIVERY_LIFECYCLE && &*count.state == "dead");
    if let Some(dead) = dead {
        let message = count_noun(dead.count, "delivery is dead", "deliveries are dead");
        findings.push(HealthFinding::note(
            "deliveries",
            message,
            "run `onceward list onceward.delivery --state dead` and read `lastError`; fire `replay` to send one again",
        ));
    }
}

fn add_space_findings(snapshot: &HealthSnapshot, findings: &mut Vec<HealthFinding>) {
    let status = &snapshot.status;
    if let Some(bytes) = status.wal_bytes.filter(|bytes| *bytes > MAX_WAL_BYTES) {
        let message = format!("the WAL has {}", format_size(bytes));
        findings.push(HealthFinding::error("wal", message, "a program holds an old read snapshot open: end it"));
    }
    if let Some(bytes) = snapshot.free_bytes.filter(|bytes| *bytes < MIN_FREE_BYTES) {
        findings.push(HealthFinding::error(
            "disk",
            format!("the disk has only {} free", format_size(bytes)),
            "free disk space; on a full disk, writes fail",
        ));
    }
    let open = status.oldest_transaction.map_or(0, |since| status.now.secs() - since.secs());
    if open > MAX_TRANSACTION_SECS {
        let message = format!("a transaction has been open for {}", format_age(open));
        findings.push(HealthFinding::error(
            "transaction",
            message,
            "end it (see pg_stat_activity); it keeps PostgreSQL from removing deleted rows",
        ));
    }
}

fn add_clock_findings(snapshot: &HealthSnapshot, findings: &mut Vec<HealthFinding>) {
    if snapshot.clock_ahead_micros.abs() > MAX_CLOCK_SKEW_MICROS {
        let relation = if snapshot.clock_ahead_micros > 0 { "ahead of" } else { "behind" };
        let message = format!(
            "the database's clock is {} {relation} this machine's",
            format_age(snapshot.clock_ahead_micros.abs() / 1_000_000)
        );
        findings.push(HealthFinding::note(
            "clock",
            message,
            "correct the clock that is wrong; the engine uses the database's",
        ));
    }
    let ahead = snapshot.status.last_entry_at.map_or(0, |at| at.micros().saturating_sub(snapshot.status.now.micros()));
    if ahead > MAX_CLOCK_SKEW_MICROS {
        let message = format!("the log's last entry is {} in the future", format_age(ahead / 1_000_000));
        findings.push(HealthFinding::error(
            "clock",
            message,
            "the clock is behind now, or was ahead before; if it is wrong, correct it; if it is right, see docs/clock.md",
        ));
    }
}

#[cfg(test)]
mod tests {
    use onceward_store::{DatabaseStatus, MAX_COUNTED_ROWS, OverdueSummary, ReadyBacklog, StateCount};

    use super::*;

    fn healthy_snapshot() -> HealthSnapshot {
        let now = Time::from_secs(1_000_000);
        let status = DatabaseStatus {
            server_version: "SQLite 3".to_owned(),
            schema_version: 1,
            now,
            database_bytes: 1 << 20,
            wal_bytes: Some(1 << 20),
            last_seq: 7,
            last_entry_at: Some(now),
            state_counts: Vec::new(),
            ready_backlogs: Vec::new(),
            waiting_behind_key: 0,
            delayed: 0,
            overdue: OverdueSummary::default(),
            inbox: None,
            settings: Vec::new(),
            oldest_transaction: None,
        };
        HealthSnapshot {
            status,
            engine: None,
            is_embedded: true,
            free_bytes: Some(1 << 40),
            inactive_files: Vec::new(),
            clock_ahead_micros: 0,
            object_sample: (3, 0),
        }
    }

    fn finding_codes(change: impl FnOnce(&mut HealthSnapshot)) -> Vec<(&'static str, bool)> {
        let mut snapshot = healthy_snapshot();
        change(&mut snapshot);
        find_problems(&snapshot).iter().map(|finding| (finding.code, finding.is_error)).collect()
    }

    #[test]
    fn each_unhealthy_status_yields_its_finding_only() {
        let early = |seconds: i64| Some(Time::from_secs(1_000_000 - seconds));
        assert_eq!(finding_codes(|_| ()), []);
        assert_eq!(
            finding_codes(|snapshot| snapshot.status.overdue =
                OverdueSummary { count: 3, oldest_due_at: early(9), ..OverdueSummary::default() }),
            []
        );
        let overdue = OverdueSummary {
            count: MAX_COUNTED_ROWS,
            oldest_due_at: early(11),
            expired_leases: 2,
            unfinished_commits: 1,
        };
        assert_eq!(finding_codes(|snapshot| snapshot.status.overdue = overdue), [("overdue", true)]);
        let inbox = Some(OverdueSummary { count: 1, oldest_due_at: early(61), ..OverdueSummary::default() });
        assert_eq!(finding_codes(|snapshot| snapshot.status.inbox = inbox), [("inbox", true)]);
        let waiting = ReadyBacklog { lifecycle: "a.b".into(), count: 1, oldest_since: early(4_000) };
        assert_eq!(finding_codes(|snapshot| snapshot.status.ready_backlogs.push(waiting)), [("waiting", false)]);
        let dead = StateCount { lifecycle: DELIVERY_LIFECYCLE.into(), state: "dead".into(), count: 1 };
        assert_eq!(finding_codes(|snapshot| snapshot.status.state_counts.push(dead)), [("deliveries", false)]);
        assert_eq!(finding_codes(|snapshot| snapshot.status.wal_bytes = Some(1 << 30)), [("wal", true)]);
        assert_eq!(finding_codes(|snapshot| snapshot.free_bytes = Some(1 << 20)), [("disk", true)]);
        assert_eq!(finding_codes(|snapshot| snapshot.status.oldest_transaction = early(400)), [("transaction", true)]);
        assert_eq!(finding_codes(|snapshot| snapshot.clock_ahead_micros = -3_000_000), [("clock", false)]);
        assert_eq!(finding_codes(|snapshot| snapshot.status.last_entry_at = early(-60)), [("clock", true)]);
        assert_eq!(finding_codes(|snapshot| snapshot.object_sample = (3, 1)), [("objects", true)]);
        for (name, code) in [("fsync", "durability"), ("autovacuum", "autovacuum")] {
            let setting = DatabaseSetting { name: name.to_owned(), value: "off".to_owned(), is_recommended: false };
            assert_eq!(finding_codes(|snapshot| snapshot.status.settings.push(setting)), [(code, true)]);
        }
    }
}
