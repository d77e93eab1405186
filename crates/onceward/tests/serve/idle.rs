//! Many who wait, and how soon it is there.

use std::time::Instant;

use onceward_testkit::http::{PATIENCE, answer, write};
use onceward_testkit::served::{Db, Served};
use serde_json::json;

use crate::server::start;

/// How many wait for work, as the server itself counts them.
fn counted(served: &Served) -> usize {
    let metrics = served.get("/metrics").text();
    let line = metrics.lines().find(|line| line.starts_with("onceward_http_long_polls "));
    line.and_then(|line| line.split(' ').nth(1))
        .and_then(|count| count.parse().ok())
        .unwrap_or_else(|| panic!("{metrics}"))
}

/// Asked again and again, since nothing tells of it.
fn until(is_so: impl Fn() -> bool) {
    let began = Instant::now();
    while !is_so() {
        assert!(began.elapsed() < PATIENCE, "in vain");
    }
}

/// Each of them costs a connection and a few kilobytes, and each job goes to one of them.
#[test]
fn two_thousand_workers_wait_in_bounded_memory() {
    let served = start(Db::Sqlite);
    served.get("/livez");
    let before = served.kilobytes("VmRSS");
    let wanted = json!({ "lifecycles": ["execution.job"], "worker": "w", "wait_ms": 300_000 }).to_string();
    let mut waiting: Vec<_> = (0..2_000).map(|_| served.connect()).collect();
    for stream in &mut waiting {
        write(stream, "POST", "/v1/leases", &[], Some(wanted.as_bytes()));
    }
    until(|| counted(&served) == 2_000);
    let after = served.kilobytes("VmRSS");
    let mut jobs: Vec<_> = (0..50).map(|n| served.job(&json!(n))).collect();
    until(|| counted(&served) == 1_950);
    println!("{before} KB before, {after} KB with 2,000 workers that wait");
    assert!(after - before < 200_000, "{before} KB before, {after} KB after");
    // All are handed out while the server serves; nobody got two, and none was lost.
    served.signal("TERM");
    let mut leased = Vec::new();
    for stream in waiting {
        let answer = answer(&stream);
        assert_eq!(answer.status, 200);
        for one in answer.json()["executions"].as_array().unwrap() {
            leased.push(one["record"]["id"].as_str().unwrap().to_owned());
        }
    }
    leased.sort();
    jobs.sort();
    assert_eq!(leased, jobs);
}

/// Printed, and bounded only by what no machine takes: a busy one is no bug.
#[test]
fn it_is_ready_soon() {
    let before = Instant::now();
    let served = start(Db::Sqlite);
    assert_eq!(served.get("/readyz").status, 200);
    println!("ready on an empty database after {:?}", before.elapsed());
    assert!(before.elapsed() < PATIENCE, "{:?}", before.elapsed());
    assert!(served.greeting.starts_with("onceward "), "{}", served.greeting);
}
