//! Rows and entries of lifecycle files: the tests load the files through testkit, which leaves out the one named in the
//! environment. Nothing is compiled again.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, anyhow, bail};

use super::binaries::{self, Binary};
use super::{Options, Proof, code, sampled, show, trial};
use crate::rules::index::Index;
use crate::rules::lifecycle_file::Entry;
use crate::rules::rust_file::Test;
use crate::tree;

/// `systems/image/job.toml:65`, read by testkit.
const VARIABLE: &str = "ONCEWARD_TAKE_AWAY";

/// Trials at a time.
const WORKERS: usize = 2;

pub(crate) fn prove(index: &Index, options: &Options) -> Result<Vec<Proof>> {
    let mut entries: Vec<Entry> =
        index.entries.iter().filter(|entry| entry.path.starts_with("systems/")).cloned().collect();
    for entry in &mut entries {
        entry.rules.retain(|id| options.wants(id) && !index.is_later(id) && !index.is_in_the_lab(id));
    }
    entries.retain(|entry| !entry.rules.is_empty());
    let entries = sampled(entries, options);
    if entries.is_empty() {
        return Ok(Vec::new());
    }
    let target = tree::root().join("target");
    let folder = target.join("take-away");
    std::fs::create_dir_all(&folder)?;
    let packages: BTreeSet<String> = entries
        .iter()
        .flat_map(|entry| tests_of(index, entry))
        .filter_map(|test| code::package_of(&test.path))
        .collect();
    let binaries = binaries::build(&tree::root(), &target, &packages.into_iter().collect::<Vec<_>>())?;
    baseline(index, &entries, &binaries, &folder.join("baseline.txt"))?;

    let next = AtomicUsize::new(0);
    let proofs = Mutex::new(Vec::new());
    let work = |worker: usize| -> Result<()> {
        let scratch = folder.join(format!("worker-{worker}.txt"));
        while let Some(entry) = entries.get(next.fetch_add(1, Ordering::Relaxed)) {
            let found = try_entry(index, entry, &binaries, &scratch)?;
            found.iter().for_each(show);
            proofs.lock().map_err(|_| anyhow!("a worker panicked"))?.extend(found);
        }
        Ok(())
    };
    std::thread::scope(|scope| -> Result<()> {
        let workers: Vec<_> = (0..WORKERS).map(|worker| scope.spawn(move || work(worker))).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| anyhow!("a worker panicked"))?)
    })?;
    proofs.into_inner().map_err(|_| anyhow!("a worker panicked"))
}

/// Only a system's own tests play its files; the others would pass whatever is taken away.
fn tests_of<'a>(index: &'a Index, entry: &Entry) -> Vec<&'a Test> {
    let tests = entry.rules.iter().flat_map(|id| index.tests_of(id));
    let tests: BTreeSet<&Test> = tests.filter(|test| test.path.starts_with("systems/")).collect();
    tests.into_iter().collect()
}

/// With nothing taken away they must all pass, or a failure would prove nothing.
fn baseline(index: &Index, entries: &[Entry], binaries: &[Binary], scratch: &std::path::Path) -> Result<()> {
    let tests: BTreeSet<&Test> = entries.iter().flat_map(|entry| tests_of(index, entry)).collect();
    let failing = trial::failing(binaries, &tests.into_iter().collect::<Vec<_>>(), None, scratch)?;
    if let Some(test) = failing.first() {
        bail!("{}:{} `{}` fails with nothing taken away", test.path, test.line, test.name);
    }
    Ok(())
}

fn try_entry(index: &Index, entry: &Entry, binaries: &[Binary], scratch: &std::path::Path) -> Result<Vec<Proof>> {
    let place = format!("{}:{}", entry.path, entry.line);
    let failing = trial::failing(binaries, &tests_of(index, entry), Some((VARIABLE, &place)), scratch)?;
    let proofs = entry.rules.iter().map(|rule| {
        let noticed = failing.iter().find(|test| test.rules.contains(rule));
        let outcome =
            noticed.map(|test| test.name.clone()).ok_or_else(|| format!("no test of {rule} misses {}", entry.what));
        Proof { rule: rule.clone(), place: place.clone(), outcome }
    });
    Ok(proofs.collect())
}
