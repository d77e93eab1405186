//! MSH-15: routes of job kinds to nodes.

use onceward_core::value::RecordId;
use onceward_testkit::Simulator;

use super::jobs::{ann_actor, ben_actor, claim_work_attempt, create_claimed_job, create_pending_job};
use super::{machine_actor, new_simulator, user_actor};

pub(super) fn create_route(stage: &mut Simulator, node: &str) -> RecordId {
    stage.create("mesh.route", &machine_actor()).with("kind", "index").with("node", node).expect_ok()
}

/// MSH-15: also for jobs scheduled before the route; other kinds are free.
#[test]
fn routed_kind_is_claimed_only_by_its_node() {
    let mut stage = new_simulator();
    let (early, other) =
        (create_pending_job(&mut stage), stage.create("mesh.job", &machine_actor()).with("kind", "mail").expect_ok());
    create_route(&mut stage, "ben");
    let late = create_pending_job(&mut stage);
    for id in [early, late] {
        claim_work_attempt(&mut stage, id, &ann_actor()).expect_refusal(403, "routed_elsewhere");
        claim_work_attempt(&mut stage, id, &ben_actor()).expect_ok();
    }
    claim_work_attempt(&mut stage, other, &ann_actor()).expect_ok();
}

/// MSH-15
#[test]
fn route_is_unique_and_can_be_changed_and_freed() {
    let mut stage = new_simulator();
    let route = create_route(&mut stage, "ben");
    let second_route = stage.create("mesh.route", &machine_actor()).with("kind", "index").with("node", "ann");
    second_route.expect_refusal(409, "key_taken");
    let id = create_pending_job(&mut stage);
    stage.fire(route, "route", &machine_actor()).with("node", "ben").expect_unchanged();
    stage.fire(route, "route", &machine_actor()).with("node", "cid").expect_ok();
    claim_work_attempt(&mut stage, id, &ben_actor()).expect_refusal(403, "routed_elsewhere");
    stage.fire(route, "free", &machine_actor()).expect_ok();
    claim_work_attempt(&mut stage, id, &ben_actor()).expect_ok();
    stage.fire(id, "yield_work", &ben_actor()).expect_ok();
    stage.fire(route, "route", &machine_actor()).with("node", "ann").expect_ok();
    claim_work_attempt(&mut stage, id, &ben_actor()).expect_refusal(403, "routed_elsewhere");
    claim_work_attempt(&mut stage, id, &ann_actor()).expect_ok();
}

/// MSH-15, MSH-13: the existing claim stays.
#[test]
fn claim_is_not_renewed_after_kind_is_routed_elsewhere() {
    let mut stage = new_simulator();
    let (first, second) = (create_claimed_job(&mut stage), create_claimed_job(&mut stage));
    create_route(&mut stage, "ben");
    claim_work_attempt(&mut stage, first, &ann_actor()).expect_refusal(403, "routed_elsewhere");
    stage.fire(first, "complete_job", &ann_actor()).expect_ok();
    stage.advance_without_engine("10m");
    stage.fire(second, "expire_work", &ann_actor()).expect_ok();
    claim_work_attempt(&mut stage, second, &ann_actor()).expect_refusal(403, "routed_elsewhere");
    claim_work_attempt(&mut stage, second, &ben_actor()).expect_ok();
}

/// MSH-15, MSH-13: and by any node once the kind is free again.
#[test]
fn claim_is_renewed_by_routed_node() {
    let mut stage = new_simulator();
    let id = create_claimed_job(&mut stage);
    let route = create_route(&mut stage, "ben");
    claim_work_attempt(&mut stage, id, &ann_actor()).expect_refusal(403, "routed_elsewhere");
    stage.advance_without_engine("1m");
    stage.fire(route, "free", &machine_actor()).expect_ok();
    claim_work_attempt(&mut stage, id, &ann_actor()).expect_ok();
    stage.advance_without_engine("1m");
    stage.fire(route, "route", &machine_actor()).with("node", "ann").expect_ok();
    claim_work_attempt(&mut stage, id, &ann_actor()).expect_ok();
    assert_eq!(stage.time_until(id, "deadline").to_string(), "10m");
}

/// MSH-10, MSH-15: the user uses the event `route`, and the route is the user's from then on.
#[test]
fn user_changes_existing_machine_route() {
    let mut stage = new_simulator();
    let route = create_route(&mut stage, "ann");
    stage
        .create("mesh.route", &user_actor())
        .with("kind", "index")
        .with("node", "ben")
        .expect_refusal(409, "key_taken");
    stage.fire(route, "route", &user_actor()).with("node", "ann").expect_ok();
    assert_eq!(stage.field(route, "byUser"), true, "the same node, now set by the user");
    stage.fire(route, "route", &machine_actor()).with("node", "ben").expect_refusal(409, "users_word");
}

/// MSH-10, MSH-15
#[test]
fn machine_cannot_change_user_route() {
    let mut stage = new_simulator();
    let route = create_route(&mut stage, "ann");
    stage.fire(route, "route", &user_actor()).with("node", "ben").expect_ok();
    stage.fire(route, "route", &machine_actor()).with("node", "ann").expect_refusal(409, "users_word");
    stage.fire(route, "free", &machine_actor()).expect_refusal(409, "users_word");
    stage.fire(route, "free", &user_actor()).expect_ok();
    stage.fire(route, "route", &machine_actor()).with("node", "ann").expect_refusal(409, "users_word");
    assert_eq!(stage.state(route), "Free");
    stage.fire(route, "free", &machine_actor()).expect_unchanged();
    stage.fire(route, "route", &user_actor()).with("node", "ben").expect_ok();
    let by_user = stage.create("mesh.route", &user_actor()).with("kind", "mail").with("node", "ann").expect_ok();
    stage.fire(by_user, "free", &machine_actor()).expect_refusal(409, "users_word");
    // Freed by a machine, and then by the user.
    let free = stage.create("mesh.route", &machine_actor()).with("kind", "scan").with("node", "ann").expect_ok();
    stage.fire(free, "free", &machine_actor()).expect_ok();
    stage.fire(free, "free", &user_actor()).expect_ok();
    stage.fire(free, "route", &machine_actor()).with("node", "ann").expect_refusal(409, "users_word");
}

/// MSH-10, MSH-15: for a route that a machine has freed and one that a machine has set.
#[test]
fn user_confirmation_of_machine_route_stands() {
    let mut stage = new_simulator();
    let machine_route = create_route(&mut stage, "ann");
    let freed = stage.create("mesh.route", &machine_actor()).with("kind", "scan").with("node", "ann").expect_ok();
    stage.fire(freed, "free", &machine_actor()).expect_ok();
    stage.fire(freed, "route", &user_actor()).with("node", "ben").expect_ok();
    stage.fire(freed, "free", &machine_actor()).expect_refusal(409, "users_word");
    stage.fire(machine_route, "free", &user_actor()).expect_ok();
    stage.fire(machine_route, "route", &machine_actor()).with("node", "ann").expect_refusal(409, "users_word");
    assert_eq!([freed, machine_route].map(|id| stage.state(id)), ["Routed", "Free"]);
}
