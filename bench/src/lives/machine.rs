//! What the machine says: time, processor time, memory, and what a bare fsync takes.

use std::error::Error;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::place::Place;

/// A folder of this run's own, gone with it.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("onceward-lives-{}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    pub(crate) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The median and the least of a few hundred: a page appended and synced.
pub(crate) fn fsync(path: &Path) -> std::io::Result<(Duration, Duration)> {
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

/// The fields of a process after its name, which may hold anything, in brackets.
fn stat(process: &str) -> Result<Vec<u64>, Box<dyn Error>> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let (_, rest) = stat.rsplit_once(')').ok_or("no name in /proc/PID/stat")?;
    Ok(rest.split_whitespace().map(|field| field.parse().unwrap_or(0)).collect())
}

/// Where the parent stands in it, and processor time: own, the kernel's, and both of children that have ended. A hundred ticks
/// a second on every Linux that we know.
const PARENT: usize = 1;
const OWN: std::ops::Range<usize> = 11..13;
const ALL: std::ops::Range<usize> = 11..15;

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
fn seconds(ticks: u64) -> f64 {
    ticks as f64 / 100.0
}

/// Processor seconds of this process so far, its own and the kernel's for it.
pub(crate) fn processor_seconds() -> Result<f64, Box<dyn Error>> {
    Ok(seconds(stat("self")?[OWN].iter().sum()))
}

/// Those of a server: its first process, the children that have ended and those that live.
pub(crate) fn server_seconds(postmaster: u32) -> Result<f64, Box<dyn Error>> {
    let mut ticks: u64 = stat(&postmaster.to_string())?[ALL].iter().sum();
    for entry in std::fs::read_dir("/proc")? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        // One that has ended meanwhile is with its parent next time.
        if name.parse::<u32>().is_ok()
            && let Ok(fields) = stat(&name)
            && fields[PARENT] == u64::from(postmaster)
        {
            ticks += fields[OWN].iter().sum::<u64>();
        }
    }
    Ok(seconds(ticks))
}

/// Bytes of memory that are this process's alone: what it holds, not what the kernel caches of its files.
pub(crate) fn memory() -> Result<u64, Box<dyn Error>> {
    status("RssAnon:")
}

/// Bytes of memory that it has held at most.
pub(crate) fn most_memory() -> Result<u64, Box<dyn Error>> {
    status("VmHWM:")
}

fn status(name: &str) -> Result<u64, Box<dyn Error>> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix(name)).ok_or("an unknown line of /proc/self/status")?;
    let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kilobytes * 1024)
}

/// One measured stretch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    /// Lives a second.
    pub(crate) rate: f64,
    /// Microseconds of processor time a life: this process's, and the database server's.
    pub(crate) processor: f64,
    pub(crate) server: f64,
}

#[expect(clippy::cast_precision_loss, reason = "counts far below 2^52")]
pub(crate) fn run(
    place: &Place,
    lives: usize,
    work: impl FnOnce() -> Result<(), Box<dyn Error>>,
) -> Result<Run, Box<dyn Error>> {
    let (own, server) = place.processor_seconds()?;
    let began = Instant::now();
    work()?;
    let (count, seconds) = (lives as f64, began.elapsed().as_secs_f64());
    let (own_after, server_after) = place.processor_seconds()?;
    let each = |seconds: f64| seconds * 1e6 / count;
    Ok(Run { rate: count / seconds, processor: each(own_after - own), server: each(server_after - server) })
}

/// Runs of one thing, told as median and best.
#[derive(Debug, Default)]
pub(crate) struct Runs(pub(crate) Vec<Run>);

impl Runs {
    pub(crate) fn median(&self) -> f64 {
        middle(self.0.iter().map(|run| run.rate))
    }

    pub(crate) fn best(&self) -> f64 {
        self.0.iter().map(|run| run.rate).fold(0.0, f64::max)
    }

    pub(crate) fn processor(&self) -> f64 {
        middle(self.0.iter().map(|run| run.processor))
    }

    pub(crate) fn server(&self) -> f64 {
        middle(self.0.iter().map(|run| run.server))
    }

    /// Both together.
    pub(crate) fn work(&self) -> f64 {
        middle(self.0.iter().map(|run| run.processor + run.server))
    }
}

pub(crate) fn middle(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}
