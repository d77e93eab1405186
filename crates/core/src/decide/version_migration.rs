//! Version migration: pins a record to another version of its lifecycle.
//!
//! It is not an event: no `enter` transition fires, and no other record is offered anything. Fields are matched by
//! name. Unique keys, counters, links and timers of the old version are replaced by those of the new one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::access::{EventCaller, can_read};
use super::apply::{OperationRun, engine_event_context};
use super::constraints;
use super::create::validate_payload_size;
use super::halt::{DecideResult, Halt, record_refusal, recordless_refusal};
use super::input::validate_value;
use super::leases::{WorkerCallResult, not_found_refusal};
use super::links;
use super::operation::RecordMigration;
use super::plan::EventContext;
use super::state_map::{effect_states, forbidden_map_reason};
use super::timers;
use crate::model::{DataType, FieldDef, Lifecycle, StateIndex, StateReadiness};
use crate::plural::count_noun;
use crate::record::Record;
use crate::value::{RecordId, Value};

const MIGRATION_EVENT: &str = "move";

/// Why no record of one version can migrate to another, whatever its values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VersionMismatch {
    /// The target version has no such state.
    MissingState { from: Arc<str>, to: Arc<str> },
    /// The map would end records, or take them back.
    ForbiddenMap { reason: String },
    /// A field without a default that is new and not optional.
    MissingField { field: Arc<str> },
    /// A field whose type differs between the versions.
    FieldTypeChanged { field: Arc<str> },
}

impl fmt::Display for VersionMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MissingState { from, to } if from == to => {
                write!(f, "the target version has no state `{to}`; map it with {from}=STATE")
            }
            Self::MissingState { from, to } => {
                write!(f, "records in `{from}` cannot be mapped to `{to}`: the target version has no such state")
            }
            Self::ForbiddenMap { reason } => f.write_str(reason),
            Self::MissingField { field } => {
                write!(
                    f,
                    "the target version adds `{field}`, which needs `optional` or a `default`, because existing records \
                     have no value"
                )
            }
            Self::FieldTypeChanged { field } => write!(f, "`{field}` has another type in the target version"),
        }
    }
}

/// Finds what prevents all records in the states in use from migrating. What depends on a record's own values is found
/// when the record migrates.
pub fn find_mismatches(
    from: &Lifecycle,
    to: &Lifecycle,
    state_map: &BTreeMap<Arc<str>, Arc<str>>,
    is_state_in_use: impl Fn(StateIndex) -> bool,
) -> Vec<VersionMismatch> {
    let mut mismatches = Vec::new();
    for (state, number) in from.states.iter().zip(0..) {
        let target_name = state_map.get(&state.name).unwrap_or(&state.name);
        if !is_state_in_use(number) {
            continue;
        }
        let Some(target) = to.state_index(target_name) else {
            mismatches
                .push(VersionMismatch::MissingState { from: Arc::clone(&state.name), to: Arc::clone(target_name) });
            continue;
        };
        let reason = forbidden_map_reason((from, number), (to, target));
        mismatches.extend(reason.map(|reason| VersionMismatch::ForbiddenMap { reason }));
    }
    for field in to.fields.iter().filter(|field| !field.is_constant) {
        match from.field_index(&field.name).map(|slot| &from.fields[usize::from(slot)]) {
            None if !field.nullable && field.default.is_none() => {
                mismatches.push(VersionMismatch::MissingField { field: Arc::clone(&field.name) });
            }
            Some(old) if !is_convertible(&old.ty, &field.ty) => {
                mismatches.push(VersionMismatch::FieldTypeChanged { field: Arc::clone(&field.name) });
            }
            _ => {}
        }
    }
    mismatches
}

/// Whether values of one type may fit the other. Each value is validated on migration.
fn is_convertible(old: &DataType, new: &DataType) -> bool {
    match (old, new) {
        (DataType::Text | DataType::Enum(_), DataType::Text | DataType::Enum(_))
        | (DataType::Ref(_), DataType::Ref(_)) => true,
        (DataType::List(old), DataType::List(new)) => is_convertible(old, new),
        (old, new) => old == new,
    }
}

