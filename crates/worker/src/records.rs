//! Records: made, looked at, and sent events.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use uuid::Uuid;

use crate::client::Client;
use crate::error::ClientError;
use crate::payload::{Payload, as_payload};
use crate::transport::{ApiRequest, RetrySafety, percent_encode};
use crate::types::{BatchItemResult, BatchResults, Execution, FireResult, LogEntry, Record, RecordPage};

/// A record to be made.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NewRecord {
    /// A `UUIDv7` of the caller's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub fields: Map<String, Json>,
    #[serde(flatten, serialize_with = "as_payload")]
    pub payload: Option<Payload>,
    /// For somebody else; only operators may.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// However often it is sent with the same key, one record is made. Without one it gets a key of its own for as long as it is
    /// tried; in a batch it gets none, and the batch is sent again only where the server has surely not heard of it.
    #[serde(skip)]
    pub idempotency_key: Option<String>,
}

impl NewRecord {
    /// With a payload of JSON.
    pub fn with_json_payload(payload: &impl Serialize) -> Result<Self, ClientError> {
        let payload = Payload::json(payload).map_err(|error| ClientError::InvalidRequest(error.to_string()))?;
        Ok(Self { payload: Some(payload), ..Self::default() })
    }

    /// Under a key of the caller's.
    pub fn with_idempotency_key(self, idempotency_key: &str) -> Self {
        Self { idempotency_key: Some(idempotency_key.to_owned()), ..self }
    }
}

/// In a batch each has its key beside it.
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

/// Which records to list.
#[derive(Clone, Debug, Default)]
pub struct ListQuery {
    pub lifecycle: Option<String>,
    pub state: Option<String>,
    pub owner: Option<String>,
    pub limit: Option<usize>,
    /// As the page before said.
    pub cursor: Option<String>,
}

/// An event for a record.
#[derive(Clone, Debug, Default, Serialize)]
pub struct EventRequest {
    pub record: Uuid,
    pub event: String,
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub input: Map<String, Json>,
    /// Only if the record has this version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<u64>,
    /// However often it is sent with the same key, it is carried out once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Of the lease, where a worker fires it.
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
    /// Make a record; where its key or a unique of its lifecycle names one that is there, that one.
    pub async fn create(&self, lifecycle: &str, record: &NewRecord) -> Result<Record, ClientError> {
        let request = ApiRequest::post(format!("/v1/lifecycles/{}/records", percent_encode(lifecycle)), record)?;
        self.send_json(&request.with_idempotency_key(record.idempotency_key.as_deref())?).await
    }

    /// Make many, each on its own. Sent again by itself only where each has a key.
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

    /// A page of records.
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

    /// Everything that happened to a record, from its first entry on.
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

    /// The turns of workers at a job.
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

    /// A record's payload, where it has one that is for this caller.
    pub async fn payload(&self, id: Uuid) -> Result<Option<Payload>, ClientError> {
        Ok(self.fetch_payload_bytes(id).await?.map(Payload::from_stored_bytes))
    }

    /// As they are kept.
    pub(crate) async fn fetch_payload_bytes(&self, id: Uuid) -> Result<Option<Bytes>, ClientError> {
        match self.send_with_retries(&ApiRequest::get(format!("/v1/records/{id}/payload"))).await {
            Err(error) if error.problem().is_some_and(|problem| problem.status == 404) => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// What the commit of a job has left behind, as the server tells it.
    pub async fn effect(&self, id: Uuid) -> Result<Json, ClientError> {
        self.send_json(&ApiRequest::get(format!("/v1/records/{id}/effect"))).await
    }

    /// Send a record an event.
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

    /// Many events, each taken or refused on its own.
    pub async fn fire_batch(&self, events: &[EventRequest]) -> Result<Vec<BatchItemResult<FireResult>>, ClientError> {
        let mut request = ApiRequest::post("/v1/events/batch".to_owned(), &EventBatch { events })?;
        if events.iter().all(|event| event.key.is_some()) {
            request.retry_safety = RetrySafety::Idempotent;
        }
        let response: BatchResults<FireResult> = self.send_json(&request).await?;
        Ok(response.results)
    }

    /// The versions of a lifecycle, as the server tells them.
    pub async fn versions(&self, lifecycle: &str) -> Result<Json, ClientError> {
        self.send_json(&ApiRequest::get(format!("/v1/lifecycles/{}/versions", percent_encode(lifecycle)))).await
    }

    /// Make a version the current one of its lifecycle. Sent twice, it does the same.
    pub async fn activate_version(&self, lifecycle: &str, hash: &str) -> Result<Json, ClientError> {
        let body = serde_json::json!({ "hash": hash });
        let request = ApiRequest::post(format!("/v1/lifecycles/{}/use", percent_encode(lifecycle)), &body)?;
        self.send_json(&ApiRequest { retry_safety: RetrySafety::Idempotent, ..request }).await
    }

    /// Move some records to another version. Who was moved is not moved again.
    pub async fn migrate_records(&self, lifecycle: &str, migration: &Json) -> Result<Json, ClientError> {
        let request = ApiRequest::post(format!("/v1/lifecycles/{}/move", percent_encode(lifecycle)), migration)?;
        self.send_json(&ApiRequest { retry_safety: RetrySafety::Idempotent, ..request }).await
    }

    /// Lifecycles, as the server tells them.
    pub async fn lifecycles(&self) -> Result<Json, ClientError> {
        self.send_json(&ApiRequest::get("/v1/lifecycles".to_owned())).await
    }
}
