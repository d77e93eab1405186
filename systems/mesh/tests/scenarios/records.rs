//! MSH-1, MSH-8, MSH-9, MSH-10, MSH-11, MSH-16 and MSH-28: what other records may do to a record, and what they may not.

use std::fmt::Write as _;

use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use onceward_testkit::{Stage, systems};
use serde_json::json;

use super::scenes::{Scene, dressed};
use super::{evidence, ids, machine, node};

/// What a boss can send, and with what: each goes through if anything does.
const SENT: &[(&str, &[(&str, &str)])] = &[
    ("mesh.action", &[("accept", ""), ("reject", ""), ("complete", ""), ("support_lost", "")]),
    (
        "mesh.claim",
        &[
            ("update_status", "status = \"'Claim'\""),
            ("update_status", "status = \"'Disputed'\", conflict = \"record.other\""),
            ("confirm", ""),
            ("reject", ""),
            ("supersede", "replacement = \"record.other\""),
            ("update_confidence", "confidence = \"0.1\""),
            ("support_lost", ""),
        ],
    ),
    ("mesh.episode", &[("support_lost", "")]),
    ("mesh.evidence", &[("tombstone", "")]),
    (
        "mesh.job",
        &[("claim_work", "lease = \"duration('1m')\""), ("yield_work", ""), ("expire_work", ""), ("complete_job", "")],
    ),
    ("mesh.node", &[("delegated", ""), ("lapsed", ""), ("revoked", "")]),
    ("mesh.route", &[("route", "node = \"'cid'\""), ("free", "")]),
    ("mesh.snapshot", &[("evict", ""), ("support_lost", "")]),
];

/// Another record, which requires of the one it points to whatever it is told to: `send_0`, `send_1` and so on.
fn boss(lifecycle: &str, sent: &[(&str, &str)]) -> String {
    let mut text = format!(
        "language = 1\nlifecycle = \"test.boss\"\nabout = \"Sends what nodes may send\"\n\
         [states]\nthere = {{ rest = true }}\n\
         [fields]\ntarget = {{ type = \"ref\", to = \"{lifecycle}\" }}\nother = {{ type = \"ref\", to = \"mesh.claim\" }}\n\
         [access]\nread = [\"anyone\"]\n[[on.create]]\ngo = \"-> there\"\ntake = [\"target\", \"other\"]\n"
    );
    for (number, (event, input)) in sent.iter().enumerate() {
        let _ = write!(
            text,
            "[[on.send_{number}]]\ngo = \"there\"\n\
             require = [{{ to = \"record.target\", event = \"{event}\", input = {{ {input} }} }}]\n"
        );
    }
    text
}

/// The scenes of a lifecycle, each with a boss over it.
fn bossed(lifecycle: &str, sent: &[(&str, &str)]) -> (Stage, Vec<(Scene, RecordId)>) {
    let definitions = systems::load_with("mesh", &[("boss.toml", &boss(lifecycle, sent))]);
    let (mut stage, scenes, other) = dressed(Stage::new(definitions));
    let own = scenes.into_iter().filter(|scene| scene.lifecycle == lifecycle);
    let bossed = own.map(|scene| {
        let given = json!({ "target": scene.id.to_string(), "other": other.to_string() });
        let boss = stage.create("test.boss", &machine()).with_all(given).ok();
        (scene, boss)
    });
    let bossed = bossed.collect();
    (stage, bossed)
}

/// MSH-28, MSH-10, MSH-16: no other record does for a node what that may not do by itself. Who sets it going has the author's
/// and the claimer's name, and a capability that no row asks for.
#[test]
fn no_record_lends_a_capability() {
    for (lifecycle, sent) in SENT {
        let (mut stage, bossed) = bossed(lifecycle, sent);
        for (Scene { name, id, .. }, boss) in bossed {
            for (number, (event, _)) in sent.iter().enumerate().filter(|(_, (event, _))| *event != "support_lost") {
                for who in [node("ann", &["Ops.Read"]), node(&stage.record(id).owner, &["Ops.Read"])] {
                    let outcome = stage.fire(boss, &format!("send_{number}"), &who).outcome();
                    assert_eq!(&*outcome.refusal().code, "not_taken", "{lifecycle}, {name}: {event}");
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
        let (stage, bossed) = bossed(lifecycle, &[("support_lost", "")]);
        let mut seen = 0;
        for (Scene { name, id, .. }, boss) in bossed {
            let Some((_, by_machine, by_user)) = told.iter().find(|(scene, _, _)| *scene == name) else { continue };
            seen += 1;
            for (user, becomes) in [(false, by_machine), (true, by_user)] {
                let mut stage = stage.clone();
                stage.doze("1s");
                let who = Actor { user, ..node("eve", &["Ops.Read"]) };
                let attempt = stage.fire(boss, "send_0", &who);
                match *becomes {
                    "stays" => _ = attempt.unchanged(),
                    "is deaf" => _ = attempt.refused(409, "not_taken"),
                    end => {
                        attempt.ok();
                        assert_eq!(stage.state(id), end, "{lifecycle}, {name}");
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
