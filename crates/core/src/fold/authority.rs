//! What the fold is told of authority, and whom it asks.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::operation::LogOperation;
use crate::decide::CheckQuery;

/// What the author of an operation held at the operation's own time, as the delegation graph is known now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Authority {
    Held(AuthorityGrant),
    /// A delegation in the chain had run out and nothing is revoked: the operation waits for a renewal.
    Suspended {
        reason: Arc<str>,
    },
    /// No valid chain covers it: unknown, not delegated, or revoked.
    Withdrawn {
        reason: Arc<str>,
    },
}

/// The rights with which an operation is decided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthorityGrant {
    #[serde(default)]
    pub roles: Vec<Arc<str>>,
    #[serde(default)]
    pub capabilities: Vec<Arc<str>>,
    /// The author speaks with the user's own authority.
    #[serde(default)]
    pub user: bool,
}

/// Whoever answers the checks of lifecycles. Asked each time an operation is decided, so that no answer outlives what it
/// was founded on; between two calls of [`Fold::reevaluate`](super::Fold::rejudge) it answers the same.
pub trait CheckResolver {
    /// `None`: not known now; the operation waits.
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
