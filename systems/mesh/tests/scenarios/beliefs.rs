//! MSH-1, MSH-2 and MSH-5: how beliefs come up, grow firmer, and meet others.

use onceward_core::value::RecordId;
use serde_json::json;

use super::{believe, claim, dispute, evidence, grounded, hint, ids, machine, one_of_each, rival, stage, you};

/// MSH-1: at or above its author's threshold it is a Claim, below it a Hint.
#[test]
fn a_claim_or_a_hint_by_the_authors_threshold() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    for (confidence, threshold, state) in
        [(0.5, 0.5, "Claim"), (0.49, 0.5, "Hint"), (0.9, 0.95, "Hint"), (0.1, 0.05, "Claim"), (1.0, 1.0, "Claim")]
    {
        let id = believe(&mut stage, &[ground], confidence).with("threshold", threshold).ok();
        assert_eq!(stage.state(id), state, "{confidence} against {threshold}");
    }
    let plain = believe(&mut stage, &[ground], 0.5).ok();
    assert_eq!((stage.state(plain), stage.field(plain, "threshold")), ("Claim".into(), json!(0.5)));
}

/// MSH-1: all four parts and the provenance are needed, and each is bounded.
#[test]
fn it_names_what_it_says_and_why() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    let whole =
        json!({ "subject": "a", "predicate": "b", "object": "c", "confidence": 0.5, "support": ids(&[ground]) });
    stage.create("mesh.claim", &machine()).with_all(whole.clone()).ok();
    for part in ["subject", "predicate", "object", "confidence", "support"] {
        let mut rest = whole.clone();
        rest.as_object_mut().expect("an object").remove(part);
        stage.create("mesh.claim", &machine()).with_all(rest).bad_input();
    }
    for (part, value) in [
        ("subject", json!("")),
        ("predicate", json!("p".repeat(1001))),
        ("object", json!("o".repeat(10_001))),
        ("confidence", json!(1.01)),
        ("confidence", json!(-0.01)),
        ("support", ids(&[ground; 257])),
        ("replacedBy", json!(ground.to_string())),
        ("byUser", json!(true)),
    ] {
        stage.create("mesh.claim", &machine()).with_all(whole.clone()).with(part, value).bad_input();
    }
}

/// MSH-1: without support there is no chain to evidence, firm or not, and whoever says so.
#[test]
fn nothing_is_believed_without_evidence() {
    let mut stage = stage();
    believe(&mut stage, &[], 0.8).refused(422, "no_evidence");
    believe(&mut stage, &[], 0.2).refused(422, "no_evidence");
    let bare = json!({ "subject": "a", "predicate": "b", "object": "c", "confidence": 1.0, "support": [] });
    stage.create("mesh.claim", &you()).with_all(bare).refused(422, "no_evidence");
}

/// MSH-1: a belief may rest on beliefs; from each of them some way leads down to evidence.
#[test]
fn every_chain_ends_at_evidence() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    let mut top = claim(&mut stage, &[ground]);
    for _ in 0..20 {
        top = claim(&mut stage, &[top]);
    }
    for claim in stage.all("mesh.claim") {
        let mut at = claim.id;
        while *stage.record(at).lifecycle.name == *"mesh.claim" {
            let below: RecordId = serde_json::from_value(stage.field(at, "support")[0].clone()).expect("an id");
            assert!(stage.record(below).id != at);
            at = below;
        }
        assert_eq!(at, ground);
    }
}

/// MSH-1: a circle cannot be closed. What a claim rests on must be on the log before it, itself is not, and no event
/// changes its support afterwards; so support always leads to something older.
#[test]
fn circles_are_refused() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    let [own, other] = ["01930000-0000-7000-8000-000000000001", "01930000-0000-7000-8000-000000000002"]
        .map(|id| RecordId(id.parse().expect("a UUID")));
    // On itself, with an id that it brings along.
    believe(&mut stage, &[own], 0.8).id(own).bad_input();
    believe(&mut stage, &[ground, own], 0.8).id(own).bad_input();
    // On one that is to come, which would rest on it.
    believe(&mut stage, &[other], 0.8).id(own).bad_input();
    believe(&mut stage, &[ground], 0.8).id(own).ok();
    believe(&mut stage, &[own], 0.8).id(other).ok();
    believe(&mut stage, &[ground, other], 0.8).id(own).refused(409, "id_taken");
    for event in ["update_status", "confirm", "reject", "supersede", "update_confidence"] {
        let changed = stage.fire(own, event, &you()).with("support", ids(&[other])).refused(422, "bad_input");
        assert!(changed.reason.contains("support"), "{}", changed.reason);
    }
    let definition = stage.definition("mesh.claim");
    let support = definition.field("support").expect("the field");
    let later = definition.events.iter().filter(|event| &*event.name != "create").flat_map(|event| &event.rows);
    for row in later {
        assert!(row.set.iter().all(|(slot, _)| *slot != support), "no row sets it");
        assert!(row.inputs.iter().all(|input| input.take != Some(support)), "no row takes it");
    }
}

/// MSH-11, MSH-1: what is withdrawn, rejected, stale or superseded carries nothing new; one dead support is enough.
#[test]
fn dead_support_is_refused() {
    let mut stage = stage();
    let (ground, gone) = (evidence(&mut stage), evidence(&mut stage));
    stage.fire(gone, "tombstone", &machine()).ok();
    for confidence in [0.8, 0.2] {
        believe(&mut stage, &[gone], confidence).refused(422, "dead_support");
        believe(&mut stage, &[ground, gone], confidence).refused(422, "dead_support");
        for (state, id) in one_of_each(&mut stage, &[ground]) {
            let attempt = believe(&mut stage, &[ground, id], confidence);
            if ["Rejected", "Stale", "Superseded"].contains(&state) {
                attempt.refused(422, "dead_support");
            } else {
                attempt.ok();
            }
        }
    }
}

