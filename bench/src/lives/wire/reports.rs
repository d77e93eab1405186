//! What is measured over HTTP, and printed.

use std::error::Error;
use std::time::{Duration, Instant};

use serde_json::{Value as Json, json};
use tokio::runtime::Runtime;

use super::client::Wire;
use super::server::Server;
use crate::engine::{self, JOB, Steps};
use crate::machine::{Runs, run};
use crate::place::Place;
use crate::reports::{Done, millis, print_heads, print_machine, print_runs, print_times};

type Failure = Box<dyn Error + Send + Sync>;

/// Connections that make jobs one at a time.
const CREATORS: usize = 64;

/// Whole lives in batches of 100 and of 1,000, turn and turn about with the engine in this process.
pub(crate) fn lives(place: &Place, lives: usize, rounds: usize) -> Done {
    let runtime = place.runtime()?;
    print_machine(place)?;
    let inside = place.engine(&runtime, "inside")?;
    let server = Server::start(&runtime, &place.database("outside"))?;
    let sizes = [100, 1_000];
    let mut runs: [Runs; 4] = Default::default();
    for _ in 0..rounds {
        for (size, pair) in sizes.into_iter().zip(runs.chunks_mut(2)) {
            let within = || Ok(runtime.block_on(engine::lives(&inside, lives, size, 2, Steps::Three))?);
            pair[0].0.push(run(place, lives, within)?);
            pair[1].0.push(run(place, lives, || drivers(&runtime, &server.host, lives, size))?);
        }
    }
    print_heads();
    for (size, pair) in sizes.into_iter().zip(runs.chunks(2)) {
        print_runs(&format!("engine inside, batches of {size}"), &pair[0], None);
        print_runs(&format!("over HTTP, batches of {size}"), &pair[1], Some(&pair[0]));
    }
    println!("(of the floor: here, of the engine inside; the server's processor time is not counted)");
    Ok(())
}

/// Two drivers, as inside.
pub(crate) fn drivers(runtime: &Runtime, host: &str, lives: usize, batch: usize) -> Done {
    let tasks: Vec<_> = (0..2).map(|_| runtime.spawn(drive(host.to_owned(), lives / 2, batch))).collect();
    for task in tasks {
        runtime.block_on(task)?.map_err(|error| error.to_string())?;
    }
    Ok(())
}

/// Batches of creates, leases and reports, one after the other.
async fn drive(host: String, mut lives: usize, batch: usize) -> Result<(), Failure> {
    let mut wire = Wire::to(&host).await?;
    while lives > 0 {
        let size = lives.min(batch);
        let records: Vec<Json> = (0..size).map(|_| json!({ "fields": { "budget": 3 } })).collect();
        let body = serde_json::to_vec(&json!({ "records": records }))?;
        let made: Json =
            serde_json::from_slice(&wire.post(&format!("/v1/lifecycles/{JOB}/records/batch"), &body).await?)?;
        good(&made, size)?;
        let mut held = 0;
        while held < size {
            let ask =
                json!({ "lifecycles": [JOB], "worker": "w", "max": size - held, "wait_ms": 60_000, "start": true });
            let leased: Json = serde_json::from_slice(&wire.post("/v1/leases", &serde_json::to_vec(&ask)?).await?)?;
            let leased = leased["executions"].as_array().ok_or("no executions")?;
            let report = |execution: &Json| json!({ "execution": execution["id"], "token": execution["token"], "do": "commit", "result": engine::result(), "finish": true });
            let reports: Vec<Json> = leased.iter().map(report).collect();
            let body = serde_json::to_vec(&json!({ "reports": reports }))?;
            let done: Json = serde_json::from_slice(&wire.post("/v1/executions/batch", &body).await?)?;
            good(&done, reports.len())?;
            held += reports.len();
        }
        lives -= size;
    }
    Ok(())
}

/// All of a batch were taken.
fn good(answer: &Json, size: usize) -> Result<(), Failure> {
    let results = answer["results"].as_array().ok_or("no results")?;
    match results.iter().find(|result| !result["error"].is_null()) {
        Some(bad) => Err(bad.to_string().into()),
        None if results.len() == size => Ok(()),
        None => Err(format!("{} results for {size}", results.len()).into()),
    }
}

