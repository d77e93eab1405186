//! MSH-3, MSH-4, MSH-9, MSH-10 and MSH-11: the user's assertions on claims, and their precedence over machines.

use super::{
    ALL_CAPABILITIES, create_claim_in_each_state, create_evidence, create_fact, create_grounded_claim, create_hint,
    create_rival_claim, create_stale_claim, dispute_claim, machine_actor, new_simulator, node_actor, user_actor,
};

/// MSH-3, MSH-11, MSH-10: in every other state; a former replacement is cleared.
#[test]
fn user_confirm_makes_any_claim_a_fact() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    for (state, id) in create_claim_in_each_state(&mut stage, &[ground]) {
        let attempt = stage.fire(id, "confirm", &user_actor());
        if state == "Fact" {
            attempt.expect_unchanged();
        } else {
            attempt.expect_ok();
        }
        assert_eq!(stage.state(id), "Fact", "from {state}");
        assert!(stage.field(id, "replacedBy").is_null(), "from {state}");
    }
}

/// MSH-4, MSH-11, MSH-10: also Facts and Superseded claims.
#[test]
fn user_reject_rejects_any_claim() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    for (state, id) in create_claim_in_each_state(&mut stage, &[ground]) {
        let attempt = stage.fire(id, "reject", &user_actor());
        if state == "Rejected" {
            attempt.expect_unchanged();
        } else {
            attempt.expect_ok();
        }
        assert_eq!(stage.state(id), "Rejected", "from {state}");
        assert!(stage.field(id, "replacedBy").is_null(), "from {state}");
    }
}

/// MSH-3, MSH-4, MSH-22: neither a restricted `UserAssertion.Write` nor the operator role suffices.
#[test]
fn confirm_and_reject_require_user_authority() {
    let mut stage = new_simulator();
    let restricted = node_actor("tablet", &[ALL_CAPABILITIES, &["UserAssertion.Write"]].concat());
    let ground = create_evidence(&mut stage);
    for (state, id) in create_claim_in_each_state(&mut stage, &[ground]) {
        for event in ["confirm", "reject"] {
            for actor in [machine_actor(), restricted.clone(), onceward_testkit::operator("olga")] {
                stage.fire(id, event, &actor).expect_not_allowed();
            }
        }
        assert_eq!(stage.state(id), state);
    }
}

/// MSH-9, MSH-3: status, confidence and replacement.
#[test]
fn machine_update_of_fact_is_refused() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    let (id, other) = (create_fact(&mut stage, &[ground]), create_rival_claim(&mut stage));
    dispute_claim(&mut stage, id, other, &machine_actor()).expect_wrong_state("Fact", "update_status");
    stage
        .fire(id, "update_status", &machine_actor())
        .with("status", "Claim")
        .expect_wrong_state("Fact", "update_status");
    stage.fire(id, "update_confidence", &machine_actor()).with("confidence", 0.1).expect_not_allowed();
    super::supersede_claim(&mut stage, id, other, &machine_actor()).expect_not_allowed();
    assert_eq!(stage.record(id).version, 2, "created and confirmed, no change since");
}

/// MSH-9: it stays a Fact.
#[test]
fn user_may_update_confidence_of_fact() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    let id = create_fact(&mut stage, &[ground]);
    stage.fire(id, "update_confidence", &user_actor()).with("confidence", 0.3).expect_ok();
    assert_eq!((stage.state(id), stage.field(id, "confidence")), ("Fact".into(), 0.3.into()));
    // The user's authority does not include the capability to write.
    let mut user_without_capability = user_actor();
    user_without_capability.capabilities = vec!["Claim.Read".into()];
    stage.fire(id, "update_confidence", &user_without_capability).with("confidence", 0.4).expect_not_allowed();
}

/// MSH-10
#[test]
fn rejected_claim_is_changed_only_by_user() {
    let mut stage = new_simulator();
    let (id, other) = (create_grounded_claim(&mut stage), create_rival_claim(&mut stage));
    stage.fire(id, "reject", &user_actor()).expect_ok();
    dispute_claim(&mut stage, id, other, &machine_actor()).expect_wrong_state("Rejected", "update_status");
    stage
        .fire(id, "update_confidence", &machine_actor())
        .with("confidence", 1.0)
        .expect_wrong_state("Rejected", "update_confidence");
    super::supersede_claim(&mut stage, id, other, &machine_actor()).expect_not_allowed();
    stage.fire(id, "reject", &user_actor()).expect_unchanged();
    stage.fire(id, "confirm", &user_actor()).expect_ok();
    assert_eq!(stage.state(id), "Fact");
    stage.fire(id, "reject", &user_actor()).expect_ok();
    assert_eq!(stage.state(id), "Rejected");
}

/// MSH-10
#[test]
fn user_status_beats_later_machine_status() {
    let mut stage = new_simulator();
    let (ground, other) = (create_evidence(&mut stage), create_rival_claim(&mut stage));
    for (author, is_user_status) in [(user_actor(), true), (machine_actor(), false)] {
        let id = create_hint(&mut stage, &[ground]);
        stage.fire(id, "update_confidence", &machine_actor()).with("confidence", 0.9).expect_ok();
        stage.fire(id, "update_status", &author).with("status", "Claim").expect_ok();
        assert_eq!(stage.field(id, "byUser"), is_user_status);
        if is_user_status {
            dispute_claim(&mut stage, id, other, &machine_actor()).expect_refusal(409, "users_word");
            assert_eq!(stage.state(id), "Claim");
            dispute_claim(&mut stage, id, other, &user_actor()).expect_ok();
        } else {
            dispute_claim(&mut stage, id, other, &machine_actor()).expect_ok();
        }
        assert_eq!(stage.state(id), "Disputed");
    }
}

