//! Uploads an object of unknown hash to S3. A small one is buffered and written under its hash in one request. A larger
//! one goes in parts to a draft, which S3 copies to the hash. At most one part is in memory.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use object_store::multipart::{MultipartStore as _, PartId};
use object_store::path::Path;
use object_store::{MultipartId, ObjectStoreExt as _, PutPayload};

use super::ObjectError;
use super::bucket::{S3Bucket, UPLOAD_NOTE_SUFFIX};
use super::errors::to_object_error;

/// S3's minimum for all parts but the last. Some stores require equal parts.
const PART_BYTES: usize = 5 << 20;

/// S3's limit for a copy in one request.
const MAX_COPY_BYTES: u64 = 5 << 30;

/// An upload, aborted if dropped before it is finished.
#[derive(Debug)]
pub(super) struct MultipartUpload {
    bucket: Arc<S3Bucket>,
    /// Bytes that are not sent yet.
    buffer: BytesMut,
    sent_bytes: u64,
    started: Option<StartedMultipart>,
}

/// A multipart upload that exists in the bucket.
#[derive(Debug)]
struct StartedMultipart {
    draft_path: Path,
    note_path: Path,
    id: MultipartId,
    parts: Vec<PartId>,
}

impl MultipartUpload {
    pub(super) fn new(bucket: Arc<S3Bucket>) -> Self {
        Self { bucket, buffer: BytesMut::new(), sent_bytes: 0, started: None }
    }

    pub(super) async fn write(&mut self, piece: impl AsRef<[u8]>) -> Result<(), ObjectError> {
        let mut rest = piece.as_ref();
        while !rest.is_empty() {
            if self.started.is_some() {
                // More will follow: allocate a whole part at once.
                self.buffer.reserve(PART_BYTES - self.buffer.len());
            }
            let (fitting, remaining) = rest.split_at(rest.len().min(PART_BYTES - self.buffer.len()));
            self.buffer.extend_from_slice(fitting);
            rest = remaining;
            if self.buffer.len() == PART_BYTES {
                self.send_part().await?;
            }
        }
        Ok(())
    }

    /// Sends the buffer as a part.
    async fn send_part(&mut self) -> Result<(), ObjectError> {
        let part: Bytes = std::mem::take(&mut self.buffer).freeze();
        self.sent_bytes = self.sent_bytes.saturating_add(u64::try_from(part.len()).unwrap_or(u64::MAX));
        if self.sent_bytes > MAX_COPY_BYTES {
            return Err(ObjectError::ObjectTooLarge { max_bytes: MAX_COPY_BYTES });
        }
        if self.started.is_none() {
            self.start_multipart().await?;
        }
        if let Some(StartedMultipart { draft_path: draft, id, parts, .. }) = &mut self.started {
            let part_id = self.bucket.store.put_part(draft, id, parts.len(), PutPayload::from_bytes(part)).await;
            parts.push(part_id.map_err(to_object_error)?);
        }
        Ok(())
    }

    async fn start_multipart(&mut self) -> Result<(), ObjectError> {
        let name = super::random_name()?;
        let (draft, note) =
            (self.bucket.draft_path(&name), self.bucket.draft_path(&format!("{name}{UPLOAD_NOTE_SUFFIX}")));
        let id = self.bucket.store.create_multipart(&draft).await.map_err(to_object_error)?;
        let note_body = PutPayload::from_bytes(Bytes::copy_from_slice(id.as_bytes()));
        // From here on, dropping `self` aborts the upload.
        self.started = Some(StartedMultipart { draft_path: draft, note_path: note.clone(), id, parts: Vec::new() });
        self.bucket.store.put(&note, note_body).await.map_err(to_object_error)?;
        Ok(())
    }

    /// Completes the upload and publishes it under its hash.
    pub(super) async fn finish(mut self, sha256: &[u8; 32]) -> Result<(), ObjectError> {
        if self.started.is_none() {
            let bytes = std::mem::take(&mut self.buffer).freeze();
            return self.bucket.put_object(sha256, bytes).await;
        }
        if !self.buffer.is_empty() {
            self.send_part().await?;
        }
        if let Some(StartedMultipart { draft_path: draft, id, parts, .. }) = &mut self.started {
            let parts = std::mem::take(parts);
            self.bucket.store.complete_multipart(draft, id, parts).await.map_err(to_object_error)?;
            self.bucket.publish_draft(draft, sha256).await?;
        }
        if let Some(StartedMultipart { draft_path: draft, note_path: note, .. }) = self.started.take() {
            let store = &self.bucket.store;
            // The object is published; garbage collection deletes the rest of the draft.
            let _ = tokio::join!(store.delete(&draft), store.delete(&note));
        }
        Ok(())
    }
}

impl Drop for MultipartUpload {
    fn drop(&mut self) {
        let (Some(StartedMultipart { draft_path: draft, note_path: note, id, .. }), Ok(runtime)) =
            (self.started.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let bucket = Arc::clone(&self.bucket);
        runtime.spawn(async move {
            // The note is deleted last, and only after the abort succeeded: otherwise garbage collection needs it.
            let aborted = bucket.store.abort_multipart(&draft, &id).await;
            let is_aborted = matches!(aborted, Ok(()) | Err(object_store::Error::NotFound { .. }));
            if is_aborted && bucket.store.delete(&draft).await.is_ok() {
                let _ = bucket.store.delete(&note).await;
            }
        });
    }
}
