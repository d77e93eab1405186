//! Tests the readiness of jobs: the queue entries that stores keep.

use onceward_core::decide::{link_changes, ordered_queue_key, readiness};
use onceward_core::time::Duration;
use onceward_testkit::systems::load_texts;
use onceward_testkit::{Simulator, user};

const JOB_LIFECYCLE: &str = r#"
language  = 1
lifecycle = "test.job"
about     = "Work with a priority"
[states]
waiting = { ready = "from" }
paused  = { rest = true }
running = {}
done    = { final = true }
[fields]
from   = { type = "time", optional = true }
weight = { type = "int", default = 0, min = 0, max = 9 }
lane   = { type = "string", optional = true }
beside = { type = "ref", to = "test.job", optional = true }
others = { type = "refs", to = "test.job", optional = true }
[work]
lease    = "30s"
priority = "record.weight * 2"
key      = { on = ["lane"], ORDER }
[[on.create]]
go   = "-> waiting"
take = ["from", "weight", "lane", "beside", "others"]
[[on.lease]]
go = "waiting -> running"
[[on.commit]]
go = "running"
[[on.finish]]
go = "running -> done"
[[on.fail]]
go = "running -> waiting"
[[on.pause]]
go = "waiting -> paused"
[[on.change]]
go   = "waiting"
take = ["beside", "others"]
"#;

fn new_simulator(concurrency: &str) -> Simulator {
    Simulator::new(load_texts(&[("job.toml", &JOB_LIFECYCLE.replace("ORDER", concurrency))]))
}

#[test]
fn readiness_has_ready_time_priority_and_concurrency_key() {
    let (mut simulator, ann) = (new_simulator("limit = 2"), user("ann"));
    let plain = simulator.create("test.job", &ann).expect_ok();
    let found = readiness(&simulator.record(plain)).expect("the job is ready");
    assert_eq!((found.priority, found.ready_at, found.concurrency_key), (0, simulator.now(), None));

    let later = simulator.now().checked_add(Duration::from_secs(60)).unwrap();
    let heavy = simulator
        .create("test.job", &ann)
        .with("from", later.to_string())
        .with("weight", 4)
        .with("lane", "a")
        .expect_ok();
    let found = readiness(&simulator.record(heavy)).expect("the job will be ready");
    assert_eq!((found.priority, found.ready_at), (8, later));
    assert_eq!(
        found
            .concurrency_key
            .expect("the job has a concurrency key")
            .parts
            .iter()
            .map(|part| &**part)
            .collect::<Vec<_>>(),
        ["sa"]
    );

    // A past time does not make the job older.
    let past = simulator.now().checked_sub(Duration::from_secs(60)).unwrap();
    let late = simulator.create("test.job", &ann).with("from", past.to_string()).expect_ok();
    assert_eq!(readiness(&simulator.record(late)).expect("the job is ready").ready_at, simulator.now());
}

#[test]
fn leased_committed_final_and_stuck_jobs_are_not_ready() {
    let (mut simulator, ann) = (new_simulator("limit = 2"), user("ann"));
    let job = simulator.create("test.job", &ann).expect_ok();
    let lease = simulator.lease(job, "w");
    assert_eq!(readiness(&simulator.record(job)), None);
    simulator.advance("1s");
    simulator.yield_job(&lease).expect_ok();
    assert_eq!(readiness(&simulator.record(job)).expect("the job is ready again").ready_at, simulator.now());
    let lease = simulator.lease(job, "w");
    simulator.commit_only(&lease, serde_json::json!(1)).expect_ok();
    assert_eq!(readiness(&simulator.record(job)), None);
    simulator.finish(&lease).expect_ok();
    assert_eq!(readiness(&simulator.record(job)), None);
    let other = simulator.create("test.job", &ann).expect_ok();
    simulator.fire(other, "pause", &ann).expect_ok();
    assert_eq!(readiness(&simulator.record(other)), None);
    let third = simulator.create("test.job", &ann).expect_ok();
    let mut stuck = (*simulator.record(third)).clone();
    stuck.stuck_reason = Some("a fault".into());
    assert_eq!(readiness(&stuck), None);
}

/// Applies to ordered jobs only, even while the job is leased or not ready.
#[test]
fn ordered_job_keeps_queue_key_until_finished() {
    let (mut unordered, ann) = (new_simulator("limit = 2"), user("ann"));
    let job = unordered.create("test.job", &ann).with("lane", "a").expect_ok();
    assert_eq!(ordered_queue_key(&unordered.record(job)), None);
    let mut simulator = new_simulator("ordered = true");
    let job = simulator.create("test.job", &ann).with("lane", "a").expect_ok();
    let queue = ordered_queue_key(&simulator.record(job)).expect("the job is in the queue of its key");
    assert_eq!((&*queue.lifecycle, &*queue.parts[0]), ("test.job", "sa"));
    let lease = simulator.lease(job, "w");
    assert_eq!(ordered_queue_key(&simulator.record(job)), Some(queue));
    simulator.commit(&lease, serde_json::json!(1)).expect_ok();
    assert_eq!(ordered_queue_key(&simulator.record(job)), None);
    let alone = simulator.create("test.job", &ann).expect_ok();
    assert_eq!(ordered_queue_key(&simulator.record(alone)), None);
}

#[test]
fn link_changes_lists_added_and_removed_links_between_record_versions() {
    let (mut simulator, ann) = (new_simulator("limit = 2"), user("ann"));
    let (one, two) = (simulator.create("test.job", &ann).expect_ok(), simulator.create("test.job", &ann).expect_ok());
    let job = simulator.create("test.job", &ann).with("beside", one.to_string()).expect_ok();
    let first = simulator.record(job);
    let made = link_changes(None, &first);
    assert_eq!(made.len(), 1);
    assert_eq!((made[0].key.target, &*made[0].key.field, made[0].is_added), (one, "beside", true));
    let others = serde_json::json!([one.to_string(), two.to_string()]);
    simulator.fire(job, "change", &ann).with("beside", two.to_string()).with("others", others).expect_ok();
    let second = simulator.record(job);
    let found: Vec<_> = link_changes(Some(&first), &second)
        .into_iter()
        .map(|link| (link.key.target, link.key.field, link.is_added))
        .collect();
    // Within one field, links are in id order.
    let (small, large) = (one.min(two), one.max(two));
    let expected = [(one, "beside", false), (two, "beside", true), (small, "others", true), (large, "others", true)];
    assert_eq!(found, expected.map(|(target, field, added)| (target, field.into(), added)));
    assert_eq!(link_changes(Some(&second), &second), []);
}
