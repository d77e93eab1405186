//! Writes an object whose hash is known only at its end.

use std::sync::Arc;

use onceward_core::record::PayloadRef;
use sha2::{Digest, Sha256};

use super::folder::{self, ObjectFolder};
use super::multipart::MultipartUpload;
use super::{ObjectError, run_blocking};

/// Writes an object in chunks. If dropped before it is finished, it leaves nothing behind.
#[derive(Debug)]
pub struct ObjectWriter {
    target: WriteTarget,
    sha: Sha256,
    bytes: u64,
}

/// `None` while a chunk is being written: a failed or canceled write cannot continue.
#[derive(Debug)]
enum WriteTarget {
    Folder(Arc<ObjectFolder>, Option<folder::DraftFile>),
    Bucket(Option<MultipartUpload>),
}

impl ObjectWriter {
    pub(super) fn into_folder(folder: Arc<ObjectFolder>, draft: folder::DraftFile) -> Self {
        Self { target: WriteTarget::Folder(folder, Some(draft)), sha: Sha256::new(), bytes: 0 }
    }

    pub(super) fn into_bucket(upload: MultipartUpload) -> Self {
        Self { target: WriteTarget::Bucket(Some(upload)), sha: Sha256::new(), bytes: 0 }
    }

    /// Writes a chunk.
    pub async fn write(&mut self, chunk: impl AsRef<[u8]> + Send + 'static) -> Result<(), ObjectError> {
        self.sha.update(chunk.as_ref());
        self.bytes = self.bytes.saturating_add(u64::try_from(chunk.as_ref().len()).unwrap_or(u64::MAX));
        match &mut self.target {
            WriteTarget::Folder(_, draft) => {
                let mut draft_file = draft.take().ok_or_else(earlier_write_failed)?;
                let written = run_blocking(move || {
                    draft_file.write(chunk.as_ref())?;
                    Ok(draft_file)
                });
                *draft = Some(written.await?);
            }
            WriteTarget::Bucket(upload) => {
                let mut multipart = upload.take().ok_or_else(earlier_write_failed)?;
                multipart.write(chunk).await?;
                *upload = Some(multipart);
            }
        }
        Ok(())
    }

    /// Returns the number of bytes written so far.
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Publishes the object under its hash. It is durable when this returns.
    pub async fn finish(mut self) -> Result<PayloadRef, ObjectError> {
        let payload = PayloadRef { sha256: std::mem::take(&mut self.sha).finalize().into(), bytes: self.bytes };
        match self.target {
            WriteTarget::Folder(folder, draft) => {
                let draft = draft.ok_or_else(earlier_write_failed)?;
                run_blocking(move || folder.publish(&draft, &payload.sha256)).await?;
            }
            WriteTarget::Bucket(upload) => upload.ok_or_else(earlier_write_failed)?.finish(&payload.sha256).await?,
        }
        Ok(payload)
    }
}

fn earlier_write_failed() -> ObjectError {
    std::io::Error::other("an earlier write failed or was canceled").into()
}
