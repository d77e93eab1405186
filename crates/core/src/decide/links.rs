//! How many records may point to one by a link that declares a bound: what the checker reckons with, and expressions pay
//! for, must hold whatever outsiders do.

use super::draft::Draft;
use super::halt::{Halt, Step, refusal};
use super::snapshot::ref_changes;
use crate::record::Record;

/// Refuse a change by which a record would come to be one too many.
pub(super) fn check(draft: &Draft, before: Option<&Record>, after: &Record, event: &str) -> Step<()> {
    for change in ref_changes(before, after).iter().filter(|change| change.added) {
        let Some(target) = draft.find(change.target)? else { continue };
        let field = &change.field;
        for link in &target.lifecycle.links {
            let Some(max) = link.max else { continue };
            let source = link.from.iter().any(|from| from.lifecycle == after.lifecycle.name && from.field == *field);
            if source && draft.link_members(target.id, link)?.len() >= max as usize {
                let reason = format!("`{}` of the record that `{field}` names has its {max} already", link.name);
                return Err(Halt::Refuse(refusal(after, event, 409, "link_full", reason)));
            }
        }
    }
    Ok(())
}