/// MSH-2: a Hint becomes a Claim once its confidence has come up to the threshold, not before and not by itself.
#[test]
fn a_hint_grows_into_a_claim() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    let id = hint(&mut stage, &[ground]);
    stage.fire(id, "update_status", &machine()).with("status", "Claim").refused(409, "below_threshold");
    stage.fire(id, "update_status", &you()).with("status", "Claim").refused(409, "below_threshold");
    stage.fire(id, "update_confidence", &machine()).with("confidence", 0.5).ok();
    assert_eq!(stage.state(id), "Hint");
    stage.fire(id, "update_status", &machine()).with("status", "Claim").ok();
    assert_eq!(stage.state(id), "Claim");
    stage.fire(id, "update_status", &machine()).with("status", "Claim").unchanged();
}

/// MSH-2: confidence can change while the claim may still move, within its bounds, and the status stays.
#[test]
fn confidence_changes_no_status() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    for (state, id) in one_of_each(&mut stage, &[ground]) {
        let attempt = stage.fire(id, "update_confidence", &machine()).with("confidence", 0.01);
        match state {
            "Fact" => drop(attempt.not_allowed()),
            "Rejected" | "Superseded" => drop(attempt.wrong_state(state, "update_confidence")),
            _ => {
                attempt.ok();
                stage.fire(id, "update_confidence", &machine()).with("confidence", 0.01).unchanged();
                stage.fire(id, "update_confidence", &machine()).with("confidence", 1.5).bad_input();
            }
        }
        assert_eq!(stage.state(id), state);
    }
}

/// MSH-5: a Claim that another contradicts is Disputed; the other is named.
#[test]
fn contradicted_claims_are_disputed() {
    let mut stage = stage();
    let (id, other) = (grounded(&mut stage), rival(&mut stage));
    dispute(&mut stage, id, other, &machine()).ok();
    assert_eq!((stage.state(id), stage.state(other)), ("Disputed".into(), "Claim".into()));
    dispute(&mut stage, other, id, &machine()).ok();
    assert_eq!(stage.state(other), "Disputed");
}

/// MSH-5: what names no other, agrees, speaks of something else, or is itself dead contradicts nothing.
#[test]
fn only_a_contradiction_disputes() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    let id = claim(&mut stage, &[ground]);
    stage.fire(id, "update_status", &machine()).with("status", "Disputed").refused(422, "no_conflict");
    dispute(&mut stage, id, id, &machine()).refused(422, "no_conflict");
    let same = claim(&mut stage, &[ground]);
    dispute(&mut stage, id, same, &machine()).refused(422, "no_conflict");
    for (part, value) in [("subject", "bob"), ("predicate", "was born in")] {
        let other = believe(&mut stage, &[ground], 0.8).with("object", "Basel").with(part, value).ok();
        dispute(&mut stage, id, other, &machine()).refused(422, "no_conflict");
    }
    for (state, other) in one_of_each(&mut stage, &[ground]) {
        let elsewhere = believe(&mut stage, &[ground], 0.8).with("object", "Basel").ok();
        let attempt = dispute(&mut stage, elsewhere, other, &machine());
        if ["Rejected", "Stale", "Superseded"].contains(&state) {
            attempt.refused(422, "no_conflict");
        } else {
            attempt.ok();
        }
    }
    dispute(&mut stage, id, ground, &machine()).bad_input();
    assert_eq!(stage.state(id), "Claim");
}

/// MSH-5: only a Claim is disputed; a Hint is no contradiction worth settling, and the others are settled.
#[test]
fn only_claims_are_disputed() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    let other = rival(&mut stage);
    for (state, id) in one_of_each(&mut stage, &[ground]) {
        match state {
            "Claim" => drop(dispute(&mut stage, id, other, &machine()).ok()),
            "Disputed" => drop(dispute(&mut stage, id, other, &machine()).unchanged()),
            "Hint" => drop(dispute(&mut stage, id, other, &machine()).refused(409, "not_taken")),
            _ => drop(dispute(&mut stage, id, other, &machine()).wrong_state(state, "update_status")),
        }
    }
}

/// MSH-2, MSH-5: a status update says which status: one of the two that it can give, in whatever state the claim is.
#[test]
fn a_status_update_says_which() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    let other = rival(&mut stage);
    for (state, id) in one_of_each(&mut stage, &[ground]) {
        let known = ["Hint", "Claim", "Disputed"].contains(&state);
        for status in [None, Some("Hint"), Some("Fact"), Some("Stale")] {
            let attempt = stage.fire(id, "update_status", &machine()).with("conflict", other.to_string());
            let attempt = if let Some(status) = status { attempt.with("status", status) } else { attempt };
            if known {
                attempt.bad_input();
            } else {
                attempt.wrong_state(state, "update_status");
            }
        }
    }
}

/// MSH-2, MSH-10: who calls it a Claim may name a contradiction, too; it does not matter then.
#[test]
fn a_contradiction_beside_claim_does_not_matter() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    let (id, other) = (hint(&mut stage, &[ground]), rival(&mut stage));
    stage.fire(id, "update_confidence", &machine()).with("confidence", 0.5).ok();
    let both = json!({ "status": "Claim", "conflict": other.to_string() });
    stage.fire(id, "update_status", &machine()).with_all(both.clone()).ok();
    assert_eq!(stage.state(id), "Claim");
    stage.fire(id, "update_status", &machine()).with_all(both).unchanged();
}
