//! MSH-7, MSH-8, MSH-9 and MSH-11: what follows when something that others rest on is lost.

use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use onceward_testkit::Stage;

use super::{action, claim, episode, evidence, fact, machine, one_of_each, snapshot, stage, superseded, you};

/// One of everything that can rest on a claim, directly and through an episode.
fn all_upon(stage: &mut Stage, ground: RecordId) -> [(RecordId, &'static str, &'static str); 6] {
    let told = episode(stage, &[ground]);
    [
        (claim(stage, &[ground]), "Claim", "Stale"),
        (told, "Current", "Stale"),
        (action(stage, &[ground]), "Suggested", "Rejected"),
        (snapshot(stage, &[ground]), "Fresh", "Stale"),
        (action(stage, &[told]), "Suggested", "Rejected"),
        (snapshot(stage, &[told]), "Fresh", "Stale"),
    ]
}

/// MSH-7, MSH-8: evidence is withdrawn, and everything that rests on it, near or far, goes in the same step.
#[test]
fn a_tombstone_reaches_everything() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    let near = all_upon(&mut stage, ground);
    let far = all_upon(&mut stage, near[0].0);
    let bystander = super::grounded(&mut stage);
    for (id, before, _) in near.iter().chain(&far) {
        assert_eq!(stage.state(*id), *before);
    }
    let changes = stage.fire(ground, "tombstone", &machine()).changes();
    assert_eq!(changes.records.len(), 13, "one step for all of them");
    for (id, _, after) in near.iter().chain(&far) {
        assert_eq!(stage.state(*id), *after, "{}", stage.record(*id).lifecycle.name);
    }
    assert_eq!(stage.state(bystander), "Claim");
    stage.fire(ground, "tombstone", &machine()).unchanged();
}

/// MSH-4, MSH-8: a rejection does the same to what rests on the claim, and leaves what the claim rested on.
#[test]
fn a_rejection_reaches_everything() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    let id = claim(&mut stage, &[ground]);
    let near = all_upon(&mut stage, id);
    let far = all_upon(&mut stage, near[0].0);
    assert_eq!(stage.fire(id, "reject", &you()).changes().records.len(), 13);
    for (id, _, after) in near.iter().chain(&far) {
        assert_eq!(stage.state(*id), *after);
    }
    assert_eq!((stage.state(id), stage.state(ground)), ("Rejected".into(), "Live".into()));
}

/// MSH-7, MSH-9, MSH-11: a machine's tombstone makes Hints, Claims and Disputed ones Stale; the others keep their state.
#[test]
fn what_a_machines_tombstone_does_to_each_state() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    let claims = one_of_each(&mut stage, &[ground]);
    stage.fire(ground, "tombstone", &machine()).ok();
    for (before, id) in claims {
        let after = if ["Hint", "Claim", "Disputed"].contains(&before) { "Stale" } else { before };
        assert_eq!(stage.state(id), after, "from {before}");
    }
}

/// MSH-9, MSH-11: a user's tombstone, and a user's rejection, enter Facts; Rejected and Superseded claims stay as they are.
#[test]
fn what_a_users_loss_does_to_each_state() {
    for reject in [false, true] {
        let mut stage = stage();
        let ground = if reject { super::grounded(&mut stage) } else { evidence(&mut stage) };
        let claims = one_of_each(&mut stage, &[ground]);
        stage.fire(ground, if reject { "reject" } else { "tombstone" }, &you()).ok();
        for (before, id) in claims {
            let after = if ["Rejected", "Superseded"].contains(&before) { before } else { "Stale" };
            assert_eq!(stage.state(id), after, "from {before}");
        }
    }
}

/// MSH-9: a machine's cascade stops at a Fact; what rests on the Fact alone never hears of it.
#[test]
fn a_fact_stops_a_machine() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    let frozen = fact(&mut stage, &[ground]);
    let behind = all_upon(&mut stage, frozen);
    let round = claim(&mut stage, &[ground]);
    let both = claim(&mut stage, &[frozen, round]);
    stage.fire(ground, "tombstone", &machine()).ok();
    for (id, before, _) in behind {
        assert_eq!(stage.state(id), before);
    }
    assert_eq!(stage.state(frozen), "Fact");
    assert_eq!((stage.state(round), stage.state(both)), ("Stale".into(), "Stale".into()), "there is a way round it");
}

