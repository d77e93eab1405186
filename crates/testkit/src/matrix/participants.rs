//! Callers, subjects and trials of a matrix.

use onceward_core::record::Actor;
use onceward_core::value::RecordId;
use serde_json::{Map, Value as Json};

use crate::SimulatedLease;

/// A kind of caller, with an actor of that kind.
#[derive(Clone, Debug)]
pub struct MatrixCaller {
    pub name: &'static str,
    pub actor: Actor,
}

/// The record of a scene, with its lease if it has one.
#[derive(Clone, Debug)]
pub struct SceneSubject {
    pub record: RecordId,
    pub lease: Option<SimulatedLease>,
}

impl From<RecordId> for SceneSubject {
    fn from(record: RecordId) -> Self {
        Self { record, lease: None }
    }
}

impl From<SimulatedLease> for SceneSubject {
    fn from(lease: SimulatedLease) -> Self {
        Self { record: lease.record, lease: Some(lease) }
    }
}

/// A call to try in every state.
#[derive(Clone, Debug)]
pub enum MatrixTrial {
    /// An event with its input. Tried for every caller, and as the `require` of another record.
    Fire {
        event: String,
        input: Map<String, Json>,
    },
    Lease,
    Start,
    Heartbeat,
    /// With `finish`: both in one call.
    Commit {
        result: Json,
        finish: bool,
    },
    Finish,
    /// With the worker's `retryable` flag, if it gives one.
    Fail {
        code: String,
        retryable: Option<bool>,
    },
    Yield,
    LoseLease,
    /// Waits until a timer is due or the lease expires.
    WaitUntilDue,
}

impl MatrixTrial {
    pub fn name(&self) -> String {
        match self {
            Self::Fire { event, input } if input.is_empty() => event.clone(),
            Self::Fire { event, input } => {
                let given: Vec<_> = input.iter().map(|(name, value)| format!("{name}={value}")).collect();
                format!("{event} {}", given.join(" "))
            }
            Self::Lease => "lease".to_owned(),
            Self::Start => "start".to_owned(),
            Self::Heartbeat => "heartbeat".to_owned(),
            Self::Commit { finish: true, .. } => "commit and finish".to_owned(),
            Self::Commit { finish: false, .. } => "commit".to_owned(),
            Self::Finish => "finish".to_owned(),
            Self::Fail { code, retryable: Some(true) } => format!("fail {code} for now"),
            Self::Fail { code, .. } => format!("fail {code}"),
            Self::Yield => "yield".to_owned(),
            Self::LoseLease => "lost".to_owned(),
            Self::WaitUntilDue => "time".to_owned(),
        }
    }
}
