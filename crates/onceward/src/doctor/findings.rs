//! What is wrong, or worth a look, and what to do about it.

use onceward_core::counted;
use onceward_core::time::Time;
use onceward_engine::DELIVERY;
use onceward_store::{Setting, StoreError};

use super::Seen;
use super::words::{age, at_least, size, the_first};

/// An engine does what is due at once. Later than this, none does.
const LATE_SECS: i64 = 10;

/// Letters are drained at least once a second.
const INBOX_SECS: i64 = 60;

/// A job that has waited for so long is worth a look: no worker may be there for it.
const WAITED_SECS: i64 = 3_600;

/// An engine folds the WAL back from 32 MB on, and lets about 130 come together. Twice that means that somebody keeps it from it.
const WAL_BYTES: u64 = 256 << 20;

/// Less than this on the disk, and the next hours are in doubt.
const FREE_BYTES: u64 = 512 << 20;

/// So long a transaction keeps PostgreSQL from cleaning up, and with it everybody's leases slow.
const OPEN_SECS: i64 = 300;

/// Clocks so far apart: times in answers do not fit what people see.
const APART_MICROS: i64 = 2_000_000;

pub(crate) struct Finding {
    /// A stable word for scripts.
    pub(crate) code: &'static str,
    pub(crate) is_wrong: bool,
    pub(crate) what: String,
    pub(crate) advice: &'static str,
}

impl Finding {
    fn wrong(code: &'static str, what: String, advice: &'static str) -> Self {
        Self { code, is_wrong: true, what, advice }
    }

    /// Worth a look, nothing more.
    fn note(code: &'static str, what: String, advice: &'static str) -> Self {
        Self { is_wrong: false, ..Self::wrong(code, what, advice) }
    }

    /// Where nothing could be looked at.
    pub(crate) fn unreadable(error: &StoreError) -> Self {
        let (code, advice) = match error {
            StoreError::TooOld { .. } => ("schema", "make a backup, then run `onceward migrate`"),
            StoreError::TooNew { .. } => ("schema", "use the program that wrote it, or a newer one"),
            _ => ("damaged", "restore a backup, or ask `onceward verify` what is left"),
        };
        Self::wrong(code, error.to_string(), advice)
    }
}

pub(crate) fn of(seen: &Seen) -> Vec<Finding> {
    let mut found = Vec::new();
    found.extend(seen.look.settings.iter().filter(|setting| !setting.is_good).map(setting));
    work(seen, &mut found);
    room(seen, &mut found);
    clocks(seen, &mut found);
    found
}

fn setting(setting: &Setting) -> Finding {
    let Setting { name, value, .. } = setting;
    let what = format!("{name} is {value}");
    let (code, advice) = match name.as_str() {
        "autovacuum" => ("autovacuum", "turn it on: the tables of waiting work only grow without it"),
        "journal_mode" => ("durability", "open it with an engine, which sets `wal`; nothing else should write it"),
        "zero_damaged_pages" => ("durability", "turn it off: it throws damaged pages away unseen"),
        _ => ("durability", "turn it on: what was answered can be lost when the power goes"),
    };
    Finding::wrong(code, what, advice)
}

fn work(seen: &Seen, found: &mut Vec<Finding>) {
    let look = &seen.look;
    let late = |first: Option<Time>| first.map_or(0, |first| look.now.secs() - first.secs());
    let overdue = look.overdue;
    if late(overdue.first) > LATE_SECS {
        let of_them = match (overdue.leases, overdue.committed) {
            (0, 0) => String::new(),
            (leases, committed) => format!(
                "; {}, {}",
                counted(leases, "lease has ended", "leases have ended"),
                counted(committed, "commit is not done", "commits are not done")
            ),
        };
        let count = at_least(overdue.count, "record is overdue", "records are overdue");
        let since = format!("{}by {}", the_first(overdue.count), age(late(overdue.first)));
        let advice = match (&seen.engine, seen.is_embedded) {
            (None, true) => "start an engine: none has the database open, and it does what is due when it starts",
            (Some(_), _) => "the engine stands still or does not keep up: look at what it says, and restart it",
            (None, false) => "start an engine, or look at what those say that run",
        };
        found.push(Finding::wrong("overdue", format!("{count}, {since}{of_them}"), advice));
    }
    if let Some(inbox) = look.inbox.filter(|inbox| late(inbox.first) > INBOX_SECS) {
        let count = at_least(inbox.count, "letter waits in the inbox", "letters wait in the inbox");
        let what = format!("{count}, {}for {}", the_first(inbox.count), age(late(inbox.first)));
        found.push(Finding::wrong("inbox", what, "start an engine that has the lifecycles they name"));
    }
    for waiting in look.waiting.iter().filter(|waiting| late(waiting.since) > WAITED_SECS) {
        let (one, many) =
            (format!("job of {} waits", waiting.lifecycle), format!("jobs of {} wait", waiting.lifecycle));
        let count = at_least(waiting.count, &one, &many);
        let what = format!("{count}, {}for {}", the_first(waiting.count), age(late(waiting.since)));
        found.push(Finding::note("waiting", what, "see that enough workers lease this lifecycle"));
    }
    let dead = look.counts.iter().find(|count| &*count.lifecycle == DELIVERY && &*count.state == "dead");
    if let Some(dead) = dead {
        let what = counted(dead.count, "delivery was given up", "deliveries were given up");
        found.push(Finding::note(
            "deliveries",
            what,
            "their receivers have not answered for about an hour: list onceward.delivery in state dead",
        ));
    }
}

