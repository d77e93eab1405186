//! Receives a payload in chunks, without holding it in memory as a whole.

use onceward_core::decide::Call;
use onceward_core::record::PayloadRef;
use onceward_store::PayloadBytes;

use super::{MAX_INLINE_PAYLOAD_BYTES, ObjectStorage, ObjectWriter};
use crate::error::EngineError;
use crate::submission::queue::Submission;

/// The payload of a new record while it arrives. Up to [`MAX_INLINE_PAYLOAD_BYTES`] stay in memory, for the database. A
/// larger payload goes to object storage, and memory holds at most [`MAX_INLINE_PAYLOAD_BYTES`] or the last chunk. If
/// dropped before [`finish`](Self::finish), it leaves nothing behind.
#[derive(Debug)]
pub struct PayloadUpload {
    storage: Option<ObjectStorage>,
    /// All bytes of a small payload; of a large one, the bytes that are not written yet. Combines small chunks into
    /// larger writes.
    buffer: Vec<u8>,
    writer: Option<ObjectWriter>,
}

impl PayloadUpload {
    /// Without object storage all bytes stay in memory, and the caller must limit them.
    pub(crate) const fn new(storage: Option<ObjectStorage>) -> Self {
        Self { storage, buffer: Vec::new(), writer: None }
    }

    /// Adds a chunk. After an error the upload is lost.
    pub async fn push(mut self, chunk: impl AsRef<[u8]> + Send + 'static) -> Result<Self, EngineError> {
        let Some(storage) = &self.storage else {
            self.buffer.extend_from_slice(chunk.as_ref());
            return Ok(self);
        };
        if self.buffer.len().saturating_add(chunk.as_ref().len()) <= MAX_INLINE_PAYLOAD_BYTES {
            self.buffer.extend_from_slice(chunk.as_ref());
            return Ok(self);
        }
        let writer = match &mut self.writer {
            Some(writer) => writer,
            none => none.insert(storage.writer().await?),
        };
        if !self.buffer.is_empty() {
            writer.write(std::mem::take(&mut self.buffer)).await?;
        }
        if chunk.as_ref().len() > MAX_INLINE_PAYLOAD_BYTES {
            writer.write(chunk).await?;
        } else {
            self.buffer = Vec::with_capacity(MAX_INLINE_PAYLOAD_BYTES);
            self.buffer.extend_from_slice(chunk.as_ref());
        }
        Ok(self)
    }

    /// Returns the number of bytes received so far.
    pub fn bytes(&self) -> u64 {
        let buffered = u64::try_from(self.buffer.len()).unwrap_or(u64::MAX);
        self.writer.as_ref().map_or(0, ObjectWriter::bytes).saturating_add(buffered)
    }

    /// Ends the upload. A large payload is durable when this returns; a small one becomes durable with its record.
    pub async fn finish(self) -> Result<UploadedPayload, EngineError> {
        if let Some(mut writer) = self.writer {
            if !self.buffer.is_empty() {
                writer.write(self.buffer).await?;
            }
            return Ok(UploadedPayload { payload: writer.finish().await?, inline_bytes: Vec::new() });
        }
        Ok(PayloadBytes::from_bytes(self.buffer).into())
    }
}

/// A complete payload without a record. If it gets none, garbage collection deletes it.
#[derive(Clone, Debug)]
pub struct UploadedPayload {
    payload: PayloadRef,
    inline_bytes: Vec<PayloadBytes>,
}

impl From<PayloadBytes> for UploadedPayload {
    fn from(content: PayloadBytes) -> Self {
        Self { payload: content.payload, inline_bytes: vec![content] }
    }
}

impl Submission {
    /// Attaches an uploaded payload. Calls other than `Create` ignore it.
    #[must_use]
    pub fn with_payload(mut self, uploaded: UploadedPayload) -> Self {
        if let Call::Create(create) = &mut self.call {
            create.payload = Some(uploaded.payload);
            self.payloads = uploaded.inline_bytes;
        }
        self
    }
}
