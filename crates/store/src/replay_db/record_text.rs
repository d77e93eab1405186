//! Encodes records for the replay database.

use std::sync::Arc;

use onceward_core::record::{Execution, FencingToken, PayloadRef, Record, Timer};
use onceward_core::time::Time;
use onceward_core::trace::TraceContext;
use onceward_core::value::RecordId;
use serde::{Deserialize, Serialize};

use crate::StoreError;
use crate::catalog::Catalog;
use crate::value_json::ValueJson;

#[derive(Serialize, Deserialize)]
struct RecordText {
    definition: u32,
    state: u8,
    version: u64,
    owner: Arc<str>,
    fields: Vec<ValueJson>,
    attempt: u64,
    created_at: Time,
    updated_at: Time,
    started_at: Option<Time>,
    finished_at: Option<Time>,
    entered_at: Time,
    hold: i64,
    timers: Vec<Timer>,
    execution: Option<Execution>,
    committed: Option<FencingToken>,
    payload: Option<PayloadRef>,
    stuck: Option<Arc<str>>,
    trace: Option<TraceContext>,
}

pub(super) fn encode_record(record: &Record, catalog: &Catalog) -> Result<String, StoreError> {
    let text = RecordText {
        definition: catalog.version_number(&record.lifecycle)?,
        state: record.state,
        version: record.version,
        owner: Arc::clone(&record.owner),
        fields: record.fields.iter().map(|value| ValueJson(value.clone())).collect(),
        attempt: record.attempt,
        created_at: record.created_at,
        updated_at: record.updated_at,
        started_at: record.started_at,
        finished_at: record.finished_at,
        entered_at: record.entered_at,
        hold: record.hold,
        timers: record.timers.clone(),
        execution: record.execution.clone(),
        committed: record.committed_token,
        payload: record.payload,
        stuck: record.stuck_reason.clone(),
        trace: record.trace,
    };
    serde_json::to_string(&text)
        .map_err(|error| StoreError::corrupt(format!("record {} cannot be encoded: {error}", record.id)))
}

pub(super) fn decode_record(id: RecordId, text: &str, catalog: &Catalog) -> Result<Record, StoreError> {
    let text: RecordText = serde_json::from_str(text)
        .map_err(|error| StoreError::corrupt(format!("record {id} is unreadable: {error}")))?;
    let lifecycle = catalog.by_number(text.definition);
    let lifecycle = lifecycle.ok_or_else(|| {
        StoreError::corrupt(format!("record {id} has the unknown lifecycle version {}", text.definition))
    })?;
    Ok(Record {
        id,
        lifecycle: Arc::clone(lifecycle),
        state: text.state,
        version: text.version,
        owner: text.owner,
        fields: text.fields.into_iter().map(|value| value.0).collect(),
        attempt: text.attempt,
        created_at: text.created_at,
        updated_at: text.updated_at,
        started_at: text.started_at,
        finished_at: text.finished_at,
        entered_at: text.entered_at,
        hold: text.hold,
        timers: text.timers,
        execution: text.execution,
        committed_token: text.committed,
        payload: text.payload,
        stuck_reason: text.stuck,
        trace: text.trace,
    })
}
