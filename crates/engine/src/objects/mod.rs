//! Object storage: large payloads beside the database, under their hashes, and named objects of systems.
//!
//! A payload larger than [`MAX_INLINE_PAYLOAD_BYTES`] is written and durable before its record is created. The database
//! stores its hash, its size and its number of references. If an object is older than `orphan_ttl` and no record
//! references it, garbage collection ([`collect_orphans`]) deletes it: its record was refused, never created, or
//! pruned. A named object belongs to the system that wrote it, and stays until that system removes it; [`StaleNames`]
//! lists old ones.

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
use crate::submission::queue::Submission;
use bucket::S3Bucket;
use folder::ObjectFolder;
use multipart::MultipartUpload;
use name::ObjectName;

pub use gc::{GcReport, collect_orphans};
pub use payload_upload::{PayloadUpload, UploadedPayload};
pub use reader::PayloadReader;
pub use stale_names::StaleNames;
pub use verify::{sample_missing_objects, verify_objects};
pub use writer::ObjectWriter;

/// Larger payloads go to object storage, if one is configured.
pub const MAX_INLINE_PAYLOAD_BYTES: usize = 64 << 10;

/// Why bytes could not be stored or read.
#[derive(Debug, thiserror::Error)]
pub enum ObjectError {
    #[error("object storage: {0}")]
    Unavailable(#[from] std::io::Error),
    /// The bytes do not match the hash.
    #[error("object {0} is damaged: its bytes do not match its hash")]
    Damaged(String),
    /// S3 copies at most this many bytes in one request.
    #[error("an object in a bucket may have at most {max_bytes} bytes")]
    ObjectTooLarge { max_bytes: u64 },
    #[error("`{0}` is not an object name; use plain segments, such as `originals/1.png`")]
    InvalidObjectName(String),
    /// The URL or the credentials are wrong. Returned when the storage is opened.
    #[error("{0}")]
    Misconfigured(String),
}

impl ObjectError {
    /// Returns the HTTP status.
    pub fn status(&self) -> u16 {
        match self {
            Self::Unavailable(error) if error.kind() == std::io::ErrorKind::StorageFull => 507,
            Self::Unavailable(_) | Self::Misconfigured(_) => 503,
            Self::ObjectTooLarge { .. } => 413,
            Self::Damaged(_) | Self::InvalidObjectName(_) => 500,
        }
    }

    /// Returns the stable code for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unavailable(error) if error.kind() == std::io::ErrorKind::StorageFull => "object_storage_full",
            Self::Unavailable(_) => "object_storage_unavailable",
            Self::Damaged(_) => "object_damaged",
            Self::ObjectTooLarge { .. } => "request_too_large",
            Self::InvalidObjectName(_) => "invalid_object_name",
            Self::Misconfigured(_) => "object_storage_misconfigured",
        }
    }
}

/// Storage for large payloads and named objects. Clones share one storage.
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
    /// Uses a folder, which is created with the first object.
    pub fn folder(path: impl AsRef<Path>) -> Self {
        Self { backend: ObjectBackend::Folder(Arc::new(ObjectFolder::new(path.as_ref()))) }
    }

    /// Begins to write an object whose hash is not known yet.
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

    /// Writes an object that is in memory. It is durable when this returns.
    pub async fn put(&self, bytes: Arc<[u8]>) -> Result<PayloadRef, ObjectError> {
        if let ObjectBackend::Bucket(bucket) = &self.backend {
            // The hash is known, so one request writes the object under its final name.
            let sha256: [u8; 32] = Sha256::digest(&bytes).into();
            let payload = PayloadRef { sha256, bytes: u64::try_from(bytes.len()).unwrap_or(u64::MAX) };
            bucket.put_object(&sha256, Bytes::from_owner(bytes)).await?;
            return Ok(payload);
        }
        let mut writer = self.writer().await?;
        writer.write(bytes).await?;
        writer.finish().await
    }

    /// Opens an object; `None` if there is none with this hash.
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

    /// Returns the size of an object without reading it.
    pub async fn object_size(&self, sha256: &[u8; 32]) -> Result<Option<u64>, ObjectError> {
        match &self.backend {
            ObjectBackend::Folder(folder) => {
                let (folder, sha256) = (Arc::clone(folder), *sha256);
                run_blocking(move || folder.object_size(&sha256)).await
            }
            ObjectBackend::Bucket(bucket) => bucket.object_size(sha256).await,
        }
    }

    /// Writes a named object. The name is a relative path of plain segments, such as `originals/1.png`. It is durable
    /// when this returns, and replaces an existing object atomically.
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

    /// Opens a named object; `None` if there is none. The reader checks size and hash against `payload`.
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

    /// Returns the size of a named object without reading it.
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

    /// Deletes a named object, if it exists.
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

/// Parses a hash from its first byte and the hex text of the others.
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

/// Returns a unique random name.
fn random_name() -> std::io::Result<String> {
    let mut random_bytes = [0; 16];
    getrandom::fill(&mut random_bytes).map_err(std::io::Error::other)?;
    Ok(hex::encode(&random_bytes))
}

/// Runs file I/O on a blocking thread.
async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, std::io::Error> + Send + 'static,
) -> Result<T, ObjectError> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(done.map_err(std::io::Error::other)??)
}

/// Writes the large payloads of calls to object storage before the calls are queued.
pub(crate) async fn offload_payloads(
    storage: &ObjectStorage,
    submissions: &mut [Submission],
) -> Result<(), EngineError> {
    for submission in submissions {
        let Call::Create(create) = &submission.call else { continue };
        let large = submission.payloads.extract_if(.., |content| content.bytes.len() > MAX_INLINE_PAYLOAD_BYTES);
        for content in large {
            // The call must name the payload, and its hash must match.
            if create.payload != Some(content.payload) || storage.put(content.bytes).await? != content.payload {
                return Err(EngineError::PayloadMismatch);
            }
        }
    }
    Ok(())
}
