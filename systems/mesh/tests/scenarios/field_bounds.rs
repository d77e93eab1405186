//! MSH-1, MSH-8, MSH-12, MSH-15 and MSH-16: bounds of fields, from both sides.

use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use onceward_testkit::Simulator;
use serde_json::{Value, json};

use super::jobs::{ann_actor, claim_work_attempt, create_claimed_job, create_pending_job};
use super::{
    ALL_CAPABILITIES, claim_attempt, create_evidence, create_grounded_claim, id_list, machine_actor, new_simulator,
    node_actor, nodes, routes,
};

/// Field name, minimum length, maximum length.
type TextBounds = (&'static str, usize, usize);

/// Returns each lifecycle with an author, valid fields and its text bounds.
fn creation_cases(support: &[RecordId]) -> Vec<(&'static str, Actor, Value, Vec<TextBounds>)> {
    let on = id_list(support);
    vec![
        ("mesh.evidence", machine_actor(), json!({ "digest": "d" }), vec![("digest", 1, 200)]),
        (
            "mesh.claim",
            machine_actor(),
            json!({ "subject": "s", "predicate": "p", "object": "o", "confidence": 1.0, "support": on }),
            vec![("subject", 1, 1000), ("predicate", 1, 1000), ("object", 0, 10_000)],
        ),
        ("mesh.episode", machine_actor(), json!({ "title": "t", "support": on }), vec![("title", 1, 1000)]),
        ("mesh.action", machine_actor(), json!({ "title": "t", "support": on }), vec![("title", 1, 1000)]),
        ("mesh.snapshot", machine_actor(), json!({ "artifact": "a", "support": on }), vec![("artifact", 1, 1000)]),
        ("mesh.job", machine_actor(), json!({ "kind": "k" }), vec![("kind", 1, 200)]),
        ("mesh.route", machine_actor(), json!({ "kind": "k", "node": "n" }), vec![("kind", 1, 200), ("node", 1, 200)]),
        (
            "mesh.node",
            nodes::fold_actor(),
            json!({ "did": "d", "publicKey": "k" }),
            vec![("did", 1, 200), ("publicKey", 1, 200)],
        ),
    ]
}

/// MSH-1, MSH-8, MSH-12, MSH-15, MSH-16
#[test]
fn text_fields_are_required_and_bounded() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    for (lifecycle, author, whole, texts) in creation_cases(&[ground]) {
        for field in whole.as_object().expect("a JSON object").keys() {
            let mut rest = whole.clone();
            rest.as_object_mut().expect("a JSON object").remove(field);
            stage.create(lifecycle, &author).with_all(rest).expect_bad_input();
        }
        for (field, min_chars, max_chars) in texts {
            for (length, fits) in [(min_chars, true), (max_chars, true), (max_chars + 1, false)] {
                // On a copy, because the names of routes and nodes are unique.
                let mut stage = stage.clone();
                let attempt = stage.create(lifecycle, &author).with_all(whole.clone()).with(field, "x".repeat(length));
                if fits {
                    let id = attempt.expect_ok();
                    assert_eq!(stage.field(id, field), "x".repeat(length));
                } else {
                    attempt.expect_bad_input();
                }
            }
            if min_chars > 0 {
                stage.create(lifecycle, &author).with_all(whole.clone()).with(field, "").expect_bad_input();
            }
        }
    }
}

/// MSH-1
#[test]
fn evidence_source_is_optional_and_bounded() {
    let mut stage = new_simulator();
    let observed = |stage: &mut Simulator, source: usize| {
        let attempt =
            stage.create("mesh.evidence", &machine_actor()).with("digest", "d").with("source", "s".repeat(source));
        attempt.run()
    };
    let id = observed(&mut stage, 1000).expect_changes().subject;
    assert_eq!(stage.field(id, "source"), "s".repeat(1000));
    assert_eq!(&*observed(&mut stage, 1001).expect_refusal().code, "invalid_input");
    let id = create_evidence(&mut stage);
    assert!(stage.field(id, "source").is_null());
}

/// MSH-1, MSH-8
#[test]
fn support_over_256_is_rejected() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    for (lifecycle, author, whole, _) in
        creation_cases(&[ground]).into_iter().filter(|(_, _, whole, _)| whole.get("support").is_some())
    {
        let resting = |count: usize| vec![ground; count];
        stage.create(lifecycle, &author).with_all(whole.clone()).with("support", id_list(&resting(256))).expect_ok();
        stage.create(lifecycle, &author).with_all(whole).with("support", id_list(&resting(257))).expect_bad_input();
    }
}

/// MSH-1, MSH-2: both bounds are included.
#[test]
fn confidence_and_threshold_are_between_zero_and_one() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    for (value, fits) in [(0.0, true), (1.0, true), (-0.01, false), (1.01, false)] {
        let id = create_grounded_claim(&mut stage);
        for attempt in 0..3 {
            let attempt = match attempt {
                0 => claim_attempt(&mut stage, &[ground], value),
                1 => claim_attempt(&mut stage, &[ground], 0.7).with("threshold", value),
                _ => stage.fire(id, "update_confidence", &machine_actor()).with("confidence", value),
            };
            if fits {
                attempt.expect_ok();
            } else {
                attempt.expect_bad_input();
            }
        }
    }
}

/// MSH-12
#[test]
fn job_output_is_optional_and_bounded() {
    let mut stage = new_simulator();
    let (long, longer, none) =
        (create_claimed_job(&mut stage), create_claimed_job(&mut stage), create_claimed_job(&mut stage));
    stage.fire(long, "complete_job", &ann_actor()).with("output", "o".repeat(10_000)).expect_ok();
    assert_eq!(stage.field(long, "output"), "o".repeat(10_000));
    stage.fire(longer, "complete_job", &ann_actor()).with("output", "o".repeat(10_001)).expect_bad_input();
    stage.fire(none, "complete_job", &ann_actor()).expect_ok();
    assert!(stage.field(none, "output").is_null());
}

/// MSH-12: the name is never truncated.
#[test]
fn claimer_name_over_limit_is_refused() {
    let mut stage = new_simulator();
    let id = create_pending_job(&mut stage);
    let long = "n".repeat(1000);
    claim_work_attempt(&mut stage, id, &node_actor(&format!("{long}n"), ALL_CAPABILITIES)).run().expect_refusal();
    assert_eq!(stage.state(id), "Pending");
    claim_work_attempt(&mut stage, id, &node_actor(&long, ALL_CAPABILITIES)).expect_ok();
    assert_eq!(stage.field(id, "claimer"), long);
}

/// MSH-15: with the same bounds as on creation.
#[test]
fn route_node_name_is_bounded() {
    let mut stage = new_simulator();
    let id = routes::create_route(&mut stage, "ann");
    for is_free in [false, true] {
        for (length, fits) in [(0, false), (1, true), (200, true), (201, false)] {
            if is_free {
                stage.fire(id, "free", &machine_actor()).run();
            }
            let attempt = stage.fire(id, "route", &machine_actor()).with("node", "n".repeat(length));
            if fits {
                attempt.expect_ok();
            } else {
                attempt.expect_bad_input();
            }
        }
        stage.fire(id, "route", &machine_actor()).expect_bad_input();
    }
}
