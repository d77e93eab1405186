//! Records: made, looked at, and sent events.

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use uuid::Uuid;

use crate::client::Client;
use crate::error::ClientError;
use crate::payload::{Payload, as_payload};
use crate::shape::{Entry, Execution, Fired, Outcome, Page, Record, Results};
use crate::wire::{Again, Ask, escaped};

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
    pub key: Option<String>,
}

impl NewRecord {
    /// With a payload of JSON.
    pub fn of(payload: &impl Serialize) -> Result<Self, ClientError> {
        let payload = Payload::json(payload).map_err(|error| ClientError::BadCall(error.to_string()))?;
        Ok(Self { payload: Some(payload), ..Self::default() })
    }

    /// Under a key of the caller's.
    pub fn once(self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self }
    }
}

/// In a batch each has its key beside it.
#[derive(Serialize)]
struct InBatch<'a> {
    #[serde(flatten)]
    record: &'a NewRecord,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
}

#[derive(Serialize)]
struct RecordBatch<'a> {
    records: Vec<InBatch<'a>>,
}

/// Which records to list.
#[derive(Clone, Debug, Default)]
pub struct Listing {
    pub lifecycle: Option<String>,
    pub state: Option<String>,
    pub owner: Option<String>,
    pub limit: Option<usize>,
    /// As the page before said.
    pub cursor: Option<String>,
}

/// An event for a record.
#[derive(Clone, Debug, Default, Serialize)]
pub struct EventCall {
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

impl EventCall {
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
    events: &'a [EventCall],
}

#[derive(Deserialize)]
struct One {
    record: Record,
}

#[derive(Deserialize)]
struct Entries {
    entries: Vec<Entry>,
    #[serde(default)]
    next: Option<String>,
}

#[derive(Deserialize)]
struct Executions {
    executions: Vec<Execution>,
    next: Option<String>,
}

impl Client {
    /// Make a record; where its key or a unique of its lifecycle names one that is there, that one.
    pub async fn create(&self, lifecycle: &str, record: &NewRecord) -> Result<Record, ClientError> {
        let ask = Ask::post(format!("/v1/lifecycles/{}/records", escaped(lifecycle)), record)?;
        self.ask(&ask.keyed(record.key.as_deref())?).await
    }

    /// Make many, each on its own. Sent again by itself only where each has a key.
    pub async fn create_all(
        &self,
        lifecycle: &str,
        records: &[NewRecord],
    ) -> Result<Vec<Outcome<Record>>, ClientError> {
        let batch = RecordBatch {
            records: records.iter().map(|record| InBatch { record, key: record.key.as_deref() }).collect(),
        };
        let mut ask = Ask::post(format!("/v1/lifecycles/{}/records/batch", escaped(lifecycle)), &batch)?;
        if records.iter().all(|record| record.key.is_some()) {
            ask.again = Again::Safe;
        }
        let answers: Results<One> = self.ask(&ask).await?;
        let plain = |outcome| match outcome {
            Outcome::Done(One { record }) => Outcome::Done(record),
            Outcome::Refused(problem) => Outcome::Refused(problem),
        };
        Ok(answers.results.into_iter().map(plain).collect())
    }

    pub async fn get(&self, id: Uuid) -> Result<Record, ClientError> {
        self.ask(&Ask::get(format!("/v1/records/{id}"))).await
    }

    /// A page of records.
    pub async fn list(&self, listing: &Listing) -> Result<Page, ClientError> {
        let limit = listing.limit.map(|limit| limit.to_string());
        let query = [
            ("lifecycle", &listing.lifecycle),
            ("state", &listing.state),
            ("owner", &listing.owner),
            ("limit", &limit),
            ("cursor", &listing.cursor),
        ];
        let parts = query.iter().filter_map(|(name, value)| Some(format!("{name}={}", escaped(value.as_ref()?))));
        self.ask(&Ask::get(format!("/v1/records?{}", parts.collect::<Vec<_>>().join("&")))).await
    }

    /// Everything that happened to a record, from its first entry on.
    pub async fn history(&self, id: Uuid) -> Result<Vec<Entry>, ClientError> {
        let mut all = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let query = cursor.as_ref().map(|cursor| format!("?cursor={}", escaped(cursor))).unwrap_or_default();
            let page: Entries = self.ask(&Ask::get(format!("/v1/records/{id}/history{query}"))).await?;
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
            let query = cursor.as_ref().map(|cursor| format!("?cursor={}", escaped(cursor))).unwrap_or_default();
            let page: Executions = self.ask(&Ask::get(format!("/v1/records/{id}/executions{query}"))).await?;
            all.extend(page.executions);
            match page.next {
                Some(next) => cursor = Some(next),
                None => return Ok(all),
            }
        }
    }

    /// A record's payload, where it has one that is for this caller.
    pub async fn payload(&self, id: Uuid) -> Result<Option<Payload>, ClientError> {
        Ok(self.payload_bytes(id).await?.map(Payload::found))
    }

    /// As they are kept.
    pub(crate) async fn payload_bytes(&self, id: Uuid) -> Result<Option<Bytes>, ClientError> {
        match self.send(&Ask::get(format!("/v1/records/{id}/payload"))).await {
            Err(error) if error.problem().is_some_and(|problem| problem.status == 404) => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// What the commit of a job has left behind, as the server tells it.
    pub async fn effect(&self, id: Uuid) -> Result<Json, ClientError> {
        self.ask(&Ask::get(format!("/v1/records/{id}/effect"))).await
    }

    /// Send a record an event.
    pub async fn fire(&self, call: &EventCall) -> Result<Fired, ClientError> {
        let body = FireBody { input: &call.input, token: call.token };
        let ask = Ask::post(format!("/v1/records/{}/events/{}", call.record, escaped(&call.event)), &body)?;
        self.ask(&Ask { if_match: call.version, ..ask.keyed(call.key.as_deref())? }).await
    }

    /// Many events, each taken or refused on its own.
    pub async fn fire_all(&self, events: &[EventCall]) -> Result<Vec<Outcome<Fired>>, ClientError> {
        let mut ask = Ask::post("/v1/events/batch".to_owned(), &EventBatch { events })?;
        if events.iter().all(|event| event.key.is_some()) {
            ask.again = Again::Safe;
        }
        let answers: Results<Fired> = self.ask(&ask).await?;
        Ok(answers.results)
    }

    /// The versions of a lifecycle, as the server tells them.
    pub async fn versions(&self, lifecycle: &str) -> Result<Json, ClientError> {
        self.ask(&Ask::get(format!("/v1/lifecycles/{}/versions", escaped(lifecycle)))).await
    }

    /// Make a version the current one of its lifecycle. Sent twice, it does the same.
    pub async fn use_version(&self, lifecycle: &str, hash: &str) -> Result<Json, ClientError> {
        let body = serde_json::json!({ "hash": hash });
        let ask = Ask::post(format!("/v1/lifecycles/{}/use", escaped(lifecycle)), &body)?;
        self.ask(&Ask { again: Again::Safe, ..ask }).await
    }

    /// Move some records to another version. Who was moved is not moved again.
    pub async fn move_some(&self, lifecycle: &str, moving: &Json) -> Result<Json, ClientError> {
        let ask = Ask::post(format!("/v1/lifecycles/{}/move", escaped(lifecycle)), moving)?;
        self.ask(&Ask { again: Again::Safe, ..ask }).await
    }

    /// Lifecycles, as the server tells them.
    pub async fn lifecycles(&self) -> Result<Json, ClientError> {
        self.ask(&Ask::get("/v1/lifecycles".to_owned())).await
    }
}
