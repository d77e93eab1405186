//! Authority of an operation's author, and answers to external checks.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::operation::LogOperation;
use crate::decide::CheckQuery;

/// Authority of the author at the operation's own time, judged from the delegation graph as known now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Authority {
    Held(AuthorityGrant),
    /// A delegation in the chain had expired and none is revoked. The operation waits for a renewal.
    Suspended {
        reason: Arc<str>,
    },
    /// No valid chain covers the operation: unknown, not delegated, or revoked.
    Withdrawn {
        reason: Arc<str>,
    },
}

/// Rights with which an operation is decided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorityGrant {
    #[serde(default)]
    pub roles: Vec<Arc<str>>,
    #[serde(default)]
    pub capabilities: Vec<Arc<str>>,
    /// The author has the user's own authority.
    #[serde(default)]
    pub user: bool,
}

/// Answers the external checks of lifecycles. The fold asks each time it decides an operation, so that no answer
/// outlives its basis. Between two calls of [`Fold::reevaluate`](super::Fold::reevaluate) the answers must not change.
pub trait CheckResolver {
    /// Returns `None` if the answer is not known now; the operation then waits.
    fn resolve(&self, operation: &LogOperation, query: &CheckQuery) -> Option<Map<String, Json>>;
}

impl<F: Fn(&LogOperation, &CheckQuery) -> Option<Map<String, Json>>> CheckResolver for F {
    fn resolve(&self, operation: &LogOperation, question: &CheckQuery) -> Option<Map<String, Json>> {
        self(operation, question)
    }
}

/// For lifecycles without checks.
impl CheckResolver for () {
    fn resolve(&self, _: &LogOperation, _: &CheckQuery) -> Option<Map<String, Json>> {
        None
    }
}
