//! MSH-12, MSH-13, MSH-14 and MSH-30: jobs that nodes claim through the log.

use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use onceward_testkit::{SimulatedCall, Simulator};

use super::{ALL_CAPABILITIES, new_simulator, node_actor};

pub(super) fn ann_actor() -> Actor {
    node_actor("ann", ALL_CAPABILITIES)
}

pub(super) fn ben_actor() -> Actor {
    node_actor("ben", ALL_CAPABILITIES)
}

pub(super) fn create_pending_job(stage: &mut Simulator) -> RecordId {
    stage.create("mesh.job", &node_actor("scheduler", &["Job.Schedule"])).with("kind", "index").expect_ok()
}

pub(super) fn claim_work_attempt<'s>(stage: &'s mut Simulator, id: RecordId, author: &Actor) -> SimulatedCall<'s> {
    stage.fire(id, "claim_work", author).with("lease", "10m")
}

/// Creates a job that Ann has claimed for ten minutes.
pub(super) fn create_claimed_job(stage: &mut Simulator) -> RecordId {
    let id = create_pending_job(stage);
    claim_work_attempt(stage, id, &ann_actor()).expect_ok()
}

/// MSH-12: Completed is final.
#[test]
fn job_goes_from_pending_to_completed() {
    let mut stage = new_simulator();
    let id = create_pending_job(&mut stage);
    assert_eq!(stage.state(id), "Pending");
    claim_work_attempt(&mut stage, id, &ann_actor()).expect_ok();
    assert_eq!((stage.state(id), stage.field(id, "claimer")), ("Claimed".into(), "ann".into()));
    stage.fire(id, "complete_job", &ann_actor()).with("output", "42 pages").expect_ok();
    assert_eq!((stage.state(id), stage.field(id, "output")), ("Completed".into(), "42 pages".into()));
    assert!(stage.record(id).is_final() && stage.record(id).finished_at.is_some());
    claim_work_attempt(&mut stage, id, &ann_actor()).expect_wrong_state("Completed", "claim_work");
    stage.fire(id, "yield_work", &ann_actor()).expect_wrong_state("Completed", "yield_work");
    stage.fire(id, "complete_job", &ann_actor()).expect_wrong_state("Completed", "complete_job");
    stage.fire(id, "expire_work", &ann_actor()).expect_unchanged();
}

/// MSH-12
#[test]
fn complete_or_yield_of_pending_job_is_refused() {
    let mut stage = new_simulator();
    let id = create_pending_job(&mut stage);
    stage.fire(id, "complete_job", &ann_actor()).expect_wrong_state("Pending", "complete_job");
    stage.fire(id, "yield_work", &ann_actor()).expect_wrong_state("Pending", "yield_work");
}

/// MSH-12
#[test]
fn yielded_job_can_be_claimed_by_other_node() {
    let mut stage = new_simulator();
    let id = create_claimed_job(&mut stage);
    stage.fire(id, "yield_work", &ben_actor()).expect_not_allowed();
    stage.fire(id, "yield_work", &ann_actor()).expect_ok();
    assert_eq!(stage.state(id), "Pending");
    assert!(stage.field(id, "claimer").is_null() && stage.field(id, "deadline").is_null());
    claim_work_attempt(&mut stage, id, &ben_actor()).expect_ok();
    stage.fire(id, "complete_job", &ann_actor()).expect_not_allowed();
    stage.fire(id, "complete_job", &ben_actor()).expect_ok();
}

/// MSH-12: whatever capabilities the other node has.
#[test]
fn complete_requires_current_claimer() {
    let mut stage = new_simulator();
    let id = create_claimed_job(&mut stage);
    stage.fire(id, "complete_job", &ben_actor()).expect_not_allowed();
    stage.fire(id, "complete_job", &super::user_actor()).expect_not_allowed();
    stage.fire(id, "complete_job", &ann_actor()).expect_ok();
}

/// MSH-13: measured from the claim's clock.
#[test]
fn deadline_is_claim_time_plus_lease() {
    let mut stage = new_simulator();
    stage.advance_without_engine("17s");
    let id = create_pending_job(&mut stage);
    for bad in ["0s", "-1s", "31d"] {
        let refusal = stage.fire(id, "claim_work", &ann_actor()).with("lease", bad).run().expect_refusal();
        assert_eq!(refusal.status, 422, "{bad}: {}", refusal.reason);
    }
    claim_work_attempt(&mut stage, id, &ann_actor()).expect_ok();
    assert_eq!(stage.time_until(id, "deadline").to_string(), "10m");
    // No timer fires, however long ago the deadline is.
    stage.advance("1d");
    assert_eq!(stage.state(id), "Claimed");
}