/// Jobs made one at a time by 64 connections.
pub(crate) fn creates(place: &Place, seconds: u64) -> Done {
    let runtime = place.runtime()?;
    print_machine(place)?;
    let server = Server::start(&runtime, &place.database("creates"))?;
    let until = Instant::now() + Duration::from_secs(seconds);
    let path = format!("/v1/lifecycles/{JOB}/records");
    let one = |host: String, path: String| async move {
        let mut wire = Wire::to(&host).await?;
        let mut times = Vec::new();
        while Instant::now() < until {
            let began = Instant::now();
            wire.post(&path, br#"{"fields":{"budget":3}}"#).await?;
            times.push(began.elapsed());
        }
        Ok::<_, Failure>(times)
    };
    let tasks: Vec<_> = (0..CREATORS).map(|_| runtime.spawn(one(server.host.clone(), path.clone()))).collect();
    let mut times = Vec::new();
    for task in tasks {
        times.extend(runtime.block_on(task)?.map_err(|error| error.to_string())?);
    }
    let rate = u64::try_from(times.len())? / seconds.max(1);
    println!("{CREATORS} connections: {rate} single creates a second; the server has {} MB", server.megabytes()?);
    print_times("an answered create", &mut times);
    Ok(())
}

/// How long until it is ready: on an empty database, and with so many jobs in it.
pub(crate) fn ready(place: &Place, jobs: usize) -> Done {
    let runtime = place.runtime()?;
    print_machine(place)?;
    let database = place.database("ready");
    for round in 1..=5 {
        let server = Server::start(
            &runtime,
            &if round == 1 { database.clone() } else { place.database(&format!("ready{round}")) },
        )?;
        println!("empty: ready after {:.0} ms, {} MB", millis(server.took), server.megabytes()?);
    }
    let engine = place.engine_at(&runtime, &database)?;
    for _ in 0..jobs.div_ceil(crate::reports::BATCH) {
        runtime.block_on(engine::create(&engine, crate::reports::BATCH))?;
    }
    runtime.block_on(engine.close());
    drop(engine);
    for _ in 0..3 {
        let server = Server::start(&runtime, &database)?;
        println!("{jobs} jobs: ready after {:.0} ms, {} MB", millis(server.took), server.megabytes()?);
    }
    Ok(())
}

/// Jobs that are made beside workers that wait.
const BESIDE: u32 = 300;

/// Single creates, a hundred a second: how long each took.
async fn paced(host: &str, count: u32) -> Result<Vec<Duration>, Failure> {
    let (mut wire, mut times) = (Wire::to(host).await?, Vec::new());
    let mut ticks = tokio::time::interval(Duration::from_millis(10));
    for _ in 0..count {
        ticks.tick().await;
        let began = Instant::now();
        wire.post("/v1/lifecycles/execution.job/records", br#"{"fields":{"budget":3}}"#).await?;
        times.push(began.elapsed());
    }
    Ok(times)
}

/// Workers that wait for a job that does not come: what they cost the server's memory and time.
pub(crate) fn idle(place: &Place, workers: usize) -> Done {
    let runtime = place.runtime()?;
    print_machine(place)?;
    let server = Server::start(&runtime, &place.database("idle"))?;
    let before = server.megabytes()?;
    let ask = serde_json::to_vec(&json!({ "lifecycles": [JOB], "worker": "w", "max": 1, "wait_ms": 30_000 }))?;
    let began = Instant::now();
    let wait = |host: String, ask: Vec<u8>| async move {
        let mut wire = Wire::to(&host).await?;
        wire.post("/v1/leases", &ask).await
    };
    let tasks: Vec<_> = (0..workers).map(|_| runtime.spawn(wait(server.host.clone(), ask.clone()))).collect();
    // By then all are there.
    std::thread::sleep(Duration::from_secs(10));
    println!("{workers} waiting workers: {} MB for {before} with none", server.megabytes()?);
    let before = server.processor_seconds()?;
    std::thread::sleep(Duration::from_secs(5));
    let idle = server.processor_seconds()? - before;
    println!("they take {:.1} % of a processor while nothing comes", idle / 5.0 * 1e2);
    let (before, host) = (server.processor_seconds()?, server.host.clone());
    let mut creates = runtime.block_on(paced(&host, BESIDE)).map_err(|error| error.to_string())?;
    print_times("beside them, an answered create", &mut creates);
    let each = (server.processor_seconds()? - before) / f64::from(BESIDE);
    println!("the server takes {:.2} ms of a processor for a create and the lease that follows", each * 1e3);
    let mut with_job = 0;
    for task in tasks {
        let answer = runtime.block_on(task)?.map_err(|error| error.to_string())?;
        with_job += u32::from(answer.windows(8).any(|window| window == b"\"token\":"));
    }
    println!("all answered after {:.0} s, {with_job} of them with a job", began.elapsed().as_secs_f64());
    if with_job == BESIDE { Ok(()) } else { Err(format!("{BESIDE} of them should have had a job each").into()) }
}
