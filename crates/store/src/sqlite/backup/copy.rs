//! The copy rounds of a backup: begin a read transaction, copy pages, note which pages changed, repeat.

use std::time::{Duration, Instant};

use super::partial_file::PartialFile;
use super::source::BackupSource;
use super::{BackupError, BackupReport};
use crate::sqlite::wal::WalPosition;

/// Writes during a read transaction stay in the WAL: 20 MB at 100 MB per second.
const READ_DURATION: Duration = Duration::from_millis(200);

/// A read transaction ends early when the WAL grows by this much.
const MAX_READ_WAL_BYTES: u64 = 16 << 20;

/// Bytes copied between two checks of the limits above.
const COPY_CHUNK_BYTES: usize = 1 << 20;

/// How long a round copies with writers blocked, if writers change pages as fast as they are copied. A tenth of the
/// busy timeout of an engine's connection, so that writers do not fail.
const BLOCKED_COPY_DURATION: Duration = Duration::from_millis(500);

/// A reader of an old state usually ends soon, so retry the checkpoint often. After the timeout the backup fails.
const CHECKPOINT_RETRY_DELAY: Duration = Duration::from_millis(20);
const CHECKPOINT_TIMEOUT: Duration = Duration::from_mins(1);

pub(super) struct CopyRounds<'a> {
    source: &'a BackupSource,
    partial_file: &'a mut PartialFile,
    /// For each page, whether the copy matches the file.
    copied: Vec<bool>,
    remaining_pages: usize,
    /// Where to continue the search for pages that are not copied.
    next_page: usize,
    buffer: Vec<u8>,
    /// WAL position when the read transaction began.
    read_position: WalPosition,
    /// The part of the WAL that was checkpointed into the file by then. It has not changed since.
    checkpointed_position: WalPosition,
    read_duration: Duration,
    report: BackupReport,
}

impl<'a> CopyRounds<'a> {
    pub(super) fn new(source: &'a BackupSource, partial_file: &'a mut PartialFile) -> Self {
        let report = BackupReport::default();
        let (position, buffer) = (WalPosition::default(), vec![0; COPY_CHUNK_BYTES]);
        Self {
            source,
            partial_file,
            copied: Vec::new(),
            remaining_pages: 0,
            next_page: 0,
            buffer,
            read_position: position,
            checkpointed_position: position,
            read_duration: READ_DURATION,
            report,
        }
    }

    pub(super) fn run(mut self, on_progress: &mut dyn FnMut(u64, u64)) -> Result<BackupReport, BackupError> {
        // Pages left at the start of the previous read transaction, and how many of them it copied.
        let mut last: Option<(usize, usize)> = None;
        let mut stalled_rounds = 0;
        let mut blocked_since: Option<Instant> = None;
        loop {
            self.source.block_writers()?;
            let since = Instant::now();
            self.note_changes()?;
            let pages = self.source.begin_read()?;
            let begun = Instant::now();
            let (mut remaining, mut copied) = (0, 0);
            if let Some((pages, frames)) = pages {
                self.read_position = self.source.wal_position()?;
                self.checkpointed_position = self.read_position.with_frames(frames, self.source.page_size());
                self.resize(pages as usize);
                remaining = self.remaining_pages;
                // If the number of remaining pages hardly shrinks, writers change pages as fast as they are copied.
                if last.is_some_and(|(left, copied)| self.remaining_pages > left - copied / 4) {
                    stalled_rounds += 1;
                }
                if stalled_rounds > 0 {
                    copied = self.copy(BLOCKED_COPY_DURATION, on_progress)?;
                }
            }
            self.source.release_writers()?;
            self.report.longest_pause = self.report.longest_pause.max(since.elapsed());
            if pages.is_none() {
                let since = *blocked_since.get_or_insert(begun);
                if since.elapsed() > CHECKPOINT_TIMEOUT {
                    return Err(BackupError::BlockedByReader(CHECKPOINT_TIMEOUT.as_secs()));
                }
                std::thread::sleep(CHECKPOINT_RETRY_DELAY);
                continue;
            }
            blocked_since = None;
            // With each stalled round, the time that writers can run is halved, until the copy makes progress.
            copied += self.copy(self.read_duration / (1 << stalled_rounds.min(10)), on_progress)?;
            last = Some((remaining, copied));
            self.report.read_transactions += 1;
            self.report.longest_read_transaction = self.report.longest_read_transaction.max(begun.elapsed());
            if self.remaining_pages == 0 {
                break;
            }
        }
        self.source.end_read()?;
        self.report.bytes = self.copied.len() as u64 * u64::from(self.source.page_size());
        Ok(self.report)
    }

