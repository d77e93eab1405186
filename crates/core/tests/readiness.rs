//! Whether a job waits for a worker, and where: what stores keep of it.

use onceward_core::decide::{in_order, link_changes, readiness};
use onceward_core::time::Duration;
use onceward_testkit::systems::load_text;
use onceward_testkit::{Stage, user};

const JOB: &str = r#"
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

fn stage(order: &str) -> Stage {
    Stage::new(load_text(&[("job.toml", &JOB.replace("ORDER", order))]))
}

#[test]
fn a_job_waits_from_its_time_on_with_its_priority_and_key() {
    let (mut stage, ann) = (stage("limit = 2"), user("ann"));
    let plain = stage.create("test.job", &ann).ok();
    let found = readiness(&stage.record(plain)).expect("it waits");
    assert_eq!((found.priority, found.from, found.key), (0, stage.now(), None));

    let later = stage.now().checked_add(Duration::from_secs(60)).unwrap();
    let heavy = stage.create("test.job", &ann).with("from", later.to_string()).with("weight", 4).with("lane", "a").ok();
    let found = readiness(&stage.record(heavy)).expect("it will wait");
    assert_eq!((found.priority, found.from), (8, later));
    assert_eq!(found.key.expect("it has a lane").parts.iter().map(|part| &**part).collect::<Vec<_>>(), ["sa"]);

    // A time that is past when the job comes makes it no older.
    let past = stage.now().checked_sub(Duration::from_secs(60)).unwrap();
    let late = stage.create("test.job", &ann).with("from", past.to_string()).ok();
    assert_eq!(readiness(&stage.record(late)).expect("it waits").from, stage.now());
}

#[test]
fn a_job_does_not_wait_when_leased_committed_done_or_elsewhere() {
    let (mut stage, ann) = (stage("limit = 2"), user("ann"));
    let job = stage.create("test.job", &ann).ok();
    let lease = stage.lease(job, "w");
    assert_eq!(readiness(&stage.record(job)), None);
    stage.pass("1s");
    stage.give_back(&lease).ok();
    assert_eq!(readiness(&stage.record(job)).expect("it waits again").from, stage.now());
    let lease = stage.lease(job, "w");
    stage.commit_only(&lease, serde_json::json!(1)).ok();
    assert_eq!(readiness(&stage.record(job)), None);
    stage.finish(&lease).ok();
    assert_eq!(readiness(&stage.record(job)), None);
    let other = stage.create("test.job", &ann).ok();
    stage.fire(other, "pause", &ann).ok();
    assert_eq!(readiness(&stage.record(other)), None);
    let third = stage.create("test.job", &ann).ok();
    let mut aside = (*stage.record(third)).clone();
    aside.stuck = Some("a fault".into());
    assert_eq!(readiness(&aside), None);
}

/// In its queue until it is finished, also while it is leased or waits for nobody; only where jobs go in order.
#[test]
fn a_job_stands_in_its_queue_until_it_is_finished() {
    let (mut free, ann) = (stage("limit = 2"), user("ann"));
    let job = free.create("test.job", &ann).with("lane", "a").ok();
    assert_eq!(in_order(&free.record(job)), None);
    let mut stage = stage("ordered = true");
    let job = stage.create("test.job", &ann).with("lane", "a").ok();
    let queue = in_order(&stage.record(job)).expect("it stands in line");
    assert_eq!((&*queue.lifecycle, &*queue.parts[0]), ("test.job", "sa"));
    let lease = stage.lease(job, "w");
    assert_eq!(in_order(&stage.record(job)), Some(queue));
    stage.commit(&lease, serde_json::json!(1)).ok();
    assert_eq!(in_order(&stage.record(job)), None);
    let alone = stage.create("test.job", &ann).ok();
    assert_eq!(in_order(&stage.record(alone)), None);
}

#[test]
fn links_that_come_and_go_between_two_versions() {
    let (mut stage, ann) = (stage("limit = 2"), user("ann"));
    let (one, two) = (stage.create("test.job", &ann).ok(), stage.create("test.job", &ann).ok());
    let job = stage.create("test.job", &ann).with("beside", one.to_string()).ok();
    let first = stage.record(job);
    let made = link_changes(None, &first);
    assert_eq!(made.len(), 1);
    assert_eq!((made[0].key.target, &*made[0].key.field, made[0].added), (one, "beside", true));
    let others = serde_json::json!([one.to_string(), two.to_string()]);
    stage.fire(job, "change", &ann).with("beside", two.to_string()).with("others", others).ok();
    let second = stage.record(job);
    let found: Vec<_> = link_changes(Some(&first), &second)
        .into_iter()
        .map(|link| (link.key.target, link.key.field, link.added))
        .collect();
    // Within one field the order is that of the ids.
    let (small, large) = (one.min(two), one.max(two));
    let expected = [(one, "beside", false), (two, "beside", true), (small, "others", true), (large, "others", true)];
    assert_eq!(found, expected.map(|(target, field, added)| (target, field.into(), added)));
    assert_eq!(link_changes(Some(&second), &second), []);
}
