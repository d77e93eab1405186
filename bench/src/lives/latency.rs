//! A hundred jobs a second with somebody waiting for each: how long until it is in a worker's hands, and durable. Second by second in
//! turn with a bare loop that writes the same rows in one transaction, so that whoever else uses the machine slows both.

use std::collections::HashMap;
use std::error::Error;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use onceward_core::value::RecordId;
use onceward_engine::{EngineError, Wanted};
use serde_json::{Value as Json, json};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use crate::engine::{self, JOB, Lives, Steps};
use crate::floor::Floor;
use crate::place::Place;
use crate::reports::{BATCH, Done, print_machine, print_times};
use crate::wire::{Line, Server, drivers};

type Failure = Box<dyn Error + Send + Sync>;

/// Lives before anything is timed: what has just been started appends to its WAL, and writes over it once that was folded back.
const BEFORE: usize = 30_000;

/// Jobs of one turn, a second's worth.
const TURN: usize = 100;
const PAUSE: Duration = Duration::from_millis(10);

/// Later than that, a job was held up by the one before.
const LATE: Duration = Duration::from_millis(1);

/// Workers that wait, over HTTP: one that is about to report must not be waited for.
const WORKERS: usize = 4;

/// How long one who waits for a job asks for.
const WAIT: Duration = Duration::from_secs(2);

/// Sizes of the requests and answers of a real job, for the bare loop behind a socket.
const CREATE: usize = 152;
const CREATED: usize = 517;
const LEASED: usize = 687;
const REPORT: usize = 232;
const REPORTED: usize = 600;

/// How long it took from the call: to the answer, and to the worker's hands.
#[derive(Debug, Default)]
struct Times {
    answered: Vec<Duration>,
    in_hands: Vec<Duration>,
}

/// Sleeps until the next job is to be made.
struct Pace(Instant);

impl Pace {
    fn begin() -> Self {
        Self(Instant::now())
    }

    /// When it began. One that could not be made in time, because the one before took so long, has been waiting since it was due.
    fn next(&mut self) -> Instant {
        self.0 += PAUSE;
        let early = self.0.saturating_duration_since(Instant::now());
        if early.is_zero() {
            return self.0;
        }
        std::thread::sleep(early);
        Instant::now()
    }
}

/// From the call of create to a lease that is durable, in this process.
pub(crate) fn inside(place: &Place, seconds: u64) -> Done {
    let runtime = place.runtime()?;
    print_machine(place)?;
    let engine = place.engine(&runtime, "latency")?;
    let mut floor = place.floor("bare", &place.texts(&runtime)?, "", 1)?;
    runtime.block_on(engine::lives(&engine, BEFORE, BATCH, 2, Steps::Three))?;
    floor.lives(i64::try_from(BEFORE)?, i64::try_from(BATCH)?)?;
    let (say, leased) = channel();
    let working = runtime.spawn(work(engine.clone(), say));
    let (mut times, mut bare) = (Times::default(), Vec::new());
    let is_written = floor.hand_over()?;
    floor.end()?;
    for _ in 0..seconds {
        if let Err(error) = turn(&runtime, &engine, &leased, &mut times) {
            // The worker may know why.
            return Err(if working.is_finished() { runtime.block_on(working)?.into() } else { error });
        }
        let mut ticks = Pace::begin();
        for _ in 0..if is_written { TURN } else { 0 } {
            let began = ticks.next();
            floor.hand_over()?;
            bare.push(began.elapsed());
            floor.end()?;
        }
    }
    working.abort();
    print_times("durable create", &mut times.answered);
    print_times("create to durable lease", &mut times.in_hands);
    if !bare.is_empty() {
        print_times("the bare loop, create with lease", &mut bare);
    }
    Ok(())
}

