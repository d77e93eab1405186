//! Operations as nodes author them.

use std::sync::Arc;

use onceward_core::fold::{Grant, LogCall, LogOperation, Moment, OperationId, Standing};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};

/// So many seconds into the story.
pub fn at(seconds: i64) -> Moment {
    Moment { wall: Time::from_secs(1_800_000_000 + seconds), logical: 0 }
}

/// A node holding these capabilities.
pub fn with(capabilities: &[&str]) -> Standing {
    let capabilities = capabilities.iter().map(|name| Arc::from(*name)).collect();
    Standing::Held(Grant { capabilities, ..Grant::default() })
}

/// A record's id that a test can name beforehand.
pub fn id_of(name: &str) -> RecordId {
    let hash = Sha256::digest(name.as_bytes());
    let bits = hash.iter().take(16).fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
    let bits = bits & !(0xf << 76 | 0b11 << 62) | 7 << 76 | 0b10 << 62;
    RecordId(uuid::Uuid::from_u128(bits))
}

/// Something that a node says at a moment.
pub struct Saying {
    author: Arc<str>,
    moment: Moment,
    after: Vec<OperationId>,
}

pub fn node(author: &str, moment: Moment) -> Saying {
    Saying { author: author.into(), moment, after: Vec::new() }
}

impl Saying {
    pub fn after(mut self, operations: &[&LogOperation]) -> Self {
        self.after.extend(operations.iter().map(|operation| operation.id));
        self
    }

    /// Building on an operation that the test has no more than the id of.
    pub fn after_id(mut self, id: OperationId) -> Self {
        self.after.push(id);
        self
    }

    pub fn creates(self, lifecycle: &str, name: &str, fields: Json) -> LogOperation {
        self.says(LogCall::Create {
            lifecycle: lifecycle.into(),
            id: Some(id_of(name)),
            fields: object(fields),
            payload: None,
        })
    }

    pub fn fires(self, record: &str, event: &str, input: Json) -> LogOperation {
        self.says(LogCall::Fire { record: id_of(record), event: event.into(), input: object(input) })
    }

    /// With the hash of it all as its id, as a signed log would have it.
    pub fn says(self, call: LogCall) -> LogOperation {
        let mut operation = LogOperation {
            id: OperationId([0; 32]),
            author: self.author,
            moment: self.moment,
            after: self.after,
            call,
        };
        operation.id = OperationId(Sha256::digest(format!("{operation:?}").as_bytes()).into());
        operation
    }
}

fn object(json: Json) -> Map<String, Json> {
    match json {
        Json::Object(map) => map,
        Json::Null => Map::new(),
        other => panic!("{other} is not an object"),
    }
}
