//! Hold, copy, note what has changed, and again.

use std::time::{Duration, Instant};

use super::part::Part;
use super::source::Source;
use super::{Backup, BackupError};
use crate::sqlite::wal::Mark;

/// How long the file is held still at a time. What is written meanwhile stays in the WAL: at 100 MB a second, 20 MB.
const HOLD: Duration = Duration::from_millis(200);

/// A hold ends early when so much has come into the WAL.
const WAL_BYTES: u64 = 16 << 20;

/// Bytes that are read and written at a time; after each the two limits above are looked at.
const PIECE: usize = 1 << 20;

/// Writers that change pages as fast as they are copied wait for so long in each round: a tenth of the patience that an engine's
/// connection has.
const STILL: Duration = Duration::from_millis(500);

/// Between two tries to fold back a WAL that somebody reads an old state of, and how long that may go on.
const NAP: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_mins(1);

pub(super) struct Rounds<'a> {
    source: &'a Source,
    part: &'a mut Part,
    /// For each page whether the copy has it as the file does.
    copied: Vec<bool>,
    left: usize,
    /// Where to go on looking for pages that are not copied.
    next: usize,
    buffer: Vec<u8>,
    /// How far the WAL was when the hold began.
    mark: Mark,
    /// And what of it stood in the file then: it has not changed since.
    folded: Mark,
    /// How long one lasts.
    hold: Duration,
    done: Backup,
}

impl<'a> Rounds<'a> {
    pub(super) fn new(source: &'a Source, part: &'a mut Part) -> Self {
        let done = Backup::default();
        let (mark, buffer) = (Mark::default(), vec![0; PIECE]);
        Self { source, part, copied: Vec::new(), left: 0, next: 0, buffer, mark, folded: mark, hold: HOLD, done }
    }

    pub(super) fn run(mut self, watch: &mut dyn FnMut(u64, u64)) -> Result<Backup, BackupError> {
        // What was left at the last hold, and what it copied of that.
        let mut last: Option<(usize, usize)> = None;
        let mut losses = 0;
        let mut held_up: Option<Instant> = None;
        loop {
            self.source.close_gate()?;
            let since = Instant::now();
            self.note_changes()?;
            let pages = self.source.hold()?;
            let begun = Instant::now();
            let (mut left, mut copied) = (0, 0);
            if let Some((pages, frames)) = pages {
                self.mark = self.source.wal_mark()?;
                self.folded = self.mark.with_frames(frames, self.source.page_size());
                self.resize(pages as usize);
                left = self.left;
                // Hardly less is left than before: as much was written as was copied.
                if last.is_some_and(|(left, copied)| self.left > left - copied / 4) {
                    losses += 1;
                }
                if losses > 0 {
                    copied = self.copy(STILL, watch)?;
                }
            }
            self.source.open_gate()?;
            self.done.longest_pause = self.done.longest_pause.max(since.elapsed());
            if pages.is_none() {
                let since = *held_up.get_or_insert(begun);
                if since.elapsed() > PATIENCE {
                    return Err(BackupError::Held(PATIENCE.as_secs()));
                }
                std::thread::sleep(NAP);
                continue;
            }
            held_up = None;
            // With every loss writers get half the time they had, until they have lost.
            copied += self.copy(self.hold / (1 << losses.min(10)), watch)?;
            last = Some((left, copied));
            self.done.holds += 1;
            self.done.longest_hold = self.done.longest_hold.max(begun.elapsed());
            if self.left == 0 {
                break;
            }
        }
        self.source.let_go()?;
        self.done.bytes = self.copied.len() as u64 * u64::from(self.source.page_size());
        Ok(self.done)
    }

    /// What has changed since it was copied is to be copied again.
    fn note_changes(&mut self) -> Result<(), BackupError> {
        self.done.wal_bytes = self.done.wal_bytes.max(self.source.wal_bytes());
        for page in self.source.changed(&self.folded)? {
            // Pages are counted from one. One beyond those known is new, and not copied yet.
            if let Some(copied) = self.copied.get_mut((page as usize).wrapping_sub(1)) {
                self.done.pages_again += u64::from(std::mem::take(copied));
            }
        }
        Ok(())
    }

    fn resize(&mut self, pages: usize) {
        self.copied.resize(pages, false);
        self.left = self.copied.iter().filter(|copied| !**copied).count();
    }

    /// Copy what is left, for so long at most, but one piece at least: on a slow disk, too, it gets on. How many pages it was.
    fn copy(&mut self, most: Duration, watch: &mut dyn FnMut(u64, u64)) -> Result<usize, BackupError> {
        let (since, before) = (Instant::now(), self.left);
        while self.left > 0 {
            self.piece()?;
            watch((self.copied.len() - self.left) as u64, self.copied.len() as u64);
            self.done.wal_bytes = self.done.wal_bytes.max(self.source.wal_bytes());
            if since.elapsed() >= most || self.source.wal_mark()?.since(&self.mark) > WAL_BYTES {
                break;
            }
        }
        Ok(before - self.left)
    }

    /// The next pages that are not copied, wherever they stand.
    fn piece(&mut self) -> Result<(), BackupError> {
        let page_size = self.source.page_size() as usize;
        let mut room = (PIECE / page_size).max(1);
        while room > 0 && self.left > 0 {
            let is_left = |at: &usize| !self.copied[*at];
            let Some(first) = (self.next..self.copied.len()).chain(0..self.next.min(self.copied.len())).find(is_left)
            else {
                return Ok(());
            };
            let count = (first..self.copied.len()).take(room).take_while(is_left).count();
            let bytes = &mut self.buffer[..count * page_size];
            let at = first as u64 * page_size as u64;
            self.source.read(at, bytes)?;
            self.part.write(at, bytes)?;
            self.copied[first..first + count].fill(true);
            self.left -= count;
            self.next = first + count;
            room -= count;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    /// What stands in the WAL from before is folded back once, and then does not count, however many holds it takes; what is written
    /// between two of them does.
    #[test]
    fn only_what_has_changed_is_copied_again() {
        for is_written in [false, true] {
            let folder = onceward_testkit::Folder::new();
            let writer = Connection::open(folder.file()).expect("a new file");
            let tables =
                "PRAGMA journal_mode = WAL; PRAGMA wal_autocheckpoint = 0; PRAGMA user_version = 1; CREATE TABLE a (x)";
            writer.execute_batch(tables).expect("a table");
            for _ in 0..4 {
                writer.execute("INSERT INTO a VALUES (zeroblob(1048576))", []).expect("a megabyte");
            }
            let source = Source::open(&folder.file()).expect("a source");
            let mut part = Part::begin(&folder.file().with_extension("copy")).expect("a new file");
            let rounds = Rounds { hold: Duration::ZERO, ..Rounds::new(&source, &mut part) };
            let mut pieces = 0;
            let done = rounds.run(&mut |_, _| {
                pieces += 1;
                if is_written && pieces == 2 {
                    writer.execute("UPDATE a SET x = randomblob(1048576) WHERE rowid = 1", []).expect("changed");
                }
            });
            let done = done.expect("a copy");
            assert!(done.holds > 2, "one piece a hold: {done:?}");
            assert_eq!(done.pages_again > 0, is_written, "{done:?}");
        }
    }
}
