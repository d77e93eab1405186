//! MSH-8, MSH-10 and MSH-11 for actions: suggestions, and who has the last word on them.

use super::{create_action, create_evidence, machine_actor, new_simulator, user_actor};

/// MSH-10: the user's yes and no beat a machine's, whichever came first.
#[test]
fn user_decision_overrides_machine_decision() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    // The user's yes against a machine's no.
    let id = create_action(&mut stage, &[ground]);
    stage.fire(id, "accept", &user_actor()).expect_ok();
    stage.fire(id, "reject", &machine_actor()).expect_refusal(409, "users_word");
    assert_eq!(stage.state(id), "Accepted");
    // The user's no against a machine's yes.
    stage.fire(id, "reject", &user_actor()).expect_ok();
    stage.fire(id, "accept", &machine_actor()).expect_not_allowed();
    assert_eq!(stage.state(id), "Rejected");
    // A machine's no, then the user's yes, which no machine takes back.
    let id = create_action(&mut stage, &[ground]);
    stage.fire(id, "reject", &machine_actor()).expect_ok();
    stage.fire(id, "accept", &user_actor()).expect_ok();
    stage.fire(id, "reject", &machine_actor()).expect_refusal(409, "users_word");
    assert_eq!(stage.state(id), "Accepted");
    // A machine's yes, then the user's no.
    let id = create_action(&mut stage, &[ground]);
    stage.fire(id, "accept", &machine_actor()).expect_ok();
    stage.fire(id, "reject", &user_actor()).expect_ok();
    assert_eq!(stage.state(id), "Rejected");
}

/// MSH-10: among machines the last word counts; a rejection lasts.
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

/// MSH-10: the user's yes to what a machine has accepted already makes it the user's own. A no needs no such thing: no
/// machine takes up again what is rejected, whoever rejected it.
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
    // A machine that agrees changes nothing, least of all whose word it is.
    stage.fire(id, "accept", &machine_actor()).expect_unchanged();
    stage.fire(id, "reject", &machine_actor()).expect_refusal(409, "users_word");

    let id = create_action(&mut stage, &[ground]);
    stage.fire(id, "reject", &machine_actor()).expect_ok();
    stage.fire(id, "reject", &user_actor()).expect_unchanged();
    stage.fire(id, "accept", &machine_actor()).expect_not_allowed();
}

/// MSH-10: to carry out what the user accepted is no contradiction; what is done is done.
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

/// MSH-8, MSH-10, MSH-11: a machine's cascade rejects what machines accepted and leaves what the user accepted or did; a
/// user's cascade rejects both.
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
        // Whatever rejected it, the user may take it up again.
        stage.fire(open, "accept", &user_actor()).expect_ok();
    }
}
