//! MSH-7, MSH-8, MSH-9 and MSH-11: cascades after lost support.

use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use onceward_testkit::Simulator;

use super::{
    create_action, create_claim, create_claim_in_each_state, create_episode, create_evidence, create_fact,
    create_snapshot, create_superseded_claim, machine_actor, new_simulator, user_actor,
};

/// Creates one of each dependent of a claim, direct and through an episode.
fn create_dependents(stage: &mut Simulator, ground: RecordId) -> [(RecordId, &'static str, &'static str); 6] {
    let episode_id = create_episode(stage, &[ground]);
    [
        (create_claim(stage, &[ground]), "Claim", "Stale"),
        (episode_id, "Current", "Stale"),
        (create_action(stage, &[ground]), "Suggested", "Rejected"),
        (create_snapshot(stage, &[ground]), "Fresh", "Stale"),
        (create_action(stage, &[episode_id]), "Suggested", "Rejected"),
        (create_snapshot(stage, &[episode_id]), "Fresh", "Stale"),
    ]
}

/// MSH-7, MSH-8
#[test]
fn tombstone_cascades_to_all_dependents_in_one_operation() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    let near = create_dependents(&mut stage, ground);
    let far = create_dependents(&mut stage, near[0].0);
    let bystander = super::create_grounded_claim(&mut stage);
    for (id, before, _) in near.iter().chain(&far) {
        assert_eq!(stage.state(*id), *before);
    }
    let changes = stage.fire(ground, "tombstone", &machine_actor()).expect_changes();
    assert_eq!(changes.records.len(), 13, "one operation for all");
    for (id, _, after) in near.iter().chain(&far) {
        assert_eq!(stage.state(*id), *after, "{}", stage.record(*id).lifecycle.name);
    }
    assert_eq!(stage.state(bystander), "Claim");
    stage.fire(ground, "tombstone", &machine_actor()).expect_unchanged();
}

/// MSH-4, MSH-8: the claim's own support stays.
#[test]
fn reject_cascades_to_all_dependents() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    let id = create_claim(&mut stage, &[ground]);
    let near = create_dependents(&mut stage, id);
    let far = create_dependents(&mut stage, near[0].0);
    assert_eq!(stage.fire(id, "reject", &user_actor()).expect_changes().records.len(), 13);
    for (id, _, after) in near.iter().chain(&far) {
        assert_eq!(stage.state(*id), *after);
    }
    assert_eq!((stage.state(id), stage.state(ground)), ("Rejected".into(), "Live".into()));
}

/// MSH-7, MSH-9, MSH-11: Hints, Claims and Disputed claims become Stale; the others keep their state.
#[test]
fn machine_tombstone_makes_only_unsettled_claims_stale() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    let claims = create_claim_in_each_state(&mut stage, &[ground]);
    stage.fire(ground, "tombstone", &machine_actor()).expect_ok();
    for (before, id) in claims {
        let after = if ["Hint", "Claim", "Disputed"].contains(&before) { "Stale" } else { before };
        assert_eq!(stage.state(id), after, "from {before}");
    }
}

/// MSH-9, MSH-11: by tombstone or reject; Rejected and Superseded claims keep their state.
#[test]
fn user_cascade_makes_facts_stale() {
    for is_reject in [false, true] {
        let mut stage = new_simulator();
        let ground = if is_reject { super::create_grounded_claim(&mut stage) } else { create_evidence(&mut stage) };
        let claims = create_claim_in_each_state(&mut stage, &[ground]);
        stage.fire(ground, if is_reject { "reject" } else { "tombstone" }, &user_actor()).expect_ok();
        for (before, id) in claims {
            let after = if ["Rejected", "Superseded"].contains(&before) { before } else { "Stale" };
            assert_eq!(stage.state(id), after, "from {before}");
        }
    }
}

/// MSH-9: dependents of the Fact alone do not change.
#[test]
fn machine_cascade_stops_at_fact() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    let frozen = create_fact(&mut stage, &[ground]);
    let dependents = create_dependents(&mut stage, frozen);
    let round = create_claim(&mut stage, &[ground]);
    let both = create_claim(&mut stage, &[frozen, round]);
    stage.fire(ground, "tombstone", &machine_actor()).expect_ok();
    for (id, before, _) in dependents {
        assert_eq!(stage.state(id), before);
    }
    assert_eq!(stage.state(frozen), "Fact");
    assert_eq!((stage.state(round), stage.state(both)), ("Stale".into(), "Stale".into()), "another path reaches it");
}

