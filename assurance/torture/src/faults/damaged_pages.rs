//! Overwrites pages of a database file one by one. Readers must get an error, never wrong data.

use std::path::Path;

use anyhow::{Result, ensure};
use onceward_store::{Clock, SqliteStore, Store as _, StoreError};
use onceward_testkit::TempDir;
use onceward_testkit::random::Rng;

use super::FaultHarness;
use crate::verify;

const PAGE_BYTES: usize = 4_096;

/// Damages every third page to save time. The seed selects which.
const PAGE_SAMPLE_STRIDE: usize = 3;

/// How each damaged page was detected.
#[derive(Debug, Default)]
struct DamageCounts {
    /// A read failed with `the database is damaged`.
    corrupt: usize,
    /// Verify reported a difference.
    reported_by_verify: usize,
    /// Not detected, because the page was unused: SQLite reports no damage, or only in its list of free pages.
    unused: usize,
}

pub(super) fn damage_pages(seed: u64) -> Result<String> {
    let folder = TempDir::new();
    let database = folder.database_path().display().to_string();
    let mut harness = FaultHarness::new(&database, &[], seed)?;
    harness.run_requests(200, "", usize::MAX)?;
    harness.kill()?;
    // Moves everything from the WAL into the file.
    rusqlite::Connection::open(&database)?.pragma_update(None, "journal_mode", "DELETE")?;
    let original = std::fs::read(&database)?;
    let mut rng = Rng::new(seed);
    let (mut counts, mut unnoticed) = (DamageCounts::default(), Vec::new());
    let pages: Vec<usize> =
        (0..original.len() / PAGE_BYTES).skip(rng.below(PAGE_SAMPLE_STRIDE)).step_by(PAGE_SAMPLE_STRIDE).collect();
    for page in pages.iter().copied() {
        let file = folder.database_path().with_file_name(format!("page-{page}.db"));
        let mut bytes = original.clone();
        for byte in &mut bytes[page * PAGE_BYTES..(page + 1) * PAGE_BYTES] {
            *byte = u8::try_from(rng.below(256))?;
        }
        std::fs::write(&file, &bytes)?;
        match harness.runtime.block_on(verify::run_verify(&file.display().to_string())) {
            Err(StoreError::Corrupt(_) | StoreError::ForeignDatabase(_)) => counts.corrupt += 1,
            Err(error) => anyhow::bail!("page {page}: the error does not report damage: {error}"),
            Ok(report) if !report.is_clean() || report.stopped.is_some() => counts.reported_by_verify += 1,
            Ok(_) if has_only_free_page_damage(&file)? => counts.unused += 1,
            Ok(_) => unnoticed.push(page),
        }
        // An engine may fail to open the file, but must not panic.
        harness.runtime.block_on(open_and_read(&file));
        for suffix in ["", "-wal", "-shm", ".lock"] {
            let _ = std::fs::remove_file(format!("{}{suffix}", file.display()));
        }
    }
    ensure!(unnoticed.is_empty(), "pages {unnoticed:?} are damaged, but verify finds no difference; {counts:?}");
    ensure!(counts.corrupt > 0, "no page was in use: {counts:?}");
    let DamageCounts { corrupt, reported_by_verify: named, unused } = counts;
    Ok(format!(
        "{} pages, one at a time: {corrupt} reported as damaged, {named} found by verify, {unused} unused",
        pages.len()
    ))
}

/// Returns whether only the list of free pages is damaged, if anything. No table depends on it, and SQLite reports it
/// once it needs a free page.
fn has_only_free_page_damage(file: &Path) -> Result<bool> {
    let connection = rusqlite::Connection::open(file)?;
    let mut statement = connection.prepare("PRAGMA integrity_check")?;
    // Some damage makes the check itself fail.
    let Ok(messages) = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<Result<Vec<_>, _>>() else {
        return Ok(false);
    };
    let lines: Vec<&str> =
        messages.iter().flat_map(|said| said.lines()).filter(|line| !line.starts_with("***")).collect();
    let is_of_free_pages = |line: &&str| line.starts_with("Freelist: ") || line.ends_with(": never used");
    Ok(lines == ["ok"] || lines.iter().any(|line| line.starts_with("Freelist: ")) && lines.iter().all(is_of_free_pages))
}

async fn open_and_read(file: &Path) {
    let Ok(store) = SqliteStore::open(file, Clock::machine()) else { return };
    let _ = store.catalog().await;
    let _ = store.log(0, 1_000).await;
    let _ = store.list(&onceward_store::ListQuery { limit: 1_000, ..Default::default() }).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_page_damage_is_harmless_and_table_page_damage_is_not() {
        let folder = TempDir::new();
        let connection = rusqlite::Connection::open(folder.database_path()).expect("a new file");
        let rows = "WITH RECURSIVE n (x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n WHERE x < 200)";
        let sql = format!(
            "PRAGMA page_size = {PAGE_BYTES}; CREATE TABLE kept (x); CREATE TABLE gone (x); \
             {rows} INSERT INTO kept SELECT zeroblob(1000) FROM n; {rows} INSERT INTO gone SELECT zeroblob(1000) FROM n; \
             DELETE FROM gone"
        );
        connection.execute_batch(&sql).expect("used and free pages");
        drop(connection);
        let original = std::fs::read(folder.database_path()).expect("the file");
        let first_free = u32::from_be_bytes(original[32..36].try_into().expect("four bytes")) as usize;
        assert!(first_free > 1, "the file has free pages");
        let damaged = |page: usize| {
            let mut bytes = original.clone();
            bytes[(page - 1) * PAGE_BYTES..page * PAGE_BYTES].fill(0xa5);
            std::fs::write(folder.database_path(), bytes).expect("the file");
            has_only_free_page_damage(&folder.database_path()).expect("SQLite reports the damage")
        };
        assert!(damaged(first_free));
        assert!(!damaged(2), "the first page of `kept`");
    }
}
