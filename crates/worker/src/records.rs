//! Creates and reads records and fires events.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use uuid::Uuid;

use crate::client::Client;
use crate::error::ClientError;
use crate::payload::{Payload, as_payload};
use crate::transport::{ApiRequest, RetrySafety, percent_encode};
use crate::types::{BatchItemResult, BatchResults, Execution, FireResult, LogEntry, Record, RecordPage};

/// A record to create.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NewRecord {
    /// A `UUIDv7` that the caller generated.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub fields: Map<String, Json>,
    #[serde(flatten, serialize_with = "as_payload")]
    pub payload: Option<Payload>,
    /// The owner, if not the caller. Only for operators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Creates at most one record per key. Without a key, `create` generates one for its retries; a batch generates
    /// none and is repeated only if the server did not execute it.
    #[serde(skip)]
    pub idempotency_key: Option<String>,
}

impl NewRecord {
    /// Creates a record with a JSON payload.
    pub fn with_json_payload(payload: &impl Serialize) -> Result<Self, ClientError> {
        let payload = Payload::json(payload).map_err(|error| ClientError::InvalidRequest(error.to_string()))?;
        Ok(Self { payload: Some(payload), ..Self::default() })
    }

    pub fn with_idempotency_key(self, idempotency_key: &str) -> Self {
        Self { idempotency_key: Some(idempotency_key.to_owned()), ..self }
    }
}

/// A record within a batch, with its idempotency key.
#[derive(Serialize)]
struct BatchRecord<'a> {
    #[serde(flatten)]
    record: &'a NewRecord,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
}

#[derive(Serialize)]
struct RecordBatch<'a> {
    records: Vec<BatchRecord<'a>>,
}

/// Filters and paging of a list.
#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    pub lifecycle: Option<String>,
    pub state: Option<String>,
    pub owner: Option<String>,
    pub limit: Option<usize>,
    /// The `next` of the previous page.
    pub cursor: Option<String>,
}

/// An event to fire on a record.
#[derive(Clone, Debug, Default, Serialize)]
pub struct EventRequest {
    pub record: Uuid,
    pub event: String,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub input: Map<String, Json>,
    /// Refuse unless the record has this version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// Idempotency key: the event is fired at most once per key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The fencing token, if a worker fires the event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<u64>,
}

impl EventRequest {
    pub fn new(record: Uuid, event: &str) -> Self {
        Self { record, event: event.to_owned(), ..Self::default() }
    }
}

#[derive(Serialize)]
struct FireBody<'a> {
    #[serde(skip_serializing_if = "Map::is_empty")]
    input: &'a Map<String, Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<u64>,
}

#[derive(Serialize)]
struct EventBatch<'a> {
    events: &'a [EventRequest],
}

#[derive(Deserialize)]
struct CreatedItem {
    record: Record,
}

#[derive(Deserialize)]
struct HistoryResponse {
    entries: Vec<LogEntry>,
    #[serde(default)]
    next: Option<String>,
}

#[derive(Deserialize)]
struct ExecutionsResponse {
    executions: Vec<Execution>,
    next: Option<String>,
}

impl Client {
    /// Creates a record, or returns the existing one with the same idempotency key or unique key.
    pub async fn create(&self, lifecycle: &str, record: &NewRecord) -> Result<Record, ClientError> {
        let request = ApiRequest::post(format!("/v1/lifecycles/{}/records", percent_encode(lifecycle)), record)?;
        self.send_json(&request.with_idempotency_key(record.idempotency_key.as_deref())?).await
    }

    /// Creates many records. Each succeeds or fails on its own. Unless each has an idempotency key, the batch is
    /// repeated only if the server did not execute it.
    pub async fn create_batch(
        &self,
        lifecycle: &str,
        records: &[NewRecord],
    ) -> Result<Vec<BatchItemResult<Record>>, ClientError> {
        let batch = RecordBatch {
            records: records
                .iter()
                .map(|record| BatchRecord { record, key: record.idempotency_key.as_deref() })
                .collect(),
        };
        let mut request =
            ApiRequest::post(format!("/v1/lifecycles/{}/records/batch", percent_encode(lifecycle)), &batch)?;
        if records.iter().all(|record| record.idempotency_key.is_some()) {
            request.retry_safety = RetrySafety::Idempotent;
        }
        let response: BatchResults<CreatedItem> = self.send_json(&request).await?;
        let unwrap_item = |outcome| match outcome {
            BatchItemResult::Succeeded(CreatedItem { record }) => BatchItemResult::Succeeded(record),
            BatchItemResult::Refused(problem) => BatchItemResult::Refused(problem),
        };
        Ok(response.results.into_iter().map(unwrap_item).collect())
    }

    pub async fn get(&self, id: Uuid) -> Result<Record, ClientError> {
        self.send_json(&ApiRequest::get(format!("/v1/records/{id}"))).await
    }