/// MSH-9, MSH-10: the user's tombstone cascades through Facts that stopped the machine's.
#[test]
fn user_tombstone_after_machine_gives_same_result() {
    let run = |order: &[Actor]| {
        let mut stage = new_simulator();
        let ground = create_evidence(&mut stage);
        let between = create_claim(&mut stage, &[ground]);
        let episode_id = create_episode(&mut stage, &[between]);
        let frozen = create_fact(&mut stage, &[between]);
        let done = create_action(&mut stage, &[episode_id]);
        stage.fire(done, "accept", &user_actor()).expect_ok();
        let behind = create_claim(&mut stage, &[frozen]);
        for actor in order {
            stage.fire(ground, "tombstone", actor).expect_ok();
        }
        for actor in [user_actor(), machine_actor()] {
            stage.fire(ground, "tombstone", &actor).expect_unchanged();
        }
        [between, episode_id, frozen, done, behind].map(|id| stage.state(id))
    };
    assert_eq!(run(&[user_actor()]), ["Stale", "Stale", "Stale", "Rejected", "Stale"]);
    assert_eq!(run(&[machine_actor(), user_actor()]), run(&[user_actor()]));
}

/// MSH-8, MSH-11: for Stale, Rejected and Superseded claims.
#[test]
fn cascade_continues_past_settled_claims() {
    let mut stage = new_simulator();
    let ground = super::create_grounded_claim(&mut stage);
    let replaced = create_claim(&mut stage, &[ground]);
    let on_replaced = create_claim(&mut stage, &[replaced]);
    let better = super::create_rival_claim(&mut stage);
    super::supersede_claim(&mut stage, replaced, better, &machine_actor()).expect_ok();
    let other = create_evidence(&mut stage);
    let stale_claim = create_claim(&mut stage, &[ground, other]);
    let on_stale = create_fact(&mut stage, &[stale_claim]);
    stage.fire(other, "tombstone", &machine_actor()).expect_ok();
    let rejected_claim = create_claim(&mut stage, &[ground]);
    let on_rejected = create_claim(&mut stage, &[rejected_claim]);
    stage.fire(rejected_claim, "reject", &user_actor()).expect_ok();
    stage.fire(on_rejected, "confirm", &user_actor()).expect_ok();
    assert_eq!([on_replaced, on_stale, on_rejected].map(|id| stage.state(id)), ["Claim", "Fact", "Fact"]);

    stage.fire(ground, "reject", &user_actor()).expect_ok();
    assert_eq!([replaced, stale_claim, rejected_claim].map(|id| stage.state(id)), ["Superseded", "Stale", "Rejected"]);
    assert_eq!([on_replaced, on_stale, on_rejected].map(|id| stage.state(id)), ["Stale", "Stale", "Stale"]);
}

/// MSH-7
#[test]
fn one_lost_support_makes_claim_stale() {
    let mut stage = new_simulator();
    let (kept, lost) = (create_evidence(&mut stage), create_evidence(&mut stage));
    let id = create_claim(&mut stage, &[kept, lost]);
    stage.fire(lost, "tombstone", &machine_actor()).expect_ok();
    assert_eq!((stage.state(id), stage.state(kept)), ("Stale".into(), "Live".into()));
}

/// MSH-8: a snapshot can be evicted only once it is stale.
#[test]
fn create_on_lost_support_is_refused() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    let episode_id = create_episode(&mut stage, &[ground]);
    let kept = create_snapshot(&mut stage, &[episode_id]);
    stage.fire(kept, "evict", &machine_actor()).expect_wrong_state("Fresh", "evict");
    stage.fire(ground, "tombstone", &machine_actor()).expect_ok();
    for (lifecycle, name, support) in [
        ("mesh.episode", "title", ground),
        ("mesh.action", "title", ground),
        ("mesh.snapshot", "artifact", ground),
        ("mesh.action", "title", episode_id),
        ("mesh.snapshot", "artifact", episode_id),
    ] {
        let attempt =
            stage.create(lifecycle, &machine_actor()).with(name, "x").with("support", super::id_list(&[support]));
        attempt.expect_refusal(422, "dead_support");
    }
    stage.fire(kept, "evict", &machine_actor()).expect_ok();
    assert_eq!(stage.state(kept), "Evicted");
    stage.fire(kept, "evict", &machine_actor()).expect_wrong_state("Evicted", "evict");
}

