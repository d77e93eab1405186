//! Tests version migrations: records change to another version of their lifecycle.

use std::collections::BTreeMap;
use std::sync::Arc;

use onceward_core::decide::{
    Call, CreateRecord, Decision, Operation, RecordMigration, Refusal, Snapshot, VersionMismatch, decide,
    find_mismatches, link_changes, next_due, readiness,
};
use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::model::{Definitions, Lifecycle};
use onceward_core::record::{Actor, FencingToken, Record};
use onceward_core::time::{Duration, Time};
use onceward_core::value::{RecordId, Value};
use serde_json::{Value as Json, json};

const OLD_ORDER_LIFECYCLE: &str = r#"
language  = 1
lifecycle = "shop.order"
about     = "An order"
asset     = "cents"
outside   = ["world"]

[states]
new     = { about = "asked for", rest = true }
waiting = { about = "for a worker", ready = true }
working = { about = "a worker holds it" }
slow    = { about = "waits for its time" }
done    = { about = "over", final = true }

[fields]
number = { type = "string", max = 20 }
colour = { type = "string", enum = ["red", "blue"], default = "red" }
weight = { type = "int", default = 1 }
parent = { type = "ref", to = "shop.order", optional = true }
note   = { type = "string", optional = true }

[work]
lease = "30s"

[unique]
number = { on = ["number"], in = ["new", "waiting", "working"], clash = "409 number_taken" }

[limit]
busy = { on = ["owner"], in = ["waiting", "working"], max = 2, clash = "429 too_busy" }

[[on.create]]
go   = "-> new"
take = ["number", "colour", "parent", "note"]

[[on.hand_in]]
go = "new -> waiting"

[[on.pay]]
go    = "new"
input = { amount = { type = "int", min = 1 } }
move  = [{ from = "world", to = "hold", amount = "input.amount" }]

[[on.wait]]
go = "new -> slow"

[[on.time]]
go    = "slow -> done"
after = "1h"
move  = [{ from = "hold", to = "world", amount = "rest" }]

[[on.lease]]
go = "waiting -> working"

[[on.commit]]
go   = "working -> done"
move = [{ from = "hold", to = "world", amount = "rest" }]

[[on.fail]]
go   = "working -> waiting"
when = "record.attempt < 3"

[[on.fail]]
go   = "working -> done"
move = [{ from = "hold", to = "world", amount = "rest" }]
"#;

/// Returns a later version of shop orders: renamed states, a removed field, two new fields, a changed type, and half
/// the delay.
fn new_order_lifecycle() -> String {
    OLD_ORDER_LIFECYCLE
        .replace("new     = {", "fresh   = {")
        .replace("\"new\", ", "\"fresh\", ")
        .replace("-> new\"", "-> fresh\"")
        .replace("\"new -> ", "\"fresh -> ")
        .replace("go    = \"new\"", "go    = \"fresh\"")
        .replace("after = \"1h\"", "after = \"30m\"")
        .replace("weight = { type = \"int\", default = 1 }\n", "hurry  = { type = \"bool\", default = false }\n")
        .replace("note   = {", "mark   = { type = \"string\", optional = true }\nnote   = {")
}

struct MigrationFixture {
    definitions: Definitions,
    old_version: Arc<Lifecycle>,
    new_version: Arc<Lifecycle>,
    world: Snapshot,
    now: Time,
    seed: u128,
}

fn load_version(text: &str) -> Arc<Lifecycle> {
    let files = InputFiles { files: vec![InputFile { name: "order.toml".to_owned(), text: text.into() }] };
    let loaded = onceward_core::load_definitions(&files).unwrap_or_else(|found| panic!("{found:#?}"));
    Arc::clone(loaded.definitions.get("shop.order").unwrap())
}

impl MigrationFixture {
    fn new(text: &str) -> Self {
        let (old, new) = (load_version(OLD_ORDER_LIFECYCLE), load_version(text));
        let mut definitions = Definitions::default();
        definitions.lifecycles.insert(Arc::clone(&old.name), Arc::clone(&old));
        for version in [&old, &new] {
            definitions.versions.insert(Arc::clone(&version.hash), Arc::clone(version));
        }
        Self {
            definitions,
            old_version: old,
            new_version: new,
            world: Snapshot::empty_complete(),
            now: Time::from_secs(1_000_000),
            seed: 0,
        }
    }

