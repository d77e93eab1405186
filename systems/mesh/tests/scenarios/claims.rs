//! MSH-1, MSH-2 and MSH-5: creation, confidence and disputes of claims.

use onceward_core::value::RecordId;
use serde_json::json;

use super::{
    claim_attempt, create_claim, create_claim_in_each_state, create_evidence, create_grounded_claim, create_hint,
    create_rival_claim, dispute_claim, id_list, machine_actor, new_simulator, user_actor,
};

/// MSH-1: the threshold belongs to the author.
#[test]
fn confidence_at_threshold_makes_claim_below_makes_hint() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    for (confidence, threshold, state) in
        [(0.5, 0.5, "Claim"), (0.49, 0.5, "Hint"), (0.9, 0.95, "Hint"), (0.1, 0.05, "Claim"), (1.0, 1.0, "Claim")]
    {
        let id = claim_attempt(&mut stage, &[ground], confidence).with("threshold", threshold).expect_ok();
        assert_eq!(stage.state(id), state, "{confidence} against {threshold}");
    }
    let plain = claim_attempt(&mut stage, &[ground], 0.5).expect_ok();
    assert_eq!((stage.state(plain), stage.field(plain, "threshold")), ("Claim".into(), json!(0.5)));
}

/// MSH-1
#[test]
fn claim_fields_are_required_and_bounded() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    let whole =
        json!({ "subject": "a", "predicate": "b", "object": "c", "confidence": 0.5, "support": id_list(&[ground]) });
    stage.create("mesh.claim", &machine_actor()).with_all(whole.clone()).expect_ok();
    for field in ["subject", "predicate", "object", "confidence", "support"] {
        let mut rest = whole.clone();
        rest.as_object_mut().expect("a JSON object").remove(field);
        stage.create("mesh.claim", &machine_actor()).with_all(rest).expect_bad_input();
    }
    for (field, value) in [
        ("subject", json!("")),
        ("predicate", json!("p".repeat(1001))),
        ("object", json!("o".repeat(10_001))),
        ("confidence", json!(1.01)),
        ("confidence", json!(-0.01)),
        ("support", id_list(&[ground; 257])),
        ("replacedBy", json!(ground.to_string())),
        ("byUser", json!(true)),
    ] {
        stage.create("mesh.claim", &machine_actor()).with_all(whole.clone()).with(field, value).expect_bad_input();
    }
}

/// MSH-1: for Hints and Claims, by machines and the user.
#[test]
fn claim_without_support_is_refused() {
    let mut stage = new_simulator();
    claim_attempt(&mut stage, &[], 0.8).expect_refusal(422, "no_evidence");
    claim_attempt(&mut stage, &[], 0.2).expect_refusal(422, "no_evidence");
    let bare = json!({ "subject": "a", "predicate": "b", "object": "c", "confidence": 1.0, "support": [] });
    stage.create("mesh.claim", &user_actor()).with_all(bare).expect_refusal(422, "no_evidence");
}

/// MSH-1
#[test]
fn support_chain_ends_at_evidence() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    let mut top = create_claim(&mut stage, &[ground]);
    for _ in 0..20 {
        top = create_claim(&mut stage, &[top]);
    }
    for claim in stage.records_of("mesh.claim") {
        let mut current = claim.id;
        while *stage.record(current).lifecycle.name == *"mesh.claim" {
            let support_id: RecordId =
                serde_json::from_value(stage.field(current, "support")[0].clone()).expect("an id");
            assert!(stage.record(support_id).id != current);
            current = support_id;
        }
        assert_eq!(current, ground);
    }
}

