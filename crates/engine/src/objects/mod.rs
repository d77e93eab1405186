//! Where large payloads live: beside the database, under their hashes; and what systems keep under names of their own.
//!
//! A payload of more than [`LARGE`] bytes is written here before the record that has it is made, and is durable by then. The
//! database keeps its hash and its size, and how many records have it. What no record has is an orphan: its record was refused, or
//! the process died before it was made, or the last one was pruned. [`collect`] takes orphans out when they are old enough that
//! nobody can be about to name them. What has a name is its system's, and stays until that removes it: [`OldNames`] shows it what
//! it may have forgotten.
//!
//! | file | duty |
//! | --- | --- |
//! | `opening.rs` | which place a URL names, and whether it can be reached |
//! | `folder.rs` | a folder: written apart, made durable, then given its name |
//! | `bucket.rs` | a bucket that speaks S3 |
//! | `upload.rs` | bytes on their way to a bucket, in parts |
//! | `line.rs` | HTTP to a bucket, with bounded patience |
//! | `trouble.rs` | what a bucket's failures mean |
//! | `writing.rs` | bytes whose hash nobody knows before their end |
//! | `arriving.rs` | a payload that comes piece by piece, few bytes or many |
//! | `reading.rs` | bytes in pieces, and whether they are those that were asked for |
//! | `name.rs` | names that systems give |
//! | `old_names.rs` | those of them that were given long ago |
//! | `collect.rs` | orphans |
//! | `verify.rs` | whether all that records have is there |

mod arriving;
mod bucket;
mod collect;
mod folder;
mod line;
mod name;
mod old_names;
mod opening;
mod reading;
mod trouble;
mod upload;
mod verify;
mod writing;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use onceward_core::decide::Call;
use onceward_core::hex;
use onceward_core::record::Payload;
use sha2::{Digest, Sha256};

use crate::error::EngineError;
use crate::queue::Submission;
use bucket::Bucket;
use folder::Folder;
use name::Name;
use upload::Upload;

pub use arriving::{Arrived, Arriving};
pub use collect::{Collected, collect};
pub use old_names::OldNames;
pub use reading::PayloadReader;
pub use verify::verify_objects;
pub use writing::ObjectWriter;

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
    /// More than a bucket can give its name to.
    #[error("an object in a bucket has at most {most} bytes")]
    TooLarge { most: u64 },
    #[error("`{0}` is no name for an object: write plain segments, such as `originals/1.png`")]
    BadName(String),
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
            Self::TooLarge { .. } => 413,
            Self::Damaged(_) | Self::BadName(_) => 500,
        }
    }

    /// Stable, for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Unavailable(error) if error.kind() == std::io::ErrorKind::StorageFull => "objects_full",
            Self::Unavailable(_) => "objects_unavailable",
            Self::Damaged(_) => "object_damaged",
            Self::TooLarge { .. } => "too_large",
            Self::BadName(_) => "bad_object_name",
            Self::Misconfigured(_) => "objects_misconfigured",
        }
    }
}

/// A place for large payloads, and for what systems keep. Clones are the same place.
#[derive(Clone, Debug)]
pub struct Objects {
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    Folder(Arc<Folder>),
    Bucket(Arc<Bucket>),
}

impl Objects {
    /// A folder, which is made when there is something to put there.
    pub fn folder(path: impl AsRef<Path>) -> Self {
        Self { place: Place::Folder(Arc::new(Folder::at(path.as_ref()))) }
    }

    /// Begin to write bytes whose hash nobody knows yet.
    pub async fn writer(&self) -> Result<ObjectWriter, ObjectError> {
        match &self.place {
            Place::Folder(folder) => {
                let making = Arc::clone(folder);
                let draft = blocking(move || making.draft()).await?;
                Ok(ObjectWriter::to_folder(Arc::clone(folder), draft))
            }
            Place::Bucket(bucket) => Ok(ObjectWriter::to_bucket(Upload::new(Arc::clone(bucket)))),
        }
    }

