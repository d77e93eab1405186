//! Limits on the number of records in a link. The static analysis and the cost of expressions rely on them.

use super::draft::Draft;
use super::halt::{DecideResult, Halt, record_refusal};
use super::snapshot::ref_changes;
use crate::record::Record;

/// Refuses a change that would exceed the `max` of a link.
pub(super) fn enforce_link_limits(
    draft: &Draft,
    before: Option<&Record>,
    after: &Record,
    event: &str,
) -> DecideResult<()> {
    for change in ref_changes(before, after).iter().filter(|change| change.is_added) {
        let Some(target) = draft.find(change.target)? else { continue };
        let field = &change.field;
        for link in &target.lifecycle.links {
            let Some(max) = link.max else { continue };
            let is_source =
                link.sources.iter().any(|from| from.lifecycle == after.lifecycle.name && from.field == *field);
            if is_source && draft.linked_ids(target.id, link)?.len() >= max as usize {
                let reason =
                    format!("the link `{}` of the record in `{field}` already has its maximum of {max}", link.name);
                return Err(Halt::Refuse(record_refusal(after, event, 409, "link_full", reason)));
            }
        }
    }
    Ok(())
}
