//! Where large payloads live: beside the database, under their hashes; and what systems keep under names of their own.
//!
//! A payload of more than [`MAX_INLINE_PAYLOAD_BYTES`] bytes is written here before the record that has it is made, and is durable by then. The
//! database keeps its hash and its size, and how many records have it. What no record has is an orphan: its record was refused, or
//! the process died before it was made, or the last one was pruned. [`collect`] takes orphans out when they are old enough that
//! nobody can be about to name them. What has a name is its system's, and stays until that removes it: [`StaleNames`] shows it what
//! it may have forgotten.
//!
//! | file | duty |
//! | --- | --- |
//! | `open.rs` | which place a URL names, and whether it can be reached |
//! | `folder.rs` | a folder: written apart, made durable, then given its name |
//! | `bucket.rs` | a bucket that speaks S3 |
//! | `multipart.rs` | bytes on their way to a bucket, in parts |
//! | `http_client.rs` | HTTP to a bucket, with bounded patience |
//! | `trouble.rs` | what a bucket's failures mean |
//! | `writer.rs` | bytes whose hash nobody knows before their end |
//! | `payload_upload.rs` | a payload that comes piece by piece, few bytes or many |
//! | `reading.rs` | bytes in pieces, and whether they are those that were asked for |
//! | `name.rs` | names that systems give |
//! | `stale_names.rs` | those of them that were given long ago |
//! | `gc.rs` | orphans |
//! | `verify.rs` | whether all that records have is there |

mod bucket;
mod errors;
mod folder;
mod gc;
mod http_client;
mod multipart;
mod name;
mod open;
mod payload_upload;
mod reader;
mod stale_names;
mod verify;
mod writer;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use onceward_core::decide::Call;
use onceward_core::hex;
use onceward_core::record::PayloadRef;
use sha2::{Digest, Sha256};

use crate::error::EngineError;
use crate::queue::Submission;
use bucket::S3Bucket;
use folder::ObjectFolder;
use multipart::MultipartUpload;
use name::ObjectName;

pub use gc::{GcReport, collect_orphans};
pub use payload_upload::{PayloadUpload, UploadedPayload};
pub use reader::PayloadReader;
pub use stale_names::StaleNames;
pub use verify::verify_objects;
pub use writer::ObjectWriter;

/// A payload with more bytes goes here.
pub const MAX_INLINE_PAYLOAD_BYTES: usize = 64 << 10;

/// Why bytes could not be kept or had.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    #[error("the object store: {0}")]
    Unavailable(#[from] std::io::Error),
    /// There is something else under the hash than there should be.
    #[error("the object {0} is damaged: its bytes are not those of its hash")]
    Damaged(String),
    /// More than a bucket can give its name to.
    #[error("an object in a bucket has at most {max_bytes} bytes")]
    ObjectTooLarge { max_bytes: u64 },
    #[error("`{0}` is no name for an object: write plain segments, such as `originals/1.png`")]
    InvalidObjectName(String),
    /// No place for objects is named so, or the one that is does not let us in. Told when it is opened.
    #[error("{0}")]
    Misconfigured(String),
}

impl ObjectError {
    /// As HTTP numbers it.
    pub fn status(&self) -> u16 {
        match self {
            Self::Unavailable(error) if error.kind() == std::io::ErrorKind::StorageFull => 507,
            Self::Unavailable(_) | Self::Misconfigured(_) => 503,
            Self::ObjectTooLarge { .. } => 413,
            Self::Damaged(_) | Self::InvalidObjectName(_) => 500,
        }
    }

    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unavailable(error) if error.kind() == std::io::ErrorKind::StorageFull => "objects_full",
            Self::Unavailable(_) => "objects_unavailable",
            Self::Damaged(_) => "object_damaged",
            Self::ObjectTooLarge { .. } => "too_large",
            Self::InvalidObjectName(_) => "bad_object_name",
            Self::Misconfigured(_) => "objects_misconfigured",
        }
    }
}

/// A place for large payloads, and for what systems keep. Clones are the same place.
#[derive(Clone, Debug)]
pub struct ObjectStorage {
    backend: ObjectBackend,
}

#[derive(Clone, Debug)]
enum ObjectBackend {
    Folder(Arc<ObjectFolder>),
    Bucket(Arc<S3Bucket>),
}

impl ObjectStorage {
    /// A folder, which is made when there is something to put there.
    pub fn folder(path: impl AsRef<Path>) -> Self {
        Self { backend: ObjectBackend::Folder(Arc::new(ObjectFolder::new(path.as_ref()))) }
    }

    /// Begin to write bytes whose hash nobody knows yet.
    pub async fn writer(&self) -> Result<ObjectWriter, ObjectError> {
        match &self.backend {
            ObjectBackend::Folder(folder) => {
                let folder_clone = Arc::clone(folder);
                let draft = run_blocking(move || folder_clone.create_draft()).await?;
                Ok(ObjectWriter::into_folder(Arc::clone(folder), draft))
            }
            ObjectBackend::Bucket(bucket) => Ok(ObjectWriter::into_bucket(MultipartUpload::new(Arc::clone(bucket)))),
        }
    }

    /// Write bytes that are there as a whole. They are durable when this returns.
    pub async fn put(&self, bytes: Arc<[u8]>) -> Result<PayloadRef, ObjectError> {
        if let ObjectBackend::Bucket(bucket) = &self.backend {
            // Their hash is known at once: they go where they belong, in one request.
            let sha256: [u8; 32] = Sha256::digest(&bytes).into();
            let payload = PayloadRef { sha256, bytes: u64::try_from(bytes.len()).unwrap_or(u64::MAX) };
            bucket.put_object(&sha256, Bytes::from_owner(bytes)).await?;
            return Ok(payload);
        }
        let mut writer = self.writer().await?;
        writer.write(bytes).await?;
        writer.finish().await
    }