    fn decide(&mut self, actor: &Actor, call: Call) -> Decision {
        self.seed += 1 << 64;
        let operation =
            Operation { seed: self.seed, actor: actor.clone(), call, check_answers: Vec::new(), trace: None };
        let decision = decide(&self.definitions, &self.world, &operation, self.now);
        if let Decision::Changes(changes) = &decision {
            self.world.apply(changes);
        }
        decision
    }

    fn expect_changes(&mut self, actor: &Actor, call: Call) -> RecordId {
        match self.decide(actor, call) {
            Decision::Changes(changes) => changes.subject,
            other => panic!("not taken: {other:?}"),
        }
    }

    fn expect_refusal(&mut self, actor: &Actor, call: Call) -> Box<Refusal> {
        match self.decide(actor, call) {
            Decision::Refusal(refusal) => refusal,
            other => panic!("not refused: {other:?}"),
        }
    }

    fn create_order(&mut self, fields: Json) -> RecordId {
        let Json::Object(fields) = fields else { panic!("an object") };
        let create = CreateRecord { lifecycle: "shop.order".into(), id: None, owner: None, fields, payload: None };
        self.expect_changes(&ann(), Call::Create(create))
    }

    fn fire(&mut self, record: RecordId, event: &str, input: Json) {
        let Json::Object(input) = input else { panic!("an object") };
        self.expect_changes(&ann(), Call::Fire { record, event: event.into(), input, token: None, if_version: None });
    }

    fn record(&self, id: RecordId) -> &Record {
        self.world.record(id).unwrap()
    }

    fn migrate_call(&self, record: RecordId, states: &[(&str, &str)]) -> Call {
        Call::MigrateVersion(RecordMigration {
            record,
            target_hash: Arc::clone(&self.new_version.hash),
            state_map: state_map(states),
            include_ended: false,
        })
    }
}

fn state_map(states: &[(&str, &str)]) -> BTreeMap<Arc<str>, Arc<str>> {
    states.iter().map(|(from, to)| (Arc::from(*from), Arc::from(*to))).collect()
}

fn ann() -> Actor {
    Actor::new("ann", &["producer"])
}

fn ops() -> Actor {
    Actor::new("ops", &["operator"])
}

#[test]
fn migration_carries_fields_by_name_and_defaults_new_ones() {
    let mut shop = MigrationFixture::new(&new_order_lifecycle());
    let parent = shop.create_order(json!({ "number": "1" }));
    let id =
        shop.create_order(json!({ "number": "2", "colour": "blue", "parent": parent.to_string(), "note": "soon" }));
    shop.fire(id, "pay", json!({ "amount": 7 }));
    let before = shop.record(id).clone();
    shop.now = shop.now.checked_add(Duration::from_secs(60)).unwrap();
    let call = shop.migrate_call(id, &[("new", "fresh")]);
    shop.expect_changes(&ops(), call);
    let after = shop.record(id);
    assert_eq!((&after.lifecycle.hash, &**after.state_name()), (&shop.new_version.hash, "fresh"));
    assert_eq!((after.version, after.hold, &*after.owner), (before.version + 1, 7, "ann"));
    assert_eq!((after.created_at, after.entered_at, after.updated_at), (before.created_at, shop.now, shop.now));
    let field = |name: &str| after.field(name).unwrap().clone();
    assert_eq!(field("colour"), Value::text("blue"));
    assert_eq!(field("note"), Value::text("soon"));
    assert_eq!(field("parent"), Value::Ref(parent));
    assert_eq!(field("hurry"), Value::Bool(false));
    assert_eq!(field("mark"), Value::Null);
    assert!(after.field("weight").is_none());
    // The same ref in the same field is the same link, even if the index of the field changes.
    assert_eq!(link_changes(Some(&before), after), []);
    // The new version handles the next event.
    shop.fire(id, "hand_in", json!({}));
    assert_eq!(&**shop.record(id).state_name(), "waiting");
}

#[test]
fn migration_removes_links_of_dropped_field() {
    let text = new_order_lifecycle().replace("parent = { type = \"ref\", to = \"shop.order\", optional = true }\n", "");
    let mut shop = MigrationFixture::new(&text.replace(", \"parent\"", ""));
    let parent = shop.create_order(json!({ "number": "1" }));
    let id = shop.create_order(json!({ "number": "2", "parent": parent.to_string() }));
    let before = shop.record(id).clone();
    let call = shop.migrate_call(id, &[("new", "fresh")]);
    shop.expect_changes(&ops(), call);
    let changes = link_changes(Some(&before), shop.record(id));
    assert_eq!(changes.len(), 1);
    assert!(!changes[0].is_added && changes[0].key.target == parent && &*changes[0].key.field == "parent");
    assert!(shop.world.links.values().all(Vec::is_empty), "{:?}", shop.world.links);
}

