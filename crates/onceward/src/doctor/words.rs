//! What was seen, as text and as JSON.

use std::fmt::Write as _;

use onceward_core::counted;
use onceward_core::time::Time;
use onceward_store::{COUNTED, Overdue, StateCount};
use serde_json::{Map, Value, json};

use super::Seen;
use super::findings::Finding;

pub(crate) fn size(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{} KB", bytes >> 10),
        0x10_0000..0x2_8000_0000 => format!("{} MB", bytes >> 20),
        _ => format!("{} GB", bytes >> 30),
    }
}

/// A length of time, roughly.
pub(crate) fn age(seconds: i64) -> String {
    match seconds {
        ..120 => format!("{seconds} s"),
        120..7_200 => format!("{} min", seconds / 60),
        7_200..172_800 => format!("{} h", seconds / 3_600),
        _ => format!("{} days", seconds / 86_400),
    }
}

/// A count that may have been broken off, in the words for one or for more.
pub(crate) fn at_least(count: u64, one: &str, many: &str) -> String {
    if count < COUNTED { counted(count, one, many) } else { format!("{} {many}", or_more(count)) }
}

/// The same without words.
fn or_more(count: u64) -> String {
    if count < COUNTED { count.to_string() } else { format!("{count} or more") }
}

/// Of one there is no first.
pub(crate) fn the_first(count: u64) -> &'static str {
    if count == 1 { "" } else { "the first " }
}

pub(crate) fn text(name: &str, seen: Option<&Seen>, findings: &[Finding]) -> String {
    let mut text = format!("{:<9} {name}\n", "database");
    if let Some(seen) = seen {
        for (what, said) in lines(seen) {
            let _ = writeln!(text, "{what:<9} {said}");
        }
    }
    for finding in findings {
        let word = if finding.is_wrong { "wrong" } else { "note" };
        let _ = writeln!(text, "{word}: {}: {}; {}", finding.code, finding.what, finding.advice);
    }
    if findings.iter().all(|finding| !finding.is_wrong) {
        text.push_str("nothing is wrong\n");
    }
    text
}

fn lines(seen: &Seen) -> Vec<(&'static str, String)> {
    let look = &seen.look;
    let ago = |time: Time| age(look.now.secs() - time.secs());
    let mut lines = vec![("program", format!("{}, schema {}", look.server, look.schema))];
    let mut bytes = size(look.bytes);
    if let Some(wal) = look.wal_bytes {
        let _ = write!(bytes, ", and {} of WAL", size(wal));
    }
    if let Some(free) = seen.free_bytes {
        let _ = write!(bytes, "; {} left on its disk", size(free));
    }
    lines.push(("size", bytes));
    if seen.is_embedded {
        lines.push(("engine", seen.engine.clone().unwrap_or_else(|| "none has it open".to_owned())));
    }
    let last = look.last_entry_at.map_or_else(String::new, |at| format!(", {} ago", ago(at)));
    lines.push(("log", format!("up to place {}{last}", look.last_entry)));
    for of_one in look.counts.chunk_by(|one, next| one.lifecycle == next.lifecycle) {
        let states: Vec<String> = of_one.iter().map(|count| format!("{} {}", count.state, count.count)).collect();
        let lifecycle = of_one.first().map_or("", |count| &count.lifecycle);
        lines.push(("records", format!("{lifecycle}: {}", states.join(", "))));
    }
    for waiting in &look.waiting {
        let since =
            waiting.since.map_or_else(String::new, |since| format!(", {}for {}", the_first(waiting.count), ago(since)));
        lines.push(("waiting", format!("{}: {}{since}", waiting.lifecycle, or_more(waiting.count))));
    }
    if look.behind > 0 {
        lines.push((
            "behind",
            at_least(look.behind, "job waits for others of its work key", "jobs wait for others of their work key"),
        ));
    }
    if look.later > 0 {
        lines.push(("later", at_least(look.later, "job waits for its time", "jobs wait for their time")));
    }
    let named = [("overdue", Some(look.overdue)), ("inbox", look.inbox)];
    for (what, overdue) in named {
        let Some(overdue) = overdue.filter(|overdue| overdue.count > 0) else { continue };
        let first =
            overdue.first.map_or_else(String::new, |first| format!(", {}for {}", the_first(overdue.count), ago(first)));
        lines.push((what, format!("{}{first}", or_more(overdue.count))));
    }
    let settings: Vec<String> =
        look.settings.iter().map(|setting| format!("{} {}", setting.name, setting.value)).collect();
    lines.push(("settings", settings.join(", ")));
    lines
}

pub(crate) fn as_json(name: &str, seen: Option<&Seen>, findings: &[Finding]) -> Value {
    let findings: Vec<Value> = findings
        .iter()
        .map(|finding| {
            let Finding { code, is_wrong, what, advice } = finding;
            json!({ "code": code, "wrong": is_wrong, "what": what, "advice": advice })
        })
        .collect();
    let is_fine = findings.iter().all(|finding| finding["wrong"] == json!(false));
    json!({ "database": name, "fine": is_fine, "findings": findings, "seen": seen.map(as_seen) })
}

fn as_seen(seen: &Seen) -> Value {
    let look = &seen.look;
    let at = |time: Option<Time>| time.map(|time| time.to_string());
    let overdue = |overdue: &Overdue| json!({ "count": overdue.count, "first": at(overdue.first) });
    let waiting: Vec<Value> = look
        .waiting
        .iter()
        .map(|waiting| json!({ "lifecycle": waiting.lifecycle, "count": waiting.count, "since": at(waiting.since) }))
        .collect();
    let settings: Map<String, Value> =
        look.settings.iter().map(|setting| (setting.name.clone(), json!(setting.value))).collect();
    let records: Vec<Value> = look
        .counts
        .iter()
        .map(|StateCount { lifecycle, state, count }| json!({ "lifecycle": lifecycle, "state": state, "count": count }))
        .collect();
    json!({
        "program": look.server,
        "schema": look.schema,
        "bytes": look.bytes,
        "wal_bytes": look.wal_bytes,
        "free_bytes": seen.free_bytes,
        "engine": seen.engine,
        "now": look.now.to_string(),
        "clock_ahead_ms": seen.clock_ahead / 1_000,
        "last_entry": look.last_entry,
        "last_entry_at": at(look.last_entry_at),
        "records": records,
        "waiting": waiting,
        "behind": look.behind,
        "later": look.later,
        "overdue": overdue(&look.overdue),
        "ended_leases": look.overdue.leases,
        "committed_not_done": look.overdue.committed,
        "inbox": look.inbox.as_ref().map(overdue),
        "oldest_transaction": at(look.oldest_transaction),
        "settings": settings,
        "counted_up_to": COUNTED,
    })
}
