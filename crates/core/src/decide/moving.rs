//! Moving a record to another version of its lifecycle: the same thing, told by other rules from here on.
//!
//! It is nobody's event and no row's doing: no `enter` row fires, and nothing is offered to other records. What the record is and
//! has comes along by name; what it holds by the old version (keys, counts, links, timers) it holds by the new one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::access::{Caller, may_read};
use super::carry::{Run, engine_event};
use super::create::payload_fits;
use super::halt::{Halt, Step, refusal, refusal_of_call};
use super::input::fits;
use super::keys;
use super::links;
use super::operation::Move;
use super::plan::Occasion;
use super::timers;
use super::work::{Done, not_found};
use crate::counted;
use crate::model::{Field, Lifecycle, Ready, StateIx, Type};
use crate::record::Record;
use crate::value::{RecordId, Value};

const MOVE: &str = "move";

/// Why no record of one version can be moved to another, whatever is in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misfit {
    /// The other version has no state for records in this one.
    State { from: Arc<str>, to: Arc<str> },
    /// A field that the old version does not have, and that cannot be without a value.
    Missing { field: Arc<str> },
    /// A field that holds something else in the two versions.
    Type { field: Arc<str> },
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::State { from, to } if from == to => {
                write!(f, "there is no state `{to}` there: say with {from}=… where its records go")
            }
            Self::State { from, to } => write!(f, "records in `{from}` cannot go to `{to}`: there is no such state"),
            Self::Missing { field } => {
                write!(f, "`{field}` is new there: it must be optional or have a default, since old records have none")
            }
            Self::Type { field } => write!(f, "`{field}` is of another type there"),
        }
    }
}

/// What keeps all records of a version that are in one of these states from being moved. What hangs on a record's own values is
/// found out when it is moved.
pub fn carry_over(
    from: &Lifecycle,
    to: &Lifecycle,
    states: &BTreeMap<Arc<str>, Arc<str>>,
    in_use: impl Fn(StateIx) -> bool,
) -> Vec<Misfit> {
    let mut misfits = Vec::new();
    for (state, number) in from.states.iter().zip(0..) {
        let there = states.get(&state.name).unwrap_or(&state.name);
        if in_use(number) && to.state(there).is_none() {
            misfits.push(Misfit::State { from: Arc::clone(&state.name), to: Arc::clone(there) });
        }
    }
    for field in to.fields.iter().filter(|field| !field.constant) {
        match from.field(&field.name).map(|slot| &from.fields[usize::from(slot)]) {
            None if !field.nullable && field.default.is_none() => {
                misfits.push(Misfit::Missing { field: Arc::clone(&field.name) });
            }
            Some(old) if !may_fit(&old.ty, &field.ty) => misfits.push(Misfit::Type { field: Arc::clone(&field.name) }),
            _ => {}
        }
    }
    misfits
}

/// Whether a value of one type may be one of the other: what it is decides in the end.
fn may_fit(old: &Type, new: &Type) -> bool {
    match (old, new) {
        (Type::Text | Type::Enum(_), Type::Text | Type::Enum(_)) | (Type::Ref(_), Type::Ref(_)) => true,
        (Type::List(old), Type::List(new)) => may_fit(old, new),
        (old, new) => old == new,
    }
}

