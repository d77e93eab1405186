//! Who points to a record.

use onceward_core::model::LinkSource;
use onceward_core::value::RecordId;

/// Which records that point to one to name, in the order of their creation.
#[derive(Clone, Debug)]
pub struct LinkQuery {
    pub target: RecordId,
    /// By one of these fields.
    pub from: Vec<LinkSource>,
    /// Where the page before ended: its [`LinkPage::next`].
    pub after: Option<u64>,
    pub limit: usize,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkPage {
    /// Each once, by however many fields it points there.
    pub records: Vec<RecordId>,
    /// Where the next page starts; `None` on the last.
    pub next: Option<u64>,
}

impl LinkPage {
    /// A page of what was found by each field: of every one at least one more than the page has, where there are so many.
    pub(crate) fn from_found(mut found: Vec<(u64, RecordId)>, limit: usize) -> Self {
        found.sort_unstable();
        found.dedup();
        let next = if found.len() > limit { found.get(limit.saturating_sub(1)).map(|(row, _)| *row) } else { None };
        found.truncate(limit);
        Self { records: found.into_iter().map(|(_, id)| id).collect(), next }
    }
}