/// MSH-10: a machine that repeats the status does not clear it.
#[test]
fn user_repeating_machine_status_sets_by_user() {
    let mut stage = new_simulator();
    let (ground, other) = (create_evidence(&mut stage), create_rival_claim(&mut stage));
    let id = create_hint(&mut stage, &[ground]);
    stage.fire(id, "update_confidence", &machine_actor()).with("confidence", 0.9).expect_ok();
    stage.fire(id, "update_status", &machine_actor()).with("status", "Claim").expect_ok();
    stage.fire(id, "update_status", &machine_actor()).with("status", "Claim").expect_unchanged();
    stage.fire(id, "update_status", &user_actor()).with("status", "Claim").expect_ok();
    assert_eq!((stage.state(id), stage.field(id, "byUser")), ("Claim".into(), true.into()));
    stage.fire(id, "update_status", &machine_actor()).with("status", "Claim").expect_unchanged();
    dispute_claim(&mut stage, id, other, &machine_actor()).expect_refusal(409, "users_word");
    // The user's authority does not include the capability to write.
    let mut user_without_capability = user_actor();
    user_without_capability.capabilities = vec!["Claim.Read".into()];
    stage.fire(id, "update_status", &user_without_capability).with("status", "Claim").expect_not_allowed();
}

/// MSH-10: by the user or a machine; no machine lifts the user's dispute.
#[test]
fn repeated_dispute_changes_nothing() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    let (id, other) = (super::create_disputed_claim(&mut stage, &[ground]), create_rival_claim(&mut stage));
    for author in [user_actor(), machine_actor()] {
        dispute_claim(&mut stage, id, other, &author).expect_unchanged();
    }
    stage.fire(id, "update_status", &machine_actor()).with("status", "Claim").expect_refusal(409, "not_taken");
    assert_eq!(stage.state(id), "Disputed");
}

/// MSH-10: whatever its confidence. Afterwards only the user can dispute it.
#[test]
fn user_status_claim_lifts_dispute() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    let (id, other) = (super::create_disputed_claim(&mut stage, &[ground]), create_rival_claim(&mut stage));
    stage.fire(id, "update_confidence", &machine_actor()).with("confidence", 0.1).expect_ok();
    // The user's authority does not include the capability to write.
    let mut user_without_capability = user_actor();
    user_without_capability.capabilities = vec!["Claim.Read".into()];
    stage.fire(id, "update_status", &user_without_capability).with("status", "Claim").expect_not_allowed();
    stage.fire(id, "update_status", &user_actor()).expect_bad_input();
    stage.fire(id, "update_status", &user_actor()).with("status", "Claim").expect_ok();
    assert_eq!((stage.state(id), stage.field(id, "byUser")), ("Claim".into(), true.into()));
    dispute_claim(&mut stage, id, other, &machine_actor()).expect_refusal(409, "users_word");
    assert_eq!(stage.state(id), "Claim");
    dispute_claim(&mut stage, id, other, &user_actor()).expect_ok();
    assert_eq!(stage.state(id), "Disputed");
    // Naming the conflicting claim makes no difference.
    let attempt =
        stage.fire(id, "update_status", &user_actor()).with("status", "Claim").with("conflict", other.to_string());
    attempt.expect_ok();
    assert_eq!(stage.state(id), "Claim");
}

/// MSH-10, MSH-11: a machine superseded the claim; the cascade includes Facts.
#[test]
fn reject_of_superseded_claim_cascades() {
    let mut stage = new_simulator();
    let (id, replacement) = (create_grounded_claim(&mut stage), create_rival_claim(&mut stage));
    let above = create_fact(&mut stage, &[id]);
    super::supersede_claim(&mut stage, id, replacement, &machine_actor()).expect_ok();
    assert_eq!(stage.state(above), "Fact");
    stage.fire(id, "reject", &user_actor()).expect_ok();
    assert_eq!([id, above, replacement].map(|id| stage.state(id)), ["Rejected", "Stale", "Claim"]);
}

/// MSH-10, MSH-11: its dependents stay stale.
#[test]
fn only_user_confirm_revives_stale_claim() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    let id = super::create_claim(&mut stage, &[ground]);
    let above = super::create_claim(&mut stage, &[id]);
    stage.fire(ground, "tombstone", &machine_actor()).expect_ok();
    stage
        .fire(id, "update_status", &machine_actor())
        .with("status", "Claim")
        .expect_wrong_state("Stale", "update_status");
    stage.fire(id, "update_confidence", &machine_actor()).with("confidence", 1.0).expect_ok();
    assert_eq!(stage.state(id), "Stale");
    stage.fire(id, "confirm", &user_actor()).expect_ok();
    assert_eq!((stage.state(id), stage.state(above)), ("Fact".into(), "Stale".into()));
    super::create_claim(&mut stage, &[id]);
}

/// MSH-4, MSH-10: a machine may supersede a Stale claim but not a Rejected one.
#[test]
fn reject_of_stale_claim_is_final_for_machines() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    let (id, other) = (create_stale_claim(&mut stage, &[ground]), create_rival_claim(&mut stage));
    stage.fire(id, "reject", &user_actor()).expect_ok();
    super::supersede_claim(&mut stage, id, other, &machine_actor()).expect_not_allowed();
    assert_eq!(stage.state(id), "Rejected");
}
