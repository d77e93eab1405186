//! Builds operations as nodes author them.

use std::sync::Arc;

use onceward_core::fold::{Authority, AuthorityGrant, HybridTimestamp, LogCall, LogOperation, OperationId};
use onceward_core::time::Time;
use onceward_core::value::RecordId;
use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};

/// Returns a timestamp this many seconds after the start of the test.
pub fn timestamp_at(seconds: i64) -> HybridTimestamp {
    HybridTimestamp { wall_time: Time::from_secs(1_800_000_000 + seconds), logical_counter: 0 }
}

/// Returns the authority of a node with these capabilities.
pub fn authority_with(capabilities: &[&str]) -> Authority {
    let capabilities = capabilities.iter().map(|name| Arc::from(*name)).collect();
    Authority::Held(AuthorityGrant { capabilities, ..AuthorityGrant::default() })
}

/// Returns a record id that a test can derive from a name.
pub fn named_record_id(name: &str) -> RecordId {
    let hash = Sha256::digest(name.as_bytes());
    let bits = hash.iter().take(16).fold(0_u128, |bits, byte| bits << 8 | u128::from(*byte));
    let bits = bits & !(0xf << 76 | 0b11 << 62) | 7 << 76 | 0b10 << 62;
    RecordId(uuid::Uuid::from_u128(bits))
}

/// Builds an operation of an author at a timestamp.
pub struct OperationBuilder {
    author: Arc<str>,
    timestamp: HybridTimestamp,
    after: Vec<OperationId>,
}

pub fn operation_by(author: &str, timestamp: HybridTimestamp) -> OperationBuilder {
    OperationBuilder { author: author.into(), timestamp, after: Vec::new() }
}

impl OperationBuilder {
    pub fn after(mut self, operations: &[&LogOperation]) -> Self {
        self.after.extend(operations.iter().map(|operation| operation.id));
        self
    }

    /// Adds a dependency by id.
    pub fn after_id(mut self, id: OperationId) -> Self {
        self.after.push(id);
        self
    }

    pub fn create(self, lifecycle: &str, name: &str, fields: Json) -> LogOperation {
        self.build(LogCall::Create {
            lifecycle: lifecycle.into(),
            id: Some(named_record_id(name)),
            fields: object(fields),
            payload: None,
        })
    }

    pub fn fire(self, record: &str, event: &str, input: Json) -> LogOperation {
        self.build(LogCall::Fire { record: named_record_id(record), event: event.into(), input: object(input) })
    }

    /// Builds the operation. Its id is the hash of its content, as in a signed log.
    pub fn build(self, call: LogCall) -> LogOperation {
        let mut operation = LogOperation {
            id: OperationId([0; 32]),
            author: self.author,
            timestamp: self.timestamp,
            dependencies: self.after,
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