    /// Write bytes that are there as a whole. They are durable when this returns.
    pub async fn put(&self, bytes: Arc<[u8]>) -> Result<Payload, ObjectError> {
        if let Place::Bucket(bucket) = &self.place {
            // Their hash is known at once: they go where they belong, in one request.
            let sha256: [u8; 32] = Sha256::digest(&bytes).into();
            let payload = Payload { sha256, bytes: u64::try_from(bytes.len()).unwrap_or(u64::MAX) };
            bucket.keep(&sha256, Bytes::from_owner(bytes)).await?;
            return Ok(payload);
        }
        let mut writer = self.writer().await?;
        writer.write(bytes).await?;
        writer.finish().await
    }

    /// Read bytes in pieces; `None` where there are none with this hash.
    pub async fn get(&self, payload: &Payload) -> Result<Option<PayloadReader>, ObjectError> {
        match &self.place {
            Place::Folder(folder) => {
                let (folder, sha256) = (Arc::clone(folder), payload.sha256);
                let file = blocking(move || folder.read(&sha256)).await?;
                Ok(file.map(|file| PayloadReader::of_file(file, *payload)))
            }
            Place::Bucket(bucket) => {
                let pieces = bucket.read(&payload.sha256).await?;
                Ok(pieces.map(|pieces| PayloadReader::of_pieces(pieces, *payload)))
            }
        }
    }

    /// How many bytes there are with this hash, without looking at them.
    pub async fn size(&self, sha256: &[u8; 32]) -> Result<Option<u64>, ObjectError> {
        match &self.place {
            Place::Folder(folder) => {
                let (folder, sha256) = (Arc::clone(folder), *sha256);
                blocking(move || folder.size(&sha256)).await
            }
            Place::Bucket(bucket) => bucket.size(sha256).await,
        }
    }

    /// Keep bytes under a name of one's own: a relative path of plain segments, such as `originals/1.png`. They are durable when
    /// this returns. What the name had before is written over; whoever reads meanwhile has the one or the other, whole.
    pub async fn put_named(&self, name: &str, bytes: Arc<[u8]>) -> Result<(), ObjectError> {
        let name = Name::new(name)?;
        match &self.place {
            Place::Folder(folder) => {
                let folder = Arc::clone(folder);
                let written = blocking(move || {
                    let mut draft = folder.draft()?;
                    draft.write(&bytes)?;
                    folder.keep_named(&draft, &name)
                });
                written.await
            }
            Place::Bucket(bucket) => bucket.keep_named(&name, Bytes::from_owner(bytes)).await,
        }
    }

    /// Read what was kept under a name; `None` where nothing has it. Hash and size are those that it should have, and are looked
    /// at on the way.
    pub async fn get_named(&self, name: &str, payload: &Payload) -> Result<Option<PayloadReader>, ObjectError> {
        let name = Name::new(name)?;
        match &self.place {
            Place::Folder(folder) => {
                let folder = Arc::clone(folder);
                let file = blocking(move || folder.read_named(&name)).await?;
                Ok(file.map(|file| PayloadReader::of_file(file, *payload)))
            }
            Place::Bucket(bucket) => {
                let pieces = bucket.read_named(&name).await?;
                Ok(pieces.map(|pieces| PayloadReader::of_pieces(pieces, *payload)))
            }
        }
    }

    /// How many bytes are kept under a name, without looking at them.
    pub async fn size_named(&self, name: &str) -> Result<Option<u64>, ObjectError> {
        let name = Name::new(name)?;
        match &self.place {
            Place::Folder(folder) => {
                let folder = Arc::clone(folder);
                blocking(move || folder.size_named(&name)).await
            }
            Place::Bucket(bucket) => bucket.size_named(&name).await,
        }
    }

    /// Take out what was kept under a name. That nothing has it is fine.
    pub async fn remove_named(&self, name: &str) -> Result<(), ObjectError> {
        let name = Name::new(name)?;
        match &self.place {
            Place::Folder(folder) => {
                let folder = Arc::clone(folder);
                blocking(move || folder.remove_named(&name)).await
            }
            Place::Bucket(bucket) => bucket.remove_named(&name).await,
        }
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

/// A name of no meaning, which nobody else has.
fn chance() -> std::io::Result<String> {
    let mut chance = [0; 16];
    getrandom::fill(&mut chance).map_err(std::io::Error::other)?;
    Ok(hex::encode(&chance))
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
