//! MSH-3, MSH-4, MSH-10, MSH-16 and MSH-28: who is let in to what, in every state, and who is not though they see it.

use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use onceward_testkit::{Attempt, Stage, operator, systems};
use serde_json::{Value, json};

use super::scenes::{Scene, dressed, every_scene};
use super::{ALL, evidence, ids, machine, node, one_of_each, stage, you};

/// The events of a lifecycle, each with what makes it go through if anything does; `other` is another claim.
fn events(lifecycle: &str, other: RecordId) -> Vec<(&'static str, Value)> {
    let other = other.to_string();
    match lifecycle {
        "mesh.action" => ["accept", "reject", "complete", "support_lost"].map(|event| (event, json!({}))).into(),
        "mesh.claim" => vec![
            ("update_status", json!({ "status": "Claim" })),
            ("update_status", json!({ "status": "Disputed", "conflict": other })),
            ("confirm", json!({})),
            ("reject", json!({})),
            ("supersede", json!({ "replacement": other })),
            ("update_confidence", json!({ "confidence": 0.1 })),
            ("support_lost", json!({})),
        ],
        "mesh.episode" => vec![("support_lost", json!({}))],
        "mesh.evidence" => vec![("tombstone", json!({}))],
        "mesh.job" => vec![
            ("claim_work", json!({ "lease": "1m" })),
            ("yield_work", json!({})),
            ("expire_work", json!({})),
            ("complete_job", json!({})),
        ],
        "mesh.node" => ["delegated", "lapsed", "revoked"].map(|event| (event, json!({}))).into(),
        "mesh.route" => vec![("route", json!({ "node": "cid" })), ("free", json!({}))],
        "mesh.snapshot" => vec![("evict", json!({})), ("support_lost", json!({}))],
        other => panic!("{other} has no events here"),
    }
}

/// The capability that an event asks for, where it asks for one.
fn needs(lifecycle: &str, event: &str) -> &'static str {
    match (lifecycle, event) {
        ("mesh.action", _) => "Action.Write",
        ("mesh.claim", _) => "Claim.Write",
        ("mesh.episode", _) => "Episode.Write",
        ("mesh.evidence", _) => "Evidence.Write",
        ("mesh.job", "complete_job") => "Job.Complete",
        ("mesh.job", _) => "Job.Claim",
        ("mesh.route", _) => "Mesh.Write",
        ("mesh.snapshot", _) => "Artifact.Write",
        _ => "",
    }
}

fn all_but(capability: &str) -> Vec<&'static str> {
    ALL.iter().copied().filter(|one| *one != capability).collect()
}

fn attempt<'s>(stage: &'s mut Stage, id: RecordId, event: &(&str, Value), by: &Actor) -> Attempt<'s> {
    stage.fire(id, event.0, by).with_all(event.1.clone())
}

/// MSH-28, MSH-10, MSH-16: who sees a record and lacks the one capability moves nothing, in no state: not a node that holds all
/// others, not the author, not the claimer, not the user, not the operator. A node's standing is the fold's alone, and that
/// something is lost is told by records alone.
#[test]
fn who_lacks_the_capability_moves_nothing() {
    let (mut stage, scenes, other) = every_scene();
    for Scene { lifecycle, name, id } in scenes {
        for event in events(lifecycle, other) {
            let held = all_but(needs(lifecycle, event.0));
            let author = node(&stage.record(id).owner, &held);
            let voice = Actor { user: true, ..node("phone", &held) };
            let mut kept_out = vec![node("eve", &held), author, node("ann", &held), operator("olga")];
            // Confirming and rejecting a claim takes the user's authority and nothing else.
            if lifecycle != "mesh.claim" || !["confirm", "reject"].contains(&event.0) {
                kept_out.push(voice);
            }
            if event.0 == "support_lost" {
                kept_out.extend([machine(), you()]);
            }
            for actor in kept_out {
                let refusal = attempt(&mut stage, id, &event, &actor).outcome().refusal();
                let kept_out = ["not_allowed", "wrong_state"].contains(&&*refusal.code);
                assert!(kept_out, "{lifecycle}, {name}: {event:?} by {actor:?} is refused with {}", refusal.code);
            }
        }
    }
}

/// MSH-28: that one made a record counts for nothing: whatever its author may do, any other node with the capability may do.
#[test]
fn authorship_counts_for_nothing() {
    let (stage, scenes, other) = every_scene();
    for Scene { lifecycle, name, id } in scenes.into_iter().filter(|scene| scene.lifecycle != "mesh.node") {
        for event in events(lifecycle, other) {
            for user in [false, true] {
                let told = |who: &str| {
                    let mut stage = stage.clone();
                    let actor = Actor { user, ..node(who, ALL) };
                    let outcome = attempt(&mut stage, id, &event, &actor).outcome();
                    match &outcome.decision {
                        onceward_core::decide::Decision::Refusal(refusal) => refusal.code.to_string(),
                        onceward_core::decide::Decision::Changes(_) => format!("-> {}", stage.state(id)),
                        _ => "unchanged".to_owned(),
                    }
                };
                assert_eq!(told(&stage.record(id).owner), told("server"), "{lifecycle}, {name}: {event:?}");
            }
        }
    }
}

