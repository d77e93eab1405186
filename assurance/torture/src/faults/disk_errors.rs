//! Runs the embedded database on a disk that is full, read-only or failing.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

use anyhow::{Context as _, Result, bail, ensure};
use onceward_testkit::TempDir;

use super::{FaultHarness, TmpfsDisk, open_store};
use crate::process::{ProcessMessage, ProcessMonitor};

const DISK_FULL_ERROR: &str = "disk of the database is full";

/// Fills a small disk, frees space, and continues in the same process. Needs the right to mount; without it, only
/// [`fail_writes_without_space`] covers this fault.
pub(super) fn fill_disk(seed: u64) -> Result<String> {
    let folder = TempDir::new();
    let small = folder.database_path().with_file_name("small");
    let Some(disk) = TmpfsDisk::new(&small, 2)? else {
        return Ok("skipped: no permission to mount".to_owned());
    };
    let mut harness = FaultHarness::new(&small.join("test.db").display().to_string(), &[], seed)?;
    let before = harness.run_requests(20_000, DISK_FULL_ERROR, 50)?;
    ensure!(before.matching_errors >= 50 && before.unknown == 0, "no call reported a full disk: {before:?}");
    disk.remount("size=64m")?;
    let after = harness.run_requests(200, DISK_FULL_ERROR, usize::MAX)?;
    ensure!(after.matching_errors == 0 && after.done > 100, "work did not continue: {after:?}");
    let ended = harness.finish()?;
    Ok(format!(
        "{} done, {} refused because the disk was full, {} done after space was freed; {ended}",
        before.done, before.matching_errors, after.done
    ))
}

/// Like [`fill_disk`], but injects the errors with `strace`, which needs no special rights.
pub(super) fn fail_writes_without_space(seed: u64) -> Result<String> {
    inject_syscall_errors(seed, "pwrite64", "ENOSPC", DISK_FULL_ERROR)
}

pub(super) fn fail_writes(seed: u64) -> Result<String> {
    inject_syscall_errors(seed, "pwrite64", "EIO", "disk I/O error")
}

pub(super) fn fail_syncs(seed: u64) -> Result<String> {
    inject_syscall_errors(seed, "fsync,fdatasync", "EIO", "disk I/O error")
}

/// Above the number of threads that write: the writer thread and those of the runtime.
const MAX_WRITER_THREADS: usize = 20;

/// Makes some system calls of the engine process fail.
fn inject_syscall_errors(seed: u64, call: &str, error: &str, error_text: &str) -> Result<String> {
    let folder = TempDir::new();
    let database = folder.database_path().display().to_string();
    let wal = format!("{database}-wal");
    let trace = format!("trace={call}");
    let inject = format!("inject={call}:error={error}:when=40..60");
    let wrapper = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", &database, "-P", &wal, "-e", &trace, "-e", &inject];
    let mut harness = FaultHarness::new(&database, &wrapper, seed)?;
    let during = harness.run_requests(500, error_text, usize::MAX)?;
    ensure!(during.matching_errors > 0, "no call failed with `{error_text}`: {during:?}");
    // strace counts calls per thread, so each writing thread fails in turn.
    let mut after = harness.run_requests(100, error_text, usize::MAX)?;
    for _ in 0..MAX_WRITER_THREADS {
        if after.matching_errors > 0 {
            after = harness.run_requests(100, error_text, usize::MAX)?;
        }
    }
    ensure!(after.matching_errors == 0 && after.done > 50, "work did not continue: {after:?}");
    let ended = harness.finish()?;
    Ok(format!(
        "{} got `{error_text}`, {} done before and after; {ended}",
        during.matching_errors,
        during.done + after.done
    ))
}

/// On a read-only disk an engine must fail to open with a clear error. Once the disk is writable again, all data must
/// be there.
pub(super) fn remount_read_only(seed: u64) -> Result<String> {
    let folder = TempDir::new();
    let small = folder.database_path().with_file_name("small");
    let disk = TmpfsDisk::new(&small, 64)?;
    let database = small.join("test.db").display().to_string();
    let mut harness = FaultHarness::new(&database, &[], seed)?;
    harness.run_requests(100, "", usize::MAX)?;
    harness.kill()?;
    let set_writable = |yes: bool| -> Result<()> {
        if let Some(disk) = &disk {
            return disk.remount(if yes { "rw" } else { "ro" });
        }
        for entry in std::fs::read_dir(&small)? {
            std::fs::set_permissions(entry?.path(), Permissions::from_mode(if yes { 0o644 } else { 0o444 }))?;
        }
        Ok(std::fs::set_permissions(&small, Permissions::from_mode(if yes { 0o755 } else { 0o555 }))?)
    };
    set_writable(false)?;
    let monitor = ProcessMonitor::new();
    let mut engine = monitor.start(0, &database, 0)?;
    let ProcessMessage::OpenFailed(why) = monitor.next_message()?.1 else {
        bail!("the engine started on a read-only disk")
    };
    ensure!(why.contains("cannot be written"), "the error does not say that the disk is read-only: {why}");
    engine.mark_gave_up();
    engine.reap()?;
    set_writable(true)?;
    let store = harness.runtime.block_on(open_store(&database)).context("the database opens again")?;
    harness.runtime.block_on(harness.ledger.verify_all(&store))?;
    Ok(format!("got `{why}`; all {} acknowledged are stored once the disk is writable", harness.ledger.acknowledged))
}