/// Takes what there is, and says when, until something goes wrong.
async fn work(engine: Lives, say: Sender<(RecordId, Instant)>) -> EngineError {
    let wanted = Wanted { wait: WAIT, ..Wanted::one(JOB, "worker-1") };
    let mut reports = JoinSet::new();
    loop {
        while let Some(reported) = reports.try_join_next() {
            if let Err(error) = reported.unwrap_or(Err(EngineError::Closed)) {
                return error;
            }
        }
        let leased = match engine.lease(&engine::worker(), &wanted).await {
            Ok(leased) => leased,
            Err(error) => return error,
        };
        let at = Instant::now();
        for job in leased {
            let _ = say.send((job.record.id, at));
            let (reporter, id, token) = (engine.clone(), job.record.id, job.token);
            reports.spawn(async move { reporter.commit(&engine::worker(), id, token, engine::result(), true).await });
        }
    }
}

fn turn(runtime: &Runtime, engine: &Lives, leased: &Receiver<(RecordId, Instant)>, times: &mut Times) -> Done {
    let mut made = HashMap::new();
    let mut pace = Pace::begin();
    for _ in 0..TURN {
        let due = pace.next();
        let engine = engine.clone();
        let (id, began, took) = runtime.block_on(runtime.spawn(async move {
            // That a thread of the runtime had to be woken for this task is not the engine's doing; that it comes too late is.
            let began = if due.elapsed() < LATE { Instant::now() } else { due };
            let answer = engine.submit(engine::new_job()).await;
            answer.map(|answer| (answer.subject, began, began.elapsed()))
        }))??;
        times.answered.push(took);
        made.insert(id, began);
    }
    for _ in 0..TURN {
        let (id, at) = leased.recv_timeout(WAIT)?;
        times.in_hands.push(at - *made.get(&id).ok_or("a job that nobody made")?);
    }
    Ok(())
}

/// From the request of create to the job in a waiting worker's hands, over HTTP.
pub(crate) fn wire(place: &Place, seconds: u64) -> Done {
    let runtime = place.runtime()?;
    print_machine(place)?;
    let server = Server::start(&runtime, &place.database("latency"))?;
    let mut floor = place.floor("bare", &place.texts(&runtime)?, "", 1)?;
    drivers(&runtime, &server.host, BEFORE, BATCH)?;
    floor.lives(i64::try_from(BEFORE)?, i64::try_from(BATCH)?)?;
    // Behind a socket only where there is something behind it.
    let is_written = floor.hand_over()?;
    floor.end()?;
    let ends = AtomicBool::new(false);
    let (say, leased) = channel();
    let (mut times, mut bare) = (Times::default(), Times::default());
    std::thread::scope(|scope| {
        let worker = |_| {
            let (say, host, ends) = (say.clone(), &server.host, &ends);
            scope.spawn(move || wire_work(host, &say, ends))
        };
        let workers: Vec<_> = (0..WORKERS).map(worker).collect();
        let done = (|| {
            let mut line = Line::to(&server.host)?;
            for _ in 0..seconds {
                wire_turn(&mut line, &leased, &mut times)?;
                if is_written {
                    bare_turn(&mut *floor, &mut bare)?;
                }
            }
            Ok::<_, Failure>(())
        })();
        ends.store(true, Ordering::SeqCst);
        for worker in workers {
            worker.join().map_err(|_| "a worker broke")??;
        }
        done
    })
    .map_err(|error| error.to_string())?;
    print_times("an answered create", &mut times.answered);
    print_times("create to the worker's hands", &mut times.in_hands);
    if is_written {
        print_times("a bare loop behind a socket, answered", &mut bare.answered);
        print_times("a bare loop behind a socket, in hands", &mut bare.in_hands);
    }
    Ok(())
}

