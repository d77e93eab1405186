//! Relations between records.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A record's relations, limited to related records that the caller may see.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Relations {
    /// Records that this record references, by field. Empty if `name` is given.
    pub refs: BTreeMap<String, Vec<RelatedRecord>>,
    /// Records that reference this one, by the link names of its lifecycle.
    pub links: BTreeMap<String, RelatedPage>,
}

/// A page of a link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RelatedPage {
    pub records: Vec<RelatedRecord>,
    /// Cursor of the next page; null on the last page.
    pub next: Option<String>,
}

/// A related record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RelatedRecord {
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = Uuid))]
    pub id: Uuid,
    pub lifecycle: String,
    pub state: String,
}