/// MSH-9, MSH-10: a user who withdraws what a machine withdrew before goes through the Facts that stopped it; the end is
/// the same as if the user had been first.
#[test]
fn the_users_tombstone_comes_after_a_machines() {
    let play = |order: &[Actor]| {
        let mut stage = stage();
        let ground = evidence(&mut stage);
        let between = claim(&mut stage, &[ground]);
        let told = episode(&mut stage, &[between]);
        let frozen = fact(&mut stage, &[between]);
        let done = action(&mut stage, &[told]);
        stage.fire(done, "accept", &you()).ok();
        let behind = claim(&mut stage, &[frozen]);
        for actor in order {
            stage.fire(ground, "tombstone", actor).ok();
        }
        for actor in [you(), machine()] {
            stage.fire(ground, "tombstone", &actor).unchanged();
        }
        [between, told, frozen, done, behind].map(|id| stage.state(id))
    };
    assert_eq!(play(&[you()]), ["Stale", "Stale", "Stale", "Rejected", "Stale"]);
    assert_eq!(play(&[machine(), you()]), play(&[you()]));
}

/// MSH-8, MSH-11: a claim that is Stale, Rejected or Superseded keeps its state and passes the news on.
#[test]
fn the_graph_goes_on_past_claims_that_stay() {
    let mut stage = stage();
    let ground = super::grounded(&mut stage);
    let replaced = claim(&mut stage, &[ground]);
    let on_replaced = claim(&mut stage, &[replaced]);
    let better = super::rival(&mut stage);
    super::supersede(&mut stage, replaced, better, &machine()).ok();
    let other = evidence(&mut stage);
    let faded = claim(&mut stage, &[ground, other]);
    let on_faded = fact(&mut stage, &[faded]);
    stage.fire(other, "tombstone", &machine()).ok();
    let no = claim(&mut stage, &[ground]);
    let on_no = claim(&mut stage, &[no]);
    stage.fire(no, "reject", &you()).ok();
    stage.fire(on_no, "confirm", &you()).ok();
    assert_eq!([on_replaced, on_faded, on_no].map(|id| stage.state(id)), ["Claim", "Fact", "Fact"]);

    stage.fire(ground, "reject", &you()).ok();
    assert_eq!([replaced, faded, no].map(|id| stage.state(id)), ["Superseded", "Stale", "Rejected"]);
    assert_eq!([on_replaced, on_faded, on_no].map(|id| stage.state(id)), ["Stale", "Stale", "Stale"]);
}

/// MSH-7: of several supports one is enough: a claim that has lost a part of its reasons is Stale.
#[test]
fn one_lost_support_is_enough() {
    let mut stage = stage();
    let (kept, lost) = (evidence(&mut stage), evidence(&mut stage));
    let id = claim(&mut stage, &[kept, lost]);
    stage.fire(lost, "tombstone", &machine()).ok();
    assert_eq!((stage.state(id), stage.state(kept)), ("Stale".into(), "Live".into()));
}

/// MSH-8: nothing new is made of what is lost, and a snapshot is evicted only once it is stale.
#[test]
fn what_is_lost_carries_nothing_new() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    let told = episode(&mut stage, &[ground]);
    let kept = snapshot(&mut stage, &[told]);
    stage.fire(kept, "evict", &machine()).wrong_state("Fresh", "evict");
    stage.fire(ground, "tombstone", &machine()).ok();
    for (lifecycle, name, on) in [
        ("mesh.episode", "title", ground),
        ("mesh.action", "title", ground),
        ("mesh.snapshot", "artifact", ground),
        ("mesh.action", "title", told),
        ("mesh.snapshot", "artifact", told),
    ] {
        let attempt = stage.create(lifecycle, &machine()).with(name, "x").with("support", super::ids(&[on]));
        attempt.refused(422, "dead_support");
    }
    stage.fire(kept, "evict", &machine()).ok();
    assert_eq!(stage.state(kept), "Evicted");
    stage.fire(kept, "evict", &machine()).wrong_state("Evicted", "evict");
}

