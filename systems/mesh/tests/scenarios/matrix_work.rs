//! Every state, every event, every caller: jobs, routes and nodes.

use onceward_testkit::Stage;
use onceward_testkit::matrix::{Allowed, Matrix};
use serde_json::json;

use super::matrix::{fire, object, with_callers};
use super::{jobs, machine, nodes, routes, you};

/// Typed from the requirement.
const JOB: &[Allowed<'static>] = &[
    ("nothing", "create", "writer, user, claimer", "Pending"),
    ("Pending: anybody's", CLAIM, "writer, user, claimer", "Claimed"),
    ("Pending: routed to the claimer", CLAIM, "claimer", "Claimed"),
    ("Claimed: in time", CLAIM, "claimer", "Claimed"),
    ("Claimed", "yield_work", "claimer", "Pending"),
    ("Claimed: overdue", "expire_work", "writer, user, claimer", "Pending"),
    ("Claimed", "complete_job", "claimer", "Completed"),
];

const CLAIM: &str = r#"claim_work lease="10m""#;

/// MSH-12, MSH-13, MSH-14, MSH-15, MSH-30: these moves happen, and no other does.
#[test]
fn every_state_event_and_caller_of_a_job() {
    let in_time = |stage: &mut Stage| {
        let id = jobs::claimed(stage);
        stage.doze("1m");
        id
    };
    with_callers(Matrix::new("mesh", "mesh.job", &[("kind", "'index'")], |stage| stage))
        .caller("claimer", jobs::ann())
        .given(object(json!({ "kind": "index" })), None)
        .trial(fire("claim_work", json!({ "lease": "10m" })))
        .scene("Pending: anybody's", jobs::pending)
        .scene("Pending: routed to the claimer", |stage| {
            routes::routed(stage, "ann");
            jobs::pending(stage)
        })
        .scene("Claimed: in time", in_time)
        .scene("Claimed: overdue", |stage| {
            let id = in_time(stage);
            stage.doze("9m");
            id
        })
        .scene("Completed", |stage| {
            let id = in_time(stage);
            stage.fire(id, "complete_job", &jobs::ann()).ok()
        })
        .check(JOB);
}

/// Typed from the requirement.
const ROUTE: &[Allowed<'static>] = &[
    ("nothing", "create", "writer, user", "Routed"),
    ("Routed: by a machine", r#"route node="ann""#, "writer, user", "Routed"),
    ("Routed: by the user", r#"route node="ann""#, "user", "Routed"),
    ("Free: by a machine", r#"route node="ann""#, "writer, user", "Routed"),
    ("Free: by the user", r#"route node="ann""#, "user", "Routed"),
    ("Routed: by a machine", "free", "writer, user", "Free"),
    ("Routed: by the user", "free", "user", "Free"),
    ("Free: by a machine", "free", "user", "Free"),
];

/// MSH-10, MSH-15: routes are turned by who may, and by the user against machines.
#[test]
fn every_state_event_and_caller_of_a_route() {
    let by_user = |stage: &mut Stage| stage.create("mesh.route", &you()).with("kind", "index").with("node", "ben").ok();
    with_callers(Matrix::new("mesh", "mesh.route", &[("kind", "'mail'"), ("node", "'ben'")], |stage| stage))
        .given(object(json!({ "kind": "mail", "node": "ben" })), None)
        .trial(fire("route", json!({ "node": "ann" })))
        .scene("Routed: by a machine", |stage| routes::routed(stage, "ben"))
        .scene("Routed: by the user", by_user)
        .scene("Free: by a machine", |stage| {
            let id = routes::routed(stage, "ben");
            stage.fire(id, "free", &machine()).ok()
        })
        .scene("Free: by the user", |stage| {
            let id = by_user(stage);
            stage.fire(id, "free", &you()).ok()
        })
        .check(ROUTE);
}

/// MSH-16, MSH-17, MSH-18, MSH-20, MSH-21: a node's standing follows the fold, and nobody else.
#[test]
fn every_state_event_and_caller_of_a_node() {
    let after = |event: &'static str| {
        move |stage: &mut Stage| {
            let id = nodes::active(stage);
            stage.fire(id, event, &nodes::fold()).ok()
        }
    };
    let dress = |stage| nodes::dressed(stage, &nodes::book());
    with_callers(Matrix::new("mesh", "mesh.node", &[("did", "'d'"), ("publicKey", "'k'")], dress))
        .caller("fold", nodes::fold())
        .given(object(json!({ "did": "did:key:z6Other", "publicKey": "ed25519:bb" })), None)
        .scene("Pending", nodes::seen)
        .scene("Active", nodes::active)
        .scene("Suspended", after("lapsed"))
        .scene("Revoked", after("revoked"))
        .check(&[
            ("nothing", "create", "fold", "Pending"),
            ("Pending", "delegated", "fold", "Active"),
            ("Active", "lapsed", "fold", "Suspended"),
            ("Suspended", "delegated", "fold", "Active"),
            ("Active", "revoked", "fold", "Revoked"),
            ("Suspended", "revoked", "fold", "Revoked"),
            ("Revoked", "delegated", "fold", "Active"),
        ]);
}
