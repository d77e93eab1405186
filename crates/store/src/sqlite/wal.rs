//! The WAL as a file: how long it is, and which pages stand in it.
//!
//! Opening and closing it harms nobody: SQLite has its locks on the two other files.

use std::fs::File;
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};

/// Of the file's header, and of each frame's: numbers are big-endian.
const WAL_HEADER_BYTES: usize = 32;
const FRAME_HEADER_BYTES: usize = 24;

/// Where the header has the size of a page and the two numbers that are drawn anew whenever the WAL starts from its beginning.
/// A frame has them too; one with others is left over from before.
const PAGE_SIZE_OFFSET: usize = 8;
const SALT_RANGE: std::ops::Range<usize> = 16..24;
const FRAME_SALT_RANGE: std::ops::Range<usize> = 8..16;

pub(super) fn wal_path(database: &Path) -> PathBuf {
    super::open::sibling_path(database, "-wal")
}

/// Nothing where there is no such file.
pub(super) fn file_bytes(wal: &Path) -> u64 {
    std::fs::metadata(wal).map_or(0, |found| found.len())
}

/// How far it is: which beginning it is on, and how much of it is in use. The file keeps its length when it starts again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WalPosition {
    salt: [u8; 8],
    bytes: u64,
}

impl WalPosition {
    pub(super) fn read(wal: &Path) -> std::io::Result<Self> {
        let Some(mut opened) = WalFile::open(wal)? else { return Ok(Self::default()) };
        let (mut used, mut beyond) = (0, opened.file.metadata()?.len() / opened.stride());
        // Frames in use stand before all that are left over.
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

    /// The same beginning, with so many frames of it: SQLite's own count leaves out what was taken back and will be written over.
    pub(super) fn with_frames(self, frames: u64, page_size: u32) -> Self {
        Self { bytes: frames * (FRAME_HEADER_BYTES as u64 + u64::from(page_size)), ..self }
    }

    /// What was written since an earlier mark, if it has started again once at most.
    pub(super) fn bytes_since(&self, earlier: &Self) -> u64 {
        if self.salt == earlier.salt { self.bytes.saturating_sub(earlier.bytes) } else { self.bytes }
    }
}

/// The numbers of all pages that were written since a mark, or since the WAL last started from its beginning where that was later; perhaps more
/// than once. Also those of a transaction that was taken back: too many is harmless to who asks here.
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
    /// `None` where there is no such file, or nothing in it.
    fn open(wal: &Path) -> std::io::Result<Option<Self>> {
        let mut file = match File::open(wal) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            opened => opened?,
        };
        let mut header = [0; WAL_HEADER_BYTES];
        Ok(read_fully(&mut file, &mut header)?.then_some(Self { file, header }))
    }

    /// From one frame to the next.
    fn stride(&self) -> u64 {
        FRAME_HEADER_BYTES as u64 + u64::from(read_u32(&self.header, PAGE_SIZE_OFFSET))
    }

    /// The page in a frame, if that is in use.
    fn frame_page(&mut self, frame: u64) -> std::io::Result<Option<u32>> {
        let mut bytes = [0; FRAME_HEADER_BYTES];
        self.file.seek(SeekFrom::Start(WAL_HEADER_BYTES as u64 + frame * self.stride()))?;
        let is_used = read_fully(&mut self.file, &mut bytes)? && bytes[FRAME_SALT_RANGE] == self.header[SALT_RANGE];
        Ok(is_used.then(|| read_u32(&bytes, 0)))
    }
}

/// Whether there was so much left to read.
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

    /// What SQLite writes, read by us: every page of the file stands in its first WAL; a new beginning forgets them.
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
        assert_eq!(pages(&end).expect("a WAL"), Vec::<u32>::new(), "nothing since");
        connection.execute_batch("INSERT INTO a VALUES (1)").expect("a row");
        assert_eq!(pages(&end).expect("a WAL"), [2]);
        assert_eq!(pages(&end.with_frames(0, 4_096)).expect("a WAL").len(), found.len() + 1);
        let checkpoint = |mode| connection.query_row(&format!("PRAGMA wal_checkpoint({mode})"), [], |row| row.get(0));
        let before = WalPosition::read(&wal).expect("a WAL");
        assert_eq!(before.bytes_since(&WalPosition::default()), file_bytes(&wal) - 32);
        assert_eq!(checkpoint("RESTART"), Ok(0));
        connection.execute_batch("INSERT INTO b VALUES (1)").expect("a row");
        assert!(file_bytes(&wal) > 3 * 4_096, "what was there before is left behind it");
        assert_eq!(pages(&beginning).expect("a WAL"), [3]);
        assert_eq!(pages(&end).expect("a WAL"), [3], "it has started again since");
        assert_eq!(WalPosition::read(&wal).expect("a WAL").bytes_since(&before), 24 + 4_096);
        assert_eq!(checkpoint("TRUNCATE"), Ok(0));
        assert_eq!(pages(&beginning).expect("an empty file"), Vec::<u32>::new());
    }
}
