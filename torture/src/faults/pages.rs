//! Pages of a database file overwritten, one after the other: whoever reads it is told, and never told wrong.

use std::path::Path;

use anyhow::{Result, ensure};
use onceward_store::{Clock, SqliteStore, Store as _, StoreError};
use onceward_testkit::Folder;
use onceward_testkit::random::Chance;

use super::Bench;
use crate::sound;

const PAGE: usize = 4_096;

/// One page of so many; which of them hangs on the seed.
const SAMPLE: usize = 3;

/// How a damaged page was noticed.
#[derive(Debug, Default)]
struct Noticed {
    /// By reading: `the database is damaged`.
    corrupt: usize,
    /// By verify, which names what differs.
    named: usize,
    /// By nobody: SQLite says of the file that it is sound, so the page was in no use.
    unused: usize,
}

pub(super) fn damaged(seed: u64) -> Result<String> {
    let folder = Folder::new();
    let place = folder.file().display().to_string();
    let mut bench = Bench::new(&place, &[], seed)?;
    bench.work(200, "", usize::MAX)?;
    bench.kill()?;
    // Everything is brought from the WAL into the file.
    rusqlite::Connection::open(&place)?.pragma_update(None, "journal_mode", "DELETE")?;
    let whole = std::fs::read(&place)?;
    let mut chance = Chance::new(seed);
    let (mut noticed, mut unnoticed) = (Noticed::default(), Vec::new());
    let pages: Vec<usize> = (0..whole.len() / PAGE).skip(chance.below(SAMPLE)).step_by(SAMPLE).collect();
    for page in pages.iter().copied() {
        let file = folder.file().with_file_name(format!("page-{page}.db"));
        let mut bytes = whole.clone();
        for byte in &mut bytes[page * PAGE..(page + 1) * PAGE] {
            *byte = u8::try_from(chance.below(256))?;
        }
        std::fs::write(&file, &bytes)?;
        match bench.runtime.block_on(sound::look(&file.display().to_string())) {
            Err(StoreError::Corrupt(_) | StoreError::NoDatabase(_)) => noticed.corrupt += 1,
            Err(error) => anyhow::bail!("page {page}: not said to be damaged: {error}"),
            Ok(report) if !report.is_clean() || report.stopped.is_some() => noticed.named += 1,
            Ok(_) if is_sound(&file)? => noticed.unused += 1,
            Ok(_) => unnoticed.push(page),
        }
        // An engine may come up on it or not; it may not panic.
        bench.runtime.block_on(use_it(&file));
        for suffix in ["", "-wal", "-shm", ".lock"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
        }
    }
    ensure!(unnoticed.is_empty(), "pages {unnoticed:?} are damaged, and verify finds nothing; {noticed:?}");
    ensure!(noticed.corrupt > 0, "no page was in use: {noticed:?}");
    let Noticed { corrupt, named, unused } = noticed;
    Ok(format!(
        "{} pages, one at a time: {corrupt} said to be damaged, {named} named by verify, {unused} in no use",
        pages.len()
    ))
}

fn is_sound(file: &Path) -> Result<bool> {
    let connection = rusqlite::Connection::open(file)?;
    let said: String = connection.query_row("PRAGMA integrity_check(1)", [], |row| row.get(0))?;
    Ok(said == "ok")
}

async fn use_it(file: &Path) {
    let Ok(store) = SqliteStore::open(file, Clock::machine()) else { return };
    let _ = store.definitions().await;
    let _ = store.log(0, 1_000).await;
    let _ = store.list(&onceward_store::ListQuery { limit: 1_000, ..Default::default() }).await;
}
