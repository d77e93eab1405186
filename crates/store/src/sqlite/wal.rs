//! Reads the WAL file: its size and the pages it contains.
//!
//! Opening and closing this file is safe: SQLite's locks are on the database and the shared-memory file.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// Sizes of the file header and of each frame header. Numbers are big-endian.
const WAL_HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;

/// Offsets of the page size and of the salt in the headers. SQLite changes the salt whenever the WAL restarts. A frame
/// with another salt is left over from before the restart.
const PAGE_SIZE_OFFSET: usize = 8;
const SALT_RANGE: std::ops::Range<usize> = 16..24;
const FRAME_SALT_RANGE: std::ops::Range<usize> = 8..16;

pub(super) fn wal_path(database: &Path) -> PathBuf {
    super::open::sibling_path(database, "-wal")
}

/// Returns 0 if the file does not exist.
pub(super) fn file_bytes(wal: &Path) -> u64 {
    std::fs::metadata(wal).map_or(0, |found| found.len())
}

/// A position in the WAL: the salt of its last restart, and the bytes used since. The file keeps its size when it
/// restarts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WalPosition {
    salt: [u8; 8],
    bytes: u64,
}

impl WalPosition {
    pub(super) fn read(wal: &Path) -> std::io::Result<Self> {
        let Some(mut opened) = WalFile::open(wal)? else { return Ok(Self::default()) };
        let (mut used, mut beyond) = (0, opened.file.metadata()?.len() / opened.stride());
        // Used frames come before all leftover frames, so a binary search finds the end.
        while used < beyond {
            let middle = used + (beyond - used) / 2;
            match opened.frame_page(middle)? {
                Some(_) => used = middle + 1,
                None => beyond = middle,
            }
        }
        let mut salt = [0; 8];
        salt.copy_from_slice(&opened.header[SALT_RANGE]);
        Ok(Self { salt, bytes: used * opened.stride() })
    }

    /// Returns the position after this many frames since the same restart. SQLite's own count excludes frames of a
    /// rolled-back transaction, which will be overwritten.
    pub(super) fn with_frames(self, frames: u64, page_size: u32) -> Self {
        Self { bytes: frames * (FRAME_HEADER_BYTES as u64 + u64::from(page_size)), ..self }
    }

    /// Returns the bytes written since an earlier position, if the WAL restarted at most once in between.
    pub(super) fn bytes_since(&self, earlier: &Self) -> u64 {
        if self.salt == earlier.salt { self.bytes.saturating_sub(earlier.bytes) } else { self.bytes }
    }
}

/// Returns the pages written since a position or since the last restart, whichever is later. The list may contain
/// duplicates and pages of rolled-back transactions; the backup then copies these pages needlessly.
pub(super) fn changed_pages(wal: &Path, since: &WalPosition) -> std::io::Result<Vec<u32>> {
    let mut pages = Vec::new();
    if let Some(mut opened) = WalFile::open(wal)? {
        let mut frame = if opened.header[SALT_RANGE] == since.salt { since.bytes / opened.stride() } else { 0 };
        while let Some(page) = opened.frame_page(frame)? {
            pages.push(page);
            frame += 1;
        }
    }
    Ok(pages)
}

struct WalFile {
    file: File,
    header: [u8; WAL_HEADER_BYTES],
}

impl WalFile {
    /// Returns `None` if the file is missing or empty.
    fn open(wal: &Path) -> std::io::Result<Option<Self>> {
        let mut file = match File::open(wal) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut header = [0; WAL_HEADER_BYTES];
        Ok(read_fully(&mut file, &mut header)?.then_some(Self { file, header }))
    }

    /// Returns the distance between two frames.
    fn stride(&self) -> u64 {
        FRAME_HEADER_BYTES as u64 + u64::from(read_u32(&self.header, PAGE_SIZE_OFFSET))
    }

    /// Returns the page in a frame, if the frame is in use.
    fn frame_page(&mut self, frame: u64) -> std::io::Result<Option<u32>> {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        self.file.seek(SeekFrom::Start(WAL_HEADER_BYTES as u64 + frame * self.stride()))?;
        let is_used = read_fully(&mut self.file, &mut bytes)? && bytes[FRAME_SALT_RANGE] == self.header[SALT_RANGE];
        Ok(is_used.then(|| read_u32(&bytes, 0)))
    }
}

/// Returns false at the end of the file.
fn read_fully(file: &mut File, bytes: &mut [u8]) -> std::io::Result<bool> {
    match file.read_exact(bytes) {
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(false),
        read => read.map(|()| true),
    }
}

fn read_u32(bytes: &[u8], offset: usize) -> u32 {
    bytes[offset..offset + 4].iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;

    /// Reads a WAL that SQLite wrote.
    #[test]
    fn changed_pages_are_those_written_since_position_or_wal_restart() {
        let folder = onceward_testkit::TempDir::new();
        let wal = wal_path(&folder.database_path());
        let pages = |since: &WalPosition| super::changed_pages(&wal, since);
        let beginning = WalPosition::default();
        assert_eq!((pages(&beginning).expect("no file"), file_bytes(&wal)), (Vec::new(), 0));
        let connection = Connection::open(folder.database_path()).expect("a new file");
        connection.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE a (x); CREATE TABLE b (x)").expect("tables");
        let found = pages(&beginning).expect("a WAL");
        assert!([1, 2, 3].iter().all(|page| found.contains(page)), "{found:?}");
        let end = WalPosition::read(&wal).expect("a WAL");
        assert_eq!(pages(&end).expect("a WAL"), Vec::<u32>::new(), "no pages since then");
        connection.execute_batch("INSERT INTO a VALUES (1)").expect("a row");
        assert_eq!(pages(&end).expect("a WAL"), [2]);
        assert_eq!(pages(&end.with_frames(0, 4_096)).expect("a WAL").len(), found.len() + 1);
        let checkpoint = |mode| connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| row.get(0));
        let before = WalPosition::read(&wal).expect("a WAL");
        assert_eq!(before.bytes_since(&WalPosition::default()), file_bytes(&wal) - 32);
        assert_eq!(checkpoint("RESTART"), Ok(0));
        connection.execute_batch("INSERT INTO b VALUES (1)").expect("a row");
        assert!(file_bytes(&wal) > 3 * 4_096, "old frames remain after the restart");
        assert_eq!(pages(&beginning).expect("a WAL"), [3]);
        assert_eq!(pages(&end).expect("a WAL"), [3], "the WAL restarted since then");
        assert_eq!(WalPosition::read(&wal).expect("a WAL").bytes_since(&before), 24 + 4_096);
        assert_eq!(checkpoint("TRUNCATE"), Ok(0));
        assert_eq!(pages(&beginning).expect("an empty file"), Vec::<u32>::new());
    }
}
