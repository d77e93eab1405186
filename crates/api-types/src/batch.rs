//! What a batch answers for each item.

use serde::{Deserialize, Serialize};

/// What a batch answers for an item that was carried out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum BatchReturn {
    /// The record's id, state and version.
    #[default]
    Summary,
    /// The record, as long as the response has space for it; then the summary.
    Record,
}

/// Omits what the server assumes anyway.
pub(crate) fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