impl Run<'_> {
    pub(super) fn move_over(&mut self, moving: &Move) -> Step<Done> {
        let actor = &self.draft.operation.actor;
        let is_operator = actor.has_role("operator") || actor.has_role("engine");
        let before = match self.draft.find(moving.record)? {
            Some(record) if is_operator || may_read(&self.draft, record, actor, None)? => Arc::clone(record),
            _ => return Err(Halt::Refuse(not_found(MOVE))),
        };
        // INV-9: who may change by which rules a record lives may do anything to it.
        if !is_operator {
            let reason = "only an operator may move a record to another version";
            return Err(Halt::Refuse(refusal(&before, MOVE, 403, "not_allowed", reason)));
        }
        let Some(to) = self.draft.definitions.version(&moving.to).cloned() else {
            let reason = format!("no version {} of any lifecycle is known", moving.to);
            return Err(Halt::Refuse(refusal_of_call(MOVE, 404, "no_such_version", reason)));
        };
        if before.lifecycle.hash == to.hash {
            return Ok(Done::Repeated);
        }
        let after = self.carried(&before, &to, moving)?;
        self.settle(&before, after)?;
        Ok(Done::Changed)
    }

    /// The record as the other version has it, before its keys and timers are looked at.
    fn carried(&self, before: &Arc<Record>, to: &Arc<Lifecycle>, moving: &Move) -> Step<Record> {
        let no = |reason: String| Err(Halt::Refuse(refusal(before, MOVE, 409, "cannot_move", reason)));
        if before.lifecycle.name != to.name {
            return no(format!("{} is a version of {}", to.hash, to.name));
        }
        // The worker was told what to do by the old version, and its report is answered by it.
        if before.live_execution().is_some() {
            let reason = "a worker holds it: it can be moved when that one is done";
            return Err(Halt::Refuse(refusal(before, MOVE, 409, "already_leased", reason)));
        }
        if before.is_final() && !moving.ended {
            let reason = format!("it has ended in {}; only on demand is it moved all the same", before.state_name());
            return Err(Halt::Refuse(refusal(before, MOVE, 409, "wrong_state", reason)));
        }
        if before.hold != 0 && before.lifecycle.asset != to.asset {
            return no(format!("it holds {}, and the other version holds another asset", before.hold));
        }
        if before.lifecycle.clock != to.clock {
            return no("the other version goes by another clock".to_owned());
        }
        let name = moving.states.get(before.state_name()).unwrap_or(before.state_name());
        let Some(state) = to.state(name) else {
            return no(format!("there is no state `{name}` in the other version"));
        };
        let there = &to.states[usize::from(state)];
        if there.reserved {
            return no(format!("`{name}` is reserved in the other version: no record is ever in it"));
        }
        if before.is_final() && !there.is_final {
            return no(format!("what has ended stays so, and `{name}` is not final"));
        }
        if before.committed.is_some() && there.ready != Ready::No {
            return no(format!("its work is done, and in `{name}` it would wait for a worker"));
        }
        if let Err(reason) = payload_fits(to.payload, before.payload) {
            return no(reason);
        }
        let mut fields = Vec::with_capacity(to.fields.len());
        for field in &to.fields {
            match self.field(before, field)? {
                Ok(value) => fields.push(value),
                Err(reason) => return no(reason),
            }
        }
        let mut after = Record { lifecycle: Arc::clone(to), state, fields, stuck: None, ..Record::clone(before) };
        // In a state of the same name it has been since it came there; any other it enters now.
        if after.state_name() != before.state_name() {
            after.entered_at = self.draft.now;
        }
        if after.is_final() && !before.is_final() {
            after.finished_at = Some(self.draft.now);
        }
        Ok(after)
    }

    /// What a field holds from now on.
    fn field(&self, before: &Record, field: &Field) -> Step<Result<Value, String>> {
        let fresh = || field.default.clone().unwrap_or_default();
        let value = match before.field(&field.name) {
            _ if field.constant => fresh(),
            Some(value) if !value.is_null() || field.nullable => value.clone(),
            _ => fresh(),
        };
        if let Err(reason) = fits(field, &value) {
            return Ok(Err(reason));
        }
        let Some(lifecycles) = referred(&field.ty) else { return Ok(Ok(value)) };
        let ids: Vec<RecordId> = match &value {
            Value::Ref(id) => vec![*id],
            Value::List(items) => {
                items.iter().filter_map(|item| if let Value::Ref(id) = item { Some(*id) } else { None }).collect()
            }
            _ => Vec::new(),
        };
        self.draft.gather(&ids)?;
        for id in ids {
            if !lifecycles.contains(&self.draft.expect(id)?.lifecycle.name) {
                return Ok(Err(format!("`{}` must be a {}", field.name, lifecycles.join(" or "))));
            }
        }
        Ok(Ok(value))
    }

    /// What the record holds by its version: keys, counts, links and timers.
    fn settle(&mut self, before: &Record, mut after: Record) -> Step<()> {
        let occasion = Occasion { caller: Caller::Key(None), ..engine_event(MOVE) };
        keys::carry_over(&mut self.draft, before, &after, occasion)?;
        links::check(&self.draft, Some(before), &after, MOVE)?;
        for link in &after.lifecycle.links {
            let Some(max) = link.max else { continue };
            if self.draft.link_members(after.id, link)?.len() > max as usize {
                let most =
                    counted(max, "record that the other version allows", "records that the other version allows");
                let reason = format!("`{}` has more than the {most}", link.name);
                return Err(Halt::Refuse(refusal(before, MOVE, 409, "cannot_move", reason)));
            }
        }
        timers::arm(&self.draft, &mut after)?;
        let state = &after.lifecycle.states[usize::from(after.state)];
        // A leased state is one of these only while somebody holds the lease.
        if !state.is_final && !state.rest && state.ready == Ready::No && after.timers.is_empty() {
            let reason =
                format!("it would be left for ever in `{}`: no worker, no timer takes it from there", state.name);
            return Err(Halt::Refuse(refusal(before, MOVE, 409, "cannot_move", reason)));
        }
        self.draft.put(after)
    }
}

/// The lifecycles that a field's records may be of.
fn referred(ty: &Type) -> Option<&[Arc<str>]> {
    match ty {
        Type::Ref(lifecycles) => Some(lifecycles),
        Type::List(element) => referred(element),
        _ => None,
    }
}
