//! Relations of a record: the records it references, and the records that reference it.

use std::sync::Arc;

use onceward_core::record::Actor;
use onceward_core::value::{RecordId, Value};
use onceward_store::{LinkQuery, Store};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::queries::AuthorizedReader;

/// Each related record costs a permission check.
const MAX_RELATED_RECORDS: usize = 100;

/// Bounds the store queries of one page if few records are visible.
const MAX_SCANS_PER_PAGE: usize = 200;

/// Selects a part of a record's relations.
#[derive(Clone, Debug, Default)]
pub struct RelationsQuery {
    /// Only this link; `None` for the first page of all links, and the record's own references.
    pub link: Option<Arc<str>>,
    /// [`RelatedPage::next`] of the previous page.
    pub after: Option<u64>,
    pub limit: usize,
}

/// A related record. Read the rest by its id; it may be large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelatedRecord {
    pub id: RecordId,
    pub lifecycle: Arc<str>,
    pub state: Arc<str>,
}

/// The relations of a record that the actor may see.
#[derive(Clone, Debug, Default)]
pub struct RecordRelations {
    /// Records that its fields reference, by field.
    pub refs: Vec<(Arc<str>, Vec<RelatedRecord>)>,
    /// Records that reference it, by link name.
    pub links: Vec<(Arc<str>, RelatedPage)>,
}

/// A page of a link. It may have fewer records than requested, or none, and still have a next page.
#[derive(Clone, Debug, Default)]
pub struct RelatedPage {
    pub records: Vec<RelatedRecord>,
    pub next: Option<u64>,
}

impl<S: Store + 'static> Engine<S> {
    /// Returns a record's relations. `None` if the record does not exist or the actor may not see it. Related records
    /// that the actor may not see are left out.
    pub async fn relations(
        &self,
        actor: &Actor,
        id: RecordId,
        query: &RelationsQuery,
    ) -> Result<Option<RecordRelations>, EngineError> {
        let mut reader = AuthorizedReader::new(&self.shared, actor).await?;
        let Some(record) = reader.get(id).await? else { return Ok(None) };
        let mut relations = RecordRelations::default();
        if query.link.is_none() {
            for (field, value) in record.lifecycle.fields.iter().zip(&record.fields) {
                let ids = referenced_ids(value);
                if ids.is_empty() {
                    continue;
                }
                let visible = load_visible(&mut reader, ids).await?;
                if !visible.is_empty() {
                    relations.refs.push((Arc::clone(&field.name), visible));
                }
            }
        }
        let is_selected = |name: &Arc<str>| query.link.as_ref().is_none_or(|link| link == name);
        for link in record.lifecycle.links.iter().filter(|link| is_selected(&link.name)) {
            let after = query.after.filter(|_| query.link.is_some());
            let link_query = LinkQuery {
                target: id,
                from: link.sources.clone(),
                after,
                limit: query.limit.clamp(1, MAX_RELATED_RECORDS),
            };
            relations.links.push((Arc::clone(&link.name), self.linked_page(&mut reader, link_query).await?));
        }
        Ok(Some(relations))
    }

    /// Returns a page of visible records. Invisible records neither shorten the page nor produce a next one, so their
    /// number stays hidden, as far as the scan limit allows.
    async fn linked_page(
        &self,
        reader: &mut AuthorizedReader<'_, S>,
        mut query: LinkQuery,
    ) -> Result<RelatedPage, EngineError> {
        let (max_records, mut related) = (query.limit, RelatedPage::default());
        for _ in 0..MAX_SCANS_PER_PAGE {
            // At most as many as fit: the next page starts after the last of them.
            query.limit = max_records.saturating_sub(related.records.len());
            let is_full = query.limit == 0;
            if is_full {
                query.limit = MAX_RELATED_RECORDS;
            }
            let page = self.shared.store.linked_records(&query).await?;
            let visible = load_visible(reader, page.records).await?;
            if is_full {
                if !visible.is_empty() {
                    return Ok(related);
                }
            } else {
                related.records.extend(visible);
                related.next = page.next;
            }
            match page.next {
                None => return Ok(RelatedPage { next: None, ..related }),
                next => query.after = next,
            }
        }
        Ok(related)
    }
}

/// Returns the records that a field references.
fn referenced_ids(value: &Value) -> Vec<RecordId> {
    match value {
        Value::Ref(id) => vec![*id],
        Value::List(items) => items.iter().flat_map(referenced_ids).take(MAX_RELATED_RECORDS).collect(),
        _ => Vec::new(),
    }
}

/// Returns the visible records, after firing their due timers.
async fn load_visible<S: Store>(
    reader: &mut AuthorizedReader<'_, S>,
    ids: Vec<RecordId>,
) -> Result<Vec<RelatedRecord>, EngineError> {
    let mut records = Vec::new();
    for id in ids {
        match reader.get(id).await {
            Ok(record) => records.extend(record.map(|record| RelatedRecord {
                id,
                lifecycle: Arc::clone(&record.lifecycle.name),
                state: Arc::clone(record.state_name()),
            })),
            // The record's current state is unknown; `get` with its id returns the error.
            Err(error) if error.is_single_operation_fault() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(records)
}
