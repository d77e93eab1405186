//! Pruning on request.

use serde::{Deserialize, Serialize};

/// What to prune. Durations are written as in lifecycle files: `30d`, `12h`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PruneBody {
    /// Prune records that ended longer ago than this; defaults to the server's retention policy, which keeps
    /// records forever unless it is set otherwise. Lifecycles with their own retention keep it unless `only` names them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(example = "30d", pattern = "^([0-9]{1,4}(us|ms|s|m|h|d)){1,3}$"))]
    pub older_than: Option<String>,
    /// Prune idempotency keys older than this; defaults to the server's retention policy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(pattern = "^([0-9]{1,4}(us|ms|s|m|h|d)){1,3}$"))]
    pub keys_older_than: Option<String>,
    /// Only records of these lifecycles.
    #[serde(default, deserialize_with = "crate::bounded::names")]
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub only: Vec<String>,
    /// Only report what would be pruned.
    #[serde(default)]
    pub dry_run: bool,
}

/// What was pruned, or would be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PruneReport {
    /// Pruned records.
    pub records: u64,
    /// Log entries of the pruned records.
    pub entries: u64,
    /// Pruned idempotency keys with their stored replies.
    pub idempotency_keys: u64,
    /// Records that are old enough but kept, because their reference group is not.
    pub held: u64,
    /// Records that were kept because they changed during the call.
    pub busy: u64,
    /// `seq` of the last checkpoint.
    pub checkpoint: Option<u64>,
    /// Pruned records by lifecycle, owner and final state.
    pub shares: Vec<LifecyclePruneReport>,
    pub damaged: Vec<PruneBlocked>,
    /// How long the call kept what, for people.
    pub retention: String,
}

/// Pruned records of one lifecycle, owner and final state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LifecyclePruneReport {
    pub lifecycle: String,
    pub owner: String,
    pub state: String,
    pub records: u64,
}

/// A record that differs from its log. It is not pruned.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PruneBlocked {
    pub record: String,
    pub why: String,
}
