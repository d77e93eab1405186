//! Tests disk and server faults under load: the engine must report an error or recover, and must lose nothing that it
//! acknowledged.

mod connection_cuts;
mod damaged_pages;
mod disk_errors;
mod power_loss;

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use onceward_core::time::Time;
use onceward_store::{AnyStore, Clock, PostgresStore, SqliteStore};
use onceward_testkit::random::Rng;

use crate::ack_ledger::AckLedger;
use crate::client::LoadClient;
use crate::process::{EngineProcess, ProcessMessage, ProcessMonitor};
use crate::requests::RequestOutcome;
use crate::verify;

/// Runs all fault tests. Each returns a summary.
pub(crate) fn run(seed: u64) -> Result<()> {
    type FaultTest = fn(u64) -> Result<String>;
    let faults: [(&str, FaultTest); 8] = [
        ("full disk", disk_errors::fill_disk),
        ("writes without space", disk_errors::fail_writes_without_space),
        ("failing writes", disk_errors::fail_writes),
        ("failing syncs", disk_errors::fail_syncs),
        ("read-only disk", disk_errors::remount_read_only),
        ("power loss", power_loss::lose_unsynced_writes),
        ("damaged pages", damaged_pages::damage_pages),
        ("cut connections", connection_cuts::cut_connection),
    ];
    for (name, fault) in faults {
        let began = Instant::now();
        let shown = fault(seed).with_context(|| name.to_owned())?;
        println!("{name}: {shown} ({:.1} s)", began.elapsed().as_secs_f64());
    }
    Ok(())
}

/// An engine process with its clients.
struct FaultHarness {
    database: String,
    monitor: ProcessMonitor,
    process: EngineProcess,
    clients: Vec<LoadClient>,
    ledger: AckLedger,
    runtime: tokio::runtime::Runtime,
}

/// Counts of a stretch of load.
#[derive(Debug, Default)]
struct WorkSummary {
    done: usize,
    /// Refused or unknown results with the expected error text.
    matching_errors: usize,
    unknown: usize,
}

impl FaultHarness {
    /// Starts the engine process, with `wrapper` as its parent program unless empty.
    fn new(database: &str, wrapper: &[&str], seed: u64) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let monitor = ProcessMonitor::new();
        let store = runtime.block_on(open_store(database))?;
        runtime.block_on(verify::put_lifecycles(&store))?;
        drop(store);
        let process = monitor.start_with_wrapper(wrapper, 0, database, 0)?;
        let mut rng = Rng::new(seed);
        let clients = (0..8).map(|number| LoadClient::new(format!("t{number}"), rng.fork())).collect();
        Ok(Self { database: database.to_owned(), monitor, process, clients, ledger: AckLedger::default(), runtime })
    }

    /// Sends requests until `max_requests` are done or `max_matches` errors contained `error_text`.
    fn run_requests(&mut self, max_requests: usize, error_text: &str, max_matches: usize) -> Result<WorkSummary> {
        let mut summary = WorkSummary::default();
        for (tag, toiler) in (0..).zip(&mut self.clients) {
            self.process.send_requests(tag, vec![toiler.next_request()]);
        }
        let (mut sent, mut waiting) = (self.clients.len(), self.clients.len());
        while waiting > 0 {
            let (tag, answers) = match self.monitor.next_message()?.1 {
                ProcessMessage::Replies(tag, answers) => (tag, answers),
                ProcessMessage::OpenFailed(why) => anyhow::bail!("the process failed: {why}"),
                ProcessMessage::Exited => anyhow::bail!("the process exited"),
            };
            waiting -= 1;
            let outcome = RequestOutcome::parse(answers.first().context("a reply")?)?;
            match &outcome {
                RequestOutcome::Done { .. } => summary.done += 1,
                RequestOutcome::Refused(why) => summary.matching_errors += usize::from(why.contains(error_text)),
                RequestOutcome::Unknown(why) => {
                    summary.unknown += 1;
                    summary.matching_errors += usize::from(why.contains(error_text));
                }
            }
            let client = &mut self.clients[usize::try_from(tag)?];
            client.on_outcome(&outcome, &mut self.ledger)?;
            if sent < max_requests && summary.matching_errors < max_matches {
                self.process.send_requests(tag, vec![client.next_request()]);
                sent += 1;
                waiting += 1;
            }
        }
        Ok(summary)
    }

    /// Kills the process and waits for its end.
    fn kill(&mut self) -> Result<()> {
        self.process.kill_after(0)?;
        while !matches!(self.monitor.next_message()?.1, ProcessMessage::Exited) {}
        self.process.reap()
    }

    /// Kills the process and verifies everything it acknowledged.
    fn finish(mut self) -> Result<FinalCounts> {
        self.kill()?;
        let store = self.runtime.block_on(open_store(&self.database))?;
        let entries = self.runtime.block_on(self.ledger.verify_all(&store))?;
        drop(store);
        self.runtime.block_on(verify::assert_clean(&self.database))?;
        Ok(FinalCounts { entries, acknowledged: self.ledger.acknowledged })
    }
}

struct FinalCounts {
    entries: u64,
    acknowledged: u64,
}

impl std::fmt::Display for FinalCounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "all {} acknowledged are stored, verify confirms {} entries", self.acknowledged, self.entries)
    }
}

async fn open_store(database: &str) -> Result<AnyStore> {
    let clock = Clock::manual(Time::MIN);
    if database.starts_with("postgres://") {
        return Ok(AnyStore::Postgres(PostgresStore::open_with_clock(database, clock).await?));
    }
    Ok(AnyStore::Sqlite(SqliteStore::open(database, clock)?))
}

/// A small tmpfs, unmounted on drop.
struct TmpfsDisk<'a>(&'a Path);

impl<'a> TmpfsDisk<'a> {
    fn new(folder: &'a Path, megabytes: u32) -> Result<Option<Self>> {
        std::fs::create_dir_all(folder)?;
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={megabytes}m"), "tmpfs"]).arg(folder);
        let mounted = mount.stderr(std::process::Stdio::null()).status().is_ok_and(|status| status.success());
        Ok(mounted.then_some(Self(folder)))
    }

    fn remount(&self, options: &str) -> Result<()> {
        let mut mount = Command::new("mount");
        let status = mount.args(["-o", &format!("remount,{options}")]).arg(self.0).status()?;
        ensure!(status.success(), "remount with {options}");
        Ok(())
    }
}

impl Drop for TmpfsDisk<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}
