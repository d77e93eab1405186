//! MSH-6: superseded claims.

use onceward_core::value::RecordId;

use super::{
    create_claim_in_each_state, create_evidence, create_fact, create_grounded_claim, create_rejected_claim,
    create_rival_claim, machine_actor, new_simulator, supersede_claim, user_actor,
};

/// MSH-6: the claim names its replacement.
#[test]
fn machine_supersedes_claims_except_fact_and_rejected() {
    let mut stage = new_simulator();
    let (ground, replacement) = (create_evidence(&mut stage), create_rival_claim(&mut stage));
    for (state, id) in create_claim_in_each_state(&mut stage, &[ground]) {
        match state {
            "Fact" | "Rejected" => {
                drop(supersede_claim(&mut stage, id, replacement, &machine_actor()).expect_not_allowed());
            }
            "Superseded" => drop(
                supersede_claim(&mut stage, id, replacement, &machine_actor()).expect_wrong_state(state, "supersede"),
            ),
            _ => {
                supersede_claim(&mut stage, id, replacement, &machine_actor()).expect_ok();
                assert_eq!(stage.state(id), "Superseded", "from {state}");
                assert_eq!(stage.field(id, "replacedBy"), replacement.to_string());
            }
        }
    }
    assert_eq!(stage.state(replacement), "Claim");
}

/// MSH-6, MSH-9, MSH-10, MSH-11
#[test]
fn user_with_capability_supersedes_fact_and_rejected_claim() {
    let mut stage = new_simulator();
    let (ground, replacement) = (create_evidence(&mut stage), create_rival_claim(&mut stage));
    let mut user_without_capability = user_actor();
    user_without_capability.capabilities = vec!["Claim.Read".into()];
    for id in [create_fact(&mut stage, &[ground]), create_rejected_claim(&mut stage, &[ground])] {
        supersede_claim(&mut stage, id, replacement, &machine_actor()).expect_not_allowed();
        supersede_claim(&mut stage, id, replacement, &user_without_capability).expect_not_allowed();
        supersede_claim(&mut stage, id, replacement, &user_actor()).expect_ok();
        assert_eq!(
            (stage.state(id), stage.field(id, "replacedBy")),
            ("Superseded".into(), replacement.to_string().into())
        );
    }
}

/// MSH-6
#[test]
fn replacement_must_be_existing_claim() {
    let mut stage = new_simulator();
    let (id, ground) = (create_grounded_claim(&mut stage), create_evidence(&mut stage));
    let missing_id = RecordId("01930000-0000-7000-8000-000000000001".parse().expect("a UUID"));
    supersede_claim(&mut stage, id, missing_id, &machine_actor()).expect_bad_input();
    supersede_claim(&mut stage, id, ground, &machine_actor()).expect_bad_input();
    stage.fire(id, "supersede", &machine_actor()).expect_bad_input();
    assert_eq!(stage.state(id), "Claim");
}

/// MSH-6: direct or through other claims.
#[test]
fn replacement_cycle_is_refused() {
    let mut stage = new_simulator();
    let [a, b, c] = [0; 3].map(|_| create_grounded_claim(&mut stage));
    supersede_claim(&mut stage, a, a, &machine_actor()).expect_refusal(422, "replaces_itself");
    supersede_claim(&mut stage, a, b, &machine_actor()).expect_ok();
    supersede_claim(&mut stage, b, a, &machine_actor()).expect_refusal(409, "replacement_superseded");
    supersede_claim(&mut stage, b, c, &machine_actor()).expect_ok();
    supersede_claim(&mut stage, c, a, &machine_actor()).expect_refusal(409, "replacement_superseded");
    stage.fire(c, "confirm", &user_actor()).expect_ok();
    supersede_claim(&mut stage, c, c, &user_actor()).expect_refusal(422, "replaces_itself");
    supersede_claim(&mut stage, c, b, &user_actor()).expect_refusal(409, "replacement_superseded");
}

/// MSH-6, MSH-10: the claim may then replace the one that had replaced it, without a cycle.
#[test]
fn user_assertion_clears_replaced_by() {
    for event in ["confirm", "reject"] {
        let mut stage = new_simulator();
        let [a, b, c] = [0; 3].map(|_| create_grounded_claim(&mut stage));
        supersede_claim(&mut stage, a, b, &machine_actor()).expect_ok();
        supersede_claim(&mut stage, b, c, &machine_actor()).expect_ok();
        stage.fire(a, event, &user_actor()).expect_ok();
        assert!(stage.field(a, "replacedBy").is_null());
        supersede_claim(&mut stage, c, a, &machine_actor()).expect_ok();
        supersede_claim(&mut stage, a, b, &user_actor()).expect_refusal(409, "replacement_superseded");
        supersede_claim(&mut stage, a, c, &user_actor()).expect_refusal(409, "replacement_superseded");
        assert_eq!([b, c].map(|id| stage.field(id, "replacedBy")), [c, a].map(|id| id.to_string()));
    }
}

/// MSH-6: a superseded claim is not wrong, so its dependents stay.
#[test]
fn supersede_does_not_cascade() {
    let mut stage = new_simulator();
    let (id, replacement) = (create_grounded_claim(&mut stage), create_rival_claim(&mut stage));
    let above = super::create_claim(&mut stage, &[id]);
    assert_eq!(supersede_claim(&mut stage, id, replacement, &machine_actor()).expect_changes().records.len(), 1);
    assert_eq!(stage.state(above), "Claim");
}

/// MSH-6
#[test]
fn supersede_requires_existing_replacement() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    let missing_id = RecordId("01930000-0000-7000-8000-000000000009".parse().expect("a UUID"));
    for (state, id) in
        create_claim_in_each_state(&mut stage, &[ground]).into_iter().filter(|(state, _)| *state != "Superseded")
    {
        stage.fire(id, "supersede", &user_actor()).expect_bad_input();
        supersede_claim(&mut stage, id, ground, &user_actor()).expect_bad_input();
        supersede_claim(&mut stage, id, missing_id, &user_actor()).expect_bad_input();
        assert_eq!(stage.state(id), state);
    }
}
