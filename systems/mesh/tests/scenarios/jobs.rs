//! MSH-12, MSH-13, MSH-14 and MSH-30: work that nodes claim from each other over the log.

use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use onceward_testkit::{Attempt, Stage};

use super::{ALL, node, stage};

pub(super) fn ann() -> Actor {
    node("ann", ALL)
}

pub(super) fn ben() -> Actor {
    node("ben", ALL)
}

pub(super) fn pending(stage: &mut Stage) -> RecordId {
    stage.create("mesh.job", &node("scheduler", &["Job.Schedule"])).with("kind", "index").ok()
}

pub(super) fn claim_work<'s>(stage: &'s mut Stage, id: RecordId, by: &Actor) -> Attempt<'s> {
    stage.fire(id, "claim_work", by).with("lease", "10m")
}

/// Claimed by Ann, for ten minutes.
pub(super) fn claimed(stage: &mut Stage) -> RecordId {
    let id = pending(stage);
    claim_work(stage, id, &ann()).ok()
}

/// MSH-12: scheduled, claimed, completed; then nothing more.
#[test]
fn a_job_from_beginning_to_end() {
    let mut stage = stage();
    let id = pending(&mut stage);
    assert_eq!(stage.state(id), "Pending");
    claim_work(&mut stage, id, &ann()).ok();
    assert_eq!((stage.state(id), stage.field(id, "claimer")), ("Claimed".into(), "ann".into()));
    stage.fire(id, "complete_job", &ann()).with("output", "42 pages").ok();
    assert_eq!((stage.state(id), stage.field(id, "output")), ("Completed".into(), "42 pages".into()));
    assert!(stage.record(id).is_final() && stage.record(id).finished_at.is_some());
    claim_work(&mut stage, id, &ann()).wrong_state("Completed", "claim_work");
    stage.fire(id, "yield_work", &ann()).wrong_state("Completed", "yield_work");
    stage.fire(id, "complete_job", &ann()).wrong_state("Completed", "complete_job");
    stage.fire(id, "expire_work", &ann()).unchanged();
}

/// MSH-12: what was not claimed cannot be completed or yielded.
#[test]
fn a_pending_job_is_nobodys() {
    let mut stage = stage();
    let id = pending(&mut stage);
    stage.fire(id, "complete_job", &ann()).wrong_state("Pending", "complete_job");
    stage.fire(id, "yield_work", &ann()).wrong_state("Pending", "yield_work");
}

/// MSH-12: the claimer gives it back; another takes it.
#[test]
fn a_job_is_yielded() {
    let mut stage = stage();
    let id = claimed(&mut stage);
    stage.fire(id, "yield_work", &ben()).not_allowed();
    stage.fire(id, "yield_work", &ann()).ok();
    assert_eq!(stage.state(id), "Pending");
    assert!(stage.field(id, "claimer").is_null() && stage.field(id, "deadline").is_null());
    claim_work(&mut stage, id, &ben()).ok();
    stage.fire(id, "complete_job", &ann()).not_allowed();
    stage.fire(id, "complete_job", &ben()).ok();
}

/// MSH-12: only the current claimer completes it, whatever else others hold.
#[test]
fn only_the_claimer_completes() {
    let mut stage = stage();
    let id = claimed(&mut stage);
    stage.fire(id, "complete_job", &ben()).not_allowed();
    stage.fire(id, "complete_job", &super::you()).not_allowed();
    stage.fire(id, "complete_job", &ann()).ok();
}

/// MSH-13: the deadline is the clock of the claim and its length, and lengths are sensible.
#[test]
fn the_deadline_is_the_claims_clock_and_its_length() {
    let mut stage = stage();
    stage.doze("17s");
    let id = pending(&mut stage);
    for bad in ["0s", "-1s", "31d"] {
        let refusal = stage.fire(id, "claim_work", &ann()).with("lease", bad).outcome().refusal();
        assert_eq!(refusal.status, 422, "{bad}: {}", refusal.reason);
    }
    claim_work(&mut stage, id, &ann()).ok();
    assert_eq!(stage.until(id, "deadline").to_string(), "10m");
    // Nothing happens by itself, however long ago the deadline is.
    stage.pass("1d");
    assert_eq!(stage.state(id), "Claimed");
}