fn room(seen: &Seen, found: &mut Vec<Finding>) {
    let look = &seen.look;
    if let Some(bytes) = look.wal_bytes.filter(|bytes| *bytes > WAL_BYTES) {
        let what = format!("the WAL has {}", size(bytes));
        found.push(Finding::wrong(
            "wal",
            what,
            "somebody keeps reading one old state of the database: end that program",
        ));
    }
    if let Some(bytes) = seen.free_bytes.filter(|bytes| *bytes < FREE_BYTES) {
        found.push(Finding::wrong(
            "disk",
            format!("{} are left on its disk", size(bytes)),
            "make room: on a full disk nothing is written",
        ));
    }
    let open = look.oldest_transaction.map_or(0, |since| look.now.secs() - since.secs());
    if open > OPEN_SECS {
        let what = format!("somebody has had a transaction open for {}", age(open));
        found.push(Finding::wrong(
            "transaction",
            what,
            "end it: nothing that was deleted since can be cleaned up (see pg_stat_activity)",
        ));
    }
}

fn clocks(seen: &Seen, found: &mut Vec<Finding>) {
    if seen.clock_ahead.abs() > APART_MICROS {
        let word = if seen.clock_ahead > 0 { "ahead of" } else { "behind" };
        let what = format!("the database's clock is {} {word} this machine's", age(seen.clock_ahead.abs() / 1_000_000));
        found.push(Finding::note("clock", what, "time is the database's; set whichever is wrong"));
    }
    let ahead = seen.look.last_entry_at.map_or(0, |at| at.micros().saturating_sub(seen.look.now.micros()));
    if ahead > APART_MICROS {
        let what = format!("the log's last entry is {} in the future", age(ahead / 1_000_000));
        found.push(Finding::wrong(
            "clock",
            what,
            "the clock has gone back: set it, or leases and timers come late by as much",
        ));
    }
}

#[cfg(test)]
mod tests {
    use onceward_store::{COUNTED, Look, Overdue, StateCount, Waiting};

    use super::*;

    fn healthy() -> Seen {
        let now = Time::from_secs(1_000_000);
        let look = Look {
            server: "SQLite 3".to_owned(),
            schema: 1,
            now,
            bytes: 1 << 20,
            wal_bytes: Some(1 << 20),
            last_entry: 7,
            last_entry_at: Some(now),
            counts: Vec::new(),
            waiting: Vec::new(),
            behind: 0,
            later: 0,
            overdue: Overdue::default(),
            inbox: None,
            settings: Vec::new(),
            oldest_transaction: None,
        };
        Seen { look, engine: None, is_embedded: true, free_bytes: Some(1 << 40), clock_ahead: 0 }
    }

    fn told(change: impl FnOnce(&mut Seen)) -> Vec<(&'static str, bool)> {
        let mut seen = healthy();
        change(&mut seen);
        of(&seen).iter().map(|finding| (finding.code, finding.is_wrong)).collect()
    }

    #[test]
    fn each_trouble_is_found_and_nothing_else() {
        let early = |seconds: i64| Some(Time::from_secs(1_000_000 - seconds));
        assert_eq!(told(|_| ()), []);
        assert_eq!(told(|seen| seen.look.overdue = Overdue { count: 3, first: early(9), ..Overdue::default() }), []);
        let overdue = Overdue { count: COUNTED, first: early(11), leases: 2, committed: 1 };
        assert_eq!(told(|seen| seen.look.overdue = overdue), [("overdue", true)]);
        let inbox = Some(Overdue { count: 1, first: early(61), ..Overdue::default() });
        assert_eq!(told(|seen| seen.look.inbox = inbox), [("inbox", true)]);
        let waiting = Waiting { lifecycle: "a.b".into(), count: 1, since: early(4_000) };
        assert_eq!(told(|seen| seen.look.waiting.push(waiting)), [("waiting", false)]);
        let dead = StateCount { lifecycle: DELIVERY.into(), state: "dead".into(), count: 1 };
        assert_eq!(told(|seen| seen.look.counts.push(dead)), [("deliveries", false)]);
        assert_eq!(told(|seen| seen.look.wal_bytes = Some(1 << 30)), [("wal", true)]);
        assert_eq!(told(|seen| seen.free_bytes = Some(1 << 20)), [("disk", true)]);
        assert_eq!(told(|seen| seen.look.oldest_transaction = early(400)), [("transaction", true)]);
        assert_eq!(told(|seen| seen.clock_ahead = -3_000_000), [("clock", false)]);
        assert_eq!(told(|seen| seen.look.last_entry_at = early(-60)), [("clock", true)]);
        for (name, code) in [("fsync", "durability"), ("autovacuum", "autovacuum")] {
            let setting = Setting { name: name.to_owned(), value: "off".to_owned(), is_good: false };
            assert_eq!(told(|seen| seen.look.settings.push(setting)), [(code, true)]);
        }
    }
}