#[test]
fn migration_recomputes_timers_from_entered_at() {
    let mut shop = MigrationFixture::new(&new_order_lifecycle());
    let id = shop.create_order(json!({ "number": "1" }));
    let entered = shop.now;
    shop.fire(id, "wait", json!({}));
    shop.now = entered.checked_add(Duration::from_secs(600)).unwrap();
    let call = shop.migrate_call(id, &[]);
    shop.expect_changes(&ops(), call);
    assert_eq!(next_due(shop.record(id)), entered.checked_add(Duration::from_secs(1_800)));
    // Entering another state restarts the timer.
    let other = shop.create_order(json!({ "number": "2" }));
    let call = shop.migrate_call(other, &[("new", "slow")]);
    shop.expect_changes(&ops(), call);
    assert_eq!(next_due(shop.record(other)), shop.now.checked_add(Duration::from_secs(1_800)));
}

/// Keys and limits that both versions have stay unchanged.
#[test]
fn migration_applies_unique_keys_and_limits_of_new_version() {
    let text = new_order_lifecycle()
        .replace("in = [\"fresh\", \"waiting\", \"working\"], clash", "in = [\"waiting\", \"working\"], clash");
    let mut shop =
        MigrationFixture::new(&text.replace("in = [\"waiting\", \"working\"], max = 2", "in = [\"fresh\"], max = 2"));
    let ids: Vec<RecordId> = (1..=4).map(|number| shop.create_order(json!({ "number": number.to_string() }))).collect();
    assert_eq!(shop.world.unique_holders.values().flatten().count(), 4);
    // In `waiting`, both versions have the key, and only the old version counts.
    shop.fire(ids[3], "hand_in", json!({}));
    let uniques = shop.world.unique_holders.clone();
    assert_eq!(shop.world.counters.values().sum::<u64>(), 1);
    let call = shop.migrate_call(ids[3], &[]);
    shop.expect_changes(&ops(), call);
    assert_eq!(shop.world.unique_holders, uniques);
    assert_eq!(shop.world.counters.values().sum::<u64>(), 0);
    assert!(readiness(shop.record(ids[3])).is_some());
    for id in &ids[..2] {
        let call = shop.migrate_call(*id, &[("new", "fresh")]);
        shop.expect_changes(&ops(), call);
    }
    assert_eq!(shop.world.unique_holders.values().flatten().count(), 2, "`fresh` releases the unique key");
    assert_eq!(shop.world.counters.values().copied().sum::<u64>(), 2, "two records are counted");
    let call = shop.migrate_call(ids[2], &[("new", "fresh")]);
    let refusal = shop.expect_refusal(&ops(), call);
    assert_eq!((refusal.status, &*refusal.code), (429, "too_busy"));
    // A key that another record has taken is a duplicate.
    let again = shop.create_order(json!({ "number": "1" }));
    let call = shop.migrate_call(again, &[("new", "waiting")]);
    shop.expect_changes(&ops(), call);
    let call = Call::MigrateVersion(RecordMigration {
        record: ids[0],
        target_hash: Arc::clone(&shop.old_version.hash),
        state_map: state_map(&[("fresh", "new")]),
        include_ended: false,
    });
    let refusal = shop.expect_refusal(&ops(), call);
    assert_eq!((refusal.status, &*refusal.code), (409, "number_taken"));
}

