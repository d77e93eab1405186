//! Operations as they are in the log.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};
use sha2::{Digest, Sha256};

use super::authority::AuthorityGrant;
use super::clock::HybridTimestamp;
use crate::decide::{Call, CreateRecord, Operation};
use crate::record::{Actor, PayloadRef};
use crate::value::RecordId;

/// Hash of the signed content; unique.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OperationId(pub [u8; 32]);

impl OperationId {
    /// Seed for the ids of new records, the same on every node. It is hashed, because records of one operation count up
    /// from the seed, and ranges of similar operation ids must not overlap.
    pub(super) fn seed(self) -> u128 {
        let hash = Sha256::new().chain_update(b"onceward fold\n").chain_update(self.0).finalize();
        hash.iter().take(16).fold(0, |seed, byte| seed << 8 | u128::from(*byte))
    }
}

impl fmt::Display for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for OperationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An operation signed by a node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogOperation {
    pub id: OperationId,
    /// The node that signed it. It orders operations with equal timestamps, so that no node can take another's
    /// position.
    pub author: Arc<str>,
    pub timestamp: HybridTimestamp,
    /// Operations that this one depends on. An honest author includes its own previous operation.
    #[serde(default)]
    pub dependencies: Vec<OperationId>,
    pub call: LogCall,
}

/// A call in the log. It has no lease, no token and no expected version: those exist only between a caller and an
/// engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum LogCall {
    Create {
        lifecycle: Arc<str>,
        /// From the author, or else derived from the operation's id.
        #[serde(default)]
        id: Option<RecordId>,
        #[serde(default)]
        fields: Map<String, Json>,
        #[serde(default)]
        payload: Option<PayloadRef>,
    },
    Fire {
        record: RecordId,
        event: Arc<str>,
        #[serde(default)]
        input: Map<String, Json>,
    },
}

impl LogOperation {
    /// Converts it to the input of `decide`, with the author's rights.
    pub(super) fn to_operation(&self, grant: &AuthorityGrant) -> Operation {
        let call = match &self.call {
            LogCall::Create { lifecycle, id, fields, payload } => Call::Create(CreateRecord {
                lifecycle: Arc::clone(lifecycle),
                id: *id,
                owner: None,
                fields: fields.clone(),
                payload: *payload,
            }),
            LogCall::Fire { record, event, input } => Call::Fire {
                record: *record,
                event: Arc::clone(event),
                input: input.clone(),
                token: None,
                if_version: None,
            },
        };
        let actor = Actor {
            id: Arc::clone(&self.author),
            roles: grant.roles.clone(),
            capabilities: grant.capabilities.clone(),
            user: grant.user,
        };
        Operation { seed: self.id.seed(), actor, call, check_answers: Vec::new(), trace: None }
    }
}
