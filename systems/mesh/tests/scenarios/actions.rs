//! MSH-8, MSH-10 and MSH-11 for actions: accepting, rejecting and cascades.

use super::{create_action, create_evidence, machine_actor, new_simulator, user_actor};

/// MSH-10: in either order.
#[test]
fn user_decision_overrides_machine_decision() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    // The user accepts, then a machine rejects.
    let id = create_action(&mut stage, &[ground]);
    stage.fire(id, "accept", &user_actor()).expect_ok();
    stage.fire(id, "reject", &machine_actor()).expect_refusal(409, "users_word");
    assert_eq!(stage.state(id), "Accepted");
    // The user rejects, then a machine accepts.
    stage.fire(id, "reject", &user_actor()).expect_ok();
    stage.fire(id, "accept", &machine_actor()).expect_not_allowed();
    assert_eq!(stage.state(id), "Rejected");
    // A machine rejects, then the user accepts; no machine can reject it afterwards.
    let id = create_action(&mut stage, &[ground]);
    stage.fire(id, "reject", &machine_actor()).expect_ok();
    stage.fire(id, "accept", &user_actor()).expect_ok();
    stage.fire(id, "reject", &machine_actor()).expect_refusal(409, "users_word");
    assert_eq!(stage.state(id), "Accepted");
    // A machine accepts, then the user rejects.
    let id = create_action(&mut stage, &[ground]);
    stage.fire(id, "accept", &machine_actor()).expect_ok();
    stage.fire(id, "reject", &user_actor()).expect_ok();
    assert_eq!(stage.state(id), "Rejected");
}

/// MSH-10
#[test]
fn last_machine_decision_counts_and_rejection_lasts() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    let id = create_action(&mut stage, &[ground]);
    stage.fire(id, "accept", &machine_actor()).expect_ok();
    stage.advance_without_engine("1s");
    stage.fire(id, "accept", &machine_actor()).expect_unchanged();
    stage.fire(id, "reject", &machine_actor()).expect_ok();
    stage.advance_without_engine("1s");
    stage.fire(id, "accept", &machine_actor()).expect_not_allowed();
    stage.fire(id, "reject", &machine_actor()).expect_unchanged();
}

/// MSH-10: a reject needs no such mark, because no machine can accept a rejected action.
#[test]
fn user_accept_of_accepted_action_sets_by_user() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    let id = create_action(&mut stage, &[ground]);
    stage.fire(id, "accept", &machine_actor()).expect_ok();
    assert_eq!(stage.field(id, "byUser"), false);
    stage.fire(id, "accept", &user_actor()).expect_ok();
    assert_eq!((stage.state(id), stage.field(id, "byUser")), ("Accepted".into(), true.into()));
    stage.advance_without_engine("1s");
    stage.fire(id, "accept", &user_actor()).expect_unchanged();
    // A machine's accept changes nothing, in particular not `byUser`.
    stage.fire(id, "accept", &machine_actor()).expect_unchanged();
    stage.fire(id, "reject", &machine_actor()).expect_refusal(409, "users_word");

    let id = create_action(&mut stage, &[ground]);
    stage.fire(id, "reject", &machine_actor()).expect_ok();
    stage.fire(id, "reject", &user_actor()).expect_unchanged();
    stage.fire(id, "accept", &machine_actor()).expect_not_allowed();
}

/// MSH-10: completing an action does not contradict the user's accept.
#[test]
fn machine_completes_accepted_action_finally() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    let id = create_action(&mut stage, &[ground]);
    stage.fire(id, "complete", &machine_actor()).expect_wrong_state("Suggested", "complete");
    stage.fire(id, "accept", &user_actor()).expect_ok();
    stage.fire(id, "complete", &machine_actor()).expect_ok();
    for (event, actor) in [("accept", user_actor()), ("reject", user_actor()), ("complete", machine_actor())] {
        stage.fire(id, event, &actor).expect_wrong_state("Done", event);
    }
}

/// MSH-8, MSH-10, MSH-11: a user's cascade rejects user-accepted actions, too; both leave completed ones.
#[test]
fn machine_cascade_spares_user_accepted_action() {
    for (author, user_accepted_state) in [(machine_actor(), "Accepted"), (user_actor(), "Rejected")] {
        let mut stage = new_simulator();
        let ground = create_evidence(&mut stage);
        let [open, by_machine, by_user, done, rejected] = [0; 5].map(|_| create_action(&mut stage, &[ground]));
        stage.fire(by_machine, "accept", &machine_actor()).expect_ok();
        stage.fire(by_user, "accept", &user_actor()).expect_ok();
        stage.fire(done, "accept", &machine_actor()).expect_ok();
        stage.fire(done, "complete", &machine_actor()).expect_ok();
        stage.fire(rejected, "reject", &user_actor()).expect_ok();
        stage.fire(ground, "tombstone", &author).expect_ok();
        assert_eq!(
            [open, by_machine, by_user, done, rejected].map(|id| stage.state(id)),
            ["Rejected", "Rejected", user_accepted_state, "Done", "Rejected"],
            "by {}",
            author.id
        );
        // The user may accept it again after any reject.
        stage.fire(open, "accept", &user_actor()).expect_ok();
    }
}