/// MSH-8: on a record that is replaced nothing new rests, whatever it is.
#[test]
fn a_replaced_claim_carries_nothing_new() {
    let mut stage = stage();
    let ground = evidence(&mut stage);
    let old = superseded(&mut stage, &[ground]);
    for lifecycle in ["mesh.episode", "mesh.action"] {
        let attempt = stage.create(lifecycle, &machine()).with("title", "x").with("support", super::ids(&[old]));
        attempt.refused(422, "dead_support");
    }
}

/// MSH-8, MSH-11: what an episode, an action and a snapshot may rest on: evidence that is there, claims that live, and, but
/// for an episode, episodes that are told as they were.
#[test]
fn what_may_rest_on_what() {
    let mut stage = stage();
    let (ground, gone) = (evidence(&mut stage), evidence(&mut stage));
    let (told, untold) = (episode(&mut stage, &[ground]), episode(&mut stage, &[gone]));
    stage.fire(gone, "tombstone", &machine()).ok();
    let mut grounds = vec![("Live", ground), ("Tombstoned", gone), ("Current", told), ("Stale", untold)];
    grounds.extend(one_of_each(&mut stage, &[ground]));
    for (lifecycle, name) in [("mesh.episode", "title"), ("mesh.action", "title"), ("mesh.snapshot", "artifact")] {
        for (state, on) in &grounds {
            let attempt =
                stage.create(lifecycle, &machine()).with(name, "x").with("support", super::ids(&[ground, *on]));
            let episodes = [told, untold].contains(on) && lifecycle == "mesh.episode";
            if episodes {
                attempt.bad_input();
            } else if ["Live", "Current", "Hint", "Claim", "Fact", "Disputed"].contains(state) {
                attempt.ok();
            } else {
                attempt.refused(422, "dead_support");
            }
        }
    }
}

/// MSH-8, MSH-11: what is Done, Rejected or Evicted hears of no loss: not even its version moves. A snapshot that is stale
/// stays as it is, too.
#[test]
fn what_is_over_hears_of_no_loss() {
    for author in [machine(), you()] {
        let mut stage = stage();
        let (ground, other) = (evidence(&mut stage), evidence(&mut stage));
        let [done, no] = [0; 2].map(|_| action(&mut stage, &[ground]));
        stage.fire(done, "accept", &you()).ok();
        stage.fire(done, "complete", &machine()).ok();
        stage.fire(no, "reject", &machine()).ok();
        let [faded, evicted] = [0; 2].map(|_| snapshot(&mut stage, &[ground, other]));
        stage.fire(other, "tombstone", &machine()).ok();
        stage.fire(evicted, "evict", &machine()).ok();
        let before = [done, no, faded, evicted].map(|id| stage.record(id).version);
        assert_eq!(stage.fire(ground, "tombstone", &author).changes().records.len(), 1);
        assert_eq!([done, no, faded, evicted].map(|id| stage.record(id).version), before);
    }
}

/// MSH-9, MSH-10: the user's withdrawal is said once. What the user has confirmed since is not lost by its repetition, be it
/// that a machine had withdrawn the evidence first or not.
#[test]
fn a_withdrawal_said_again_undoes_no_later_word() {
    for first in [machine(), you()] {
        let mut stage = stage();
        let ground = evidence(&mut stage);
        let id = claim(&mut stage, &[ground]);
        stage.fire(ground, "tombstone", &first).ok();
        stage.fire(ground, "tombstone", &you()).outcome();
        assert_eq!(stage.field(ground, "byUser"), true);
        stage.fire(id, "confirm", &you()).ok();
        for author in [you(), machine()] {
            stage.fire(ground, "tombstone", &author).unchanged();
        }
        assert_eq!(stage.state(id), "Fact");
    }
}

/// MSH-9, MSH-10: the user's withdrawal counts also where nothing rests on the evidence, or nothing that still listens.
#[test]
fn the_users_withdrawal_counts_though_nobody_listens() {
    let mut stage = stage();
    let (bare, used) = (evidence(&mut stage), evidence(&mut stage));
    let done = action(&mut stage, &[used]);
    stage.fire(done, "accept", &machine()).ok();
    stage.fire(done, "complete", &machine()).ok();
    for ground in [bare, used] {
        stage.fire(ground, "tombstone", &machine()).ok();
        stage.fire(ground, "tombstone", &you()).ok();
        assert_eq!(stage.field(ground, "byUser"), true);
    }
    assert_eq!(stage.state(done), "Done");
}