/// MSH-1: support must exist before the claim and cannot change later, so it always refers to older records.
#[test]
fn support_cycle_is_refused() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    let [own, other] = ["01930000-0000-7000-8000-000000000001", "01930000-0000-7000-8000-000000000002"]
        .map(|id| RecordId(id.parse().expect("a UUID")));
    // Support on itself, with an id chosen by the caller.
    claim_attempt(&mut stage, &[own], 0.8).id(own).expect_bad_input();
    claim_attempt(&mut stage, &[ground, own], 0.8).id(own).expect_bad_input();
    // Support on a later claim that would rest on this one.
    claim_attempt(&mut stage, &[other], 0.8).id(own).expect_bad_input();
    claim_attempt(&mut stage, &[ground], 0.8).id(own).expect_ok();
    claim_attempt(&mut stage, &[own], 0.8).id(other).expect_ok();
    claim_attempt(&mut stage, &[ground, other], 0.8).id(own).expect_refusal(409, "id_taken");
    for event in ["update_status", "confirm", "reject", "supersede", "update_confidence"] {
        let changed = stage
            .fire(own, event, &user_actor())
            .with("support", id_list(&[other]))
            .expect_refusal(422, "invalid_input");
        assert!(changed.reason.contains("support"), "{}", changed.reason);
    }
    let definition = stage.lifecycle("mesh.claim");
    let support = definition.field_index("support").expect("the field exists");
    let later_transitions =
        definition.events.iter().filter(|event| &*event.name != "create").flat_map(|event| &event.transitions);
    for transition in later_transitions {
        assert!(transition.set.iter().all(|(slot, _)| *slot != support), "no transition sets it");
        assert!(transition.inputs.iter().all(|input| input.target_field != Some(support)), "no transition takes it");
    }
}

/// MSH-11, MSH-1: one withdrawn, rejected, stale or superseded support is enough.
#[test]
fn claim_on_dead_support_is_refused() {
    let mut stage = new_simulator();
    let (ground, gone) = (create_evidence(&mut stage), create_evidence(&mut stage));
    stage.fire(gone, "tombstone", &machine_actor()).expect_ok();
    for confidence in [0.8, 0.2] {
        claim_attempt(&mut stage, &[gone], confidence).expect_refusal(422, "dead_support");
        claim_attempt(&mut stage, &[ground, gone], confidence).expect_refusal(422, "dead_support");
        for (state, id) in create_claim_in_each_state(&mut stage, &[ground]) {
            let attempt = claim_attempt(&mut stage, &[ground, id], confidence);
            if ["Rejected", "Stale", "Superseded"].contains(&state) {
                attempt.expect_refusal(422, "dead_support");
            } else {
                attempt.expect_ok();
            }
        }
    }
}

/// MSH-2: only by a status update.
#[test]
fn hint_becomes_claim_when_confidence_reaches_threshold() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    let id = create_hint(&mut stage, &[ground]);
    stage.fire(id, "update_status", &machine_actor()).with("status", "Claim").expect_refusal(409, "below_threshold");
    stage.fire(id, "update_status", &user_actor()).with("status", "Claim").expect_refusal(409, "below_threshold");
    stage.fire(id, "update_confidence", &machine_actor()).with("confidence", 0.5).expect_ok();
    assert_eq!(stage.state(id), "Hint");
    stage.fire(id, "update_status", &machine_actor()).with("status", "Claim").expect_ok();
    assert_eq!(stage.state(id), "Claim");
    stage.fire(id, "update_status", &machine_actor()).with("status", "Claim").expect_unchanged();
}

/// MSH-2
#[test]
fn update_confidence_keeps_status() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    for (state, id) in create_claim_in_each_state(&mut stage, &[ground]) {
        let attempt = stage.fire(id, "update_confidence", &machine_actor()).with("confidence", 0.01);
        match state {
            "Fact" => drop(attempt.expect_not_allowed()),
            "Rejected" | "Superseded" => drop(attempt.expect_wrong_state(state, "update_confidence")),
            _ => {
                attempt.expect_ok();
                stage.fire(id, "update_confidence", &machine_actor()).with("confidence", 0.01).expect_unchanged();
                stage.fire(id, "update_confidence", &machine_actor()).with("confidence", 1.5).expect_bad_input();
            }
        }
        assert_eq!(stage.state(id), state);
    }
}