/// MSH-13: by any node with the capability; a repetition changes nothing.
#[test]
fn overdue_job_is_released_once_by_expire_work() {
    let mut stage = new_simulator();
    let id = create_claimed_job(&mut stage);
    stage.advance_without_engine("599s");
    stage.fire(id, "expire_work", &ben_actor()).expect_refusal(409, "not_overdue");
    stage.fire(id, "expire_work", &ann_actor()).expect_refusal(409, "not_overdue");
    stage.advance_without_engine("1s");
    stage
        .fire(id, "expire_work", &node_actor("eve", &["Job.Read", "Job.Schedule", "Job.Complete"]))
        .expect_not_allowed();
    stage.fire(id, "expire_work", &node_actor("eve", &["Job.Claim"])).expect_ok();
    assert_eq!(stage.state(id), "Pending");
    assert!(stage.field(id, "claimer").is_null());
    stage.fire(id, "expire_work", &ben_actor()).expect_unchanged();
    stage.fire(id, "expire_work", &ann_actor()).expect_unchanged();
}

/// MSH-13: with the capability, from the new claim's clock. The deadline itself counts as expired.
#[test]
fn claimer_renews_only_before_deadline() {
    let mut stage = new_simulator();
    let id = create_claimed_job(&mut stage);
    stage.advance_without_engine("599s");
    claim_work_attempt(&mut stage, id, &node_actor("ann", &["Job.Complete", "Job.Read"])).expect_not_allowed();
    claim_work_attempt(&mut stage, id, &ann_actor()).expect_ok();
    assert_eq!(stage.time_until(id, "deadline").to_string(), "10m");
    stage.advance_without_engine("1s");
    stage.fire(id, "expire_work", &ben_actor()).expect_refusal(409, "not_overdue");
    stage.advance_without_engine("599s");
    claim_work_attempt(&mut stage, id, &ann_actor()).expect_refusal(409, "overdue");
    for bad in ["0s", "31d"] {
        let other = create_claimed_job(&mut stage);
        stage.fire(other, "claim_work", &ann_actor()).with("lease", bad).expect_refusal(422, "bad_lease");
    }
    // After the expiry any node may claim it.
    stage.fire(id, "expire_work", &ann_actor()).expect_ok();
    claim_work_attempt(&mut stage, id, &ann_actor()).expect_ok();
}

/// MSH-14
#[test]
fn second_claim_is_refused_even_when_overdue() {
    let mut stage = new_simulator();
    let id = create_claimed_job(&mut stage);
    claim_work_attempt(&mut stage, id, &ben_actor()).expect_refusal(409, "already_claimed");
    stage.advance_without_engine("11m");
    claim_work_attempt(&mut stage, id, &ben_actor()).expect_refusal(409, "already_claimed");
    assert_eq!(stage.field(id, "claimer"), "ann");
    stage.fire(id, "expire_work", &ben_actor()).expect_ok();
    claim_work_attempt(&mut stage, id, &ben_actor()).expect_ok();
    assert_eq!(stage.field(id, "claimer"), "ben");
}

/// MSH-30
#[test]
fn late_completion_succeeds_until_expired() {
    let mut stage = new_simulator();
    let (late, lost) = (create_claimed_job(&mut stage), create_claimed_job(&mut stage));
    stage.advance_without_engine("2h");
    stage.fire(late, "complete_job", &ann_actor()).with("output", "at last").expect_ok();
    assert_eq!(stage.state(late), "Completed");
    stage.fire(lost, "expire_work", &ben_actor()).expect_ok();
    stage.fire(lost, "complete_job", &ann_actor()).expect_wrong_state("Pending", "complete_job");
    claim_work_attempt(&mut stage, lost, &ben_actor()).expect_ok();
    stage.fire(lost, "complete_job", &ann_actor()).expect_not_allowed();
}

/// MSH-13: for claims and renewals.
#[test]
fn lease_duration_is_positive_and_at_most_thirty_days() {
    for is_renewal in [false, true] {
        for (lease, fits) in [("0s", false), ("1ms", true), ("30d", true), ("2592000001ms", false)] {
            let mut stage = new_simulator();
            let id = if is_renewal { create_claimed_job(&mut stage) } else { create_pending_job(&mut stage) };
            let attempt = stage.fire(id, "claim_work", &ann_actor()).with("lease", lease);
            if fits {
                attempt.expect_ok();
                assert_eq!(stage.time_until(id, "deadline"), lease.parse().expect("a duration"));
            } else {
                attempt.expect_refusal(422, "bad_lease");
            }
        }
        let mut stage = new_simulator();
        let id = if is_renewal { create_claimed_job(&mut stage) } else { create_pending_job(&mut stage) };
        stage.fire(id, "claim_work", &ann_actor()).expect_bad_input();
    }
}
