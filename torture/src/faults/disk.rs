//! A disk without room, one that cannot be written, and one that fails, under the embedded database.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Context as _, Result, bail, ensure};
use onceward_testkit::Folder;

use super::{Bench, Disk, open};
use crate::process::{Ear, Said};

const FULL: &str = "disk is full";

/// A small disk fills up, is given room, and work goes on in the same process. Without the right to mount one, only
/// [`no_room`] shows it.
pub(super) fn full(seed: u64) -> Result<String> {
    let folder = Folder::new();
    let small = folder.file().with_file_name("small");
    let Some(disk) = Disk::new(&small, 2)? else {
        return Ok("not tried: no right to mount one".to_owned());
    };
    let mut bench = Bench::new(&small.join("test.db").display().to_string(), &[], seed)?;
    let before = bench.work(20_000, FULL, 50)?;
    ensure!(before.told >= 50 && before.unknown == 0, "it never said that the disk is full: {before:?}");
    disk.again("size=64m")?;
    let after = bench.work(200, FULL, usize::MAX)?;
    ensure!(after.told == 0 && after.done > 100, "it did not go on: {after:?}");
    let ended = bench.end()?;
    Ok(format!(
        "{} done, {} told that it is full, {} done after there was room; {ended}",
        before.done, before.told, after.done
    ))
}

/// The same by `strace`, which needs no rights: so many writes find no room, and then there is some again.
pub(super) fn no_room(seed: u64) -> Result<String> {
    failing(seed, "pwrite64", "ENOSPC", FULL)
}

pub(super) fn bad_writes(seed: u64) -> Result<String> {
    failing(seed, "pwrite64", "EIO", "disk I/O error")
}

pub(super) fn bad_syncs(seed: u64) -> Result<String> {
    failing(seed, "fsync,fdatasync", "EIO", "disk I/O error")
}

/// More threads than write to a database: the one that does nothing else, and those of the engine's runtime.
const THREADS: usize = 20;

/// Calls fail for a while, as the database's own processes see it.
fn failing(seed: u64, call: &str, error: &str, words: &str) -> Result<String> {
    let folder = Folder::new();
    let place = folder.file().display().to_string();
    let wal = format!("{place}-wal");
    let trace = format!("trace={call}");
    let inject = format!("inject={call}:error={error}:when=40..60");
    let by = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", &place, "-P", &wal, "-e", &trace, "-e", &inject];
    let mut bench = Bench::new(&place, &by, seed)?;
    let during = bench.work(500, words, usize::MAX)?;
    ensure!(during.told > 0, "nobody was told `{words}`: {during:?}");
    // strace counts the calls of each thread by itself, and several write: each of them has its bad time.
    let mut after = bench.work(100, words, usize::MAX)?;
    for _ in 0..THREADS {
        if after.told > 0 {
            after = bench.work(100, words, usize::MAX)?;
        }
    }
    ensure!(after.told == 0 && after.done > 50, "it did not go on: {after:?}");
    let ended = bench.end()?;
    Ok(format!("{} told `{words}`, {} done before and after; {ended}", during.told, during.done + after.done))
}

/// An engine does not come up on a disk that cannot be written, and says why; when it can be again, everything is there.
pub(super) fn read_only(seed: u64) -> Result<String> {
    let folder = Folder::new();
    let small = folder.file().with_file_name("small");
    let disk = Disk::new(&small, 64)?;
    let place = small.join("test.db").display().to_string();
    let mut bench = Bench::new(&place, &[], seed)?;
    bench.work(100, "", usize::MAX)?;
    bench.kill()?;
    let writable = |yes: bool| -> Result<()> {
        if let Some(disk) = &disk {
            return disk.again(if yes { "rw" } else { "ro" });
        }
        for entry in std::fs::read_dir(&small)? {
            std::fs::set_permissions(entry?.path(), Permissions::from_mode(if yes { 0o644 } else { 0o444 }))?;
        }
        Ok(std::fs::set_permissions(&small, Permissions::from_mode(if yes { 0o755 } else { 0o555 }))?)
    };
    writable(false)?;
    let ear = Ear::new();
    let mut engine = ear.start(0, &place, 0)?;
    let Said::Cannot(why) = ear.hear()?.1 else { bail!("it came up on a disk that cannot be written") };
    ensure!(why.contains("cannot be written"), "it does not say that it cannot write: {why}");
    engine.gives_up();
    engine.bury()?;
    writable(true)?;
    let store = bench.runtime.block_on(open(&place)).context("it opens again")?;
    bench.runtime.block_on(bench.books.look_at_all(&store))?;
    Ok(format!("told `{why}`; all {} acknowledged are there when it can be written again", bench.books.acknowledged))
}
