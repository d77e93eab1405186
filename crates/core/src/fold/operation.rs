//! One operation as the log has it.

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

/// The hash of what was signed: no two operations share one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OperationId(pub [u8; 32]);

impl OperationId {
    /// What ids of new records derive from: the same whenever and wherever the operation is decided. Hashed, since
    /// records of one operation count up from its seed, and neighbouring ids must not meet.
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

/// What a node has signed and said.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LogOperation {
    pub id: OperationId,
    /// The node that signed it. Also the last word where clocks are equal, so nobody can speak in another's place of the
    /// order.
    pub author: Arc<str>,
    pub timestamp: HybridTimestamp,
    /// Operations that this one builds on. An honest author names its own last one among them.
    #[serde(default)]
    pub dependencies: Vec<OperationId>,
    pub call: LogCall,
}

/// What may be said on a log. There is no lease, no token and no expected version: those are between a caller and an
/// engine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum LogCall {
    Create {
        lifecycle: Arc<str>,
        /// Given by the author, or derived from the operation's id.
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
    /// As `decide` takes it, with the rights that the author has been found to hold.
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