    /// Lists records, one page.
    pub async fn list(&self, list_query: &ListQuery) -> Result<RecordPage, ClientError> {
        let limit = list_query.limit.map(|limit| limit.to_string());
        let query = [
            ("lifecycle", &list_query.lifecycle),
            ("state", &list_query.state),
            ("owner", &list_query.owner),
            ("limit", &limit),
            ("cursor", &list_query.cursor),
        ];
        let parts =
            query.iter().filter_map(|(name, value)| Some(format!("{name}={}", percent_encode(value.as_ref()?))));
        self.send_json(&ApiRequest::get(format!("/v1/records?{}", parts.collect::<Vec<_>>().join("&")))).await
    }

    /// Returns the complete log of a record, oldest entry first.
    pub async fn history(&self, id: Uuid) -> Result<Vec<LogEntry>, ClientError> {
        let mut all = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let query = cursor.as_ref().map(|cursor| format!("?cursor={}", percent_encode(cursor))).unwrap_or_default();
            let page: HistoryResponse =
                self.send_json(&ApiRequest::get(format!("/v1/records/{id}/history{query}"))).await?;
            all.extend(page.entries);
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// Returns all executions of a job.
    pub async fn executions(&self, id: Uuid) -> Result<Vec<Execution>, ClientError> {
        let mut all = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let query = cursor.as_ref().map(|cursor| format!("?cursor={}", percent_encode(cursor))).unwrap_or_default();
            let page: ExecutionsResponse =
                self.send_json(&ApiRequest::get(format!("/v1/records/{id}/executions{query}"))).await?;
            all.extend(page.executions);
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// Returns a record's payload, or `None` if it has none or the caller may not see it.
    pub async fn payload(&self, id: Uuid) -> Result<Option<Payload>, ClientError> {
        Ok(self.fetch_payload_bytes(id).await?.map(Payload::from_stored_bytes))
    }

    /// Downloads the payload's bytes.
    pub(crate) async fn fetch_payload_bytes(&self, id: Uuid) -> Result<Option<Bytes>, ClientError> {
        match self.send_with_retries(&ApiRequest::get(format!("/v1/records/{id}/payload"))).await {
            Err(error) if error.problem().is_some_and(|problem| problem.status == 404) => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// Returns the committed effect of a job as JSON.
    pub async fn effect(&self, id: Uuid) -> Result<Json, ClientError> {
        self.send_json(&ApiRequest::get(format!("/v1/records/{id}/effect"))).await
    }

    /// Fires an event.
    pub async fn fire(&self, request: &EventRequest) -> Result<FireResult, ClientError> {
        let body = FireBody { input: &request.input, token: request.token };
        let api_request = ApiRequest::post(
            format!("/v1/records/{}/events/{}", request.record, percent_encode(&request.event)),
            &body,
        )?;
        self.send_json(&ApiRequest {
            if_match: request.version,
            ..api_request.with_idempotency_key(request.key.as_deref())?
        })
        .await
    }

    /// Fires many events. Each succeeds or fails on its own.
    pub async fn fire_batch(&self, events: &[EventRequest]) -> Result<Vec<BatchItemResult<FireResult>>, ClientError> {
        let mut request = ApiRequest::post("/v1/events/batch".to_owned(), &EventBatch { events })?;
        if events.iter().all(|event| event.key.is_some()) {
            request.retry_safety = RetrySafety::Idempotent;
        }
        let response: BatchResults<FireResult> = self.send_json(&request).await?;
        Ok(response.results)
    }

    /// Returns the versions of a lifecycle as JSON.
    pub async fn versions(&self, lifecycle: &str) -> Result<Json, ClientError> {
        self.send_json(&ApiRequest::get(format!("/v1/lifecycles/{}/versions", percent_encode(lifecycle)))).await
    }

    /// Activates a version of a lifecycle. Repeating it is safe.
    pub async fn activate_version(&self, lifecycle: &str, hash: &str) -> Result<Json, ClientError> {
        let body = serde_json::json!({ "hash": hash });
        let request = ApiRequest::post(format!("/v1/lifecycles/{}/use", percent_encode(lifecycle)), &body)?;
        self.send_json(&ApiRequest { retry_safety: RetrySafety::Idempotent, ..request }).await
    }

    /// Migrates records to another version, one step. Repeating it is safe, because migrated records are skipped.
    pub async fn migrate_records(&self, lifecycle: &str, migration: &Json) -> Result<Json, ClientError> {
        let request = ApiRequest::post(format!("/v1/lifecycles/{}/move", percent_encode(lifecycle)), migration)?;
        self.send_json(&ApiRequest { retry_safety: RetrySafety::Idempotent, ..request }).await
    }

    /// Returns all lifecycles as JSON.
    pub async fn lifecycles(&self) -> Result<Json, ClientError> {
        self.send_json(&ApiRequest::get("/v1/lifecycles".to_owned())).await
    }
}
