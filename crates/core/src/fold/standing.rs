//! What the fold is told of authority, and whom it asks.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value as Json};

use super::operation::LogOperation;
use crate::decide::Question;

/// What the author of an operation held at the operation's own time, as the delegation graph is known now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Standing {
    Held(Grant),
    /// A delegation in the chain had run out and nothing is revoked: the operation waits for a renewal.
    Suspended {
        why: Arc<str>,
    },
    /// No valid chain covers it: unknown, not delegated, or revoked.
    Withdrawn {
        why: Arc<str>,
    },
}

/// The rights with which an operation is decided.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grant {
    #[serde(default)]
    pub roles: Vec<Arc<str>>,
    #[serde(default)]
    pub capabilities: Vec<Arc<str>>,
    /// The author speaks with the user's own authority.
    #[serde(default)]
    pub user: bool,
}

/// Whoever answers the checks of lifecycles. Asked each time an operation is decided, so that no answer outlives what it
/// was founded on; between two calls of [`Fold::rejudge`](super::Fold::rejudge) it answers the same.
pub trait Outside {
    /// `None`: not known now; the operation waits.
    fn answer(&self, operation: &LogOperation, question: &Question) -> Option<Map<String, Json>>;
}

impl<F: Fn(&LogOperation, &Question) -> Option<Map<String, Json>>> Outside for F {
    fn answer(&self, operation: &LogOperation, question: &Question) -> Option<Map<String, Json>> {
        self(operation, question)
    }
}

/// For lifecycles without checks.
impl Outside for () {
    fn answer(&self, _: &LogOperation, _: &Question) -> Option<Map<String, Json>> {
        None
    }
}