fn wire_work(host: &str, say: &Sender<(String, Instant)>, ends: &AtomicBool) -> Result<(), Failure> {
    let mut line = Line::to(host)?;
    let wait = u64::try_from(WAIT.as_millis())?;
    let ask = json!({ "lifecycles": [JOB], "worker": "w", "max": 1, "wait_ms": wait, "start": true });
    let ask = serde_json::to_vec(&ask)?;
    while !ends.load(Ordering::SeqCst) {
        let leased = line.post("/v1/leases", &ask)?;
        let at = Instant::now();
        let leased: Json = serde_json::from_slice(&leased)?;
        let Some(execution) = leased["executions"].get(0) else { continue };
        say.send((execution["record"]["id"].to_string(), at))?;
        let report = json!({ "token": execution["token"], "result": engine::result(), "finish": true });
        let path = format!("/v1/executions/{}/commit", execution["id"].as_str().unwrap_or_default());
        line.post(&path, &serde_json::to_vec(&report)?)?;
    }
    Ok(())
}

fn wire_turn(line: &mut Line, leased: &Receiver<(String, Instant)>, times: &mut Times) -> Result<(), Failure> {
    let path = format!("/v1/lifecycles/{JOB}/records");
    let mut made = HashMap::new();
    let mut pace = Pace::begin();
    for _ in 0..TURN {
        let began = pace.next();
        let record = line.post(&path, br#"{"fields":{"budget":3}}"#)?;
        times.answered.push(began.elapsed());
        let record: Json = serde_json::from_slice(&record)?;
        made.insert(record["id"].to_string(), began);
    }
    for _ in 0..TURN {
        let (id, at) = leased.recv_timeout(WAIT)?;
        times.in_hands.push(at - *made.get(&id).ok_or("a job that nobody made")?);
    }
    Ok(())
}

/// What the machine itself takes: a thread that reads so many bytes, writes the rows, and answers with as many as the server does, first
/// the worker and then who asked.
fn bare_turn(floor: &mut dyn Floor, times: &mut Times) -> Result<(), Failure> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let connect = || -> std::io::Result<(TcpStream, TcpStream)> {
        let (near, far) = (TcpStream::connect(listener.local_addr()?)?, listener.accept()?.0);
        near.set_nodelay(true)?;
        far.set_nodelay(true)?;
        Ok((near, far))
    };
    let (mut asks, mut asked) = connect()?;
    let (mut works, mut given) = connect()?;
    std::thread::scope(|scope| {
        let creator = scope.spawn(move || {
            let mut pace = Pace::begin();
            let turns = (0..TURN).map(|_| {
                let began = pace.next();
                asks.write_all(&[b'c'; CREATE])?;
                asks.read_exact(&mut [0; CREATED])?;
                Ok((began, began.elapsed()))
            });
            turns.collect::<std::io::Result<Vec<_>>>()
        });
        let worker = scope.spawn(move || {
            let turns = (0..TURN).map(|_| {
                works.read_exact(&mut [0; LEASED])?;
                let at = Instant::now();
                works.write_all(&[b'r'; REPORT])?;
                works.read_exact(&mut [0; REPORTED])?;
                Ok(at)
            });
            turns.collect::<std::io::Result<Vec<_>>>()
        });
        // The database is this thread's. Where it fails its ends of the sockets close, and both threads end.
        let mut serve = move || {
            for _ in 0..TURN {
                asked.read_exact(&mut [0; CREATE])?;
                floor.hand_over().map_err(|error| error.to_string())?;
                given.write_all(&[b'l'; LEASED])?;
                asked.write_all(&[b'a'; CREATED])?;
                given.read_exact(&mut [0; REPORT])?;
                floor.end().map_err(|error| error.to_string())?;
                given.write_all(&[b'd'; REPORTED])?;
            }
            Ok::<_, Failure>(())
        };
        serve()?;
        let made = creator.join().map_err(|_| "the creator broke")??;
        let leased = worker.join().map_err(|_| "the worker broke")??;
        times.answered.extend(made.iter().map(|(_, took)| *took));
        times.in_hands.extend(made.iter().zip(leased).map(|((began, _), at)| at - *began));
        Ok(())
    })
}
