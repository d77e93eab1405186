//! Bytes on their way to a bucket. Few are kept until their hash is known, and go under it in one request. More go in parts to a
//! draft, which the bucket then copies to the name of its hash by itself. At most one part is held in memory.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use object_store::multipart::{MultipartStore as _, PartId};
use object_store::path::Path;
use object_store::{MultipartId, ObjectStoreExt as _, PutPayload};

use super::ObjectError;
use super::bucket::{Bucket, NOTE};
use super::trouble::trouble;

/// Bytes of a part: the fewest that S3 takes for any but the last. Some stores want all to be alike.
const PART: usize = 5 << 20;

/// Bytes that a bucket copies in one request.
const MOST: u64 = 5 << 30;

/// Dropped before it is finished, it is taken back.
#[derive(Debug)]
pub(super) struct Upload {
    bucket: Arc<Bucket>,
    /// What came and is not sent.
    waiting: BytesMut,
    sent: u64,
    begun: Option<Begun>,
}

/// An upload in parts, of which the bucket knows.
#[derive(Debug)]
struct Begun {
    draft: Path,
    note: Path,
    id: MultipartId,
    parts: Vec<PartId>,
}

impl Upload {
    pub(super) fn new(bucket: Arc<Bucket>) -> Self {
        Self { bucket, waiting: BytesMut::new(), sent: 0, begun: None }
    }

    pub(super) async fn write(&mut self, piece: impl AsRef<[u8]>) -> Result<(), ObjectError> {
        let mut rest = piece.as_ref();
        while !rest.is_empty() {
            if self.begun.is_some() {
                // There will be more: no growing step by step.
                self.waiting.reserve(PART - self.waiting.len());
            }
            let (now, later) = rest.split_at(rest.len().min(PART - self.waiting.len()));
            self.waiting.extend_from_slice(now);
            rest = later;
            if self.waiting.len() == PART {
                self.send().await?;
            }
        }
        Ok(())
    }

    /// What waits goes as a part.
    async fn send(&mut self) -> Result<(), ObjectError> {
        let part: Bytes = std::mem::take(&mut self.waiting).freeze();
        self.sent = self.sent.saturating_add(u64::try_from(part.len()).unwrap_or(u64::MAX));
        if self.sent > MOST {
            return Err(ObjectError::TooLarge { most: MOST });
        }
        if self.begun.is_none() {
            self.begin().await?;
        }
        if let Some(Begun { draft, id, parts, .. }) = &mut self.begun {
            let sent = self.bucket.store.put_part(draft, id, parts.len(), PutPayload::from_bytes(part)).await;
            parts.push(sent.map_err(trouble)?);
        }
        Ok(())
    }

    async fn begin(&mut self) -> Result<(), ObjectError> {
        let name = super::chance()?;
        let (draft, note) = (self.bucket.draft(&name), self.bucket.draft(&format!("{name}{NOTE}")));
        let id = self.bucket.store.create_multipart(&draft).await.map_err(trouble)?;
        let noted = PutPayload::from_bytes(Bytes::copy_from_slice(id.as_bytes()));
        // From here on it is ours to take back.
        self.begun = Some(Begun { draft, note: note.clone(), id, parts: Vec::new() });
        self.bucket.store.put(&note, noted).await.map_err(trouble)?;
        Ok(())
    }

    /// All of it is there: give it its name.
    pub(super) async fn finish(mut self, sha256: &[u8; 32]) -> Result<(), ObjectError> {
        if self.begun.is_none() {
            let bytes = std::mem::take(&mut self.waiting).freeze();
            return self.bucket.keep(sha256, bytes).await;
        }
        if !self.waiting.is_empty() {
            self.send().await?;
        }
        if let Some(Begun { draft, id, parts, .. }) = &mut self.begun {
            let parts = std::mem::take(parts);
            self.bucket.store.complete_multipart(draft, id, parts).await.map_err(trouble)?;
            self.bucket.keep_draft(draft, sha256).await?;
        }
        if let Some(Begun { draft, note, .. }) = self.begun.take() {
            let store = &self.bucket.store;
            // It has its name; what is left of the draft will be collected.
            let _ = tokio::join!(store.delete(&draft), store.delete(&note));
        }
        Ok(())
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        let (Some(Begun { draft, note, id, .. }), Ok(runtime)) =
            (self.begun.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let bucket = Arc::clone(&self.bucket);
        runtime.spawn(async move {
            // The note goes last, and only when there is nothing left that it tells of: else it is found by who collects.
            let ended = bucket.store.abort_multipart(&draft, &id).await;
            let is_over = matches!(ended, Ok(()) | Err(object_store::Error::NotFound { .. }));
            if is_over && bucket.store.delete(&draft).await.is_ok() {
                let _ = bucket.store.delete(&note).await;
            }
        });
    }
}
