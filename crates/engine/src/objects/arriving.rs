//! A payload on its way in, piece by piece: for bytes that nobody should hold as a whole.

use onceward_core::decide::Call;
use onceward_core::record::Payload;
use onceward_store::Content;

use super::{LARGE, ObjectWriter, Objects};
use crate::error::EngineError;
use crate::queue::Submission;

/// Bytes of a new record's payload, as they come. Up to [`LARGE`] are kept in memory, for the database; with the first one more all of
/// them go where large payloads live, and from then on nobody holds more than [`LARGE`] of them, or the piece that came last. Dropped
/// before they have [`arrived`](Self::arrived), they leave nothing behind.
#[derive(Debug)]
pub struct Arriving {
    objects: Option<Objects>,
    /// All of them while they are few; then those that are not written yet. However small the pieces are in which they come, what is
    /// written is not.
    few: Vec<u8>,
    many: Option<ObjectWriter>,
}

impl Arriving {
    /// Where there is no place for large payloads, all of them stay in memory, and it is for the caller to say how many may come.
    pub(crate) const fn new(objects: Option<Objects>) -> Self {
        Self { objects, few: Vec::new(), many: None }
    }

    /// A piece more. One that could not be taken is the end of all: what came before it is gone.
    pub async fn take(mut self, piece: impl AsRef<[u8]> + Send + 'static) -> Result<Self, EngineError> {
        let Some(objects) = &self.objects else {
            self.few.extend_from_slice(piece.as_ref());
            return Ok(self);
        };
        if self.few.len().saturating_add(piece.as_ref().len()) <= LARGE {
            self.few.extend_from_slice(piece.as_ref());
            return Ok(self);
        }
        let writer = match &mut self.many {
            Some(writer) => writer,
            none => none.insert(objects.writer().await?),
        };
        if !self.few.is_empty() {
            writer.write(std::mem::take(&mut self.few)).await?;
        }
        if piece.as_ref().len() > LARGE {
            writer.write(piece).await?;
        } else {
            self.few = Vec::with_capacity(LARGE);
            self.few.extend_from_slice(piece.as_ref());
        }
        Ok(self)
    }

    /// How many came so far.
    pub fn bytes(&self) -> u64 {
        let few = u64::try_from(self.few.len()).unwrap_or(u64::MAX);
        self.many.as_ref().map_or(0, ObjectWriter::bytes).saturating_add(few)
    }

    /// All of it is there. Many bytes are durable when this returns; few become so with their record.
    pub async fn arrived(self) -> Result<Arrived, EngineError> {
        if let Some(mut writer) = self.many {
            if !self.few.is_empty() {
                writer.write(self.few).await?;
            }
            return Ok(Arrived { payload: writer.finish().await?, contents: Vec::new() });
        }
        Ok(Content::of(self.few).into())
    }
}

/// A payload that has come, and waits for its record. Without one it is nobody's, and goes when it is old.
#[derive(Clone, Debug)]
pub struct Arrived {
    payload: Payload,
    contents: Vec<Content>,
}

impl From<Content> for Arrived {
    fn from(content: Content) -> Self {
        Self { payload: content.payload, contents: vec![content] }
    }
}

impl Submission {
    /// With a payload that has arrived: only a creation takes one.
    #[must_use]
    pub fn carrying(mut self, arrived: Arrived) -> Self {
        if let Call::Create(create) = &mut self.call {
            create.payload = Some(arrived.payload);
            self.contents = arrived.contents;
        }
        self
    }
}