/// INV-9: a final record migrates only on request, and stays final.
#[test]
fn migration_refuses_non_operators_leased_and_final_records() {
    let mut shop = MigrationFixture::new(&new_order_lifecycle());
    let id = shop.create_order(json!({ "number": "1" }));
    let call = shop.migrate_call(id, &[("new", "fresh")]);
    assert_eq!(&*shop.expect_refusal(&ann(), call.clone()).code, "not_allowed");
    assert_eq!(&*shop.expect_refusal(&Actor::new("eve", &["producer"]), call).code, "not_found");
    let to_nowhere = shop.migrate_call(id, &[]);
    let refusal = shop.expect_refusal(&ops(), to_nowhere);
    assert_eq!(
        (&*refusal.code, &*refusal.reason),
        ("incompatible_lifecycle_version", "the target version has no state `new`")
    );
    let unknown = Call::MigrateVersion(RecordMigration {
        record: id,
        target_hash: "abc".into(),
        state_map: BTreeMap::new(),
        include_ended: false,
    });
    assert_eq!(&*shop.expect_refusal(&ops(), unknown).code, "unknown_version");
    // No worker would lease it there.
    let call = shop.migrate_call(id, &[("new", "working")]);
    let refusal = shop.expect_refusal(&ops(), call);
    assert!(refusal.reason.contains("stay in `working` forever"), "{}", refusal.reason);
    // A worker holds a lease.
    shop.fire(id, "hand_in", json!({}));
    let lease = Call::Lease { record: id, worker: "w".into(), lease: None, start: true };
    let bob = Actor::new("bob", &["worker"]);
    shop.expect_changes(&bob, lease);
    let call = shop.migrate_call(id, &[]);
    assert_eq!(&*shop.expect_refusal(&ops(), call).code, "already_leased");
    let commit = Call::Commit { record: id, token: FencingToken(1), result: json!(1), finish: true };
    shop.expect_changes(&bob, commit);
    // The record is final.
    let call = shop.migrate_call(id, &[]);
    assert_eq!(&*shop.expect_refusal(&ops(), call.clone()).code, "wrong_state");
    let Call::MigrateVersion(migration) = call else { unreachable!() };
    let back = Call::MigrateVersion(RecordMigration {
        include_ended: true,
        state_map: state_map(&[("done", "waiting")]),
        ..migration.clone()
    });
    assert!(shop.expect_refusal(&ops(), back).reason.contains("is not final in the target version"));
    let finished = shop.record(id).finished_at;
    shop.expect_changes(&ops(), Call::MigrateVersion(RecordMigration { include_ended: true, ..migration.clone() }));
    assert_eq!(shop.record(id).finished_at, finished);
    assert!(
        matches!(
            shop.decide(&ops(), Call::MigrateVersion(RecordMigration { include_ended: true, ..migration })),
            Decision::NoOp(_)
        ),
        "the record already has the version"
    );
}

#[test]
fn migration_refuses_values_that_do_not_fit_new_version() {
    let mut shop = MigrationFixture::new(&new_order_lifecycle().replace("[\"red\", \"blue\"]", "[\"red\", \"green\"]"));
    let red = shop.create_order(json!({ "number": "1" }));
    let blue = shop.create_order(json!({ "number": "2", "colour": "blue" }));
    let call = shop.migrate_call(red, &[("new", "fresh")]);
    shop.expect_changes(&ops(), call);
    let call = shop.migrate_call(blue, &[("new", "fresh")]);
    let refusal = shop.expect_refusal(&ops(), call);
    assert_eq!(
        (&*refusal.code, &*refusal.reason),
        ("incompatible_lifecycle_version", "`colour` must be one of: red, green")
    );
    // The asset of a hold cannot change.
    let mut shop =
        MigrationFixture::new(&new_order_lifecycle().replace("asset     = \"cents\"", "asset     = \"pence\""));
    let id = shop.create_order(json!({ "number": "1" }));
    let call = shop.migrate_call(id, &[("new", "fresh")]);
    shop.fire(id, "pay", json!({ "amount": 7 }));
    assert!(shop.expect_refusal(&ops(), call).reason.contains("another asset"));
}

/// INV-3, INV-4: no transition ends the record or takes it back, so no map of states does.
#[test]
fn migration_refuses_to_end_records_or_take_them_back() {
    let mut shop = MigrationFixture::new(&new_order_lifecycle());
    let (fresh, waiting) = (shop.create_order(json!({ "number": "1" })), shop.create_order(json!({ "number": "2" })));
    shop.fire(waiting, "hand_in", json!({}));
    for (id, states, expected) in [
        (fresh, ("new", "done"), "`done` is final, and a version migration does not end records in `new`"),
        (waiting, ("waiting", "done"), "`done` is final, and a version migration does not end records in `waiting`"),
        (waiting, ("waiting", "fresh"), "`fresh` comes before `waiting`, and no transition leads back"),
    ] {
        let call = shop.migrate_call(id, &[states]);
        let refusal = shop.expect_refusal(&ops(), call);
        assert_eq!((&*refusal.code, &*refusal.reason), ("incompatible_lifecycle_version", expected));
        let all = |_| true;
        let found = find_mismatches(&shop.old_version, &shop.new_version, &state_map(&[states]), all);
        assert!(found.contains(&VersionMismatch::ForbiddenMap { reason: expected.to_owned() }), "{found:?}");
    }
    // A transition of the target version leads back, so the map may too.
    let text = format!("{}\n[[on.take_back]]\ngo = \"waiting -> fresh\"\n", new_order_lifecycle());
    let mut shop = MigrationFixture::new(&text);
    let id = shop.create_order(json!({ "number": "1" }));
    shop.fire(id, "hand_in", json!({}));
    let call = shop.migrate_call(id, &[("waiting", "fresh")]);
    shop.expect_changes(&ops(), call);
    assert_eq!(&**shop.record(id).state_name(), "fresh");
}

