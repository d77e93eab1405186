//! Jobs that several nodes want.

use onceward_core::decide::NoOpReason;
use onceward_core::fold::{Applied, LogOperation, Reason, Wait};
use onceward_testkit::fold::{at, node};
use serde_json::json;

use crate::log::{Log, machine, orders, user};

fn scheduled() -> LogOperation {
    node("server", at(0)).creates("mesh.job", "job", json!({ "kind": "index" }))
}

fn claim(who: &str, second: i64) -> LogOperation {
    node(who, at(second)).fires("job", "claim_work", json!({ "lease": "60s" }))
}

/// MSH-14 MSH-12: two nodes claim one job without knowing of each other. The smaller clock wins, whoever is heard first.
#[test]
fn the_earlier_claim_wins_whichever_arrives_first() {
    let (scheduled, phone, laptop) = (scheduled(), claim("phone", 10), claim("laptop", 11));
    for order in orders(&[&scheduled, &phone, &laptop]) {
        let log = Log::of(&order.into_iter().map(|operation| (operation, machine())).collect::<Vec<_>>());
        assert_eq!(log.field("job", "claimer"), json!("phone"));
        assert_eq!(log.applied(&phone), Applied::Changed);
        assert_eq!(log.refused(&laptop), "already_claimed");
        assert_eq!(log.record("job").version, 2);
    }
}

/// MSH-14: at equal clocks both are refused, and a third too; the job is free for the next. A clock a tick later is later.
#[test]
fn claims_of_equal_clocks_are_both_refused() {
    let (scheduled, phone, laptop) = (scheduled(), claim("phone", 10), claim("laptop", 10));
    let (third, next) = (claim("tablet", 10), claim("tablet", 11));
    for order in orders(&[&scheduled, &phone, &laptop]) {
        let mut log = Log::of(&order.into_iter().map(|operation| (operation, machine())).collect::<Vec<_>>());
        assert_eq!(log.applied(&phone), Applied::Refused(Reason::Tie { with: laptop.id }));
        assert_eq!(log.applied(&laptop), Applied::Refused(Reason::Tie { with: phone.id }));
        assert_eq!(log.state("job"), "Pending");
        log.hears(&[(&next, machine())]);
        assert_eq!(log.field("job", "claimer"), json!("tablet"));
        log.hears(&[(&third, machine())]);
        assert_eq!(log.applied(&third), Applied::Refused(Reason::Tie { with: laptop.id }));
        assert_eq!(log.applied(&next), Applied::Changed);
    }
    let mut tick = claim("laptop", 10);
    tick.moment.logical = 1;
    let log = Log::of(&[(&scheduled, machine()), (&tick, machine()), (&phone, machine())]);
    assert_eq!(log.field("job", "claimer"), json!("phone"));
}

/// MSH-14: whoever may not claim is nobody's rival, whatever its clock says.
#[test]
fn a_claim_without_the_right_ties_with_nobody() {
    let (scheduled, phone, laptop) = (scheduled(), claim("phone", 10), claim("laptop", 10));
    let reader = onceward_testkit::fold::with(&["Job.Read"]);
    let mut log = Log::of(&[(&scheduled, machine()), (&phone, machine()), (&laptop, reader)]);
    assert_eq!(log.field("job", "claimer"), json!("phone"));
    assert_eq!(log.refused(&laptop), "not_allowed");
    log.rejudges(&[(&laptop, machine())]);
    assert_eq!(log.state("job"), "Pending", "now it may, and neither has it");
}

/// MSH-13: an overdue job is released by `ExpireWork`; said again, by another node or at the same time, it does nothing.
#[test]
fn expire_work_repeated_does_nothing() {
    let (scheduled, phone) = (scheduled(), claim("phone", 10));
    let expire = |who: &str, second| node(who, at(second)).fires("job", "expire_work", json!({}));
    let (early, first, again, later) =
        (expire("laptop", 69), expire("laptop", 70), expire("tablet", 70), expire("server", 80));
    for order in orders(&[&phone, &first, &again, &later]) {
        let mut log = Log::of(&[(&scheduled, machine()), (&early, machine())]);
        log.hears(&order.into_iter().map(|operation| (operation, machine())).collect::<Vec<_>>());
        assert_eq!(log.refused(&early), "not_overdue");
        assert_eq!(log.applied(&first), Applied::Changed);
        for repeated in [&again, &later] {
            assert_eq!(log.applied(repeated), Applied::Nothing(NoOpReason::Unchanged));
        }
        assert_eq!(log.state("job"), "Pending");
        assert_eq!(log.record("job").version, 3);
    }
}

/// MSH-30: a late `CompleteJob` counts while the job is its author's. When an earlier `ExpireWork` turns up afterwards, it was
/// not.
#[test]
fn a_late_completion_counts_until_it_is_known_that_it_was_expired() {
    let (scheduled, phone) = (scheduled(), claim("phone", 10));
    let complete = node("phone", at(500)).after(&[&phone]).fires("job", "complete_job", json!({ "output": "done" }));
    let mut log = Log::of(&[(&scheduled, machine()), (&phone, machine()), (&complete, machine())]);
    assert_eq!(log.state("job"), "Completed", "long overdue, and nobody said so");
    let expire = node("laptop", at(100)).fires("job", "expire_work", json!({}));
    let laptop = claim("laptop", 101);
    log.hears(&[(&laptop, machine()), (&expire, machine())]);
    assert_eq!(log.state("job"), "Claimed");
    assert_eq!(log.field("job", "claimer"), json!("laptop"));
    assert_eq!(log.refused(&complete), "not_allowed");
}

/// MSH-15: work scheduled in a place that has not been heard of yet waits, and is then claimed at its own time.
#[test]
fn a_claim_waits_for_the_job_it_builds_on() {
    let scheduled = scheduled();
    let phone = node("phone", at(10)).after(&[&scheduled]).fires("job", "claim_work", json!({ "lease": "60s" }));
    let laptop = node("laptop", at(20)).after(&[&scheduled]).fires("job", "claim_work", json!({ "lease": "60s" }));
    let mut log = Log::of(&[(&laptop, machine()), (&phone, machine())]);
    assert_eq!(log.applied(&phone), Applied::Waiting(Wait::Absent(scheduled.id)));
    log.hears(&[(&scheduled, user())]);
    assert_eq!(log.field("job", "claimer"), json!("phone"));
    assert_eq!(log.field("job", "deadline"), json!(at(70).wall.to_string()), "its own clock and its lease");
    assert_eq!(log.refused(&laptop), "already_claimed");
}