    /// Read bytes in pieces; `None` where there are none with this hash.
    pub async fn get(&self, payload: &PayloadRef) -> Result<Option<PayloadReader>, ObjectError> {
        match &self.backend {
            ObjectBackend::Folder(folder) => {
                let (folder, sha256) = (Arc::clone(folder), payload.sha256);
                let file = run_blocking(move || folder.open_object(&sha256)).await?;
                Ok(file.map(|file| PayloadReader::from_file(file, *payload)))
            }
            ObjectBackend::Bucket(bucket) => {
                let pieces = bucket.open_object(&payload.sha256).await?;
                Ok(pieces.map(|pieces| PayloadReader::from_chunks(pieces, *payload)))
            }
        }
    }

    /// How many bytes there are with this hash, without looking at them.
    pub async fn object_size(&self, sha256: &[u8; 32]) -> Result<Option<u64>, ObjectError> {
        match &self.backend {
            ObjectBackend::Folder(folder) => {
                let (folder, sha256) = (Arc::clone(folder), *sha256);
                run_blocking(move || folder.object_size(&sha256)).await
            }
            ObjectBackend::Bucket(bucket) => bucket.object_size(sha256).await,
        }
    }

    /// Keep bytes under a name of one's own: a relative path of plain segments, such as `originals/1.png`. They are durable when
    /// this returns. What the name had before is written over; whoever reads meanwhile has the one or the other, whole.
    pub async fn put_named(&self, name: &str, bytes: Arc<[u8]>) -> Result<(), ObjectError> {
        let name = ObjectName::new(name)?;
        match &self.backend {
            ObjectBackend::Folder(folder) => {
                let folder = Arc::clone(folder);
                let written = run_blocking(move || {
                    let mut draft = folder.create_draft()?;
                    draft.write(&bytes)?;
                    folder.publish_named(&draft, &name)
                });
                written.await
            }
            ObjectBackend::Bucket(bucket) => bucket.put_named(&name, Bytes::from_owner(bytes)).await,
        }
    }

    /// Read what was kept under a name; `None` where nothing has it. Hash and size are those that it should have, and are looked
    /// at on the way.
    pub async fn get_named(&self, name: &str, payload: &PayloadRef) -> Result<Option<PayloadReader>, ObjectError> {
        let name = ObjectName::new(name)?;
        match &self.backend {
            ObjectBackend::Folder(folder) => {
                let folder = Arc::clone(folder);
                let file = run_blocking(move || folder.open_named(&name)).await?;
                Ok(file.map(|file| PayloadReader::from_file(file, *payload)))
            }
            ObjectBackend::Bucket(bucket) => {
                let pieces = bucket.open_named(&name).await?;
                Ok(pieces.map(|pieces| PayloadReader::from_chunks(pieces, *payload)))
            }
        }
    }

    /// How many bytes are kept under a name, without looking at them.
    pub async fn named_size(&self, name: &str) -> Result<Option<u64>, ObjectError> {
        let name = ObjectName::new(name)?;
        match &self.backend {
            ObjectBackend::Folder(folder) => {
                let folder = Arc::clone(folder);
                run_blocking(move || folder.named_size(&name)).await
            }
            ObjectBackend::Bucket(bucket) => bucket.named_size(&name).await,
        }
    }

    /// Take out what was kept under a name. That nothing has it is fine.
    pub async fn remove_named(&self, name: &str) -> Result<(), ObjectError> {
        let name = ObjectName::new(name)?;
        match &self.backend {
            ObjectBackend::Folder(folder) => {
                let folder = Arc::clone(folder);
                run_blocking(move || folder.remove_named(&name)).await
            }
            ObjectBackend::Bucket(bucket) => bucket.remove_named(&name).await,
        }
    }
}

/// The hash whose first byte and whose other ones, as text, these are.
fn parse_hash(first: u8, rest: &str) -> Option<[u8; 32]> {
    let mut hash = [first; 32];
    if rest.len() != 62 || !rest.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
        return None;
    }
    for (index, byte) in hash.iter_mut().enumerate().skip(1) {
        *byte = u8::from_str_radix(rest.get(2 * index - 2..2 * index)?, 16).ok()?;
    }
    Some(hash)
}

/// A name of no meaning, which nobody else has.
fn random_name() -> std::io::Result<String> {
    let mut random_bytes = [0; 16];
    getrandom::fill(&mut random_bytes).map_err(std::io::Error::other)?;
    Ok(hex::encode(&random_bytes))
}

/// Files are read and written where waiting harms nobody.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, std::io::Error> + Send + 'static,
) -> Result<T, ObjectError> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(std::io::Error::other)??)
}

/// Put the large payloads of calls where they belong, before anybody decides on them.
pub(crate) async fn offload_payloads(
    storage: &ObjectStorage,
    submissions: &mut [Submission],
) -> Result<(), EngineError> {
    for submission in submissions {
        let Call::Create(create) = &submission.call else { continue };
        let large = submission.payloads.extract_if(.., |content| content.bytes.len() > MAX_INLINE_PAYLOAD_BYTES);
        for content in large {
            // As for those that stay: bytes come only with a call that names them, and under their own hash.
            if create.payload != Some(content.payload) || storage.put(content.bytes).await? != content.payload {
                return Err(EngineError::PayloadMismatch);
            }
        }
    }
    Ok(())
}