/// The target version makes a state of the same name final: its records end there.
#[test]
fn migration_keeps_state_of_same_name_that_became_final() {
    let text = new_order_lifecycle().replace("waits for its time\" }", "has waited\", final = true }").replace(
        "go = \"fresh -> slow\"",
        "go = \"fresh -> slow\"\nmove = [{ from = \"hold\", to = \"world\", amount = \"rest\" }]",
    );
    let (before, timer) = text.split_once("[[on.time]]").unwrap();
    let mut shop = MigrationFixture::new(&format!("{before}{}", &timer[timer.find("[[on.lease]]").unwrap()..]));
    let id = shop.create_order(json!({ "number": "1" }));
    shop.fire(id, "wait", json!({}));
    let call = shop.migrate_call(id, &[]);
    shop.expect_changes(&ops(), call);
    assert!(shop.record(id).is_final() && shop.record(id).finished_at == Some(shop.now));
}

/// INV-4: in the target version, only a commit leads to `done`.
#[test]
fn migration_refuses_ended_job_without_required_effect() {
    let text = new_order_lifecycle()
        .replace("done    = {", "lost    = { about = \"given up\", final = true }\ndone    = {")
        .replace("slow -> done", "slow -> lost")
        .replacen(
            "go   = \"working -> done\"\nmove = [{ from = \"hold\", to = \"world\", amount = \"rest\" }]\n",
            "COMMIT",
            1,
        )
        .replace("working -> done", "working -> lost")
        .replace(
            "COMMIT",
            "go   = \"working -> done\"\nmove = [{ from = \"hold\", to = \"world\", amount = \"rest\" }]\n",
        );
    let mut shop = MigrationFixture::new(&text);
    let id = shop.create_order(json!({ "number": "1" }));
    shop.fire(id, "wait", json!({}));
    shop.now = shop.now.checked_add(Duration::from_secs(3_600)).unwrap();
    shop.expect_changes(&Actor::engine(), Call::FireDue { record: id });
    assert_eq!(&**shop.record(id).state_name(), "done");
    let Call::MigrateVersion(migration) = shop.migrate_call(id, &[]) else { unreachable!() };
    let migrate = |states: &[(&str, &str)]| {
        Call::MigrateVersion(RecordMigration { include_ended: true, state_map: state_map(states), ..migration.clone() })
    };
    let refusal = shop.expect_refusal(&ops(), migrate(&[]));
    assert_eq!(&*refusal.reason, "only a commit leads to `done` in the target version, and the job has not committed");
    let refusal = shop.expect_refusal(&ops(), migrate(&[("done", "lost")]));
    assert_eq!(&*refusal.reason, "records in `done` have ended, and the target version has that state");
}

/// The list is available before any record is migrated.
#[test]
fn find_mismatches_lists_state_missing_and_type_conflicts() {
    let text = new_order_lifecycle()
        .replace("hurry  = { type = \"bool\", default = false }", "hurry  = { type = \"bool\" }")
        .replace("note   = { type = \"string\", optional = true }", "note   = { type = \"int\", optional = true }")
        .replace("take = [\"number\",", "take = [\"hurry\", \"number\",");
    let (old, new) = (load_version(OLD_ORDER_LIFECYCLE), load_version(&text));
    let all = |_| true;
    let hurry = VersionMismatch::MissingField { field: "hurry".into() };
    let note = VersionMismatch::FieldTypeChanged { field: "note".into() };
    let state = |to: &str| VersionMismatch::MissingState { from: "new".into(), to: to.into() };
    assert_eq!(find_mismatches(&old, &new, &state_map(&[]), all), [state("new"), hurry.clone(), note.clone()]);
    assert_eq!(find_mismatches(&old, &new, &state_map(&[("new", "nowhere")]), all)[0], state("nowhere"));
    assert_eq!(find_mismatches(&old, &new, &state_map(&[("new", "fresh")]), all), [hurry.clone(), note.clone()]);
    assert_eq!(find_mismatches(&old, &new, &state_map(&[]), |_| false), [hurry, note], "no record is in `new`");
}
