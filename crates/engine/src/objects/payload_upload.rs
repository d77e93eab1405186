//! A payload on its way in, piece by piece: for bytes that nobody should hold as a whole.

use onceward_core::decide::Call;
use onceward_core::record::PayloadRef;
use onceward_store::PayloadBytes;

use super::{MAX_INLINE_PAYLOAD_BYTES, ObjectStorage, ObjectWriter};
use crate::error::EngineError;
use crate::queue::Submission;

/// Bytes of a new record's payload, as they come. Up to [`MAX_INLINE_PAYLOAD_BYTES`] are kept in memory, for the database; with the first one more all of
/// them go where large payloads live, and from then on nobody holds more than [`MAX_INLINE_PAYLOAD_BYTES`] of them, or the piece that came last. Dropped
/// before they have [`arrived`](Self::arrived), they leave nothing behind.
#[derive(Debug)]
pub struct PayloadUpload {
    storage: Option<ObjectStorage>,
    /// All of them while they are few; then those that are not written yet. However small the pieces are in which they come, what is
    /// written is not.
    buffer: Vec<u8>,
    writer: Option<ObjectWriter>,
}

impl PayloadUpload {
    /// Where there is no place for large payloads, all of them stay in memory, and it is for the caller to say how many may come.
    pub(crate) const fn new(storage: Option<ObjectStorage>) -> Self {
        Self { storage, buffer: Vec::new(), writer: None }
    }

    /// A piece more. One that could not be taken is the end of all: what came before it is gone.
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

    /// How many came so far.
    pub fn bytes(&self) -> u64 {
        let buffered = u64::try_from(self.buffer.len()).unwrap_or(u64::MAX);
        self.writer.as_ref().map_or(0, ObjectWriter::bytes).saturating_add(buffered)
    }

    /// All of it is there. Many bytes are durable when this returns; few become so with their record.
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

/// A payload that has come, and waits for its record. Without one it is nobody's, and goes when it is old.
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
    /// With a payload that has arrived: only a creation takes one.
    #[must_use]
    pub fn with_payload(mut self, uploaded: UploadedPayload) -> Self {
        if let Call::Create(create) = &mut self.call {
            create.payload = Some(uploaded.payload);
            self.payloads = uploaded.inline_bytes;
        }
        self
    }
}
