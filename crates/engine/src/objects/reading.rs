//! Bytes in pieces. Whoever has them all knows that they are those of the hash: the last piece is given only then.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;

use futures_util::TryStreamExt as _;
use onceward_core::hex;
use onceward_core::record::Payload;
use sha2::{Digest, Sha256};

use super::bucket::Pieces;
use super::trouble::trouble;
use super::{ObjectError, blocking};

/// Bytes in one piece.
const PIECE: usize = 256 << 10;

/// A payload on its way out.
#[derive(Debug)]
pub struct PayloadReader {
    payload: Payload,
    from: From,
    /// Read, hashed, and not given yet.
    ahead: Option<Arc<[u8]>>,
    sha: Sha256,
    bytes: u64,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Not there yet; or never, where a read was left in the middle.
    Open,
    /// All was read, and it is what was asked for.
    Right,
    /// All was read, and it is not.
    Damaged,
}

enum From {
    /// Looked at by the database that has them.
    Memory(Option<Arc<[u8]>>),
    /// Taken while a piece is read.
    File(Option<File>),
    Bucket(Option<Pieces>),
}

impl fmt::Debug for From {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Memory(_) => "Memory",
            Self::File(_) => "File",
            Self::Bucket(_) => "Bucket",
        })
    }
}

impl PayloadReader {
    pub(crate) fn of_bytes(bytes: Arc<[u8]>, payload: Payload) -> Self {
        Self::of(From::Memory(Some(bytes)), payload)
    }

    pub(super) fn of_file(file: File, payload: Payload) -> Self {
        Self::of(From::File(Some(file)), payload)
    }

    pub(super) fn of_pieces(pieces: Pieces, payload: Payload) -> Self {
        Self::of(From::Bucket(Some(pieces)), payload)
    }

    fn of(from: From, payload: Payload) -> Self {
        Self { payload, from, ahead: None, sha: Sha256::new(), bytes: 0, end: End::Open }
    }

    /// What it will have read in the end.
    pub const fn payload(&self) -> Payload {
        self.payload
    }

    /// The next piece; `None` at the end. Where the bytes turn out to be others, there is an error in place of the last piece: who
    /// only counts what comes, as a client does who was told the length, does not take it for the whole.
    pub async fn next(&mut self) -> Result<Option<Arc<[u8]>>, ObjectError> {
        if let From::Memory(bytes) = &mut self.from {
            return Ok(bytes.take().filter(|bytes| !bytes.is_empty()));
        }
        loop {
            match self.end {
                End::Open => {}
                End::Right => return Ok(self.ahead.take()),
                End::Damaged => return Err(self.damaged()),
            }
            let Some(piece) = self.read().await? else {
                let hash: [u8; 32] = std::mem::take(&mut self.sha).finalize().into();
                let is_right = (hash, self.bytes) == (self.payload.sha256, self.payload.bytes);
                self.end = if is_right { End::Right } else { End::Damaged };
                continue;
            };
            self.sha.update(&piece);
            self.bytes = self.bytes.saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
            if self.bytes > self.payload.bytes {
                // Whatever else comes, it is not what was asked for.
                self.end = End::Damaged;
            } else if let Some(before) = self.ahead.replace(piece) {
                return Ok(Some(before));
            }
        }
    }

    /// What comes next from where it lies; `None` where there is no more.
    async fn read(&mut self) -> Result<Option<Arc<[u8]>>, ObjectError> {
        match &mut self.from {
            From::Memory(_) => Ok(None),
            From::File(file) => {
                let mut taken = file.take().ok_or_else(left)?;
                let reading = blocking(move || {
                    let mut piece = Vec::with_capacity(PIECE);
                    let most = u64::try_from(PIECE).unwrap_or(u64::MAX);
                    (&mut taken).take(most).read_to_end(&mut piece)?;
                    Ok((taken, piece))
                });
                let (taken, piece) = reading.await?;
                *file = Some(taken);
                Ok(Some(piece).filter(|piece| !piece.is_empty()).map(Arc::from))
            }
            From::Bucket(pieces) => {
                let mut taken = pieces.take().ok_or_else(left)?;
                let piece = loop {
                    match taken.try_next().await.map_err(trouble)? {
                        Some(piece) if piece.is_empty() => {}
                        piece => break piece,
                    }
                };
                *pieces = Some(taken);
                Ok(piece.map(|piece| Arc::from(&*piece)))
            }
        }
    }

    fn damaged(&self) -> ObjectError {
        ObjectError::Damaged(hex::encode(&self.payload.sha256))
    }

    /// All of it at once, where there is no more than so much.
    pub async fn whole(mut self, most: u64) -> Result<Option<Arc<[u8]>>, ObjectError> {
        if self.payload.bytes > most {
            return Ok(None);
        }
        let mut whole: Vec<u8> = Vec::new();
        while let Some(piece) = self.next().await? {
            if whole.is_empty() && u64::try_from(piece.len()).is_ok_and(|length| length == self.payload.bytes) {
                // Mostly it is one piece, and as the last one it was looked at.
                return Ok(Some(piece));
            }
            whole.extend_from_slice(&piece);
        }
        Ok(Some(whole.into()))
    }
}

/// A read that failed, or was left in the middle, is not gone on with: what it took is in nobody's hands.
fn left() -> ObjectError {
    std::io::Error::other("a read of it was left in the middle").into()
}
