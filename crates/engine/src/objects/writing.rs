//! Bytes on their way in, whose hash nobody knows before their end.

use std::sync::Arc;

use onceward_core::record::Payload;
use sha2::{Digest, Sha256};

use super::folder::{self, Folder};
use super::upload::Upload;
use super::{ObjectError, blocking};

/// Bytes on their way in. Dropped before they are finished, they leave nothing behind.
#[derive(Debug)]
pub struct ObjectWriter {
    to: To,
    sha: Sha256,
    bytes: u64,
}

/// Taken out while a piece is on its way: a write that failed, or was left in the middle, is not gone on with.
#[derive(Debug)]
enum To {
    Folder(Arc<Folder>, Option<folder::Draft>),
    Bucket(Option<Upload>),
}

impl ObjectWriter {
    pub(super) fn to_folder(folder: Arc<Folder>, draft: folder::Draft) -> Self {
        Self { to: To::Folder(folder, Some(draft)), sha: Sha256::new(), bytes: 0 }
    }

    pub(super) fn to_bucket(upload: Upload) -> Self {
        Self { to: To::Bucket(Some(upload)), sha: Sha256::new(), bytes: 0 }
    }

    /// A piece more.
    pub async fn write(&mut self, piece: impl AsRef<[u8]> + Send + 'static) -> Result<(), ObjectError> {
        self.sha.update(piece.as_ref());
        self.bytes = self.bytes.saturating_add(u64::try_from(piece.as_ref().len()).unwrap_or(u64::MAX));
        match &mut self.to {
            To::Folder(_, draft) => {
                let mut taken = draft.take().ok_or_else(broken_off)?;
                let written = blocking(move || {
                    taken.write(piece.as_ref())?;
                    Ok(taken)
                });
                *draft = Some(written.await?);
            }
            To::Bucket(upload) => {
                let mut taken = upload.take().ok_or_else(broken_off)?;
                taken.write(piece).await?;
                *upload = Some(taken);
            }
        }
        Ok(())
    }

    /// How many bytes came so far.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// All of it is there. It is durable, and has its name, when this returns.
    pub async fn finish(mut self) -> Result<Payload, ObjectError> {
        let payload = Payload { sha256: std::mem::take(&mut self.sha).finalize().into(), bytes: self.bytes };
        match self.to {
            To::Folder(folder, draft) => {
                let draft = draft.ok_or_else(broken_off)?;
                blocking(move || folder.keep(&draft, &payload.sha256)).await?;
            }
            To::Bucket(upload) => upload.ok_or_else(broken_off)?.finish(&payload.sha256).await?,
        }
        Ok(payload)
    }
}

fn broken_off() -> ObjectError {
    std::io::Error::other("an earlier piece was not written").into()
}