impl OperationRun<'_> {
    pub(super) fn migrate_version(&mut self, migration: &RecordMigration) -> DecideResult<WorkerCallResult> {
        let actor = &self.draft.operation.actor;
        let is_operator = actor.has_role("operator") || actor.has_role("engine");
        let before = match self.draft.find(migration.record)? {
            Some(record) if is_operator || can_read(&self.draft, record, actor, None)? => Arc::clone(record),
            _ => return Err(Halt::Refuse(not_found_refusal(MIGRATION_EVENT))),
        };
        // INV-9: changing the rules of a record amounts to full control over it.
        if !is_operator {
            let reason = "only an operator may migrate a record to another version";
            return Err(Halt::Refuse(record_refusal(&before, MIGRATION_EVENT, 403, "not_allowed", reason)));
        }
        let Some(to) = self.draft.definitions.find_version(&migration.target_hash).cloned() else {
            let reason = format!("no lifecycle has the version {}", migration.target_hash);
            return Err(Halt::Refuse(recordless_refusal(MIGRATION_EVENT, 404, "unknown_version", reason)));
        };
        if before.lifecycle.hash == to.hash {
            return Ok(WorkerCallResult::Repeated);
        }
        let after = self.migrated_record(&before, &to, migration)?;
        self.apply_migration(&before, after)?;
        Ok(WorkerCallResult::Changed)
    }

    /// Returns the record in the target version, before constraints and timers are applied.
    fn migrated_record(
        &self,
        before: &Arc<Record>,
        to: &Arc<Lifecycle>,
        migration: &RecordMigration,
    ) -> DecideResult<Record> {
        let refuse = |reason: String| {
            Err(Halt::Refuse(record_refusal(before, MIGRATION_EVENT, 409, "incompatible_lifecycle_version", reason)))
        };
        if before.lifecycle.name != to.name {
            return refuse(format!("{} is a version of the lifecycle {}", to.hash, to.name));
        }
        // The worker started under the old version, so that version must handle its report.
        if before.live_execution().is_some() {
            let reason = "a worker holds a lease on the record; retry when the lease has ended";
            return Err(Halt::Refuse(record_refusal(before, MIGRATION_EVENT, 409, "already_leased", reason)));
        }
        if before.is_final() && !migration.include_ended {
            let reason =
                format!("the record has ended in {}; include ended records to migrate it", before.state_name());
            return Err(Halt::Refuse(record_refusal(before, MIGRATION_EVENT, 409, "wrong_state", reason)));
        }
        if before.hold != 0 && before.lifecycle.asset != to.asset {
            return refuse(format!("the hold has {}, and the target version has another asset", before.hold));
        }
        if before.lifecycle.clock != to.clock {
            return refuse("the target version uses another clock".to_owned());
        }
        let name = migration.state_map.get(before.state_name()).unwrap_or(before.state_name());
        let Some(state) = to.state_index(name) else {
            return refuse(format!("the target version has no state `{name}`"));
        };
        let target_state = &to.states[usize::from(state)];
        if target_state.is_reserved {
            return refuse(format!("`{name}` is reserved in the target version, so no record may be in it"));
        }
        if before.is_final() && !target_state.is_final {
            return refuse(format!("the record has ended, and `{name}` is not final in the target version"));
        }
        if let Some(reason) = forbidden_map_reason((&before.lifecycle, before.state), (to, state)) {
            return refuse(reason);
        }
        // INV-4
        if before.committed_token.is_none() && effect_states(to).contains(state) {
            return refuse(format!(
                "only a commit leads to `{name}` in the target version, and the job has not committed"
            ));
        }
        if before.committed_token.is_some() && target_state.readiness != StateReadiness::NotReady {
            return refuse(format!("the job has committed, and `{name}` would make it ready again"));
        }
        if let Err(reason) = validate_payload_size(to.payload_bounds, before.payload) {
            return refuse(reason);
        }
        let mut fields = Vec::with_capacity(to.fields.len());
        for field in &to.fields {
            match self.migrated_field(before, field)? {
                Ok(value) => fields.push(value),
                Err(reason) => return refuse(reason),
            }
        }
        let mut after =
            Record { lifecycle: Arc::clone(to), state, fields, stuck_reason: None, ..Record::clone(before) };
        // A state of the same name keeps its `entered_at`; any other state is entered now.
        if after.state_name() != before.state_name() {
            after.entered_at = self.draft.now;
        }
        if after.is_final() && !before.is_final() {
            after.finished_at = Some(self.draft.now);
        }
        Ok(after)
    }

    /// Returns the field's value in the target version.
    fn migrated_field(&self, before: &Record, field: &FieldDef) -> DecideResult<Result<Value, String>> {
        let default_value = || field.default.clone().unwrap_or_default();
        let value = match before.field(&field.name) {
            _ if field.is_constant => default_value(),
            Some(value) if !value.is_null() || field.nullable => value.clone(),
            _ => default_value(),
        };
        if let Err(reason) = validate_value(field, &value) {
            return Ok(Err(reason));
        }
        let Some(lifecycles) = ref_lifecycles(&field.ty) else { return Ok(Ok(value)) };
        let ids: Vec<RecordId> = match &value {
            Value::Ref(id) => vec![*id],
            Value::List(items) => {
                items.iter().filter_map(|item| if let Value::Ref(id) = item { Some(*id) } else { None }).collect()
            }
            _ => Vec::new(),
        };
        self.draft.require_loaded(&ids)?;
        for id in ids {
            if !lifecycles.contains(&self.draft.expect_record(id)?.lifecycle.name) {
                return Ok(Err(format!("`{}` must refer to a {}", field.name, lifecycles.join(" or "))));
            }
        }
        Ok(Ok(value))
    }

    /// Applies constraints, links and timers of the target version.
    fn apply_migration(&mut self, before: &Record, mut after: Record) -> DecideResult<()> {
        let context = EventContext { caller: EventCaller::ApiKey(None), ..engine_event_context(MIGRATION_EVENT) };
        constraints::migrate_constraints(&mut self.draft, before, &after, context)?;
        links::enforce_link_limits(&self.draft, Some(before), &after, MIGRATION_EVENT)?;
        for link in &after.lifecycle.links {
            let Some(max) = link.max else { continue };
            if self.draft.linked_ids(after.id, link)?.len() > max as usize {
                let allowed =
                    count_noun(max, "record that the target version allows", "records that the target version allows");
                let reason = format!("the link `{}` has more than the {allowed}", link.name);
                return Err(Halt::Refuse(record_refusal(
                    before,
                    MIGRATION_EVENT,
                    409,
                    "incompatible_lifecycle_version",
                    reason,
                )));
            }
        }
        timers::arm_timers(&self.draft, &mut after)?;
        let state = &after.lifecycle.states[usize::from(after.state)];
        // A leased state is fine only during a lease, and the record has none.
        if !state.is_final && !state.can_rest && state.readiness == StateReadiness::NotReady && after.timers.is_empty()
        {
            let reason =
                format!("the record would stay in `{}` forever: no worker or timer changes the state", state.name);
            return Err(Halt::Refuse(record_refusal(
                before,
                MIGRATION_EVENT,
                409,
                "incompatible_lifecycle_version",
                reason,
            )));
        }
        self.draft.put_record(after)
    }
}

/// Returns the lifecycles that a ref field may point to.
fn ref_lifecycles(ty: &DataType) -> Option<&[Arc<str>]> {
    match ty {
        DataType::Ref(lifecycles) => Some(lifecycles),
        DataType::List(element) => ref_lifecycles(element),
        _ => None,
    }
}
