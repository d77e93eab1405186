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
    /// By nobody: SQLite says of the file that it is sound, or that only its list of free pages is not, so nothing stood on the page.
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
            Ok(_) if holds_nothing(&file)? => noticed.unused += 1,
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

/// Whether nothing of what the database holds is damaged. Its list of free pages may be: no table's check comes to it, and SQLite itself
/// says so when it next needs one of them.
fn holds_nothing(file: &Path) -> Result<bool> {
    let connection = rusqlite::Connection::open(file)?;
    let mut statement = connection.prepare("PRAGMA integrity_check")?;
    // Some damage it does not list, but fails at.
    let Ok(said) = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>() else {
        return Ok(false);
    };
    let lines: Vec<&str> = said.iter().flat_map(|said| said.lines()).filter(|line| !line.starts_with("***")).collect();
    let is_of_free_pages = |line: &&str| line.starts_with("Freelist: ") || line.ends_with(": never used");
    Ok(lines == ["ok"] || lines.iter().any(|line| line.starts_with("Freelist: ")) && lines.iter().all(is_of_free_pages))
}

async fn use_it(file: &Path) {
    let Ok(store) = SqliteStore::open(file, Clock::machine()) else { return };
    let _ = store.definitions().await;
    let _ = store.log(0, 1_000).await;
    let _ = store.list(&onceward_store::ListQuery { limit: 1_000, ..Default::default() }).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A page that only says which others are free holds nothing; one with rows does.
    #[test]
    fn free_pages_hold_nothing() {
        let folder = Folder::new();
        let connection = rusqlite::Connection::open(folder.file()).expect("a new file");
        let rows = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 200)";
        let sql = format!(
            "PRAGMA page_size = {PAGE}; CREATE TABLE kept (x); CREATE TABLE gone (x); \
             {rows} INSERT INTO kept SELECT zeroblob(1000) FROM n; {rows} INSERT INTO gone SELECT zeroblob(1000) FROM n; \
             DELETE FROM gone"
        );
        connection.execute_batch(&sql).expect("pages in use, and pages that were");
        drop(connection);
        let whole = std::fs::read(folder.file()).expect("the file");
        let first_free = u32::from_be_bytes(whole[32..36].try_into().expect("four bytes")) as usize;
        assert!(first_free > 1, "there are free pages");
        let damaged = |page: usize| {
            let mut bytes = whole.clone();
            bytes[(page - 1) * PAGE..page * PAGE].fill(0xa5);
            std::fs::write(folder.file(), bytes).expect("the file");
            holds_nothing(&folder.file()).expect("SQLite says what it finds")
        };
        assert!(damaged(first_free));
        assert!(!damaged(2), "the first page of `kept`");
    }
}
