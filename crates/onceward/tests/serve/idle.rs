//! Many who wait, and how soon it is there.

use std::io::BufReader;
use std::time::Instant;

use onceward_testkit::http::{Reply, write};
use serde_json::json;

use crate::client::{Db, Served};

/// Kilobytes that a process has in memory.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find(|line| line.starts_with("VmRSS")).expect("Linux says so");
    line.split_whitespace().nth(1).and_then(|number| number.parse().ok()).expect("a number")
}

/// Each of them costs a connection and a few kilobytes, and one job wakes one of them.
#[test]
fn two_thousand_workers_wait_in_bounded_memory() {
    let served = Served::start(Db::Sqlite);
    served.get("/livez");
    let before = resident(served.pid());
    let wanted = json!({ "lifecycles": ["execution.job"], "worker": "w", "wait_ms": 300_000 }).to_string();
    let mut waiting: Vec<_> = (0..2_000).map(|_| served.connect()).collect();
    for stream in &mut waiting {
        write(stream, "POST", "/v1/leases", &[], Some(&wanted));
    }
    served.get("/livez");
    let jobs: Vec<_> = (0..50).map(|n| served.job(&json!(n))).collect();
    let after = resident(served.pid());
    println!("{before} KB before, {after} KB with 2,000 workers that wait");
    assert!(after - before < 200_000, "{before} KB before, {after} KB after");
    // Whoever got one has an answer; nobody got two, and none was lost.
    served.signal("TERM");
    let mut leased = Vec::new();
    for stream in waiting {
        let answer = Reply::read(&mut BufReader::new(stream));
        assert_eq!(answer.status, 200);
        for one in answer.json()["executions"].as_array().unwrap() {
            leased.push(one["record"]["id"].as_str().unwrap().to_owned());
        }
    }
    leased.sort();
    let mut jobs = jobs;
    jobs.sort();
    let missing = jobs.iter().filter(|job| !leased.contains(job)).count();
    // The last ones may have come when nobody was handing out any more.
    assert!(leased.windows(2).all(|pair| pair[0] != pair[1]) && leased.iter().all(|id| jobs.contains(id)));
    println!("{} of {} jobs were leased before the end, {missing} wait for the next start", leased.len(), jobs.len());
}

/// Printed, not asserted: a busy machine is no bug.
#[test]
fn it_is_ready_soon() {
    let before = Instant::now();
    let served = Served::start(Db::Sqlite);
    assert_eq!(served.get("/readyz").status, 200);
    println!("ready on an empty database after {:?}", before.elapsed());
    assert!(served.greeting.contains("execution.job") || served.greeting.contains("listening on"));
}
