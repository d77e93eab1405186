//! Creates and reads records and fires events.

use bytes::Bytes;
use onceward_api_types as wire;
use onceward_api_types::{
    ActivateVersionBody, BatchEvent, BatchReturn, CurrentVersion, Effect, Execution, ExecutionPage, FireBatchItem,
    FireResult, HistoryPage, LifecycleList, LogEntry, MigrateRecordsBody, MigrationStep, Record, RecordPage,
    VersionList,
};
use serde::Serialize;
use serde_json::{Map, Value as Json};
use uuid::Uuid;

use crate::client::Client;
use crate::error::ClientError;
use crate::payload::{Payload, wire_members};
use crate::transport::{ApiRequest, RetrySafety, percent_encode};
use crate::types::BatchItemResult;

/// A record to create.
#[derive(Clone, Debug, Default)]
pub struct NewRecord {
    /// A `UUIDv7` that the caller generated.
    pub id: Option<Uuid>,
    pub fields: Map<String, Json>,
    pub payload: Option<Payload>,
    /// The owner, if not the caller. Only for operators.
    pub owner: Option<String>,
    /// Creates at most one record per idempotency key. Without one, `create` generates one for its retries; a batch
    /// generates none, and the client repeats it only if the server did not execute it.
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

    /// Returns the request body, with an idempotency key in a batch.
    fn body(&self, key: Option<&str>) -> wire::NewRecord<&Map<String, Json>> {
        let (payload, payload_base64) = wire_members(self.payload.as_ref());
        let (owner, key) = (self.owner.clone(), key.map(str::to_owned));
        wire::NewRecord { id: self.id, fields: &self.fields, payload, payload_base64, owner, key }
    }
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

impl Client {
    /// Creates a record, or returns the existing one with the same idempotency key or unique key.
    pub async fn create(&self, lifecycle: &str, record: &NewRecord) -> Result<Record, ClientError> {
        let request =
            ApiRequest::post(format!("/v1/lifecycles/{}/records", percent_encode(lifecycle)), &record.body(None))?;
        self.send_json(&request.with_idempotency_key(record.idempotency_key.as_deref())?).await
    }

    /// Creates many records. Each succeeds or fails on its own. Unless each has an idempotency key, the batch is
    /// repeated only if the server did not execute it. Reads the records that the response has no space for.
    pub async fn create_batch(
        &self,
        lifecycle: &str,
        records: &[NewRecord],
    ) -> Result<Vec<BatchItemResult<Record>>, ClientError> {
        let records_json: Vec<_> =
            records.iter().map(|record| record.body(record.idempotency_key.as_deref())).collect();
        let batch = wire::NewRecordBatch { records: records_json };
        let mut request =
            ApiRequest::post(format!("/v1/lifecycles/{}/records/batch", percent_encode(lifecycle)), &batch)?;
        if records.iter().all(|record| record.idempotency_key.is_some()) {
            request.retry_safety = RetrySafety::Idempotent;
        }
        let response: wire::CreateBatchResult = self.send_json(&request).await?;
        let mut results = Vec::with_capacity(response.results.len());
        for item in response.results {
            results.push(match BatchItemResult::from(item) {
                BatchItemResult::Succeeded(wire::CreateBatchItem { record: Some(record), .. }) => {
                    BatchItemResult::Succeeded(record)
                }
                BatchItemResult::Succeeded(wire::CreateBatchItem { id: Some(id), .. }) => {
                    BatchItemResult::Succeeded(self.get(id).await?)
                }
                BatchItemResult::Succeeded(_) => return Err(self.invalid_response(&"missing field `record`")),
                BatchItemResult::Refused(problem) => BatchItemResult::Refused(problem),
            });
        }
        Ok(results)
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
            let page: HistoryPage =
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
            let page: ExecutionPage =
                self.send_json(&ApiRequest::get(format!("/v1/records/{id}/executions{query}"))).await?;
            all.extend(page.executions);
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// Returns a job's newest executions, at most `max` of at most 1000, oldest first.
    pub async fn newest_executions(&self, record: &Record, max: u64) -> Result<Vec<Execution>, ClientError> {
        let after = record.attempt.saturating_sub(max);
        let path = format!("/v1/records/{}/executions?cursor={after}&limit={max}", record.id);
        let page: ExecutionPage = self.send_json(&ApiRequest::get(path)).await?;
        Ok(page.executions)
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

    /// Returns the committed effect of a job.
    pub async fn effect(&self, id: Uuid) -> Result<Effect, ClientError> {
        self.send_json(&ApiRequest::get(format!("/v1/records/{id}/effect"))).await
    }

    /// Fires an event.
    pub async fn fire(&self, request: &BatchEvent) -> Result<FireResult, ClientError> {
        let body = wire::NewEvent { input: &request.input, token: request.token };
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
    pub async fn fire_batch(
        &self,
        events: &[BatchEvent],
        returns: BatchReturn,
    ) -> Result<Vec<BatchItemResult<FireBatchItem>>, ClientError> {
        let mut request = ApiRequest::post("/v1/events/batch".to_owned(), &wire::NewEventBatch { events, returns })?;
        if events.iter().all(|event| event.key.is_some()) {
            request.retry_safety = RetrySafety::Idempotent;
        }
        let response: wire::FireBatchResult = self.send_json(&request).await?;
        Ok(response.results.into_iter().map(Into::into).collect())
    }

    /// Returns the versions of a lifecycle.
    pub async fn versions(&self, lifecycle: &str) -> Result<VersionList, ClientError> {
        self.send_json(&ApiRequest::get(format!("/v1/lifecycles/{}/versions", percent_encode(lifecycle)))).await
    }

    /// Activates a version of a lifecycle. Repeating it is safe.
    pub async fn activate_version(&self, lifecycle: &str, hash: &str) -> Result<CurrentVersion, ClientError> {
        let body = ActivateVersionBody { hash: hash.to_owned() };
        let request = ApiRequest::post(format!("/v1/lifecycles/{}/use", percent_encode(lifecycle)), &body)?;
        self.send_json(&ApiRequest { retry_safety: RetrySafety::Idempotent, ..request }).await
    }

    /// Migrates records to another version, one step. Repeating it is safe, because migrated records are skipped.
    pub async fn migrate_records(
        &self,
        lifecycle: &str,
        migration: &MigrateRecordsBody,
    ) -> Result<MigrationStep, ClientError> {
        let request = ApiRequest::post(format!("/v1/lifecycles/{}/move", percent_encode(lifecycle)), migration)?;
        self.send_json(&ApiRequest { retry_safety: RetrySafety::Idempotent, ..request }).await
    }

    /// Returns all lifecycles.
    pub async fn lifecycles(&self) -> Result<LifecycleList, ClientError> {
        self.send_json(&ApiRequest::get("/v1/lifecycles".to_owned())).await
    }
}
