//! How a record stands to others: whom it names in its fields, and who names it.

use std::sync::Arc;

use onceward_core::record::Actor;
use onceward_core::value::{RecordId, Value};
use onceward_store::{LinkQuery, Store};

use crate::engine::Engine;
use crate::error::EngineError;
use crate::reading::Reader;

/// Records on one page of one link, or in one list of a record's own: each is looked at, whether the actor may see it.
const MOST: usize = 100;

/// Looks at the store for one page of a link, where few of the records may be seen.
const LOOKS: usize = 200;

/// Which of a record's relations.
#[derive(Clone, Debug, Default)]
pub struct RelationsQuery {
    /// Only the link of this name; else all, each from its beginning, and the record's own references.
    pub link: Option<Arc<str>>,
    /// Where the page before ended: its [`Linked::next`].
    pub after: Option<u64>,
    pub limit: usize,
}

/// A record at the other end. What else there is to it may be large, and is had by its id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Neighbour {
    pub id: RecordId,
    pub lifecycle: Arc<str>,
    pub state: Arc<str>,
}

/// What the actor may see of a record's relations.
#[derive(Clone, Debug, Default)]
pub struct Relations {
    /// The records that its own fields name, by field.
    pub refs: Vec<(Arc<str>, Vec<Neighbour>)>,
    /// The records that name it, by the link's name.
    pub links: Vec<(Arc<str>, Linked)>,
}

/// A page of a link. It may have fewer records than were asked for, or none, and still tell where the next one starts.
#[derive(Clone, Debug, Default)]
pub struct Linked {
    pub records: Vec<Neighbour>,
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
    ) -> Result<Option<Relations>, EngineError> {
        let mut reader = Reader::new(&self.shared, actor).await?;
        let Some(record) = reader.get(id).await? else { return Ok(None) };
        let mut relations = Relations::default();
        if query.link.is_none() {
            for (field, value) in record.lifecycle.fields.iter().zip(&record.fields) {
                let named = named(value);
                if named.is_empty() {
                    continue;
                }
                let seen = seen(&mut reader, named).await?;
                if !seen.is_empty() {
                    relations.refs.push((Arc::clone(&field.name), seen));
                }
            }
        }
        let wanted = |name: &Arc<str>| query.link.as_ref().is_none_or(|link| link == name);
        for link in record.lifecycle.links.iter().filter(|link| wanted(&link.name)) {
            let after = query.after.filter(|_| query.link.is_some());
            let asked = LinkQuery { target: id, from: link.from.clone(), after, limit: query.limit.clamp(1, MOST) };
            relations.links.push((Arc::clone(&link.name), self.linked(&mut reader, asked).await?));
        }
        Ok(Some(relations))
    }

    /// A page of those that the actor may see. Those that it may not see neither shorten it nor make it go on: their number is told to
    /// nobody, as far as so many are looked at.
    async fn linked(&self, reader: &mut Reader<'_, S>, mut query: LinkQuery) -> Result<Linked, EngineError> {
        let (wanted, mut linked) = (query.limit, Linked::default());
        for _ in 0..LOOKS {
            // No more than fit: the place after the last of them is the next page's.
            query.limit = wanted.saturating_sub(linked.records.len());
            let is_full = query.limit == 0;
            if is_full {
                query.limit = MOST;
            }
            let page = self.shared.store.linked(&query).await?;
            let more = seen(reader, page.records).await?;
            if is_full {
                if !more.is_empty() {
                    return Ok(linked);
                }
            } else {
                linked.records.extend(more);
                linked.next = page.next;
            }
            match page.next {
                None => return Ok(Linked { next: None, ..linked }),
                next => query.after = next,
            }
        }
        Ok(linked)
    }
}

/// The records that a field names.
fn named(value: &Value) -> Vec<RecordId> {
    match value {
        Value::Ref(id) => vec![*id],
        Value::List(items) => items.iter().flat_map(named).take(MOST).collect(),
        _ => Vec::new(),
    }
}

/// Those that the actor may see, brought up to date.
async fn seen<S: Store>(reader: &mut Reader<'_, S>, ids: Vec<RecordId>) -> Result<Vec<Neighbour>, EngineError> {
    let mut records = Vec::new();
    for id in ids {
        match reader.get(id).await {
            Ok(record) => records.extend(record.map(|record| Neighbour {
                id,
                lifecycle: Arc::clone(&record.lifecycle.name),
                state: Arc::clone(record.state_name()),
            })),
            // Nobody can say what it is now: whoever asks for it by its id is told why.
            Err(error) if error.may_be_of_one() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(records)
}
