//! Versions of lifecycles, and version migration of records.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The versions of a lifecycle.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct VersionList {
    /// Oldest first.
    pub versions: Vec<LifecycleVersion>,
}

/// A version of a lifecycle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LifecycleVersion {
    pub lifecycle: String,
    pub hash: String,
    /// Whether new records use this version.
    pub current: bool,
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub added_at: Timestamp,
    /// When it last became current.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub current_since: Timestamp,
    /// The operator that activated it; omitted if no operator did. Only for operators.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Number of records of this version that have not ended. Only for operators.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub live_records: Option<u64>,
    /// Number of records of this version that have ended. Only for operators.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub ended_records: Option<u64>,
}

/// The version to activate.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ActivateVersionBody {
    /// The version's hash, or a prefix of at least 8 characters.
    #[cfg_attr(feature = "openapi", schema(min_length = 8, max_length = 64))]
    pub hash: String,
}

/// The version that new records use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CurrentVersion {
    pub lifecycle: String,
    pub hash: String,
}

/// The records to migrate.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MigrateRecordsBody {
    /// Old state to new state, for states that the target version names differently.
    #[serde(default, deserialize_with = "crate::bounded::name_map")]
    pub map: BTreeMap<String, String>,
    /// Only records of this version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<String>,
    /// The target version; defaults to the current one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub to: Option<String>,
    /// Also migrate records that have ended.
    #[serde(default)]
    pub ended: bool,
    /// Only report which records can be migrated.
    #[serde(default)]
    pub dry_run: bool,
    /// The `next` of the previous step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub after: Option<u64>,
    /// Maximum number of records in this step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1000))]
    pub limit: Option<usize>,
}

/// The result of one step.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MigrationStep {
    /// The target version.
    pub to: String,
    /// Number of records that were left to migrate before this step.
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub records: u64,
    /// Number of records that this step migrated.
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub moved: u64,
    pub skipped: Vec<SkippedRecord>,
    /// Send it as `after` for the next step; null after the last step.
    #[cfg_attr(feature = "openapi", schema(minimum = 0))]
    pub next: Option<u64>,
}

/// A record that was not migrated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SkippedRecord {
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = Uuid))]
    pub record: Uuid,
    pub state: String,
    pub code: String,
    pub reason: String,
}
