//! MSH-1, MSH-8, MSH-12, MSH-15 and MSH-16 at their edges: how long what is said may be, from both sides.

use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use onceward_testkit::Stage;
use serde_json::{Value, json};

use super::jobs::{ann, claim_work, claimed, pending};
use super::{ALL, believe, evidence, grounded, ids, machine, node, nodes, routes, stage};

/// A text's name, and how short and how long it may be.
type Length = (&'static str, usize, usize);

/// Each lifecycle, who makes one, a whole one, and its texts.
fn made(on: &[RecordId]) -> Vec<(&'static str, Actor, Value, Vec<Length>)> {
    let on = ids(on);
    vec![
        ("mesh.evidence", machine(), json!({ "digest": "d" }), vec![("digest", 1, 200)]),
        (
            "mesh.claim",
            machine(),
            json!({ "subject": "s", "predicate": "p", "object": "o", "confidence": 1.0, "support": on }),
            vec![("subject", 1, 1000), ("predicate", 1, 1000), ("object", 0, 10_000)],
        ),
        ("mesh.episode", machine(), json!({ "title": "t", "support": on }), vec![("title", 1, 1000)]),
        ("mesh.action", machine(), json!({ "title": "t", "support": on }), vec![("title", 1, 1000)]),
        ("mesh.snapshot", machine(), json!({ "artifact": "a", "support": on }), vec![("artifact", 1, 1000)]),
        ("mesh.job", machine(), json!({ "kind": "k" }), vec![("kind", 1, 200)]),
        ("mesh.route", machine(), json!({ "kind": "k", "node": "n" }), vec![("kind", 1, 200), ("node", 1, 200)]),
        (
            "mesh.node",
            nodes::fold(),
            json!({ "did": "d", "publicKey": "k" }),
            vec![("did", 1, 200), ("publicKey", 1, 200)],
        ),
    ]
}

/// MSH-1, MSH-8, MSH-12, MSH-15, MSH-16: every part must be there, and each text has its least and its greatest length.
#[test]
fn texts_have_their_lengths() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    for (lifecycle, by, whole, texts) in made(&[ground]) {
        for part in whole.as_object().expect("an object").keys() {
            let mut rest = whole.clone();
            rest.as_object_mut().expect("an object").remove(part);
            stage.create(lifecycle, &by).with_all(rest).bad_input();
        }
        for (part, least, most) in texts {
            for (length, fits) in [(least, true), (most, true), (most + 1, false)] {
                // Routes and nodes are known by their names: no two may stand side by side.
                let mut stage = stage.clone();
                let attempt = stage.create(lifecycle, &by).with_all(whole.clone()).with(part, "x".repeat(length));
                if fits {
                    let id = attempt.ok();
                    assert_eq!(stage.field(id, part), "x".repeat(length));
                } else {
                    attempt.bad_input();
                }
            }
            if least > 0 {
                stage.create(lifecycle, &by).with_all(whole.clone()).with(part, "").bad_input();
            }
        }
    }
}

/// MSH-1: where evidence comes from may be left out, and is a line at most.
#[test]
fn evidence_may_say_where_it_comes_from() {
    let mut stage = stage();
    let observed = |stage: &mut Stage, source: usize| {
        let attempt = stage.create("mesh.evidence", &machine()).with("digest", "d").with("source", "s".repeat(source));
        attempt.outcome()
    };
    let id = observed(&mut stage, 1000).changes().subject;
    assert_eq!(stage.field(id, "source"), "s".repeat(1000));
    assert_eq!(&*observed(&mut stage, 1001).refusal().code, "bad_input");
    let id = evidence(&mut stage);
    assert!(stage.field(id, "source").is_null());
}

/// MSH-1, MSH-8: what is made rests on at most 256 others.
#[test]
fn grounds_are_at_most_256() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    for (lifecycle, by, whole, _) in
        made(&[ground]).into_iter().filter(|(_, _, whole, _)| whole.get("support").is_some())
    {
        let resting = |count: usize| vec![ground; count];
        stage.create(lifecycle, &by).with_all(whole.clone()).with("support", ids(&resting(256))).ok();
        stage.create(lifecycle, &by).with_all(whole).with("support", ids(&resting(257))).bad_input();
    }
}

/// MSH-1, MSH-2: confidence and threshold lie between nothing and certainty, both ends included.
#[test]
fn confidence_and_threshold_lie_between_0_and_1() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    for (value, fits) in [(0.0, true), (1.0, true), (-0.01, false), (1.01, false)] {
        let id = grounded(&mut stage);
        for attempt in 0..3 {
            let attempt = match attempt {
                0 => believe(&mut stage, &[ground], value),
                1 => believe(&mut stage, &[ground], 0.7).with("threshold", value),
                _ => stage.fire(id, "update_confidence", &machine()).with("confidence", value),
            };
            if fits {
                attempt.ok();
            } else {
                attempt.bad_input();
            }
        }
    }
}

/// MSH-12: what came of a job is said, or not, at such a length.
#[test]
fn an_output_has_its_length() {
    let mut stage = stage();
    let (long, longer, none) = (claimed(&mut stage), claimed(&mut stage), claimed(&mut stage));
    stage.fire(long, "complete_job", &ann()).with("output", "o".repeat(10_000)).ok();
    assert_eq!(stage.field(long, "output"), "o".repeat(10_000));
    stage.fire(longer, "complete_job", &ann()).with("output", "o".repeat(10_001)).bad_input();
    stage.fire(none, "complete_job", &ann()).ok();
    assert!(stage.field(none, "output").is_null());
}

/// MSH-12: a claimer's name is kept whole; one that cannot be kept claims nothing.
#[test]
fn a_claimers_name_is_kept_whole() {
    let mut stage = stage();
    let id = pending(&mut stage);
    let long = "n".repeat(1000);
    claim_work(&mut stage, id, &node(&format!("{long}n"), ALL)).outcome().refusal();
    assert_eq!(stage.state(id), "Pending");
    claim_work(&mut stage, id, &node(&long, ALL)).ok();
    assert_eq!(stage.field(id, "claimer"), long);
}

/// MSH-15: a route is turned to a node whose name it could have been made with.
#[test]
fn a_route_is_turned_to_a_name() {
    let mut stage = stage();
    let id = routes::routed(&mut stage, "ann");
    for free in [false, true] {
        for (length, fits) in [(0, false), (1, true), (200, true), (201, false)] {
            if free {
                stage.fire(id, "free", &machine()).outcome();
            }
            let attempt = stage.fire(id, "route", &machine()).with("node", "n".repeat(length));
            if fits {
                attempt.ok();
            } else {
                attempt.bad_input();
            }
        }
        stage.fire(id, "route", &machine()).bad_input();
    }
}
