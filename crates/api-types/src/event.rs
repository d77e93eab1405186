//! Requests that fire events, and their results.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use uuid::Uuid;

use crate::{BatchReturn, Problem, Record};

/// The input of an event.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(bound = ""))]
pub struct NewEvent<Input = Map<String, Json>> {
    /// Input by name, as the event's transitions declare it.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub input: Input,
    /// The execution's fencing token, if a worker fires the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 9_007_199_254_740_991_u64))]
    pub token: Option<u64>,
}

/// The result of an event.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(bound = ""))]
pub struct FireResult<R = Record> {
    /// The record after the event. Null if the call repeats an idempotency key and the caller cannot see the record
    /// any more.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Record>))]
    pub record: Option<R>,
    /// The ids of the records that the event created.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>, required = true))]
    pub spawned: Vec<Uuid>,
}

/// An event to fire on a record.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(bound = ""))]
pub struct BatchEvent<Input = Map<String, Json>> {
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = Uuid))]
    pub record: Uuid,
    pub event: String,
    /// Input by name, as the event's transitions declare it.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub input: Input,
    /// The execution's fencing token, if a worker fires the event.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 9_007_199_254_740_991_u64))]
    pub token: Option<u64>,
    /// Refuse unless the record has this version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub version: Option<u64>,
    /// The idempotency key: the event is fired at most once per key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 255))]
    pub key: Option<String>,
}

impl BatchEvent {
    /// An event without input.
    pub fn new(record: Uuid, event: &str) -> Self {
        Self { record, event: event.to_owned(), ..Self::default() }
    }
}

/// Events to fire, in this order.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(bound = ""))]
pub struct NewEventBatch<List = Vec<BatchEvent>> {
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<BatchEvent>, max_items = 1000))]
    pub events: List,
    /// `summary` by default.
    #[serde(default, rename = "return", skip_serializing_if = "crate::batch::is_default")]
    #[cfg_attr(feature = "openapi", schema(required = false))]
    pub returns: BatchReturn,
}

/// The results, in the order of the request.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(bound = ""))]
pub struct FireBatchResult<R = Record> {
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<FireBatchItem>))]
    pub results: Vec<FireBatchItem<R>>,
}

/// Has `id`, `state` and `version`, or `record` and `spawned`, or `error`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(bound = ""))]
pub struct FireBatchItem<R = Record> {
    /// The record's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = Uuid))]
    pub id: Option<Uuid>,
    /// The record's state. Omitted if the caller may no longer see the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub version: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Record>))]
    pub record: Option<R>,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<String>, required = false))]
    pub spawned: Option<Vec<Uuid>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<Problem>,
}