/// MSH-5: the claim names the conflicting one.
#[test]
fn conflicting_claim_can_be_disputed() {
    let mut stage = new_simulator();
    let (id, other) = (create_grounded_claim(&mut stage), create_rival_claim(&mut stage));
    dispute_claim(&mut stage, id, other, &machine_actor()).expect_ok();
    assert_eq!((stage.state(id), stage.state(other)), ("Disputed".into(), "Claim".into()));
    dispute_claim(&mut stage, other, id, &machine_actor()).expect_ok();
    assert_eq!(stage.state(other), "Disputed");
}

/// MSH-5: the conflict is missing, agrees, has another subject or predicate, or is dead.
#[test]
fn dispute_requires_live_conflicting_claim() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    let id = create_claim(&mut stage, &[ground]);
    stage.fire(id, "update_status", &machine_actor()).with("status", "Disputed").expect_refusal(422, "no_conflict");
    dispute_claim(&mut stage, id, id, &machine_actor()).expect_refusal(422, "no_conflict");
    let same = create_claim(&mut stage, &[ground]);
    dispute_claim(&mut stage, id, same, &machine_actor()).expect_refusal(422, "no_conflict");
    for (field, value) in [("subject", "bob"), ("predicate", "was born in")] {
        let other = claim_attempt(&mut stage, &[ground], 0.8).with("object", "Basel").with(field, value).expect_ok();
        dispute_claim(&mut stage, id, other, &machine_actor()).expect_refusal(422, "no_conflict");
    }
    for (state, other) in create_claim_in_each_state(&mut stage, &[ground]) {
        let elsewhere = claim_attempt(&mut stage, &[ground], 0.8).with("object", "Basel").expect_ok();
        let attempt = dispute_claim(&mut stage, elsewhere, other, &machine_actor());
        if ["Rejected", "Stale", "Superseded"].contains(&state) {
            attempt.expect_refusal(422, "no_conflict");
        } else {
            attempt.expect_ok();
        }
    }
    dispute_claim(&mut stage, id, ground, &machine_actor()).expect_bad_input();
    assert_eq!(stage.state(id), "Claim");
}

/// MSH-5
#[test]
fn dispute_requires_claim_state() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    let other = create_rival_claim(&mut stage);
    for (state, id) in create_claim_in_each_state(&mut stage, &[ground]) {
        match state {
            "Claim" => drop(dispute_claim(&mut stage, id, other, &machine_actor()).expect_ok()),
            "Disputed" => drop(dispute_claim(&mut stage, id, other, &machine_actor()).expect_unchanged()),
            "Hint" => drop(dispute_claim(&mut stage, id, other, &machine_actor()).expect_refusal(409, "not_taken")),
            _ => {
                drop(dispute_claim(&mut stage, id, other, &machine_actor()).expect_wrong_state(state, "update_status"));
            }
        }
    }
}

/// MSH-2, MSH-5: in every state.
#[test]
fn status_update_requires_claim_or_disputed() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    let other = create_rival_claim(&mut stage);
    for (state, id) in create_claim_in_each_state(&mut stage, &[ground]) {
        let known = ["Hint", "Claim", "Disputed"].contains(&state);
        for status in [None, Some("Hint"), Some("Fact"), Some("Stale")] {
            let attempt = stage.fire(id, "update_status", &machine_actor()).with("conflict", other.to_string());
            let attempt = if let Some(status) = status { attempt.with("status", status) } else { attempt };
            if known {
                attempt.expect_bad_input();
            } else {
                attempt.expect_wrong_state(state, "update_status");
            }
        }
    }
}

/// MSH-2, MSH-10
#[test]
fn conflict_is_ignored_when_status_is_claim() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    let (id, other) = (create_hint(&mut stage, &[ground]), create_rival_claim(&mut stage));
    stage.fire(id, "update_confidence", &machine_actor()).with("confidence", 0.5).expect_ok();
    let both = json!({ "status": "Claim", "conflict": other.to_string() });
    stage.fire(id, "update_status", &machine_actor()).with_all(both.clone()).expect_ok();
    assert_eq!(stage.state(id), "Claim");
    stage.fire(id, "update_status", &machine_actor()).with_all(both).expect_unchanged();
}