/// MSH-8: for every lifecycle.
#[test]
fn create_on_superseded_claim_is_refused() {
    let mut stage = new_simulator();
    let ground = create_evidence(&mut stage);
    let old = create_superseded_claim(&mut stage, &[ground]);
    for lifecycle in ["mesh.episode", "mesh.action"] {
        let attempt =
            stage.create(lifecycle, &machine_actor()).with("title", "x").with("support", super::id_list(&[old]));
        attempt.expect_refusal(422, "dead_support");
    }
}

/// MSH-8, MSH-11: episodes, actions and snapshots may rest on live evidence and claims; actions and snapshots also on
/// episodes that are not stale.
#[test]
fn support_must_be_live_and_of_allowed_lifecycle() {
    let mut stage = new_simulator();
    let (ground, gone) = (create_evidence(&mut stage), create_evidence(&mut stage));
    let (current_episode, stale_episode) = (create_episode(&mut stage, &[ground]), create_episode(&mut stage, &[gone]));
    stage.fire(gone, "tombstone", &machine_actor()).expect_ok();
    let mut grounds =
        vec![("Live", ground), ("Tombstoned", gone), ("Current", current_episode), ("Stale", stale_episode)];
    grounds.extend(create_claim_in_each_state(&mut stage, &[ground]));
    for (lifecycle, name) in [("mesh.episode", "title"), ("mesh.action", "title"), ("mesh.snapshot", "artifact")] {
        for (state, support) in &grounds {
            let attempt = stage
                .create(lifecycle, &machine_actor())
                .with(name, "x")
                .with("support", super::id_list(&[ground, *support]));
            let episodes = [current_episode, stale_episode].contains(support) && lifecycle == "mesh.episode";
            if episodes {
                attempt.expect_bad_input();
            } else if ["Live", "Current", "Hint", "Claim", "Fact", "Disputed"].contains(state) {
                attempt.expect_ok();
            } else {
                attempt.expect_refusal(422, "dead_support");
            }
        }
    }
}

/// MSH-8, MSH-11: not even the versions of Done, Rejected and Evicted records and stale snapshots change.
#[test]
fn final_records_ignore_lost_support() {
    for author in [machine_actor(), user_actor()] {
        let mut stage = new_simulator();
        let (ground, other) = (create_evidence(&mut stage), create_evidence(&mut stage));
        let [done, rejected] = [0; 2].map(|_| create_action(&mut stage, &[ground]));
        stage.fire(done, "accept", &user_actor()).expect_ok();
        stage.fire(done, "complete", &machine_actor()).expect_ok();
        stage.fire(rejected, "reject", &machine_actor()).expect_ok();
        let [stale, evicted] = [0; 2].map(|_| create_snapshot(&mut stage, &[ground, other]));
        stage.fire(other, "tombstone", &machine_actor()).expect_ok();
        stage.fire(evicted, "evict", &machine_actor()).expect_ok();
        let before = [done, rejected, stale, evicted].map(|id| stage.record(id).version);
        assert_eq!(stage.fire(ground, "tombstone", &author).expect_changes().records.len(), 1);
        assert_eq!([done, rejected, stale, evicted].map(|id| stage.record(id).version), before);
    }
}

/// MSH-9, MSH-10: whether a machine or the user withdrew the evidence first.
#[test]
fn repeated_tombstone_keeps_later_confirmation() {
    for first in [machine_actor(), user_actor()] {
        let mut stage = new_simulator();
        let ground = create_evidence(&mut stage);
        let id = create_claim(&mut stage, &[ground]);
        stage.fire(ground, "tombstone", &first).expect_ok();
        stage.fire(ground, "tombstone", &user_actor()).run();
        assert_eq!(stage.field(ground, "byUser"), true);
        stage.fire(id, "confirm", &user_actor()).expect_ok();
        for author in [user_actor(), machine_actor()] {
            stage.fire(ground, "tombstone", &author).expect_unchanged();
        }
        assert_eq!(stage.state(id), "Fact");
    }
}

/// MSH-9, MSH-10: also if all dependents are final.
#[test]
fn user_tombstone_without_dependents_sets_by_user() {
    let mut stage = new_simulator();
    let (bare, used) = (create_evidence(&mut stage), create_evidence(&mut stage));
    let done = create_action(&mut stage, &[used]);
    stage.fire(done, "accept", &machine_actor()).expect_ok();
    stage.fire(done, "complete", &machine_actor()).expect_ok();
    for ground in [bare, used] {
        stage.fire(ground, "tombstone", &machine_actor()).expect_ok();
        stage.fire(ground, "tombstone", &user_actor()).expect_ok();
        assert_eq!(stage.field(ground, "byUser"), true);
    }
    assert_eq!(stage.state(done), "Done");
}