/// MSH-3, MSH-4, MSH-28: to confirm and to reject takes the user's authority and no capability at all, whatever has become of
/// the claim.
#[test]
fn the_users_voice_is_enough() {
    for (event, end) in [("confirm", "Fact"), ("reject", "Rejected")] {
        let mut stage = stage();
        let ground = evidence(&mut stage);
        let voice = Actor { user: true, ..Actor::new("phone", &[]) };
        for (state, id) in one_of_each(&mut stage, &[ground]) {
            if state == end {
                stage.fire(id, event, &voice).unchanged();
            } else {
                stage.fire(id, event, &voice).ok();
            }
            assert_eq!(stage.state(id), end, "from {state}");
        }
    }
}

/// Another record, which requires of `target` whatever it is told to, and makes what it is told to.
fn boss(lifecycle: &str) -> String {
    let sent = match lifecycle {
        "mesh.claim" => {
            "claim update_status status = \"'Claim'\"
             dispute update_status status = \"'Disputed'\", conflict = \"record.other\"
             confirm confirm
             reject reject
             supersede supersede replacement = \"record.other\"
             weigh update_confidence confidence = \"0.1\""
        }
        "mesh.action" => "accept accept\nreject reject\ncomplete complete",
        "mesh.evidence" => "tombstone tombstone",
        "mesh.job" => {
            "claim claim_work lease = \"duration('1m')\"
             yield yield_work
             expire expire_work
             complete complete_job"
        }
        "mesh.node" => "delegated delegated\nlapsed lapsed\nrevoked revoked",
        "mesh.route" => "route route node = \"'cid'\"\nfree free",
        "mesh.snapshot" => "evict evict",
        _ => "",
    };
    let mut text = format!(
        "language = 1\nlifecycle = \"test.boss\"\nabout = \"Sends what nodes may send\"\n\
         [states]\nthere = {{ rest = true }}\n\
         [fields]\ntarget = {{ type = \"ref\", to = \"{lifecycle}\" }}\nother = {{ type = \"ref\", to = \"mesh.claim\" }}\n\
         [access]\nread = [\"anyone\"]\n[[on.create]]\ngo = \"-> there\"\ntake = [\"target\", \"other\"]\n"
    );
    let takes_losses = ["mesh.action", "mesh.claim", "mesh.episode", "mesh.snapshot"].contains(&lifecycle);
    let loss = if takes_losses { "support_lost support_lost" } else { "" };
    for line in sent.lines().chain(loss.lines()) {
        let mut words = line.trim().splitn(3, ' ');
        let (name, event, input) = (words.next(), words.next(), words.next().unwrap_or_default());
        let (name, event) = (name.expect("a name"), event.expect("an event"));
        text += &format!(
            "[[on.send_{name}]]\ngo = \"there\"\n\
             require = [{{ to = \"record.target\", event = \"{event}\", input = {{ {input} }} }}]\n"
        );
    }
    text
}

/// MSH-28, MSH-10, MSH-16: no other record does for a node what that may not do by itself. Who sets it going has the author's
/// and the claimer's name, and a capability that no row asks for.
#[test]
fn no_record_lends_a_capability() {
    for lifecycle in
        ["mesh.action", "mesh.claim", "mesh.evidence", "mesh.job", "mesh.node", "mesh.route", "mesh.snapshot"]
    {
        let text = boss(lifecycle);
        let definitions = systems::load_with("mesh", &[("boss.toml", &text)]);
        let (mut stage, scenes, other) = dressed(Stage::new(definitions));
        for Scene { name, id, .. } in scenes.into_iter().filter(|scene| scene.lifecycle == lifecycle) {
            let given = json!({ "target": id.to_string(), "other": other.to_string() });
            let boss = stage.create("test.boss", &machine()).with_all(given).ok();
            let sends: Vec<_> = stage.definition("test.boss").events.iter().map(|event| event.name.clone()).collect();
            for event in sends.iter().filter(|event| !["create", "send_support_lost"].contains(&&***event)) {
                for who in [node("ann", &["Ops.Read"]), node(&stage.record(id).owner, &["Ops.Read"])] {
                    let refusal = stage.fire(boss, event, &who).refused(409, "not_taken");
                    assert!(refusal.status == 409, "{lifecycle}, {name}: {event}");
                }
            }
        }
    }
}

