//! How a record stands to others: whom it names in its fields, and who names it.

use std::sync::Arc;

use onceward_core::record::Actor;
use onceward_core::value::{RecordId, Value};
use onceward_store::{LinkQuery, Store};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::queries::AuthorizedReader;

/// Records on one page of one link, or in one list of a record's own: each is looked at, whether the actor may see it.
const MAX_RELATED_RECORDS: usize = 100;

/// Looks at the store for one page of a link, where few of the records may be seen.
const MAX_SCANS_PER_PAGE: usize = 200;

/// Which of a record's relations.
#[derive(Clone, Debug, Default)]
pub struct RelationsQuery {
    /// Only the link of this name; else all, each from its beginning, and the record's own references.
    pub link: Option<Arc<str>>,
    /// Where the page before ended: its [`RelatedPage::next`].
    pub after: Option<u64>,
    pub limit: usize,
}

/// A record at the other end. What else there is to it may be large, and is had by its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelatedRecord {
    pub id: RecordId,
    pub lifecycle: Arc<str>,
    pub state: Arc<str>,
}

/// What the actor may see of a record's relations.
#[derive(Clone, Debug, Default)]
pub struct RecordRelations {
    /// The records that its own fields name, by field.
    pub refs: Vec<(Arc<str>, Vec<RelatedRecord>)>,
    /// The records that name it, by the link's name.
    pub links: Vec<(Arc<str>, RelatedPage)>,
}

/// A page of a link. It may have fewer records than were asked for, or none, and still tell where the next one starts.
#[derive(Clone, Debug, Default)]
pub struct RelatedPage {
    pub records: Vec<RelatedRecord>,
    pub next: Option<u64>,
}

impl<S: Store + 'static> Engine<S> {
    /// A record's relations. `None` where there is no record that the actor may see; records at the other end that it may not
    /// see are left out.
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

    /// A page of those that the actor may see. Those that it may not see neither shorten it nor make it go on: their number is told to
    /// nobody, as far as so many are looked at.
    async fn linked_page(
        &self,
        reader: &mut AuthorizedReader<'_, S>,
        mut query: LinkQuery,
    ) -> Result<RelatedPage, EngineError> {
        let (max_records, mut related) = (query.limit, RelatedPage::default());
        for _ in 0..MAX_SCANS_PER_PAGE {
            // No more than fit: the place after the last of them is the next page's.
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

/// The records that a field names.
fn referenced_ids(value: &Value) -> Vec<RecordId> {
    match value {
        Value::Ref(id) => vec![*id],
        Value::List(items) => items.iter().flat_map(referenced_ids).take(MAX_RELATED_RECORDS).collect(),
        _ => Vec::new(),
    }
}

/// Those that the actor may see, brought up to date.
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
            // Nobody can say what it is now: whoever asks for it by its id is told why.
            Err(error) if error.is_single_operation_fault() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(records)
}
