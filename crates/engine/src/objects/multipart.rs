//! Bytes on their way to a bucket. Few are kept until their hash is known, and go under it in one request. More go in parts to a
//! draft, which the bucket then copies to the name of its hash by itself. At most one part is held in memory.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use object_store::multipart::{MultipartStore as _, PartId};
use object_store::path::Path;
use object_store::{MultipartId, ObjectStoreExt as _, PutPayload};

use super::ObjectError;
use super::bucket::{S3Bucket, UPLOAD_NOTE_SUFFIX};
use super::errors::to_object_error;

/// Bytes of a part: the fewest that S3 takes for any but the last. Some stores want all to be alike.
const PART_BYTES: usize = 5 << 20;

/// Bytes that a bucket copies in one request.
const MAX_COPY_BYTES: u64 = 5 << 30;

/// Dropped before it is finished, it is taken back.
#[derive(Debug)]
pub(super) struct MultipartUpload {
    bucket: Arc<S3Bucket>,
    /// What came and is not sent.
    buffer: BytesMut,
    sent_bytes: u64,
    started: Option<StartedMultipart>,
}

/// An upload in parts, of which the bucket knows.
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
                // There will be more: no growing step by step.
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

    /// What waits goes as a part.
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
        // From here on it is ours to take back.
        self.started = Some(StartedMultipart { draft_path: draft, note_path: note.clone(), id, parts: Vec::new() });
        self.bucket.store.put(&note, note_body).await.map_err(to_object_error)?;
        Ok(())
    }

    /// All of it is there: give it its name.
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
            // It has its name; what is left of the draft will be collected.
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
            // The note goes last, and only when there is nothing left that it tells of: else it is found by who collects.
            let aborted = bucket.store.abort_multipart(&draft, &id).await;
            let is_aborted = matches!(aborted, Ok(()) | Err(object_store::Error::NotFound { .. }));
            if is_aborted && bucket.store.delete(&draft).await.is_ok() {
                let _ = bucket.store.delete(&note).await;
            }
        });
    }
}
