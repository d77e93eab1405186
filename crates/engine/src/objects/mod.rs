//! Where large payloads live: beside the database, under their hashes.
//!
//! A payload of more than [`LARGE`] bytes is written here before the record that has it is made, and is durable by then. The
//! database keeps its hash and its size, and how many records have it. What no record has is an orphan: its record was refused, or
//! the process died before it was made, or the last one was pruned. [`collect`] takes orphans out when they are old enough that
//! nobody can be about to name them.
//!
//! | file | duty |
//! | --- | --- |
//! | `folder.rs` | a folder: written apart, made durable, then given its name |
//! | `arriving.rs` | a payload that comes piece by piece, few bytes or many |
//! | `reading.rs` | bytes in pieces, and whether they are those that were asked for |
//! | `collect.rs` | orphans |
//! | `verify.rs` | whether all that records have is there |

mod arriving;
mod collect;
mod folder;
mod reading;
mod verify;

use std::path::Path;
use std::sync::Arc;

use onceward_core::decide::Call;
use onceward_core::record::Payload;
use sha2::{Digest, Sha256};

use crate::error::EngineError;
use crate::queue::Submission;
use folder::Folder;

pub use arriving::{Arrived, Arriving};
pub use collect::{Collected, collect};
pub use reading::PayloadReader;
pub use verify::verify_objects;

/// A payload with more bytes goes here.
pub const LARGE: usize = 64 << 10;

/// Why bytes could not be kept or had.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    #[error("the object store: {0}")]
    Unavailable(#[from] std::io::Error),
    /// There is something else under the hash than there should be.
    #[error("the object {0} is damaged: its bytes are not those of its hash")]
    Damaged(String),
}

impl ObjectError {
    /// As HTTP numbers it.
    pub fn status(&self) -> u16 {
        match self {
            Self::Unavailable(error) if error.kind() == std::io::ErrorKind::StorageFull => 507,
            Self::Unavailable(_) => 503,
            Self::Damaged(_) => 500,
        }
    }

    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unavailable(error) if error.kind() == std::io::ErrorKind::StorageFull => "objects_full",
            Self::Unavailable(_) => "objects_unavailable",
            Self::Damaged(_) => "object_damaged",
        }
    }
}

/// A place for large payloads. Clones are the same place.
#[derive(Clone, Debug)]
pub struct Objects {
    folder: Arc<Folder>,
}

impl Objects {
    /// A folder, which is made when there is something to put there.
    pub fn folder(path: impl AsRef<Path>) -> Self {
        Self { folder: Arc::new(Folder::at(path.as_ref())) }
    }

    /// Begin to write bytes whose hash nobody knows yet.
    pub async fn writer(&self) -> Result<ObjectWriter, ObjectError> {
        let folder = Arc::clone(&self.folder);
        let draft = blocking(move || folder.draft()).await?;
        Ok(ObjectWriter { folder: Arc::clone(&self.folder), draft: Some(draft), sha: Sha256::new(), bytes: 0 })
    }

    /// Write bytes that are there as a whole. They are durable when this returns.
    pub async fn put(&self, bytes: Arc<[u8]>) -> Result<Payload, ObjectError> {
        let mut writer = self.writer().await?;
        writer.write(bytes).await?;
        writer.finish().await
    }

    /// Read bytes in pieces; `None` where there are none with this hash.
    pub async fn get(&self, payload: &Payload) -> Result<Option<PayloadReader>, ObjectError> {
        let (folder, sha256) = (Arc::clone(&self.folder), payload.sha256);
        let file = blocking(move || folder.read(&sha256)).await?;
        Ok(file.map(|file| PayloadReader::of_file(file, *payload)))
    }

    /// How many bytes there are with this hash, without looking at them.
    pub async fn size(&self, sha256: &[u8; 32]) -> Result<Option<u64>, ObjectError> {
        let (folder, sha256) = (Arc::clone(&self.folder), *sha256);
        blocking(move || folder.size(&sha256)).await
    }
}

/// Bytes on their way in. Dropped before they are finished, they leave nothing behind.
#[derive(Debug)]
pub struct ObjectWriter {
    folder: Arc<Folder>,
    draft: Option<folder::Draft>,
    sha: Sha256,
    bytes: u64,
}

impl ObjectWriter {
    /// A piece more.
    pub async fn write(&mut self, piece: impl AsRef<[u8]> + Send + 'static) -> Result<(), ObjectError> {
        self.sha.update(piece.as_ref());
        self.bytes = self.bytes.saturating_add(u64::try_from(piece.as_ref().len()).unwrap_or(u64::MAX));
        // Taken meanwhile: a write that failed, or was left in the middle, is not gone on with.
        let mut draft = self.draft.take().ok_or_else(broken_off)?;
        self.draft = Some(
            blocking(move || {
                draft.write(piece.as_ref())?;
                Ok(draft)
            })
            .await?,
        );
        Ok(())
    }

    /// How many bytes came so far.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All of it is there. It is durable, and has its name, when this returns.
    pub async fn finish(mut self) -> Result<Payload, ObjectError> {
        let payload = Payload { sha256: std::mem::take(&mut self.sha).finalize().into(), bytes: self.bytes };
        let (folder, draft) = (Arc::clone(&self.folder), self.draft.take().ok_or_else(broken_off)?);
        blocking(move || folder.keep(&draft, &payload.sha256)).await?;
        Ok(payload)
    }
}

/// The hash whose first byte and whose other ones, as text, these are.
fn hash(first: u8, rest: &str) -> Option<[u8; 32]> {
    let mut hash = [first; 32];
    if rest.len() != 62 || !rest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (at, byte) in hash.iter_mut().enumerate().skip(1) {
        *byte = u8::from_str_radix(rest.get(2 * at - 2..2 * at)?, 16).ok()?;
    }
    Some(hash)
}

fn broken_off() -> ObjectError {
    std::io::Error::other("an earlier piece was not written").into()
}

/// Files are read and written where waiting harms nobody.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, std::io::Error> + Send + 'static,
) -> Result<T, ObjectError> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(std::io::Error::other)??)
}

/// Put the large payloads of calls where they belong, before anybody decides on them.
pub(crate) async fn stow(objects: &Objects, submissions: &mut [Submission]) -> Result<(), EngineError> {
    for submission in submissions {
        let Call::Create(create) = &submission.call else { continue };
        let large = submission.contents.extract_if(.., |content| content.bytes.len() > LARGE);
        for content in large {
            // As for those that stay: bytes come only with a call that names them, and under their own hash.
            if create.payload != Some(content.payload) || objects.put(content.bytes).await? != content.payload {
                return Err(EngineError::BadContent);
            }
        }
    }
    Ok(())
}
