//! The difference between two versions of a record.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use onceward_core::model::Lifecycle;
use onceward_core::record::{Execution, FencingToken, PayloadRef, Record, Timer};
use onceward_core::time::Time;
use onceward_core::trace::TraceContext;
use onceward_core::value::{RecordId, Value};
use serde::{Deserialize, Serialize};

use crate::value_json::ValueJson;

/// The changed values of a record; an absent value did not change. `updated_at` is the time of the log entry. Values
/// that never change are in the log entry itself or in the record's first entry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordDiff {
    /// Present only in a record's first entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<CreationInfo>,
    /// Hash of the version that the record was migrated to. In that case the diff contains all fields, as in a first
    /// entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub migrated_to: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<Arc<str>>,
    /// Changed fields by name. In a first entry and after a version migration, all fields that are not null.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    fields: BTreeMap<Arc<str>, ValueJson>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entered_at: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timers: Option<Vec<Timer>>,
    /// The complete execution, because heartbeats may have extended its expiry without a log entry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<Execution>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub committed: Option<FencingToken>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stuck: Option<StuckChange>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CreationInfo {
    pub lifecycle: Arc<str>,
    /// Hash of the record's lifecycle version.
    pub definition: Arc<str>,
    pub owner: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub payload: Option<PayloadRef>,
    /// Trace context of the request that created the record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<TraceContext>,
}

/// The record became stuck, or is no longer stuck.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StuckChange {
    Set(Arc<str>),
    Cleared,
}

impl RecordDiff {
    pub fn compute(before: Option<&Record>, after: &Record) -> Self {
        let Some(before) = before else { return Self::for_creation(after) };
        let is_migrated = before.lifecycle.hash != after.lifecycle.hash;
        let changed = after.fields.iter().zip(&before.fields).zip(&after.lifecycle.fields);
        Self {
            created: None,
            migrated_to: is_migrated.then(|| Arc::clone(&after.lifecycle.hash)),
            state: (is_migrated || before.state != after.state).then(|| Arc::clone(after.state_name())),
            fields: if is_migrated {
                non_null_fields(after)
            } else {
                changed
                    .filter(|((new, old), _)| new != old)
                    .map(|((new, _), field)| (Arc::clone(&field.name), ValueJson(new.clone())))
                    .collect()
            },
            attempt: changed_value(&before.attempt, &after.attempt),
            started_at: changed_value(&before.started_at, &after.started_at).flatten(),
            finished_at: changed_value(&before.finished_at, &after.finished_at).flatten(),
            entered_at: changed_value(&before.entered_at, &after.entered_at),
            hold: changed_value(&before.hold, &after.hold),
            timers: changed_value(&before.timers, &after.timers),
            execution: changed_value(&before.execution, &after.execution).flatten(),
            committed: changed_value(&before.committed_token, &after.committed_token).flatten(),
            stuck: changed_value(&before.stuck_reason, &after.stuck_reason)
                .map(|stuck| stuck.map_or(StuckChange::Cleared, StuckChange::Set)),
        }
    }

    fn for_creation(after: &Record) -> Self {
        Self {
            created: Some(CreationInfo {
                lifecycle: Arc::clone(&after.lifecycle.name),
                definition: Arc::clone(&after.lifecycle.hash),
                owner: Arc::clone(&after.owner),
                payload: after.payload,
                trace: after.trace,
            }),
            migrated_to: None,
            state: Some(Arc::clone(after.state_name())),
            fields: non_null_fields(after),
            attempt: (after.attempt != 0).then_some(after.attempt),
            started_at: after.started_at,
            finished_at: after.finished_at,
            entered_at: None,
            hold: (after.hold != 0).then_some(after.hold),
            timers: (!after.timers.is_empty()).then(|| after.timers.clone()),
            execution: after.execution.clone(),
            committed: after.committed_token,
            stuck: after.stuck_reason.clone().map(StuckChange::Set),
        }
    }

    /// Returns the changed fields by name.
    pub fn fields(&self) -> impl Iterator<Item = (&Arc<str>, &Value)> {
        self.fields.iter().map(|(name, value)| (name, &value.0))
    }

    /// Returns the record after the change, or `None` if the diff does not match `before`. `lifecycles` is keyed by
    /// hash; a version migration needs it.
    pub(crate) fn apply(
        &self,
        before: Record,
        version: u64,
        at: Time,
        lifecycles: &HashMap<Arc<str>, Arc<Lifecycle>>,
    ) -> Option<Record> {
        let mut record = before;
        if let Some(hash) = &self.migrated_to {
            record.lifecycle = Arc::clone(lifecycles.get(hash)?);
            record.fields = vec![Value::Null; record.lifecycle.fields.len()];
            self.state.as_ref()?;
        }
        record.version = version;
        record.updated_at = at;
        if let Some(state) = &self.state {
            record.state = record.lifecycle.state_index(state)?;
        }
        for (name, value) in &self.fields {
            let slot = record.lifecycle.field_index(name)?;
            record.fields[usize::from(slot)] = value.0.clone();
        }
        set_if_some(&mut record.attempt, self.attempt);
        set_if_some(&mut record.entered_at, self.entered_at);
        set_if_some(&mut record.hold, self.hold);
        set_if_some(&mut record.timers, self.timers.clone());
        record.started_at = self.started_at.or(record.started_at);
        record.finished_at = self.finished_at.or(record.finished_at);
        record.committed_token = self.committed.or(record.committed_token);
        if self.execution.is_some() {
            record.execution.clone_from(&self.execution);
        }
        match &self.stuck {
            Some(StuckChange::Set(why)) => record.stuck_reason = Some(Arc::clone(why)),
            Some(StuckChange::Cleared) => record.stuck_reason = None,
            None => {}
        }
        Some(record)
    }
}

fn non_null_fields(record: &Record) -> BTreeMap<Arc<str>, ValueJson> {
    let fields = record.fields.iter().zip(&record.lifecycle.fields).filter(|(value, _)| !value.is_null());
    fields.map(|(value, field)| (Arc::clone(&field.name), ValueJson(value.clone()))).collect()
}

impl CreationInfo {
    /// Returns the empty record to which the first entry is applied.
    pub(crate) fn initial_record(&self, id: RecordId, lifecycle: &Arc<Lifecycle>, at: Time) -> Record {
        Record {
            id,
            lifecycle: Arc::clone(lifecycle),
            state: 0,
            version: 0,
            owner: Arc::clone(&self.owner),
            fields: vec![Value::Null; lifecycle.fields.len()],
            attempt: 0,
            created_at: at,
            updated_at: at,
            started_at: None,
            finished_at: None,
            entered_at: at,
            hold: 0,
            timers: Vec::new(),
            execution: None,
            committed_token: None,
            payload: self.payload,
            stuck_reason: None,
            trace: self.trace,
        }
    }
}

fn changed_value<T: Clone + PartialEq>(before: &T, after: &T) -> Option<T> {
    (before != after).then(|| after.clone())
}

fn set_if_some<T>(target: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *target = value;
    }
}
