//! MSH-15: kinds of jobs that only one node does.

use onceward_core::value::RecordId;
use onceward_testkit::Stage;

use super::jobs::{ann, ben, claim_work, claimed, pending};
use super::{machine, stage, you};

pub(super) fn routed(stage: &mut Stage, node: &str) -> RecordId {
    stage.create("mesh.route", &machine()).with("kind", "index").with("node", node).ok()
}

/// MSH-15: jobs of a routed kind are claimed by that node alone, those scheduled before among them; other kinds by all.
#[test]
fn a_kind_is_routed_to_one_node() {
    let mut stage = stage();
    let (early, other) = (pending(&mut stage), stage.create("mesh.job", &machine()).with("kind", "mail").ok());
    routed(&mut stage, "ben");
    let late = pending(&mut stage);
    for id in [early, late] {
        claim_work(&mut stage, id, &ann()).refused(403, "routed_elsewhere");
        claim_work(&mut stage, id, &ben()).ok();
    }
    claim_work(&mut stage, other, &ann()).ok();
}

/// MSH-15: a kind has one route; it can be turned to another node, freed, and given again.
#[test]
fn a_route_is_turned_and_freed() {
    let mut stage = stage();
    let route = routed(&mut stage, "ben");
    let again = stage.create("mesh.route", &machine()).with("kind", "index").with("node", "ann");
    again.refused(409, "key_taken");
    let id = pending(&mut stage);
    stage.fire(route, "route", &machine()).with("node", "ben").unchanged();
    stage.fire(route, "route", &machine()).with("node", "cid").ok();
    claim_work(&mut stage, id, &ben()).refused(403, "routed_elsewhere");
    stage.fire(route, "free", &machine()).ok();
    claim_work(&mut stage, id, &ben()).ok();
    stage.fire(id, "yield_work", &ben()).ok();
    stage.fire(route, "route", &machine()).with("node", "ann").ok();
    claim_work(&mut stage, id, &ben()).refused(403, "routed_elsewhere");
    claim_work(&mut stage, id, &ann()).ok();
}

/// MSH-15, MSH-13: a claim stands when its kind is routed elsewhere, and is not renewed.
#[test]
fn a_claim_under_way_is_not_renewed_past_a_route() {
    let mut stage = stage();
    let (first, second) = (claimed(&mut stage), claimed(&mut stage));
    routed(&mut stage, "ben");
    claim_work(&mut stage, first, &ann()).refused(403, "routed_elsewhere");
    stage.fire(first, "complete_job", &ann()).ok();
    stage.doze("10m");
    stage.fire(second, "expire_work", &ann()).ok();
    claim_work(&mut stage, second, &ann()).refused(403, "routed_elsewhere");
    claim_work(&mut stage, second, &ben()).ok();
}

/// MSH-15, MSH-13: a claim is renewed by the node that has the route, and by anybody's once the kind is free again.
#[test]
fn a_claim_is_renewed_along_the_route() {
    let mut stage = stage();
    let id = claimed(&mut stage);
    let route = routed(&mut stage, "ben");
    claim_work(&mut stage, id, &ann()).refused(403, "routed_elsewhere");
    stage.doze("1m");
    stage.fire(route, "free", &machine()).ok();
    claim_work(&mut stage, id, &ann()).ok();
    stage.doze("1m");
    stage.fire(route, "route", &machine()).with("node", "ann").ok();
    claim_work(&mut stage, id, &ann()).ok();
    assert_eq!(stage.until(id, "deadline").to_string(), "10m");
}

/// MSH-10, MSH-15: a machine has made the route already. The user's word on it is `route`, and stands from then on.
#[test]
fn the_user_turns_the_route_that_is_there() {
    let mut stage = stage();
    let route = routed(&mut stage, "ann");
    stage.create("mesh.route", &you()).with("kind", "index").with("node", "ben").refused(409, "key_taken");
    stage.fire(route, "route", &you()).with("node", "ann").ok();
    assert_eq!(stage.field(route, "byUser"), true, "the same node, and now by the user's word");
    stage.fire(route, "route", &machine()).with("node", "ben").refused(409, "users_word");
}

/// MSH-10, MSH-15: where the user has routed a kind, no machine routes it otherwise.
#[test]
fn the_users_route_stands() {
    let mut stage = stage();
    let route = routed(&mut stage, "ann");
    stage.fire(route, "route", &you()).with("node", "ben").ok();
    stage.fire(route, "route", &machine()).with("node", "ann").refused(409, "users_word");
    stage.fire(route, "free", &machine()).refused(409, "users_word");
    stage.fire(route, "free", &you()).ok();
    stage.fire(route, "route", &machine()).with("node", "ann").refused(409, "users_word");
    assert_eq!(stage.state(route), "Free");
    stage.fire(route, "free", &machine()).unchanged();
    stage.fire(route, "route", &you()).with("node", "ben").ok();
    let by_user = stage.create("mesh.route", &you()).with("kind", "mail").with("node", "ann").ok();
    stage.fire(by_user, "free", &machine()).refused(409, "users_word");
    // Free by a machine's doing, and now by the user's word.
    let free = stage.create("mesh.route", &machine()).with("kind", "scan").with("node", "ann").ok();
    stage.fire(free, "free", &machine()).ok();
    stage.fire(free, "free", &you()).ok();
    stage.fire(free, "route", &machine()).with("node", "ann").refused(409, "users_word");
}

/// MSH-10, MSH-15: where a machine had the last word the user may have another, and that one stays: on a route that a machine
/// has freed, and on one that a machine has given.
#[test]
fn the_users_word_on_a_machines_route_stays() {
    let mut stage = stage();
    let given = routed(&mut stage, "ann");
    let freed = stage.create("mesh.route", &machine()).with("kind", "scan").with("node", "ann").ok();
    stage.fire(freed, "free", &machine()).ok();
    stage.fire(freed, "route", &you()).with("node", "ben").ok();
    stage.fire(freed, "free", &machine()).refused(409, "users_word");
    stage.fire(given, "free", &you()).ok();
    stage.fire(given, "route", &machine()).with("node", "ann").refused(409, "users_word");
    assert_eq!([freed, given].map(|id| stage.state(id)), ["Routed", "Free"]);
}
