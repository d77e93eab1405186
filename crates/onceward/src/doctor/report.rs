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

/// Returns "the first ", or nothing for a single item.
pub(crate) fn first_prefix(count: u64) -> &'static str {
    if count == 1 { "" } else { "the first " }
}

pub(crate) fn render_text(name: &str, snapshot: Option<&HealthSnapshot>, findings: &[HealthFinding]) -> String {
    let mut text = format!("{:<9} {name}\n", "database");
    if let Some(seen) = snapshot {
        for (what, said) in report_lines(seen) {
            let _ = writeln!(text, "{what:<9} {said}");
        }
    }
    for finding in findings {
        let word = if finding.is_error { "wrong" } else { "note" };
        let _ = writeln!(text, "{word}: {}: {}; {}", finding.code, finding.message, finding.advice);
    }
    if findings.iter().all(|finding| !finding.is_error) {
        text.push_str("nothing is wrong\n");
    }
    text
}

fn report_lines(snapshot: &HealthSnapshot) -> Vec<(&'static str, String)> {
    let status = &snapshot.status;
    let ago = |time: Time| format_age(status.now.secs() - time.secs());
    let mut lines = vec![("program", format!("{}, schema {}", status.server_version, status.schema_version))];
    let mut bytes = format_size(status.database_bytes);
    if let Some(wal) = status.wal_bytes {
        let _ = write!(bytes, ", and {} of WAL", format_size(wal));
    }
    if let Some(free) = snapshot.free_bytes {
        let _ = write!(bytes, "; {} left on its disk", format_size(free));
    }
    lines.push(("size", bytes));
    if snapshot.is_embedded {
        lines.push(("engine", snapshot.engine.clone().unwrap_or_else(|| "none has it open".to_owned())));
    }
    let last = status.last_entry_at.map_or_else(String::new, |at| format!(", {} ago", ago(at)));
    lines.push(("log", format!("up to place {}{last}", status.last_seq)));
    for of_one in status.state_counts.chunk_by(|one, next| one.lifecycle == next.lifecycle) {
        let states: Vec<String> = of_one.iter().map(|count| format!("{} {}", count.state, count.count)).collect();
        let lifecycle = of_one.first().map_or("", |count| &count.lifecycle);
        lines.push(("records", format!("{lifecycle}: {}", states.join(", "))));
    }
    for waiting in &status.ready_backlogs {
        let since = waiting
            .oldest_since
            .map_or_else(String::new, |since| format!(", {}for {}", first_prefix(waiting.count), ago(since)));
        lines.push(("waiting", format!("{}: {}{since}", waiting.lifecycle, count_or_more(waiting.count))));
    }
    if status.waiting_behind_key > 0 {
        lines.push((
            "behind",
            count_at_least(
                status.waiting_behind_key,
                "job waits for others of its work key",
                "jobs wait for others of their work key",
            ),
        ));
    }
    if status.delayed > 0 {
        lines.push(("later", count_at_least(status.delayed, "job waits for its time", "jobs wait for their time")));
    }
    let named = [("overdue", Some(status.overdue)), ("inbox", status.inbox)];
    for (what, overdue) in named {
        let Some(overdue) = overdue.filter(|overdue| overdue.count > 0) else { continue };
        let first = overdue
            .oldest_due_at
            .map_or_else(String::new, |first| format!(", {}for {}", first_prefix(overdue.count), ago(first)));
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
            let HealthFinding { code, is_error: is_wrong, message: what, advice } = finding;
            json!({ "code": code, "wrong": is_wrong, "what": what, "advice": advice })
        })
        .collect();
    let is_fine = findings.iter().all(|finding| finding["wrong"] == json!(false));
    json!({ "database": name, "fine": is_fine, "findings": findings, "seen": snapshot.map(snapshot_json) })
}

fn snapshot_json(snapshot: &HealthSnapshot) -> Value {
    let status = &snapshot.status;
    let at = |time: Option<Time>| time.map(|time| time.to_string());
    let overdue = |overdue: &OverdueSummary| json!({ "count": overdue.count, "first": at(overdue.oldest_due_at) });
    let waiting: Vec<Value> = status
        .ready_backlogs
        .iter()
        .map(|waiting| json!({ "lifecycle": waiting.lifecycle, "count": waiting.count, "since": at(waiting.oldest_since) }))
        .collect();
    let settings: Map<String, Value> =
        status.settings.iter().map(|setting| (setting.name.clone(), json!(setting.value))).collect();
    let records: Vec<Value> = status
        .state_counts
        .iter()
        .map(|StateCount { lifecycle, state, count }| json!({ "lifecycle": lifecycle, "state": state, "count": count }))
        .collect();
    json!({
        "program": status.server_version,
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
        "waiting": waiting,
        "behind": status.waiting_behind_key,
        "later": status.delayed,
        "overdue": overdue(&status.overdue),
        "ended_leases": status.overdue.expired_leases,
        "committed_not_done": status.overdue.unfinished_commits,
        "inbox": status.inbox.as_ref().map(overdue),
        "oldest_transaction": at(status.oldest_transaction),
        "settings": settings,
        "counted_up_to": MAX_COUNTED_ROWS,
    })
}
