//! MSH-1, MSH-8, MSH-9, MSH-10, MSH-11, MSH-16 and MSH-28: events and spawns that come from other records.

use std::fmt::Write as _;

use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use onceward_testkit::{Simulator, systems};
use serde_json::json;

use super::state_fixtures::{StateFixture, fixtures_in};
use super::{create_evidence, id_list, machine_actor, node_actor};

/// Events that the forwarder can send, with valid input.
const FORWARDED_EVENTS: &[(&str, &[(&str, &str)])] = &[
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

/// Returns a lifecycle that sends the events to the record it references, as `send_0`, `send_1` and so on.
fn forwarder_lifecycle(lifecycle: &str, events: &[(&str, &str)]) -> String {
    let mut text = format!(
        "language = 1\nlifecycle = \"test.boss\"\nabout = \"Sends what nodes may send\"\n\
         [states]\nthere = {{ rest = true }}\n\
         [fields]\ntarget = {{ type = \"ref\", to = \"{lifecycle}\" }}\nother = {{ type = \"ref\", to = \"mesh.claim\" }}\n\
         [access]\nread = [\"anyone\"]\n[[on.create]]\ngo = \"-> there\"\ntake = [\"target\", \"other\"]\n"
    );
    for (number, (event, input)) in events.iter().enumerate() {
        let _ = write!(
            text,
            "[[on.send_{number}]]\ngo = \"there\"\n\
             require = [{{ to = \"record.target\", event = \"{event}\", input = {{ {input} }} }}]\n"
        );
    }
    text
}

/// Creates the fixtures of a lifecycle, each with a forwarder.
fn create_forwarded_fixtures(lifecycle: &str, events: &[(&str, &str)]) -> (Simulator, Vec<(StateFixture, RecordId)>) {
    let definitions = systems::load_with_files("mesh", &[("boss.toml", &forwarder_lifecycle(lifecycle, events))]);
    let (mut stage, scenes, other) = fixtures_in(Simulator::new(definitions));
    let matching = scenes.into_iter().filter(|scene| scene.lifecycle == lifecycle);
    let forwarded = matching.map(|scene| {
        let fields = json!({ "target": scene.id.to_string(), "other": other.to_string() });
        let forwarder = stage.create("test.boss", &machine_actor()).with_all(fields).expect_ok();
        (scene, forwarder)
    });
    let forwarded = forwarded.collect();
    (stage, forwarded)
}

/// MSH-28, MSH-10, MSH-16: the caller has the name of author and claimer, and a capability that no transition requires.
#[test]
fn cascade_from_other_record_needs_caller_capability() {
    for (lifecycle, events) in FORWARDED_EVENTS {
        let (mut stage, forwarded) = create_forwarded_fixtures(lifecycle, events);
        for (StateFixture { name, id, .. }, forwarder) in forwarded {
            for (number, (event, _)) in events.iter().enumerate().filter(|(_, (event, _))| *event != "support_lost") {
                for caller in [node_actor("ann", &["Ops.Read"]), node_actor(&stage.record(id).owner, &["Ops.Read"])] {
                    let outcome = stage.fire(forwarder, &format!("send_{number}"), &caller).run();
                    assert_eq!(&*outcome.expect_refusal().code, "not_taken", "{lifecycle}, {name}: {event}");
                }
            }
        }
    }
}

/// MSH-8, MSH-9, MSH-10, MSH-11: sent by a machine's and by the user's operation. Some records accept the event without
/// a change; Done, Rejected and Evicted ones and stale snapshots refuse it.
#[test]
fn support_lost_changes_each_state_as_specified() {
    for (lifecycle, expectations) in [
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
        let (stage, forwarded) = create_forwarded_fixtures(lifecycle, &[("support_lost", "")]);
        let mut fixture_count = 0;
        for (StateFixture { name, id, .. }, forwarder) in forwarded {
            let Some((_, by_machine, by_user)) = expectations.iter().find(|(scene, _, _)| *scene == name) else {
                continue;
            };
            fixture_count += 1;
            for (is_user, expected_state) in [(false, by_machine), (true, by_user)] {
                let mut stage = stage.clone();
                stage.advance_without_engine("1s");
                let caller = Actor { user: is_user, ..node_actor("eve", &["Ops.Read"]) };
                let attempt = stage.fire(forwarder, "send_0", &caller);
                match *expected_state {
                    "stays" => _ = attempt.expect_unchanged(),
                    "is deaf" => _ = attempt.expect_refusal(409, "not_taken"),
                    end => {
                        attempt.expect_ok();
                        assert_eq!(stage.state(id), end, "{lifecycle}, {name}");
                    }
                }
            }
        }
        assert_eq!(fixture_count, expectations.len(), "{lifecycle}");
    }
}

/// A record that spawns each kind of record.
const RECORD_MAKER_LIFECYCLE: &str = r#"
language  = 1
lifecycle = "test.maker"
about     = "Spawns what nodes create"

[states]
there = { about = "open", rest = true }

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

/// MSH-28, MSH-16, MSH-1
#[test]
fn spawn_from_other_record_needs_caller_capability() {
    let mut stage = Simulator::new(systems::load_with_files("mesh", &[("maker.toml", RECORD_MAKER_LIFECYCLE)]));
    let ground = create_evidence(&mut stage);
    let maker = stage.create("test.maker", &machine_actor()).with("support", id_list(&[ground])).expect_ok();
    for event in ["evidence", "claim", "hint", "episode", "action", "snapshot", "job", "route", "node"] {
        stage.fire(maker, event, &node_actor("laptop", &["Ops.Read"])).expect_refusal(409, "spawn_not_taken");
    }
    // With the capability the spawn succeeds, so nothing else prevented it.
    for event in ["evidence", "claim", "hint", "episode", "action", "snapshot", "job", "route"] {
        stage.fire(maker, event, &machine_actor()).expect_ok();
    }
}