/// MSH-8, MSH-9, MSH-10, MSH-11: what becomes of each record that is told of a loss, by a machine's doing and by the user's. Where
/// it stays as it was it has still heard; only what is over does not listen.
#[test]
fn what_each_makes_of_a_loss() {
    for (lifecycle, told) in [
        (
            "mesh.claim",
            &[
                ("Hint", "Stale", "Stale"),
                ("Claim", "Stale", "Stale"),
                ("Disputed", "Stale", "Stale"),
                ("Fact", "stays", "Stale"),
                ("Rejected", "stays", "stays"),
                ("Stale", "stays", "stays"),
                ("Superseded", "stays", "stays"),
            ][..],
        ),
        ("mesh.episode", &[("Current", "Stale", "Stale"), ("Stale", "stays", "stays")]),
        (
            "mesh.snapshot",
            &[("Fresh", "Stale", "Stale"), ("Stale", "is deaf", "is deaf"), ("Evicted", "is deaf", "is deaf")],
        ),
        (
            "mesh.action",
            &[
                ("Suggested", "Rejected", "Rejected"),
                ("Accepted: by a machine", "Rejected", "Rejected"),
                ("Accepted: by the user", "stays", "Rejected"),
                ("Done", "is deaf", "is deaf"),
                ("Rejected", "is deaf", "is deaf"),
            ],
        ),
    ] {
        let text = boss(lifecycle);
        let definitions = systems::load_with("mesh", &[("boss.toml", &text)]);
        let (stage, scenes, other) = dressed(Stage::new(definitions));
        let mut seen = 0;
        for Scene { name, id, .. } in scenes.into_iter().filter(|scene| scene.lifecycle == lifecycle) {
            let Some((_, by_machine, by_user)) = told.iter().find(|(scene, _, _)| *scene == name) else { continue };
            seen += 1;
            for (user, becomes) in [(false, by_machine), (true, by_user)] {
                let mut stage = stage.clone();
                let given = json!({ "target": id.to_string(), "other": other.to_string() });
                let boss = stage.create("test.boss", &machine()).with_all(given).ok();
                let who = Actor { user, ..node("eve", &["Ops.Read"]) };
                stage.doze("1s");
                let attempt = stage.fire(boss, "send_support_lost", &who);
                match *becomes {
                    "stays" => drop(attempt.unchanged().to_string()),
                    "is deaf" => drop(attempt.refused(409, "not_taken")),
                    state => {
                        attempt.ok();
                        assert_eq!(stage.state(id), state, "{lifecycle}, {name}");
                    }
                }
            }
        }
        assert_eq!(seen, told.len(), "{lifecycle}");
    }
}

/// Another record, which makes whatever a node may make.
const MAKER: &str = r#"
language  = 1
lifecycle = "test.maker"
about     = "Makes what nodes make"

[states]
there = { about = "at hand", rest = true }

[fields]
support = { type = "refs", to = ["mesh.evidence", "mesh.claim"] }

[access]
read = ["anyone"]

[[on.create]]
go   = "-> there"
take = ["support"]

[[on.evidence]]
go    = "there"
spawn = [{ lifecycle = "mesh.evidence", fields = { digest = "'d'" } }]

[[on.claim]]
go    = "there"
spawn = [{ lifecycle = "mesh.claim", fields = { subject = "'s'", predicate = "'p'", object = "'o'", confidence = "0.7", support = "record.support" } }]

[[on.hint]]
go    = "there"
spawn = [{ lifecycle = "mesh.claim", fields = { subject = "'s'", predicate = "'p'", object = "'o'", confidence = "0.2", support = "record.support" } }]

[[on.episode]]
go    = "there"
spawn = [{ lifecycle = "mesh.episode", fields = { title = "'t'", support = "record.support" } }]

[[on.action]]
go    = "there"
spawn = [{ lifecycle = "mesh.action", fields = { title = "'t'", support = "record.support" } }]

[[on.snapshot]]
go    = "there"
spawn = [{ lifecycle = "mesh.snapshot", fields = { artifact = "'a'", support = "record.support" } }]

[[on.job]]
go    = "there"
spawn = [{ lifecycle = "mesh.job", fields = { kind = "'k'" } }]

[[on.route]]
go    = "there"
spawn = [{ lifecycle = "mesh.route", fields = { kind = "'k'", node = "'n'" } }]

[[on.node]]
go    = "there"
spawn = [{ lifecycle = "mesh.node", fields = { did = "'d'", publicKey = "'k'" } }]
"#;

/// MSH-28, MSH-16, MSH-1: nor does another record make anything for a node that may not.
#[test]
fn no_record_makes_what_a_node_may_not() {
    let mut stage = Stage::new(systems::load_with("mesh", &[("maker.toml", MAKER)]));
    let ground = evidence(&mut stage);
    let maker = stage.create("test.maker", &machine()).with("support", ids(&[ground])).ok();
    for event in ["evidence", "claim", "hint", "episode", "action", "snapshot", "job", "route", "node"] {
        stage.fire(maker, event, &node("laptop", &["Ops.Read"])).refused(409, "spawn_not_taken");
    }
    // With the capability it is made as by hand, so nothing else stood in the way.
    for event in ["evidence", "claim", "hint", "episode", "action", "snapshot", "job", "route"] {
        stage.fire(maker, event, &machine()).ok();
    }
}
