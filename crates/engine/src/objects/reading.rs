//! Bytes in pieces. Whoever reads to the end knows that they are those of the hash.

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
    sha: Sha256,
    bytes: u64,
}

enum From {
    /// Looked at by the database that has them.
    Memory(Option<Arc<[u8]>>),
    /// Taken while a piece is read: a read that failed, or was left in the middle, is not gone on with.
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
        Self { payload, from: From::Memory(Some(bytes)), sha: Sha256::new(), bytes: 0 }
    }

    pub(super) fn of_file(file: File, payload: Payload) -> Self {
        Self { payload, from: From::File(Some(file)), sha: Sha256::new(), bytes: 0 }
    }

    pub(super) fn of_pieces(pieces: Pieces, payload: Payload) -> Self {
        Self { payload, from: From::Bucket(Some(pieces)), sha: Sha256::new(), bytes: 0 }
    }

    /// What it will have read in the end.
    pub const fn payload(&self) -> Payload {
        self.payload
    }

    /// The next piece; `None` at the end. Where the bytes turn out to be others, the last piece is an error in place of the
    /// end.
    pub async fn next(&mut self) -> Result<Option<Arc<[u8]>>, ObjectError> {
        let piece: Option<Arc<[u8]>> = match &mut self.from {
            From::Memory(bytes) => return Ok(bytes.take().filter(|bytes| !bytes.is_empty())),
            From::File(file) => {
                let Some(mut taken) = file.take() else { return Ok(None) };
                let reading = blocking(move || {
                    let mut piece = Vec::with_capacity(PIECE);
                    let most = u64::try_from(PIECE).unwrap_or(u64::MAX);
                    (&mut taken).take(most).read_to_end(&mut piece)?;
                    Ok((taken, piece))
                });
                let (taken, piece) = reading.await?;
                *file = Some(taken).filter(|_| !piece.is_empty());
                Some(piece).filter(|piece| !piece.is_empty()).map(Arc::from)
            }
            From::Bucket(pieces) => {
                let Some(mut taken) = pieces.take() else { return Ok(None) };
                let piece = loop {
                    match taken.try_next().await.map_err(trouble)? {
                        Some(piece) if piece.is_empty() => {}
                        piece => break piece,
                    }
                };
                *pieces = Some(taken).filter(|_| piece.is_some());
                piece.map(|piece| Arc::from(&*piece))
            }
        };
        let Some(piece) = piece else { return self.ended().map(|()| None) };
        self.sha.update(&piece);
        self.bytes = self.bytes.saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
        if self.bytes > self.payload.bytes {
            // Whatever else comes, it is not what was asked for.
            self.from = From::Memory(None);
            return Err(self.damaged());
        }
        Ok(Some(piece))
    }

    fn ended(&mut self) -> Result<(), ObjectError> {
        let hash: [u8; 32] = std::mem::take(&mut self.sha).finalize().into();
        if (hash, self.bytes) == (self.payload.sha256, self.payload.bytes) {
            return Ok(());
        }
        Err(self.damaged())
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
        let mut first = true;
        while let Some(piece) = self.next().await? {
            if first && u64::try_from(piece.len()).is_ok_and(|length| length == self.payload.bytes) {
                // Mostly it is one piece; the end is still looked at.
                self.next().await?;
                return Ok(Some(piece));
            }
            first = false;
            whole.extend_from_slice(&piece);
        }
        Ok(Some(whole.into()))
    }
}