    /// Marks the pages that changed since they were copied, so that they are copied again.
    fn note_changes(&mut self) -> Result<(), BackupError> {
        self.report.max_wal_bytes = self.report.max_wal_bytes.max(self.source.wal_bytes());
        for page in self.source.changed_pages(&self.checkpointed_position)? {
            // Page numbers start at 1. A number beyond the known pages is new and not copied yet.
            if let Some(copied) = self.copied.get_mut((page as usize).wrapping_sub(1)) {
                self.report.recopied_pages += u64::from(std::mem::take(copied));
            }
        }
        Ok(())
    }

    fn resize(&mut self, pages: usize) {
        self.copied.resize(pages, false);
        self.remaining_pages = self.copied.iter().filter(|copied| !**copied).count();
    }

    /// Copies remaining pages for at most `max_duration` and returns their number. Copies at least one chunk, so that a
    /// slow disk still makes progress.
    fn copy(&mut self, max_duration: Duration, on_progress: &mut dyn FnMut(u64, u64)) -> Result<usize, BackupError> {
        let (since, before) = (Instant::now(), self.remaining_pages);
        while self.remaining_pages > 0 {
            self.copy_chunk()?;
            on_progress((self.copied.len() - self.remaining_pages) as u64, self.copied.len() as u64);
            self.report.max_wal_bytes = self.report.max_wal_bytes.max(self.source.wal_bytes());
            if since.elapsed() >= max_duration
                || self.source.wal_position()?.bytes_since(&self.read_position) > MAX_READ_WAL_BYTES
            {
                break;
            }
        }
        Ok(before - self.remaining_pages)
    }

    /// Copies the next pages that are not copied yet.
    fn copy_chunk(&mut self) -> Result<(), BackupError> {
        let page_size = self.source.page_size() as usize;
        let mut page_budget = (COPY_CHUNK_BYTES / page_size).max(1);
        while page_budget > 0 && self.remaining_pages > 0 {
            let is_left = |at: &usize| !self.copied[*at];
            let Some(first) =
                (self.next_page..self.copied.len()).chain(0..self.next_page.min(self.copied.len())).find(is_left)
            else {
                return Ok(());
            };
            let count = (first..self.copied.len()).take(page_budget).take_while(is_left).count();
            let bytes = &mut self.buffer[..count * page_size];
            let at = first as u64 * page_size as u64;
            self.source.read(at, bytes)?;
            self.partial_file.write(at, bytes)?;
            self.copied[first..first + count].fill(true);
            self.remaining_pages -= count;
            self.next_page = first + count;
            page_budget -= count;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    /// Pages that were in the WAL before the first read transaction do not count.
    #[test]
    fn only_pages_changed_between_read_transactions_are_copied_again() {
        for is_written in [false, true] {
            let folder = onceward_testkit::TempDir::new();
            let writer = Connection::open(folder.database_path()).expect("a new file");
            let tables =
                "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; PRAGMA user_version = 1; CREATE TABLE a (x)";
            writer.execute_batch(tables).expect("a table");
            for _ in 0..4 {
                writer.execute("INSERT INTO a VALUES (zeroblob(1048576))", []).expect("a megabyte");
            }
            let source = BackupSource::open(&folder.database_path()).expect("a source");
            let mut partial_file =
                PartialFile::create(&folder.database_path().with_extension("copy")).expect("a new file");
            let copy_rounds =
                CopyRounds { read_duration: Duration::ZERO, ..CopyRounds::new(&source, &mut partial_file) };
            let mut chunks = 0;
            let result = copy_rounds.run(&mut |_, _| {
                chunks += 1;
                if is_written && chunks == 2 {
                    writer.execute("UPDATE a SET x = randomblob(1048576) WHERE rowid = 1", []).expect("changed");
                }
            });
            let report = result.expect("a copy");
            assert!(report.read_transactions > 2, "the copy releases the lock between pieces: {report:?}");
            assert_eq!(report.recopied_pages > 0, is_written, "{report:?}");
        }
    }
}
