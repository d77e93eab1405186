//! Formats a health report as text and as JSON.

use std::fmt::Write as _;

use onceward_core::count_noun;
use onceward_core::time::Time;
use onceward_store::{MAX_COUNTED_ROWS, OverdueSummary, StateCount};
use serde_json::{Map, Value, json};

use super::HealthSnapshot;
use super::findings::HealthFinding;

pub(crate) fn format_size(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{} KB", bytes >> 10),
        0x10_0000..0x2_8000_0000 => format!("{} MB", bytes >> 20),
        _ => format!("{} GB", bytes >> 30),
    }
}

/// Formats a duration, rounded to its largest unit.
pub(crate) fn format_age(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// Formats a count with its noun. A count that reached [`MAX_COUNTED_ROWS`] is "or more".
pub(crate) fn count_at_least(count: u64, one: &str, many: &str) -> String {
    if count < MAX_COUNTED_ROWS { count_noun(count, one, many) } else { format!("{} {many}", count_or_more(count)) }
}

/// Like [`count_at_least`], but without the noun.
fn count_or_more(count: u64) -> String {
    if count < MAX_COUNTED_ROWS { count.to_string() } else { format!("{count} or more") }
}

/// Returns "the oldest ", or nothing for a single item.
pub(crate) fn oldest_prefix(count: u64) -> &'static str {
    if count == 1 { "" } else { "the oldest " }
}

pub(crate) fn render_text(name: &str, snapshot: Option<&HealthSnapshot>, findings: &[HealthFinding]) -> String {
    let mut text = format!("{:<9} {name}\n", "database");
    if let Some(snapshot) = snapshot {
        for (label, value) in report_lines(snapshot) {
            let _ = writeln!(text, "{label:<9} {value}");
        }
    }
    for finding in findings {
        let severity = if finding.is_error { "error" } else { "note" };
        let _ = writeln!(text, "{severity}: {}: {}; {}", finding.code, finding.message, finding.advice);
    }
    if findings.iter().all(|finding| !finding.is_error) {
        text.push_str("no errors found\n");
    }
    text
}

fn report_lines(snapshot: &HealthSnapshot) -> Vec<(&'static str, String)> {
    let status = &snapshot.status;
    let ago = |time: Time| format_age(status.now.secs() - time.secs());
    let mut lines = vec![("version", format!("{}, schema {}", status.server_version, status.schema_version))];
    let mut bytes = format_size(status.database_bytes);
    if let Some(wal) = status.wal_bytes {
        let _ = write!(bytes, ", WAL {}", format_size(wal));
    }
    if let Some(free) = snapshot.free_bytes {
        let _ = write!(bytes, "; {} free on the disk", format_size(free));
    }
    lines.push(("size", bytes));
    if snapshot.is_embedded {
        lines.push(("engine", snapshot.engine.clone().unwrap_or_else(|| "none".to_owned())));
    }
    let last = status.last_entry_at.map_or_else(String::new, |at| format!(", {} ago", ago(at)));
    lines.push(("log", format!("up to seq {}{last}", status.last_seq)));
    for of_one in status.state_counts.chunk_by(|one, next| one.lifecycle == next.lifecycle) {
        let states: Vec<String> = of_one.iter().map(|count| format!("{} {}", count.state, count.count)).collect();
        let lifecycle = of_one.first().map_or("", |count| &count.lifecycle);
        lines.push(("records", format!("{lifecycle}: {}", states.join(", "))));
    }
    let records: u64 = status.state_counts.iter().map(|count| count.count).sum();
    let kept = "ended ones forever, unless a server's --keep says otherwise";
    lines.push(("kept", format!("{}; {kept}", count_noun(records, "record", "records"))));
    for waiting in &status.ready_backlogs {
        let since = waiting
            .oldest_since
            .map_or_else(String::new, |since| format!(", {}for {}", oldest_prefix(waiting.count), ago(since)));
        lines.push(("ready", format!("{}: {}{since}", waiting.lifecycle, count_or_more(waiting.count))));
    }
    if status.waiting_behind_key > 0 {
        lines.push((
            "behind key",
            count_at_least(
                status.waiting_behind_key,
                "job waits for other jobs of its concurrency key",
                "jobs wait for other jobs of their concurrency key",
            ),
        ));
    }
    if status.delayed > 0 {
        lines.push(("delayed", count_at_least(status.delayed, "job", "jobs")));
    }
    let named = [("overdue", Some(status.overdue)), ("inbox", status.inbox)];
    for (what, overdue) in named {
        let Some(overdue) = overdue.filter(|overdue| overdue.count > 0) else { continue };
        let first = overdue
            .oldest_due_at
            .map_or_else(String::new, |first| format!(", {}for {}", oldest_prefix(overdue.count), ago(first)));
        lines.push((what, format!("{}{first}", count_or_more(overdue.count))));
    }
    let settings: Vec<String> =
        status.settings.iter().map(|setting| format!("{} {}", setting.name, setting.value)).collect();
    lines.push(("settings", settings.join(", ")));
    lines
}

pub(crate) fn as_json(name: &str, snapshot: Option<&HealthSnapshot>, findings: &[HealthFinding]) -> Value {
    let findings: Vec<Value> = findings
        .iter()
        .map(|finding| {
            let HealthFinding { code, is_error, message, advice } = finding;
            json!({ "code": code, "error": is_error, "message": message, "advice": advice })
        })
        .collect();
    let is_healthy = findings.iter().all(|finding| finding["error"] == json!(false));
    json!({ "database": name, "healthy": is_healthy, "findings": findings, "status": snapshot.map(snapshot_json) })
}

fn snapshot_json(snapshot: &HealthSnapshot) -> Value {
    let status = &snapshot.status;
    let at = |time: Option<Time>| time.map(|time| time.to_string());
    let overdue =
        |overdue: &OverdueSummary| json!({ "count": overdue.count, "oldest_due_at": at(overdue.oldest_due_at) });
    let ready: Vec<Value> = status
        .ready_backlogs
        .iter()
        .map(|backlog| json!({ "lifecycle": backlog.lifecycle, "count": backlog.count, "since": at(backlog.oldest_since) }))
        .collect();
    let settings: Map<String, Value> =
        status.settings.iter().map(|setting| (setting.name.clone(), json!(setting.value))).collect();
    let records: Vec<Value> = status
        .state_counts
        .iter()
        .map(|StateCount { lifecycle, state, count }| json!({ "lifecycle": lifecycle, "state": state, "count": count }))
        .collect();
    json!({
        "version": status.server_version,
        "schema": status.schema_version,
        "bytes": status.database_bytes,
        "wal_bytes": status.wal_bytes,
        "free_bytes": snapshot.free_bytes,
        "engine": snapshot.engine,
        "now": status.now.to_string(),
        "clock_ahead_ms": snapshot.clock_ahead_micros / 1_000,
        "last_entry": status.last_seq,
        "last_entry_at": at(status.last_entry_at),
        "records": records,
        "ready": ready,
        "waiting_behind_key": status.waiting_behind_key,
        "delayed": status.delayed,
        "overdue": overdue(&status.overdue),
        "expired_leases": status.overdue.expired_leases,
        "unfinished_commits": status.overdue.unfinished_commits,
        "inbox": status.inbox.as_ref().map(overdue),
        "oldest_transaction": at(status.oldest_transaction),
        "settings": settings,
        "counted_up_to": MAX_COUNTED_ROWS,
    })
}
