//! How expressions see a draft: other records, links and natural keys, as the operation has left them so far.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::draft::{Draft, dangling};
use super::halt::{Halt, Step};
use super::snapshot::{Key, LinkKey, UniqueKey, key_part};
use crate::diagnostic::Span;
use crate::expr::{Env, Fault, FaultKind, Stop, World};
use crate::model::Link;
use crate::record::Record;
use crate::value::{RecordId, Value};

fn stop(halt: Halt) -> Stop {
    match halt {
        Halt::Missing(keys) => Stop::Missing(keys),
        Halt::Due(ids) => Stop::Due(ids),
        Halt::Later(time) => Stop::Later(time),
        Halt::Fault(fault) => Stop::Fault(fault),
        // Looking at a record gives none of these.
        Halt::Ask(_) | Halt::Refuse(_) | Halt::Holder(_) => wrong(),
    }
}

fn wrong() -> Stop {
    Stop::Fault(Fault { kind: FaultKind::WrongType, at: Span::default() })
}

impl World for Draft<'_> {
    fn record(&self, id: RecordId) -> Result<&Record, Stop> {
        self.find(id)
            .map_err(stop)?
            .map(|record| &**record)
            .ok_or(Stop::Fault(Fault { kind: FaultKind::Dangling, at: Span::default() }))
    }

    fn linked(&self, of: RecordId, link: &Link) -> Result<Vec<RecordId>, Stop> {
        self.link_targets(of, link).map_err(stop)
    }

    fn by_key(&self, lifecycle: &str, key: &Value) -> Result<Option<RecordId>, Stop> {
        let Some(part) = key_part(key) else { return Ok(None) };
        let key = UniqueKey { lifecycle: lifecycle.into(), unique: "key".into(), parts: vec![part] };
        self.holder(&key).map_err(stop)
    }
}

impl Draft<'_> {
    /// For expressions that belong to no row: the record, the world, the time and the actor, and nothing given.
    pub(super) fn env<'b>(&'b self, record: &'b Record) -> Env<'b> {
        Env {
            world: self,
            record,
            now: self.now,
            actor: &self.operation.actor,
            input: &[],
            result: &[],
            error: None,
            answers: &[],
        }
    }

    /// The records of a link, in no order and not looked at.
    pub(super) fn link_members(&self, of: RecordId, link: &Link) -> Step<Vec<RecordId>> {
        let (mut targets, mut missing) = (Vec::new(), Vec::new());
        for source in &link.from {
            let key =
                LinkKey { target: of, lifecycle: Arc::clone(&source.lifecycle), field: Arc::clone(&source.field) };
            self.note_read(Key::Links(key.clone()));
            let linked = match self.snapshot.links.get(&key) {
                Some(linked) => linked.as_slice(),
                None if self.snapshot.complete => &[],
                None => {
                    missing.push(Key::Links(key));
                    continue;
                }
            };
            let Some(changes) = self.links.get(&key) else {
                targets.extend(linked);
                continue;
            };
            // Of several changes by one record the last counts.
            let last: BTreeMap<RecordId, bool> = changes.iter().copied().collect();
            targets.extend(linked.iter().filter(|id| !last.contains_key(*id)));
            targets.extend(last.iter().filter(|(_, added)| **added).map(|(id, _)| *id));
        }
        if !missing.is_empty() {
            return Err(Halt::Missing(missing));
        }
        targets.sort_unstable();
        targets.dedup();
        Ok(targets)
    }

    /// The records of a link in creation order, each loaded and up to date.
    pub(super) fn link_targets(&self, of: RecordId, link: &Link) -> Step<Vec<RecordId>> {
        let targets = self.link_members(of, link)?;
        self.gather(&targets)?;
        let mut dated = Vec::with_capacity(targets.len());
        for id in targets {
            dated.push((self.find(id)?.ok_or_else(dangling)?.created_at, id));
        }
        dated.sort_unstable();
        Ok(dated.into_iter().map(|(_, id)| id).collect())
    }
}
