//! Measures time, processor time, memory and the duration of an fsync.

use std::error::Error;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::bench_database::BenchDatabase;

/// A temporary folder, deleted on drop.
pub(crate) struct BenchDir(PathBuf);

impl BenchDir {
    pub(crate) fn new() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("onceward-jobs-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for BenchDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Appends and syncs a page a few hundred times. Returns median and minimum.
pub(crate) fn measure_fsync(path: &Path) -> std::io::Result<(Duration, Duration)> {
    let mut file = File::create(path)?;
    let mut times = Vec::new();
    for _ in 0..300 {
        file.write_all(&[7; 4096])?;
        let began = Instant::now();
        file.sync_data()?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    Ok((times[times.len() / 2], times[0]))
}

/// Returns the fields of `/proc/PID/stat` after the process name, which may contain anything.
fn read_stat(process: &str) -> Result<Vec<u64>, Box<dyn Error>> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let (_, rest) = stat.rsplit_once(')').ok_or("no name in /proc/PID/stat")?;
    Ok(rest.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect())
}

/// Indexes of the parent process and of user and system time: own, and of ended children. Linux counts a hundred ticks
/// a second.
const PARENT_FIELD: usize = 1;
const OWN_CPU_FIELDS: std::ops::Range<usize> = 11..13;
const CPU_FIELDS_WITH_CHILDREN: std::ops::Range<usize> = 11..15;

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn ticks_to_seconds(ticks: u64) -> f64 {
    ticks as f64 / 100.0
}

/// Returns this process's processor seconds so far, in user and kernel mode.
pub(crate) fn process_cpu_seconds() -> Result<f64, Box<dyn Error>> {
    Ok(ticks_to_seconds(read_stat("self")?[OWN_CPU_FIELDS].iter().sum()))
}

/// Returns a server's processor seconds: its first process, and its ended and running children.
pub(crate) fn server_cpu_seconds(postmaster: u32) -> Result<f64, Box<dyn Error>> {
    let mut ticks: u64 = read_stat(&postmaster.to_string())?[CPU_FIELDS_WITH_CHILDREN].iter().sum();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        // A child that ends meanwhile is counted with its parent next time.
        if name.parse::<u32>().is_ok()
            && let Ok(fields) = read_stat(&name)
            && fields[PARENT_FIELD] == u64::from(postmaster)
        {
            ticks += fields[OWN_CPU_FIELDS].iter().sum::<u64>();
        }
    }
    Ok(ticks_to_seconds(ticks))
}

/// Returns this process's anonymous memory in bytes. Excludes the kernel's file cache.
pub(crate) fn memory_bytes() -> Result<u64, Box<dyn Error>> {
    read_status_bytes("RssAnon:")
}

/// Returns this process's peak memory in bytes.
pub(crate) fn peak_memory_bytes() -> Result<u64, Box<dyn Error>> {
    read_status_bytes("VmHWM:")
}

fn read_status_bytes(name: &str) -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or("an unknown line of /proc/self/status")?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes * 1024)
}

/// The result of one measured run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BenchRun {
    pub(crate) jobs_per_second: f64,
    /// Microseconds of processor time per job, in this process and in the database server.
    pub(crate) cpu_micros: f64,
    pub(crate) server_cpu_micros: f64,
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
pub(crate) fn measure_run(
    bench_db: &BenchDatabase,
    job_count: usize,
    work: impl FnOnce() -> Result<(), Box<dyn Error>>,
) -> Result<BenchRun, Box<dyn Error>> {
    let (own, server) = bench_db.cpu_seconds()?;
    let began = Instant::now();
    work()?;
    let (count, seconds) = (job_count as f64, began.elapsed().as_secs_f64());
    let (own_after, server_after) = bench_db.cpu_seconds()?;
    let each = |seconds: f64| seconds * 1e6 / count;
    Ok(BenchRun {
        jobs_per_second: count / seconds,
        cpu_micros: each(own_after - own),
        server_cpu_micros: each(server_after - server),
    })
}

/// Runs of one measurement, reported as median and best.
#[derive(Debug, Default)]
pub(crate) struct BenchRuns(pub(crate) Vec<BenchRun>);

impl BenchRuns {
    pub(crate) fn median_rate(&self) -> f64 {
        median(self.0.iter().map(|run| run.jobs_per_second))
    }

    pub(crate) fn best_rate(&self) -> f64 {
        self.0.iter().map(|run| run.jobs_per_second).fold(0.0, f64::max)
    }

    pub(crate) fn median_cpu_micros(&self) -> f64 {
        median(self.0.iter().map(|run| run.cpu_micros))
    }

    pub(crate) fn median_server_cpu_micros(&self) -> f64 {
        median(self.0.iter().map(|run| run.server_cpu_micros))
    }

    /// Returns the median processor time of both processes together.
    pub(crate) fn median_total_cpu_micros(&self) -> f64 {
        median(self.0.iter().map(|run| run.cpu_micros + run.server_cpu_micros))
    }
}

pub(crate) fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
