//! What is due, and what is over.

use onceward_testkit::user;
use serde_json::json;

use crate::stage;

const PAIR: &str = r#"
language = 1
lifecycle = "pair.half"
about = "points to another"
[states]
waiting = { about = "waiting", rest = true }
late = { about = "late", rest = true }
[fields]
other = { type = "ref", to = "pair.half", optional = true }
at = { type = "time", optional = true }
[[on.create]]
go = "-> waiting"
take = ["other", "at"]
[[on.look]]
go = "waiting"
when = "record.other != null && record.other.state == 'late'"
set = { other = "null" }
[[on.touch]]
go = "waiting | late"
take = ["at", "other"]
[[on.time]]
go = "waiting -> late"
at = "at"
"#;

/// FM-7: the clock steps back, and a record in reach was logged later: what is due by that later time is dealt with, and
/// the operation ends.
#[test]
fn what_is_due_by_a_later_log_is_dealt_with() {
    let mut stage = stage(&[PAIR]);
    let ann = user("ann");
    stage.doze("1m");
    let logged_later = stage.create("pair.half", &ann).ok();
    stage.step_back("1m");
    let due = stage.create("pair.half", &ann).with("at", "2026-11-15T20:00:10Z").ok();
    stage.fire(logged_later, "touch", &ann).with("other", due.to_string()).ok();
    assert_eq!(stage.state(due), "late");
}

/// Timers run in the order of their times, however late the engine looks.
#[test]
fn the_timer_that_is_due_first_goes_first() {
    let text = r#"
language = 1
lifecycle = "clock.two"
about = "two timers"
[states]
waiting = { about = "waiting" }
slow = { about = "slow", final = true }
fast = { about = "fast", final = true }
[[on.create]]
go = "-> waiting"
[[on.time]]
go = "waiting -> slow"
after = "10s"
[[on.time]]
go = "waiting -> fast"
after = "5s"
"#;
    let ann = user("ann");
    let mut prompt = stage(&[text]);
    let record = prompt.create("clock.two", &ann).ok();
    prompt.pass("20s");
    assert_eq!(prompt.state(record), "fast");
    let mut late = stage(&[text]);
    let record = late.create("clock.two", &ann).ok();
    late.doze("20s");
    late.pass("0s");
    assert_eq!(late.state(record), "fast");
}

/// EXE-9: a lease that ran out is over, even on a record that is set aside.
#[test]
fn a_stuck_record_takes_no_commit_after_expiry() {
    let mut stage = stage(&[r#"
language = 1
lifecycle = "job.bad"
about = "its timer faults while a worker is on it"
[states]
open = { about = "open", ready = true }
busy = { about = "busy" }
shut = { about = "shut", final = true }
[fields]
none = { type = "int", optional = true }
some = { type = "int", default = 0 }
[work]
lease = "10s"
[[on.create]]
go = "-> open"
[[on.lease]]
go = "open -> busy"
[[on.commit]]
go = "busy -> shut"
[[on.fail]]
go = "busy -> open"
[[on.time]]
go = "busy -> shut"
after = "5s"
set = { some = "record.none + 1" }
"#]);
    let job = stage.create("job.bad", &user("ann")).ok();
    let lease = stage.lease(job, "w");
    stage.pass("6s");
    assert!(stage.record(job).stuck.is_some());
    stage.doze("1m");
    stage.commit(&lease, json!(null)).lease_lost();
}
