//! Lifecycles.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// All lifecycles.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LifecycleList {
    pub lifecycles: Vec<Lifecycle>,
}

/// A lifecycle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Lifecycle {
    pub name: String,
    pub about: String,
    /// Identifies this version.
    pub hash: String,
    /// Hash of the server's own file, if it is not the active version. `onceward lifecycle use` activates it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_hash: Option<String>,
    /// Default length of a lease; null if workers do not lease its records.
    pub lease: Option<String>,
    pub states: Vec<State>,
    pub fields: Vec<Field>,
    /// Events that callers can fire.
    pub events: Vec<String>,
    /// Number of records per state, limited to records that the caller may count. States without records are omitted.
    pub counts: BTreeMap<String, u64>,
}

/// A state of a lifecycle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct State {
    pub name: String,
    pub about: String,
    /// Whether a record ends in this state.
    #[serde(rename = "final")]
    pub is_final: bool,
    /// Whether workers may lease a record in this state.
    pub ready: bool,
}

/// A field of a lifecycle's records.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Field {
    pub name: String,
    pub about: String,
}
