//! Tests due timers and expired leases.

use onceward_testkit::user;
use serde_json::json;

use crate::new_simulator;

const PAIR_LIFECYCLE: &str = r#"
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

/// FM-7: the engine decides again with the later time, and the operation ends.
#[test]
fn timer_due_by_later_logged_time_fires_after_clock_steps_back() {
    let mut simulator = new_simulator(&[PAIR_LIFECYCLE]);
    let ann = user("ann");
    simulator.advance_without_engine("1m");
    let logged_later = simulator.create("pair.half", &ann).expect_ok();
    simulator.step_clock_back("1m");
    let due = simulator.create("pair.half", &ann).with("at", "2026-11-15T20:00:10Z").expect_ok();
    simulator.fire(logged_later, "touch", &ann).with("other", due.to_string()).expect_ok();
    assert_eq!(simulator.state(due), "late");
}

#[test]
fn earliest_due_timer_fires_first_even_when_engine_is_late() {
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
    let mut prompt = new_simulator(&[text]);
    let record = prompt.create("clock.two", &ann).expect_ok();
    prompt.advance("20s");
    assert_eq!(prompt.state(record), "fast");
    let mut late = new_simulator(&[text]);
    let record = late.create("clock.two", &ann).expect_ok();
    late.advance_without_engine("20s");
    late.advance("0s");
    assert_eq!(late.state(record), "fast");
}

/// EXE-9
#[test]
fn commit_after_expiry_on_stuck_record_returns_lease_lost() {
    let mut simulator = new_simulator(&[r#"
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
    let job = simulator.create("job.bad", &user("ann")).expect_ok();
    let lease = simulator.lease(job, "w");
    simulator.advance("6s");
    assert!(simulator.record(job).stuck_reason.is_some());
    simulator.advance_without_engine("1m");
    simulator.commit(&lease, json!(null)).expect_lease_lost();
}
