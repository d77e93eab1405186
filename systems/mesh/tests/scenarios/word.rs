//! MSH-3, MSH-4, MSH-9, MSH-10 and MSH-11: the user's word on a claim, and what no machine may do to it.

use super::{ALL, dispute, evidence, fact, grounded, hint, machine, node, one_of_each, rival, stage, stale, you};

/// MSH-3, MSH-11, MSH-10: the user confirms a Claim, a Hint, a Disputed, a Rejected, a Stale and a Superseded one; each is a
/// Fact then, and says of no other that it took its place.
#[test]
fn the_user_confirms() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    for (state, id) in one_of_each(&mut stage, &[ground]) {
        let attempt = stage.fire(id, "confirm", &you());
        if state == "Fact" {
            attempt.unchanged();
        } else {
            attempt.ok();
        }
        assert_eq!(stage.state(id), "Fact", "from {state}");
        assert!(stage.field(id, "replacedBy").is_null(), "from {state}");
    }
}

/// MSH-4, MSH-11, MSH-10: the user rejects whatever is not yet rejected, a Fact and a Superseded claim among it: minds change.
#[test]
fn the_user_rejects() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    for (state, id) in one_of_each(&mut stage, &[ground]) {
        let attempt = stage.fire(id, "reject", &you());
        if state == "Rejected" {
            attempt.unchanged();
        } else {
            attempt.ok();
        }
        assert_eq!(stage.state(id), "Rejected", "from {state}");
        assert!(stage.field(id, "replacedBy").is_null(), "from {state}");
    }
}

/// MSH-3, MSH-4, MSH-22: only the user's authority asserts. A node that merely holds a restricted `UserAssertion.Write` does
/// not have it, nor does an operator of the machine.
#[test]
fn nobody_asserts_for_the_user() {
    let mut stage = stage();
    let restricted = node("tablet", &[ALL, &["UserAssertion.Write"]].concat());
    let ground = evidence(&mut stage);
    for (state, id) in one_of_each(&mut stage, &[ground]) {
        for event in ["confirm", "reject"] {
            for actor in [machine(), restricted.clone(), onceward_testkit::operator("olga")] {
                stage.fire(id, event, &actor).not_allowed();
            }
        }
        assert_eq!(stage.state(id), state);
    }
}

/// MSH-9, MSH-3: a Fact is frozen. No machine changes its status or confidence, nor replaces it.
#[test]
fn facts_are_frozen() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    let (id, other) = (fact(&mut stage, &[ground]), rival(&mut stage));
    dispute(&mut stage, id, other, &machine()).wrong_state("Fact", "update_status");
    stage.fire(id, "update_status", &machine()).with("status", "Claim").wrong_state("Fact", "update_status");
    stage.fire(id, "update_confidence", &machine()).with("confidence", 0.1).not_allowed();
    super::supersede(&mut stage, id, other, &machine()).not_allowed();
    assert_eq!(stage.record(id).version, 2, "made and confirmed, nothing since");
}

/// MSH-9: the user may still change the confidence of a Fact; it stays one.
#[test]
fn the_user_may_touch_a_fact() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    let id = fact(&mut stage, &[ground]);
    stage.fire(id, "update_confidence", &you()).with("confidence", 0.3).ok();
    assert_eq!((stage.state(id), stage.field(id, "confidence")), ("Fact".into(), 0.3.into()));
    // The authority to assert is not the capability to write.
    let mut voice = you();
    voice.capabilities = vec!["Claim.Read".into()];
    stage.fire(id, "update_confidence", &voice).with("confidence", 0.4).not_allowed();
}

/// MSH-10: a rejection stands against every machine until the user asserts again.
#[test]
fn a_rejection_stands() {
    let mut stage = stage();
    let (id, other) = (grounded(&mut stage), rival(&mut stage));
    stage.fire(id, "reject", &you()).ok();
    dispute(&mut stage, id, other, &machine()).wrong_state("Rejected", "update_status");
    stage
        .fire(id, "update_confidence", &machine())
        .with("confidence", 1.0)
        .wrong_state("Rejected", "update_confidence");
    super::supersede(&mut stage, id, other, &machine()).not_allowed();
    stage.fire(id, "reject", &you()).unchanged();
    stage.fire(id, "confirm", &you()).ok();
    assert_eq!(stage.state(id), "Fact");
    stage.fire(id, "reject", &you()).ok();
    assert_eq!(stage.state(id), "Rejected");
}

/// MSH-10: a status that the user gave by hand beats a machine's of the same shape, also when the machine comes later.
#[test]
fn the_users_status_beats_the_machines() {
    let mut stage = stage();
    let (ground, other) = (evidence(&mut stage), rival(&mut stage));
    for (author, beaten) in [(you(), true), (machine(), false)] {
        let id = hint(&mut stage, &[ground]);
        stage.fire(id, "update_confidence", &machine()).with("confidence", 0.9).ok();
        stage.fire(id, "update_status", &author).with("status", "Claim").ok();
        assert_eq!(stage.field(id, "byUser"), beaten);
        if beaten {
            dispute(&mut stage, id, other, &machine()).refused(409, "users_word");
            assert_eq!(stage.state(id), "Claim");
            dispute(&mut stage, id, other, &you()).ok();
        } else {
            dispute(&mut stage, id, other, &machine()).ok();
        }
        assert_eq!(stage.state(id), "Disputed");
    }
}

