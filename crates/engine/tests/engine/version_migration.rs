//! Version migration in bounded steps.

use std::sync::Arc;

use onceward_core::diagnostic::{InputFile, InputFiles};
use onceward_core::time::Duration;
use onceward_core::value::RecordId;
use onceward_engine::{Engine, EngineConfig, EngineError, LeaseRequest, VersionMigration, VersionMigrationStep};
use onceward_store::{AnyStore, Store};
use onceward_testkit::{user, worker};
use serde_json::json;

use crate::support::{json_object, on_each_store, operator_actor, start_time};

const PARCEL_LIFECYCLE: &str = r#"
language  = 1
lifecycle = "post.parcel"
about     = "Something to carry"

[states]
ready   = { about = "to be carried", ready = true }
carried = { about = "on its way" }
there   = { about = "it exists", final = true }

[fields]
to    = { type = "string", max = 20 }
grams = { type = "int", default = 0, max = 1000 }

[work]
lease = "30s"

[[on.create]]
go   = "-> ready"
take = ["to", "grams"]

[[on.lease]]
go = "ready -> carried"

[[on.commit]]
go = "carried -> there"

[[on.fail]]
go      = "carried -> ready"
forever = true
"#;

fn parcel_files(text: &str) -> InputFiles {
    InputFiles { files: vec![InputFile { name: "parcel.toml".to_owned(), text: text.into() }] }
}

fn newer_parcel_lifecycle() -> String {
    PARCEL_LIFECYCLE
        .replace("ready   = {", "waiting = {")
        .replace("-> ready", "-> waiting")
        .replace("\"ready ->", "\"waiting ->")
        .replace("max = 1000", "max = 500")
}

fn new_migration(states: &[(&str, &str)]) -> VersionMigration {
    let states = states.iter().map(|(from, to)| (Arc::from(*from), Arc::from(*to))).collect();
    VersionMigration { lifecycle: "post.parcel".into(), state_map: states, ..VersionMigration::default() }
}

async fn create_parcel(engine: &Engine<AnyStore>, grams: u32) -> RecordId {
    let fields = json_object(json!({ "to": "ann", "grams": grams }));
    engine.create(&user("ann"), "post.parcel", fields).await.expect("a parcel").subject
}

async fn migrate_all(engine: &Engine<AnyStore>, migration: &VersionMigration, limit: usize) -> VersionMigrationStep {
    let (mut all, mut after) = (VersionMigrationStep::default(), None);
    loop {
        let step = engine.migrate_records(&operator_actor(), migration, after, limit).await.expect("a step");
        assert!(usize::try_from(step.migrated).unwrap() + step.skipped.len() <= limit);
        all.migrated += step.migrated;
        all.skipped.extend(step.skipped);
        after = step.next;
        if after.is_none() {
            return all;
        }
    }
}

fn refusal_text(error: EngineError) -> String {
    let EngineError::Refused(refusal) = error else { panic!("{error}") };
    format!("{} {}: {}", refusal.status, refusal.code, refusal.reason)
}

#[test]
fn migration_moves_eligible_records_and_reports_skipped() {
    on_each_store(EngineConfig::default(), async |engine, clock| {
        engine.put_lifecycles(&parcel_files(PARCEL_LIFECYCLE)).await.unwrap();
        for grams in [1, 2, 3, 700] {
            create_parcel(engine, grams).await;
        }
        let held =
            engine.lease(&worker("bob"), &LeaseRequest::single_job("post.parcel", "w")).await.unwrap().pop().unwrap();
        engine.commit(&worker("bob"), held.record.id, held.token, json!(1), true).await.unwrap();
        let held =
            engine.lease(&worker("bob"), &LeaseRequest::single_job("post.parcel", "w")).await.unwrap().pop().unwrap();
        engine.put_lifecycles(&parcel_files(&newer_parcel_lifecycle())).await.unwrap();
        let fresh = create_parcel(engine, 4).await;

        // Problems that affect all records are found before the first step.
        let why =
            refusal_text(engine.migrate_records(&operator_actor(), &new_migration(&[]), None, 10).await.unwrap_err());
        assert!(
            why.starts_with("409 incompatible_lifecycle_version") && why.contains("map it with ready=STATE"),
            "{why}"
        );
        let why = refusal_text(
            engine.plan_migration(&operator_actor(), &new_migration(&[("reddy", "waiting")])).await.unwrap_err(),
        );
        assert!(why.contains("has a state `reddy`"), "{why}");
        let why = refusal_text(
            engine.plan_migration(&operator_actor(), &new_migration(&[("ready", "gone")])).await.unwrap_err(),
        );
        assert!(why.contains("has no state `gone`"), "{why}");
        let ends = new_migration(&[("ready", "there")]);
        let why = refusal_text(engine.plan_migration(&operator_actor(), &ends).await.unwrap_err());
        assert!(why.contains("`there` is final, and a version migration does not end records in `ready`"), "{why}");
        let why = engine.plan_migration(&user("ann"), &new_migration(&[])).await.unwrap_err();
        assert_eq!((why.status(), why.code()), (403, "forbidden"));

        let migration = new_migration(&[("ready", "waiting")]);
        let plan = engine.plan_migration(&operator_actor(), &migration).await.unwrap();
        assert_eq!(
            (plan.records(), plan.sources.len()),
            (3, 1),
            "the plan excludes ended records and the target version"
        );
        let before = engine.store().log(0, 1_000).await.unwrap().len();
        let tried = migrate_all(engine, &VersionMigration { dry_run: true, ..migration.clone() }, 2).await;
        assert_eq!((tried.migrated, tried.skipped.len()), (1, 2));
        assert_eq!(engine.store().log(0, 1_000).await.unwrap().len(), before, "no record was migrated");

        let step = migrate_all(engine, &migration, 2).await;
        assert_eq!((step.migrated, step.skipped.len()), (1, 2));
        assert_eq!(step.skipped, tried.skipped);
        let codes: Vec<_> = step.skipped.iter().map(|skipped| (&*skipped.code, &*skipped.reason)).collect();
        assert_eq!(codes[0].0, "already_leased");
        assert_eq!(codes[1], ("incompatible_lifecycle_version", "`grams` must be from -9223372036854775808 to 500"));
        // Once the worker is gone, its job is migrated too; migrated records are skipped.
        engine.yield_job(&worker("bob"), held.record.id, held.token).await.unwrap();
        let step = migrate_all(engine, &migration, 10).await;
        assert_eq!((step.migrated, step.skipped.len()), (1, 1));
        assert_eq!(&**engine.get(&operator_actor(), held.record.id).await.unwrap().unwrap().state_name(), "waiting");
        assert_eq!(engine.get(&operator_actor(), fresh).await.unwrap().unwrap().version, 1);
        // Ended records on request.
        let step = migrate_all(engine, &VersionMigration { include_ended: true, ..migration }, 10).await;
        assert_eq!((step.migrated, step.skipped.len()), (1, 1));
        clock.set(start_time().checked_add(Duration::from_secs(1)).unwrap());
        let leased = engine
            .lease(&worker("bob"), &LeaseRequest { max_jobs: 10, ..LeaseRequest::single_job("post.parcel", "w") })
            .await
            .unwrap();
        assert_eq!(leased.len(), 4, "jobs of both versions are leased");
    });
}
