//! Gives expressions access to a draft: other records, links and natural keys, with the operation's changes so far.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::draft::{Draft, dangling_ref_halt};
use super::halt::{DecideResult, Halt};
use super::snapshot::{LinkKey, ReadKey, UniqueKey, canonical_key_part};
use crate::diagnostic::Span;
use crate::expr::{EvalEnv, EvalFault, EvalStop, FaultKind, RecordSource};
use crate::model::LinkDef;
use crate::record::Record;
use crate::value::{RecordId, Value};

fn halt_to_stop(halt: Halt) -> EvalStop {
    match halt {
        Halt::Missing(keys) => EvalStop::Missing(keys),
        Halt::Due(ids) => EvalStop::Due(ids),
        Halt::ClockBehind(time) => EvalStop::ClockBehind(time),
        Halt::Fault(fault) => EvalStop::Fault(fault),
        // Reading a record never causes these.
        Halt::NeedsChecks(_) | Halt::Refuse(_) | Halt::ExistingRecord(_) => wrong_type_stop(),
    }
}

fn wrong_type_stop() -> EvalStop {
    EvalStop::Fault(EvalFault { kind: FaultKind::WrongType, span: Span::default() })
}

impl RecordSource for Draft<'_> {
    fn record(&self, id: RecordId) -> Result<&Record, EvalStop> {
        self.find(id)
            .map_err(halt_to_stop)?
            .map(|record| &**record)
            .ok_or(EvalStop::Fault(EvalFault { kind: FaultKind::DanglingRef, span: Span::default() }))
    }

    fn linked_records(&self, of: RecordId, link: &LinkDef) -> Result<Vec<RecordId>, EvalStop> {
        self.linked_in_creation_order(of, link).map_err(halt_to_stop)
    }

    fn find_by_natural_key(&self, lifecycle: &str, key: &Value) -> Result<Option<RecordId>, EvalStop> {
        let Some(part) = canonical_key_part(key) else { return Ok(None) };
        let key = UniqueKey { lifecycle: lifecycle.into(), unique: "key".into(), parts: vec![part] };
        self.unique_holder(&key).map_err(halt_to_stop)
    }
}

impl Draft<'_> {
    /// Environment for expressions outside of transitions: without input, result, error and answers.
    pub(super) fn env<'b>(&'b self, record: &'b Record) -> EvalEnv<'b> {
        EvalEnv {
            records: self,
            record,
            now: self.now,
            actor: &self.operation.actor,
            input: &[],
            result: &[],
            error: None,
            answers: &[],
        }
    }

    /// Returns the records of a link, unordered and without loading them.
    pub(super) fn linked_ids(&self, of: RecordId, link: &LinkDef) -> DecideResult<Vec<RecordId>> {
        let (mut targets, mut missing) = (Vec::new(), Vec::new());
        for source in &link.sources {
            let key =
                LinkKey { target: of, lifecycle: Arc::clone(&source.lifecycle), field: Arc::clone(&source.field) };
            self.record_read(ReadKey::Links(key.clone()));
            let linked = match self.snapshot.links.get(&key) {
                Some(linked) => linked.as_slice(),
                None if self.snapshot.is_complete => &[],
                None => {
                    missing.push(ReadKey::Links(key));
                    continue;
                }
            };
            let Some(changes) = self.link_changes.get(&key) else {
                targets.extend(linked);
                continue;
            };
            // The last change by a record counts.
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

    /// Returns the records of a link in creation order, all loaded and not due.
    pub(super) fn linked_in_creation_order(&self, of: RecordId, link: &LinkDef) -> DecideResult<Vec<RecordId>> {
        let targets = self.linked_ids(of, link)?;
        self.require_loaded(&targets)?;
        let mut dated = Vec::with_capacity(targets.len());
        for id in targets {
            dated.push((self.find(id)?.ok_or_else(dangling_ref_halt)?.created_at, id));
        }
        dated.sort_unstable();
        Ok(dated.into_iter().map(|(_, id)| id).collect())
    }
}
