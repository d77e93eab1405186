//! Queries of a simulator: records, accounts, executions and the log.

use std::sync::Arc;

use onceward_core::decide::{Account, Decision, Effect, LinkKey};
use onceward_core::record::{Execution, ExecutionStatus, Record};
use onceward_core::time::{Duration, Time};
use onceward_core::value::{RecordId, Value};
use serde_json::Value as Json;

use super::attempt::SimulatedLease;
use super::world::Simulator;

impl Simulator {
    #[track_caller]
    pub fn record(&self, id: RecordId) -> Arc<Record> {
        Arc::clone(self.world.record(id).unwrap_or_else(|| panic!("record {id} does not exist")))
    }

    /// Returns all records, in no order.
    pub(crate) fn all_records(&self) -> impl Iterator<Item = &Record> {
        self.world.records.values().flatten().map(|record| &**record)
    }

    #[track_caller]
    pub fn state(&self, id: RecordId) -> String {
        self.record(id).state_name().to_string()
    }

    /// Returns a field as JSON.
    #[track_caller]
    pub fn field(&self, id: RecordId, name: &str) -> Json {
        self.value(id, name).to_json()
    }

    #[track_caller]
    pub fn value(&self, id: RecordId, name: &str) -> Value {
        let record = self.record(id);
        record.field(name).unwrap_or_else(|| panic!("{} has no field {name}", record.lifecycle.name)).clone()
    }

    /// Returns the time from now until a time field.
    #[track_caller]
    pub fn time_until(&self, id: RecordId, name: &str) -> Duration {
        match self.value(id, name) {
            Value::Time(time) => time.duration_since(self.now).expect("a valid duration"),
            other => panic!("{name} is not a time but {other:?}"),
        }
    }

    /// Returns all executions of a job, oldest first.
    pub fn executions(&self, id: RecordId) -> Vec<Execution> {
        let mut all: Vec<_> = self
            .world
            .executions
            .iter()
            .filter(|((record, _), _)| *record == id)
            .filter_map(|(_, execution)| execution.clone())
            .collect();
        all.sort_by_key(|execution| execution.token);
        all
    }

    /// Returns the current execution of a lease.
    #[track_caller]
    pub fn execution(&self, lease: &SimulatedLease) -> Execution {
        self.executions(lease.record)
            .into_iter()
            .find(|execution| execution.token == lease.token)
            .unwrap_or_else(|| panic!("attempt {:?} does not exist", lease.token))
    }

    #[track_caller]
    pub fn status(&self, lease: &SimulatedLease) -> ExecutionStatus {
        self.execution(lease).status
    }

    pub fn effects(&self, id: RecordId) -> &[Effect] {
        self.effects.get(&id).map_or(&[], |effects| effects)
    }

    /// Returns the balance of an account, 0 if it has no transfers.
    pub fn balance(&self, asset: &str, name: &str) -> i64 {
        let account = Account::Named { asset: asset.into(), name: name.into() };
        self.world.accounts.get(&account).copied().unwrap_or(0)
    }

    #[track_caller]
    pub fn hold_balance(&self, id: RecordId) -> i64 {
        self.record(id).hold
    }

    /// Returns the records of a lifecycle whose field refers to the target, in creation order.
    pub fn linked_records(&self, target: RecordId, lifecycle: &str, field: &str) -> Vec<RecordId> {
        let key = LinkKey { target, lifecycle: lifecycle.into(), field: field.into() };
        self.world.links.get(&key).cloned().unwrap_or_default()
    }

    /// Returns all records of a lifecycle, oldest first.
    pub fn records_of(&self, lifecycle: &str) -> Vec<Arc<Record>> {
        let mut records: Vec<_> = self
            .world
            .records
            .values()
            .flatten()
            .filter(|record| *record.lifecycle.name == *lifecycle)
            .cloned()
            .collect();
        records.sort_by_key(|record| (record.created_at, record.id));
        records
    }

    /// Returns all audit tags so far, of changes and refusals, in order.
    pub fn audit_tags(&self) -> Vec<String> {
        let mut tags = Vec::new();
        for entry in &self.log {
            match &entry.decision {
                Decision::Changes(changes) => {
                    tags.extend(changes.audit_entries.iter().map(|audit| audit.tag.to_string()));
                }
                Decision::Refusal(refusal) => tags.extend(refusal.audit.iter().map(ToString::to_string)),
                _ => {}
            }
        }
        tags
    }

    /// Returns when the next timer of a record is due.
    #[track_caller]
    pub fn next_timer_due(&self, id: RecordId) -> Option<Time> {
        self.record(id).timers.iter().map(|timer| timer.due_at).min()
    }

    /// Returns everything that a status response or the log could show, to prove that a text is not in it.
    pub fn visible_text(&self) -> String {
        use std::fmt::Write as _;
        let mut text = String::new();
        for entry in &self.log {
            let operation = serde_json::to_string(&entry.operation).expect("operations serialize");
            let _ = writeln!(text, "{operation}");
            match &entry.decision {
                Decision::Changes(changes) => {
                    for change in &changes.records {
                        let _ = writeln!(text, "{:?} {:?}", change.after.fields, change.after.payload);
                    }
                    let _ = writeln!(text, "{:?} {:?} {:?}", changes.effects, changes.audit_entries, changes.transfers);
                }
                Decision::Refusal(refusal) => {
                    let _ = writeln!(text, "{refusal:?}");
                }
                _ => {}
            }
        }
        text
    }
}
