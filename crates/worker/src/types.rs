//! Results of calls: leased jobs, and items of a batch.

use std::ops::Deref;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use onceward_api_types::{
    CreateBatchItem, FireBatchItem, Lease, PayloadRef, Problem, Record, ReportBatchItem, ReportResult,
};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::payload::Payload;

/// Returns whether these bytes have this hash and size.
pub(crate) fn matches_payload(payload: &PayloadRef, bytes: &[u8]) -> bool {
    use std::fmt::Write as _;
    let mut hash = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        // Writing to a `String` cannot fail.
        let _ = write!(hash, "{byte:02x}");
    }
    u64::try_from(bytes.len()).is_ok_and(|length| length == payload.bytes) && payload.sha256 == hash
}

/// A leased job.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "Lease")]
pub struct LeasedJob {
    lease: Lease,
    payload: Option<Payload>,
}

impl TryFrom<Lease> for LeasedJob {
    type Error = base64::DecodeError;

    fn try_from(mut lease: Lease) -> Result<Self, Self::Error> {
        let bytes = lease.payload_base64.take().map(|text| STANDARD.decode(text)).transpose()?;
        let payload = lease.payload.take().map(Payload::Json).or(bytes.map(|bytes| Payload::Bytes(bytes.into())));
        Ok(Self { lease, payload })
    }
}

impl Deref for LeasedJob {
    type Target = Lease;

    fn deref(&self) -> &Lease {
        &self.lease
    }
}

impl LeasedJob {
    /// Returns the payload, if the response contained it.
    pub fn payload(&self) -> Option<Payload> {
        self.payload.clone()
    }

    /// Returns the record and drops the rest.
    pub(crate) fn into_record(self) -> Record {
        self.lease.record
    }

    /// Returns whether the payload was too large for the response and must be downloaded.
    pub fn needs_payload_fetch(&self) -> bool {
        self.payload.is_none() && self.record.payload.is_some()
    }

    /// Returns the length of the lease. Leasing was the record's latest change, so `updated_at` is its start.
    pub fn lease_duration(&self) -> Duration {
        let whole = Duration::try_from(self.expires_at.duration_since(self.record.updated_at)).unwrap_or_default();
        whole.max(self.remaining_lease())
    }

    /// Returns the remaining lease when the response arrived. Less than the whole if a repeated request returned a
    /// lease whose first response was lost.
    pub fn remaining_lease(&self) -> Duration {
        Duration::from_millis(self.expires_in_ms)
    }
}

/// The result of one item of a batch.
#[derive(Clone, Debug)]
pub enum BatchItemResult<T> {
    Succeeded(T),
    Refused(Box<Problem>),
}

impl<T> BatchItemResult<T> {
    fn new(error: Option<Problem>, value: T) -> Self {
        match error {
            Some(problem) => Self::Refused(Box::new(problem.with_body_retry_after())),
            None => Self::Succeeded(value),
        }
    }
}

impl From<CreateBatchItem> for BatchItemResult<CreateBatchItem> {
    fn from(mut item: CreateBatchItem) -> Self {
        Self::new(item.error.take(), item)
    }
}

impl From<FireBatchItem> for BatchItemResult<FireBatchItem> {
    fn from(mut item: FireBatchItem) -> Self {
        Self::new(item.error.take(), item)
    }
}

impl From<ReportBatchItem> for BatchItemResult<ReportBatchItem> {
    fn from(mut item: ReportBatchItem) -> Self {
        Self::new(item.error.take(), item)
    }
}

/// For reports that are sent together but answered one by one.
impl From<BatchItemResult<ReportBatchItem>> for BatchItemResult<ReportResult> {
    fn from(result: BatchItemResult<ReportBatchItem>) -> Self {
        match result {
            BatchItemResult::Succeeded(item) => {
                let stop = item.stop.unwrap_or_default();
                Self::Succeeded(ReportResult { execution: item.execution, record: item.record, stop })
            }
            BatchItemResult::Refused(problem) => Self::Refused(problem),
        }
    }
}
