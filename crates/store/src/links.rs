//! Queries for the records that link to a record.

use onceward_core::model::LinkSource;
use onceward_core::value::RecordId;

/// Selects a page of the records that link to `target`, in the order of creation.
#[derive(Clone, Debug)]
pub struct LinkQuery {
    pub target: RecordId,
    /// Only links from these fields.
    pub from: Vec<LinkSource>,
    /// [`LinkPage::next`] of the previous page.
    pub after: Option<u64>,
    pub limit: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkPage {
    /// Each record once, even if several of its fields link to the target.
    pub records: Vec<RecordId>,
    /// Cursor for the next page; `None` on the last page.
    pub next: Option<u64>,
}

impl LinkPage {
    /// Builds a page from the matches of all fields. For each field, `found` must contain at least `limit + 1` matches,
    /// or all of them.
    pub(crate) fn from_found(mut found: Vec<(u64, RecordId)>, limit: usize) -> Self {
        found.sort_unstable();
        found.dedup();
        let next = if found.len() > limit { found.get(limit.saturating_sub(1)).map(|(row, _)| *row) } else { None };
        found.truncate(limit);
        Self { records: found.into_iter().map(|(_, id)| id).collect(), next }
    }
}
