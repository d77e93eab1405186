//! MSH-8, MSH-10 and MSH-11 for actions: suggestions, and who has the last word on them.

use super::{action, evidence, machine, stage, you};

/// MSH-10: the user's yes and no beat a machine's, whichever came first.
#[test]
fn the_user_has_the_last_word() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    // The user's yes against a machine's no.
    let id = action(&mut stage, &[ground]);
    stage.fire(id, "accept", &you()).ok();
    stage.fire(id, "reject", &machine()).refused(409, "users_word");
    assert_eq!(stage.state(id), "Accepted");
    // The user's no against a machine's yes.
    stage.fire(id, "reject", &you()).ok();
    stage.fire(id, "accept", &machine()).not_allowed();
    assert_eq!(stage.state(id), "Rejected");
    // A machine's no, then the user's yes, which no machine takes back.
    let id = action(&mut stage, &[ground]);
    stage.fire(id, "reject", &machine()).ok();
    stage.fire(id, "accept", &you()).ok();
    stage.fire(id, "reject", &machine()).refused(409, "users_word");
    assert_eq!(stage.state(id), "Accepted");
    // A machine's yes, then the user's no.
    let id = action(&mut stage, &[ground]);
    stage.fire(id, "accept", &machine()).ok();
    stage.fire(id, "reject", &you()).ok();
    assert_eq!(stage.state(id), "Rejected");
}

/// MSH-10: among machines the last word counts; a rejection lasts.
#[test]
fn machines_settle_it_among_themselves() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    let id = action(&mut stage, &[ground]);
    stage.fire(id, "accept", &machine()).ok();
    stage.doze("1s");
    stage.fire(id, "accept", &machine()).unchanged();
    stage.fire(id, "reject", &machine()).ok();
    stage.doze("1s");
    stage.fire(id, "accept", &machine()).not_allowed();
    stage.fire(id, "reject", &machine()).unchanged();
}

/// MSH-10: the user's yes to what a machine has accepted already makes it the user's own. A no needs no such thing: no
/// machine takes up again what is rejected, whoever rejected it.
#[test]
fn the_user_says_it_too() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    let id = action(&mut stage, &[ground]);
    stage.fire(id, "accept", &machine()).ok();
    assert_eq!(stage.field(id, "byUser"), false);
    stage.fire(id, "accept", &you()).ok();
    assert_eq!((stage.state(id), stage.field(id, "byUser")), ("Accepted".into(), true.into()));
    stage.doze("1s");
    stage.fire(id, "accept", &you()).unchanged();
    // A machine that agrees changes nothing, least of all whose word it is.
    stage.fire(id, "accept", &machine()).unchanged();
    stage.fire(id, "reject", &machine()).refused(409, "users_word");

    let id = action(&mut stage, &[ground]);
    stage.fire(id, "reject", &machine()).ok();
    stage.fire(id, "reject", &you()).unchanged();
    stage.fire(id, "accept", &machine()).not_allowed();
}

/// MSH-10: to carry out what the user accepted is no contradiction; what is done is done.
#[test]
fn an_accepted_action_is_done() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    let id = action(&mut stage, &[ground]);
    stage.fire(id, "complete", &machine()).wrong_state("Suggested", "complete");
    stage.fire(id, "accept", &you()).ok();
    stage.fire(id, "complete", &machine()).ok();
    for (event, actor) in [("accept", you()), ("reject", you()), ("complete", machine())] {
        stage.fire(id, event, &actor).wrong_state("Done", event);
    }
}

/// MSH-8, MSH-10, MSH-11: a machine's cascade rejects what machines accepted and leaves what the user accepted or did; a
/// user's cascade rejects both.
#[test]
fn whose_cascade_rejects_what() {
    for (author, users) in [(machine(), "Accepted"), (you(), "Rejected")] {
        let mut stage = stage();
        let ground = evidence(&mut stage);
        let [open, by_machine, by_user, done, refused] = [0; 5].map(|_| action(&mut stage, &[ground]));
        stage.fire(by_machine, "accept", &machine()).ok();
        stage.fire(by_user, "accept", &you()).ok();
        stage.fire(done, "accept", &machine()).ok();
        stage.fire(done, "complete", &machine()).ok();
        stage.fire(refused, "reject", &you()).ok();
        stage.fire(ground, "tombstone", &author).ok();
        assert_eq!(
            [open, by_machine, by_user, done, refused].map(|id| stage.state(id)),
            ["Rejected", "Rejected", users, "Done", "Rejected"],
            "by {}",
            author.id
        );
        // Whatever rejected it, the user may take it up again.
        stage.fire(open, "accept", &you()).ok();
    }
}
