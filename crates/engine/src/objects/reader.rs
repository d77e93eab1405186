//! Reads a payload in chunks. The last chunk is returned only after the hash was verified.

use std::fmt;
use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;

use futures_util::TryStreamExt as _;
use onceward_core::hex;
use onceward_core::record::PayloadRef;
use sha2::{Digest, Sha256};

use super::bucket::ChunkStream;
use super::errors::to_object_error;
use super::{ObjectError, run_blocking};

const CHUNK_BYTES: usize = 256 << 10;

/// Reads a payload in chunks, and verifies its hash.
#[derive(Debug)]
pub struct PayloadReader {
    payload: PayloadRef,
    source: PayloadSource,
    /// Read and hashed, but not returned yet.
    lookahead: Option<Arc<[u8]>>,
    sha: Sha256,
    read_bytes: u64,
    state: ReadState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadState {
    /// Not at the end; stays so if a read was canceled.
    Reading,
    /// All bytes were read and match.
    Verified,
    /// The bytes do not match.
    Damaged,
}

enum PayloadSource {
    /// The database verified these bytes.
    Memory(Option<Arc<[u8]>>),
    /// `None` while a chunk is being read.
    File(Option<File>),
    Bucket(Option<ChunkStream>),
}

impl fmt::Debug for PayloadSource {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Memory(_) => "Memory",
            Self::File(_) => "File",
            Self::Bucket(_) => "Bucket",
        })
    }
}

impl PayloadReader {
    pub(crate) fn from_bytes(bytes: Arc<[u8]>, payload: PayloadRef) -> Self {
        Self::new(PayloadSource::Memory(Some(bytes)), payload)
    }

    pub(super) fn from_file(file: File, payload: PayloadRef) -> Self {
        Self::new(PayloadSource::File(Some(file)), payload)
    }

    pub(super) fn from_chunks(pieces: ChunkStream, payload: PayloadRef) -> Self {
        Self::new(PayloadSource::Bucket(Some(pieces)), payload)
    }

    /// Returns how many bytes the reader holds at most.
    pub fn max_buffered_bytes(&self) -> usize {
        let payload_bytes = usize::try_from(self.payload.bytes).unwrap_or(usize::MAX);
        match self.source {
            PayloadSource::Memory(_) => payload_bytes,
            PayloadSource::File(_) | PayloadSource::Bucket(_) => payload_bytes.min(2 * CHUNK_BYTES),
        }
    }

    fn new(source: PayloadSource, payload: PayloadRef) -> Self {
        Self { payload, source, lookahead: None, sha: Sha256::new(), read_bytes: 0, state: ReadState::Reading }
    }

    /// Returns the expected hash and size.
    pub const fn payload(&self) -> PayloadRef {
        self.payload
    }

    /// Returns the next chunk; `None` at the end. If the bytes do not match, returns an error instead of the last
    /// chunk. So a client that counts bytes does not mistake damaged data for the whole.
    pub async fn next_chunk(&mut self) -> Result<Option<Arc<[u8]>>, ObjectError> {
        if let PayloadSource::Memory(bytes) = &mut self.source {
            return Ok(bytes.take().filter(|bytes| !bytes.is_empty()));
        }
        loop {
            match self.state {
                ReadState::Reading => {}
                ReadState::Verified => return Ok(self.lookahead.take()),
                ReadState::Damaged => return Err(self.damaged_error()),
            }
            let Some(piece) = self.read_chunk().await? else {
                let hash: [u8; 32] = std::mem::take(&mut self.sha).finalize().into();
                let is_match = (hash, self.read_bytes) == (self.payload.sha256, self.payload.bytes);
                self.state = if is_match { ReadState::Verified } else { ReadState::Damaged };
                continue;
            };
            self.sha.update(&piece);
            self.read_bytes = self.read_bytes.saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
            if self.read_bytes > self.payload.bytes {
                // More bytes than expected cannot match.
                self.state = ReadState::Damaged;
            } else if let Some(previous) = self.lookahead.replace(piece) {
                return Ok(Some(previous));
            }
        }
    }

    /// Reads the next chunk from the source; `None` at its end.
    async fn read_chunk(&mut self) -> Result<Option<Arc<[u8]>>, ObjectError> {
        match &mut self.source {
            PayloadSource::Memory(_) => Ok(None),
            PayloadSource::File(file) => {
                let mut taken = file.take().ok_or_else(abandoned_read_error)?;
                let read = run_blocking(move || {
                    let mut piece = Vec::with_capacity(CHUNK_BYTES);
                    let max_chunk_bytes = u64::try_from(CHUNK_BYTES).unwrap_or(u64::MAX);
                    (&mut taken).take(max_chunk_bytes).read_to_end(&mut piece)?;
                    Ok((taken, piece))
                });
                let (taken, piece) = read.await?;
                *file = Some(taken);
                Ok(Some(piece).filter(|piece| !piece.is_empty()).map(Arc::from))
            }
            PayloadSource::Bucket(pieces) => {
                let mut taken = pieces.take().ok_or_else(abandoned_read_error)?;
                let piece = loop {
                    match taken.try_next().await.map_err(to_object_error)? {
                        Some(piece) if piece.is_empty() => {}
                        piece => break piece,
                    }
                };
                *pieces = Some(taken);
                Ok(piece.map(|piece| Arc::from(&*piece)))
            }
        }
    }

    fn damaged_error(&self) -> ObjectError {
        ObjectError::Damaged(hex::encode(&self.payload.sha256))
    }

    /// Reads the whole payload, if it has at most `max_bytes`.
    pub async fn read_all(mut self, max_bytes: u64) -> Result<Option<Arc<[u8]>>, ObjectError> {
        if self.payload.bytes > max_bytes {
            return Ok(None);
        }
        let mut whole: Vec<u8> = Vec::new();
        while let Some(piece) = self.next_chunk().await? {
            if whole.is_empty() && u64::try_from(piece.len()).is_ok_and(|length| length == self.payload.bytes) {
                // Usually there is one chunk, and as the last one it is verified.
                return Ok(Some(piece));
            }
            whole.extend_from_slice(&piece);
        }
        Ok(Some(whole.into()))
    }
}

/// A failed or canceled read cannot continue: it took the source with it.
fn abandoned_read_error() -> ObjectError {
    std::io::Error::other("an earlier read failed or was canceled").into()
}