/// MSH-10: the user says what a machine has said already. It is the user's word from then on, and no machine that agrees takes
/// it back.
#[test]
fn the_users_status_counts_after_the_machines() {
    let mut stage = stage();
    let (ground, other) = (evidence(&mut stage), rival(&mut stage));
    let id = hint(&mut stage, &[ground]);
    stage.fire(id, "update_confidence", &machine()).with("confidence", 0.9).ok();
    stage.fire(id, "update_status", &machine()).with("status", "Claim").ok();
    stage.fire(id, "update_status", &machine()).with("status", "Claim").unchanged();
    stage.fire(id, "update_status", &you()).with("status", "Claim").ok();
    assert_eq!((stage.state(id), stage.field(id, "byUser")), ("Claim".into(), true.into()));
    stage.fire(id, "update_status", &machine()).with("status", "Claim").unchanged();
    dispute(&mut stage, id, other, &machine()).refused(409, "users_word");
    // The authority to assert is not the capability to write.
    let mut voice = you();
    voice.capabilities = vec!["Claim.Read".into()];
    stage.fire(id, "update_status", &voice).with("status", "Claim").not_allowed();
}

/// MSH-10: Disputed said again, by the user or a machine, is heard and changes nothing; no machine takes it back.
#[test]
fn disputed_is_said_twice() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    let (id, other) = (super::disputed(&mut stage, &[ground]), rival(&mut stage));
    for author in [you(), machine()] {
        dispute(&mut stage, id, other, &author).unchanged();
    }
    stage.fire(id, "update_status", &machine()).with("status", "Claim").refused(409, "not_taken");
    assert_eq!(stage.state(id), "Disputed");
}

/// MSH-10: a machine disputes first and the user says Claim afterwards. It is one again, whatever its confidence is by now, and
/// the user's word from then on: no machine disputes it any more, and the user may.
#[test]
fn the_users_status_lifts_a_dispute() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    let (id, other) = (super::disputed(&mut stage, &[ground]), rival(&mut stage));
    stage.fire(id, "update_confidence", &machine()).with("confidence", 0.1).ok();
    // The authority to assert is not the capability to write.
    let mut voice = you();
    voice.capabilities = vec!["Claim.Read".into()];
    stage.fire(id, "update_status", &voice).with("status", "Claim").not_allowed();
    stage.fire(id, "update_status", &you()).bad_input();
    stage.fire(id, "update_status", &you()).with("status", "Claim").ok();
    assert_eq!((stage.state(id), stage.field(id, "byUser")), ("Claim".into(), true.into()));
    dispute(&mut stage, id, other, &machine()).refused(409, "users_word");
    assert_eq!(stage.state(id), "Claim");
    dispute(&mut stage, id, other, &you()).ok();
    assert_eq!(stage.state(id), "Disputed");
    // Which claim it was held against may be named, and makes no difference here.
    let named = stage.fire(id, "update_status", &you()).with("status", "Claim").with("conflict", other.to_string());
    named.ok();
    assert_eq!(stage.state(id), "Claim");
}

/// MSH-10, MSH-11: a machine has replaced a claim. The user's no goes to all that rests on it, Facts too, as from anywhere.
#[test]
fn rejecting_what_was_replaced_tells_its_dependents() {
    let mut stage = stage();
    let (id, better) = (grounded(&mut stage), rival(&mut stage));
    let above = fact(&mut stage, &[id]);
    super::supersede(&mut stage, id, better, &machine()).ok();
    assert_eq!(stage.state(above), "Fact");
    stage.fire(id, "reject", &you()).ok();
    assert_eq!([id, above, better].map(|id| stage.state(id)), ["Rejected", "Stale", "Claim"]);
}

/// MSH-10, MSH-11: a Stale claim comes back by the user's word alone; what rested on it does not come back with it.
#[test]
fn only_the_user_brings_a_stale_claim_back() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    let id = super::claim(&mut stage, &[ground]);
    let above = super::claim(&mut stage, &[id]);
    stage.fire(ground, "tombstone", &machine()).ok();
    stage.fire(id, "update_status", &machine()).with("status", "Claim").wrong_state("Stale", "update_status");
    stage.fire(id, "update_confidence", &machine()).with("confidence", 1.0).ok();
    assert_eq!(stage.state(id), "Stale");
    stage.fire(id, "confirm", &you()).ok();
    assert_eq!((stage.state(id), stage.state(above)), ("Fact".into(), "Stale".into()));
    super::claim(&mut stage, &[id]);
}

/// MSH-4, MSH-10: rejecting a Stale claim makes the no last: a machine may replace what is stale, not what is rejected.
#[test]
fn a_stale_claim_can_be_rejected() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    let (id, other) = (stale(&mut stage, &[ground]), rival(&mut stage));
    stage.fire(id, "reject", &you()).ok();
    super::supersede(&mut stage, id, other, &machine()).not_allowed();
    assert_eq!(stage.state(id), "Rejected");
}
