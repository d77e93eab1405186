//! Transition matrix of jobs, routes and nodes: every event in every state by every caller.

use onceward_testkit::Simulator;
use onceward_testkit::matrix::{AllowedTransition, LifecycleMatrix};
use serde_json::json;

use super::matrix::{fire_trial, json_object, with_callers};
use super::{jobs, machine_actor, nodes, routes, user_actor};

/// All transitions of the requirement.
const ALLOWED_JOB_TRANSITIONS: &[AllowedTransition<'static>] = &[
    ("nothing", "create", "writer, user, claimer", "Pending"),
    ("Pending: not routed", CLAIM_TRIAL, "writer, user, claimer", "Claimed"),
    ("Pending: routed to the claimer", CLAIM_TRIAL, "claimer", "Claimed"),
    ("Claimed: in time", CLAIM_TRIAL, "claimer", "Claimed"),
    ("Claimed", "yield_work", "claimer", "Pending"),
    ("Claimed: overdue", "expire_work", "writer, user, claimer", "Pending"),
    ("Claimed", "complete_job", "claimer", "Completed"),
];

const CLAIM_TRIAL: &str = r#"claim_work lease="10m""#;

/// MSH-12, MSH-13, MSH-14, MSH-15, MSH-30
#[test]
fn only_allowed_job_transitions_happen() {
    let create_claimed_in_time = |stage: &mut Simulator| {
        let id = jobs::create_claimed_job(stage);
        stage.advance_without_engine("1m");
        id
    };
    with_callers(LifecycleMatrix::new("mesh", "mesh.job", &[("kind", "'index'")], |stage| stage))
        .with_caller("claimer", jobs::ann_actor())
        .with_create_input(json_object(json!({ "kind": "index" })), None)
        .with_trial(fire_trial("claim_work", json!({ "lease": "10m" })))
        .with_scene("Pending: not routed", jobs::create_pending_job)
        .with_scene("Pending: routed to the claimer", |stage| {
            routes::create_route(stage, "ann");
            jobs::create_pending_job(stage)
        })
        .with_scene("Claimed: in time", create_claimed_in_time)
        .with_scene("Claimed: overdue", |stage| {
            let id = create_claimed_in_time(stage);
            stage.advance_without_engine("9m");
            id
        })
        .with_scene("Completed", |stage| {
            let id = create_claimed_in_time(stage);
            stage.fire(id, "complete_job", &jobs::ann_actor()).expect_ok()
        })
        .assert_only_allowed(ALLOWED_JOB_TRANSITIONS);
}

/// All transitions of the requirement.
const ALLOWED_ROUTE_TRANSITIONS: &[AllowedTransition<'static>] = &[
    ("nothing", "create", "writer, user", "Routed"),
    ("Routed: by a machine", r#"route node="ann""#, "writer, user", "Routed"),
    ("Routed: by the user", r#"route node="ann""#, "user", "Routed"),
    ("Free: by a machine", r#"route node="ann""#, "writer, user", "Routed"),
    ("Free: by the user", r#"route node="ann""#, "user", "Routed"),
    ("Routed: by a machine", "free", "writer, user", "Free"),
    ("Routed: by the user", "free", "user", "Free"),
    ("Free: by a machine", "free", "user", "Free"),
];

/// MSH-10, MSH-15
#[test]
fn only_allowed_route_transitions_happen() {
    let create_user_route = |stage: &mut Simulator| {
        stage.create("mesh.route", &user_actor()).with("kind", "index").with("node", "ben").expect_ok()
    };
    with_callers(LifecycleMatrix::new("mesh", "mesh.route", &[("kind", "'mail'"), ("node", "'ben'")], |stage| stage))
        .with_create_input(json_object(json!({ "kind": "mail", "node": "ben" })), None)
        .with_trial(fire_trial("route", json!({ "node": "ann" })))
        .with_scene("Routed: by a machine", |stage| routes::create_route(stage, "ben"))
        .with_scene("Routed: by the user", create_user_route)
        .with_scene("Free: by a machine", |stage| {
            let id = routes::create_route(stage, "ben");
            stage.fire(id, "free", &machine_actor()).expect_ok()
        })
        .with_scene("Free: by the user", |stage| {
            let id = create_user_route(stage);
            stage.fire(id, "free", &user_actor()).expect_ok()
        })
        .assert_only_allowed(ALLOWED_ROUTE_TRANSITIONS);
}

/// MSH-16, MSH-17, MSH-18, MSH-20, MSH-21
#[test]
fn only_allowed_node_transitions_happen() {
    let node_after = |event: &'static str| {
        move |stage: &mut Simulator| {
            let id = nodes::create_active_node(stage);
            stage.fire(id, event, &nodes::fold_actor()).expect_ok()
        }
    };
    let prepare = |stage| nodes::with_delegations(stage, &nodes::new_book());
    with_callers(LifecycleMatrix::new("mesh", "mesh.node", &[("did", "'d'"), ("publicKey", "'k'")], prepare))
        .with_caller("fold", nodes::fold_actor())
        .with_create_input(json_object(json!({ "did": "did:key:z6Other", "publicKey": "ed25519:bb" })), None)
        .with_scene("Pending", nodes::create_seen_node)
        .with_scene("Active", nodes::create_active_node)
        .with_scene("Suspended", node_after("lapsed"))
        .with_scene("Revoked", node_after("revoked"))
        .assert_only_allowed(&[
            ("nothing", "create", "fold", "Pending"),
            ("Pending", "delegated", "fold", "Active"),
            ("Active", "lapsed", "fold", "Suspended"),
            ("Suspended", "delegated", "fold", "Active"),
            ("Active", "revoked", "fold", "Revoked"),
            ("Suspended", "revoked", "fold", "Revoked"),
            ("Revoked", "delegated", "fold", "Active"),
        ]);
}