/// MSH-13: an overdue lease is released by any node that holds the capability, once; saying it again does nothing.
#[test]
fn an_overdue_job_is_expired() {
    let mut stage = stage();
    let id = claimed(&mut stage);
    stage.doze("599s");
    stage.fire(id, "expire_work", &ben()).refused(409, "not_overdue");
    stage.fire(id, "expire_work", &ann()).refused(409, "not_overdue");
    stage.doze("1s");
    stage.fire(id, "expire_work", &node("eve", &["Job.Read", "Job.Schedule", "Job.Complete"])).not_allowed();
    stage.fire(id, "expire_work", &node("eve", &["Job.Claim"])).ok();
    assert_eq!(stage.state(id), "Pending");
    assert!(stage.field(id, "claimer").is_null());
    stage.fire(id, "expire_work", &ben()).unchanged();
    stage.fire(id, "expire_work", &ann()).unchanged();
}

/// MSH-13: the claimer renews before the deadline, from the new claim's own clock; not at it, and not without the capability.
#[test]
fn a_claimer_renews_in_time() {
    let mut stage = stage();
    let id = claimed(&mut stage);
    stage.doze("599s");
    claim_work(&mut stage, id, &node("ann", &["Job.Complete", "Job.Read"])).not_allowed();
    claim_work(&mut stage, id, &ann()).ok();
    assert_eq!(stage.until(id, "deadline").to_string(), "10m");
    stage.doze("1s");
    stage.fire(id, "expire_work", &ben()).refused(409, "not_overdue");
    stage.doze("599s");
    claim_work(&mut stage, id, &ann()).refused(409, "overdue");
    for bad in ["0s", "31d"] {
        let other = claimed(&mut stage);
        stage.fire(other, "claim_work", &ann()).with("lease", bad).refused(422, "bad_lease");
    }
    // Expired, it is the first comer's again.
    stage.fire(id, "expire_work", &ann()).ok();
    claim_work(&mut stage, id, &ann()).ok();
}

/// MSH-14: who comes second is refused for as long as the job is Claimed, even past the deadline.
#[test]
fn the_later_claim_is_refused() {
    let mut stage = stage();
    let id = claimed(&mut stage);
    claim_work(&mut stage, id, &ben()).refused(409, "already_claimed");
    stage.doze("11m");
    claim_work(&mut stage, id, &ben()).refused(409, "already_claimed");
    assert_eq!(stage.field(id, "claimer"), "ann");
    stage.fire(id, "expire_work", &ben()).ok();
    claim_work(&mut stage, id, &ben()).ok();
    assert_eq!(stage.field(id, "claimer"), "ben");
}

/// MSH-30: a late completion counts while nobody has expired the lease, and not after.
#[test]
fn late_is_fine_until_somebody_expires_it() {
    let mut stage = stage();
    let (late, lost) = (claimed(&mut stage), claimed(&mut stage));
    stage.doze("2h");
    stage.fire(late, "complete_job", &ann()).with("output", "at last").ok();
    assert_eq!(stage.state(late), "Completed");
    stage.fire(lost, "expire_work", &ben()).ok();
    stage.fire(lost, "complete_job", &ann()).wrong_state("Pending", "complete_job");
    claim_work(&mut stage, lost, &ben()).ok();
    stage.fire(lost, "complete_job", &ann()).not_allowed();
}

/// MSH-13: a lease is longer than nothing and at most thirty days, when a job is claimed and when it is renewed.
#[test]
fn a_lease_is_at_most_thirty_days() {
    for renewed in [false, true] {
        for (lease, fits) in [("0s", false), ("1ms", true), ("30d", true), ("2592000001ms", false)] {
            let mut stage = stage();
            let id = if renewed { claimed(&mut stage) } else { pending(&mut stage) };
            let attempt = stage.fire(id, "claim_work", &ann()).with("lease", lease);
            if fits {
                attempt.ok();
                assert_eq!(stage.until(id, "deadline"), lease.parse().expect("a duration"));
            } else {
                attempt.refused(422, "bad_lease");
            }
        }
        let mut stage = stage();
        let id = if renewed { claimed(&mut stage) } else { pending(&mut stage) };
        stage.fire(id, "claim_work", &ann()).bad_input();
    }
}
