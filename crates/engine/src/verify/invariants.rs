//! Invariants of every log entry, for any lifecycle. They need only the log.

use onceward_core::decide::{Call, Operation, effect_states, validate_value};
use onceward_core::model::Lifecycle;
use onceward_core::record::{ExecutionStatus, Record};
use onceward_store::log::LogEntryBody;
use onceward_store::scan::TableDifference;
use onceward_store::{AppliedEntry, LogEntry};

use super::log::HISTORY_TABLE;

/// Returns the violations of an entry that changes a record.
pub(super) fn change_violations(applied: &AppliedEntry, body: &LogEntryBody, entry: &LogEntry) -> Vec<TableDifference> {
    let mut findings = InvariantFindings { entry, differences: Vec::new() };
    let after = &*applied.after.record;
    let before = applied.before.as_ref().map(|replayed| &*replayed.record);
    findings.require_one_effect(applied, body);
    findings.require_committed_iff_effect(after);
    findings.require_forward_progress(before, after);
    findings.require_state_explained(before, after, body);
    findings.require_effect_of_committed_state(before, applied);
    findings.require_failures_named(after);
    findings.require_fields_bounded(after, body);
    findings.require_hold_valid(after);
    findings.differences
}

/// Returns the violations of an entry that logs a refusal.
pub(super) fn refusal_violations(body: &LogEntryBody, entry: &LogEntry) -> Vec<TableDifference> {
    let mut findings = InvariantFindings { entry, differences: Vec::new() };
    // INV-9
    match (&body.refusal, &body.operation) {
        (Some(refusal), Some(operation)) => {
            let is_attributed = !refusal.code.is_empty() && !operation.actor.id.is_empty();
            findings.ensure("INV-9", is_attributed, "a refusal names its caller and its code");
            let is_denial_status = !refusal.denial || matches!(refusal.status, 403 | 404);
            findings.ensure("INV-9", is_denial_status, "a denial has status 403 or 404");
        }
        _ => findings.ensure("INV-9", false, "an entry without a record logs a refusal"),
    }
    findings.differences
}

struct InvariantFindings<'a> {
    entry: &'a LogEntry,
    differences: Vec<TableDifference>,
}

impl InvariantFindings<'_> {
    fn ensure(&mut self, rule: &'static str, holds: bool, invariant: &str) {
        if !holds {
            self.differences.push(
                TableDifference::invalid(HISTORY_TABLE, self.entry.seq, format!("violates the invariant: {invariant}"))
                    .with_rule(rule),
            );
        }
    }

    // INV-1
    fn require_one_effect(&mut self, applied: &AppliedEntry, body: &LogEntryBody) {
        let previous_effect = applied.before.as_ref().and_then(|replayed| replayed.effect.as_ref());
        self.ensure("INV-1", previous_effect.is_none() || body.effect.is_none(), "a job has at most one effect");
        let after = &applied.after;
        let token = after.effect.as_ref().map(|effect| effect.token);
        self.ensure("INV-1", token == after.record.committed_token, "the effect belongs to the committed execution");
        let before = applied.before.as_ref().and_then(|replayed| replayed.record.committed_token);
        self.ensure(
            "INV-1",
            before.is_none() || before == after.record.committed_token,
            "the committed execution never changes",
        );
    }

    // INV-2
    fn require_committed_iff_effect(&mut self, after: &Record) {
        let Some(execution) = &after.execution else {
            self.ensure("INV-2", after.committed_token.is_none(), "only a leased record has a committed execution");
            return;
        };
        let has_effect = matches!(execution.status, ExecutionStatus::Committed | ExecutionStatus::Done);
        self.ensure(
            "INV-2",
            has_effect == (after.committed_token == Some(execution.token)),
            "an execution is COMMITTED or DONE if and only if its effect is committed",
        );
    }

    // INV-3
    fn require_forward_progress(&mut self, before: Option<&Record>, after: &Record) {
        let newest = after.execution.as_ref().map_or(0, |execution| execution.token.0);
        self.ensure("INV-3", newest == after.attempt, "the newest execution's token equals the attempt number");
        let Some(before) = before else {
            self.ensure("INV-3", after.attempt == 0, "a new record has no attempt");
            return;
        };
        let attempts = before.attempt..=before.attempt.saturating_add(1);
        self.ensure("INV-3", attempts.contains(&after.attempt), "the attempt number grows by at most one");
        self.ensure("INV-3", after.updated_at >= before.updated_at, "`updated_at` never decreases");
        let restarted = before.started_at.is_some() && after.started_at != before.started_at;
        self.ensure("INV-3", !restarted, "`started_at` never changes once it is set");
        let is_migrated = before.lifecycle.hash != after.lifecycle.hash;
        if before.is_final() {
            let is_final_kept = if is_migrated { after.is_final() } else { after.state == before.state };
            self.ensure(
                "INV-3",
                is_final_kept && after.finished_at == before.finished_at,
                "a record never leaves a final state",
            );
        }
        if let (Some(old), Some(new)) = (&before.execution, &after.execution) {
            let is_allowed = old.token != new.token || old.status == new.status || is_forward(old.status, new.status);
            self.ensure("INV-3", is_allowed, "the status of an execution only advances");
            let is_previous_ended = old.token == new.token || !old.status.is_live();
            self.ensure("INV-3", is_previous_ended, "an execution ends before the next one begins");
        }
        for (field, (old, new)) in after.lifecycle.fields.iter().zip(before.fields.iter().zip(&after.fields)) {
            self.ensure("INV-3", is_migrated || !field.is_constant || old == new, "a constant field never changes");
        }
    }

    /// Every change of state is explained by the applied transitions.
    fn require_state_explained(&mut self, before: Option<&Record>, after: &Record, body: &LogEntryBody) {
        for (event, number) in body.transitions.iter() {
            let is_known = find_transition(&after.lifecycle, event, *number).is_some();
            self.ensure("INV-3", is_known, "every transition taken exists in the lifecycle");
        }
        let state_changed = before.is_none_or(|before| before.state != after.state);
        let mut targets =
            body.transitions.iter().filter_map(|(event, number)| find_transition(&after.lifecycle, event, *number)?.to);
        // A version migration sets the state itself.
        let is_migration = |operation: &Operation| matches!(operation.call, Call::MigrateVersion(_));
        let is_migrated = before.is_some_and(|before| before.lifecycle.hash != after.lifecycle.hash);
        self.ensure(
            "INV-3",
            !is_migrated || body.operation.as_deref().is_some_and(is_migration),
            "only a version migration changes the lifecycle version",
        );
        let is_explained = is_migrated || targets.next_back().is_some_and(|to| to == after.state);
        self.ensure("INV-3", !state_changed || is_explained, "the transitions taken lead to the state");
    }

    // INV-4. Checked when the state changes, because the transitions of a version do not.
    fn require_effect_of_committed_state(&mut self, before: Option<&Record>, applied: &AppliedEntry) {
        let after = &*applied.after.record;
        let is_same =
            before.is_some_and(|before| before.state == after.state && before.lifecycle.hash == after.lifecycle.hash);
        if !is_same && after.lifecycle.work.is_some() && applied.after.effect.is_none() {
            let claims_effect = effect_states(&after.lifecycle).contains(after.state);
            self.ensure("INV-4", !claims_effect, "a job in a state that only a commit leads to has an effect");
        }
    }

    /// Every failure has a code.
    fn require_failures_named(&mut self, after: &Record) {
        if let Some(execution) = &after.execution {
            let aborted = execution.status == ExecutionStatus::Aborted;
            let has_code = execution.aborted.as_ref().is_some_and(|abort| !abort.code.is_empty());
            self.ensure("INV-5", aborted == has_code, "an execution has an abort code if and only if it was aborted");
        }
        let has_reason = after.stuck_reason.as_ref().is_none_or(|why| !why.is_empty());
        self.ensure("INV-5", has_reason, "a stuck record has a reason");
        let has_end = after.is_final() == after.finished_at.is_some();
        self.ensure("INV-5", has_end, "`finished_at` is set if and only if the state is final");
    }

    /// Values from callers are within the bounds of their fields.
    fn require_fields_bounded(&mut self, after: &Record, body: &LogEntryBody) {
        for (name, value) in body.change.iter().flat_map(onceward_store::log::RecordDiff::fields) {
            let field =
                after.lifecycle.field_index(name).and_then(|slot| after.lifecycle.fields.get(usize::from(slot)));
            if let Some(Err(why)) = field.map(|field| validate_value(field, value)) {
                self.ensure("INV-6", false, &why);
            }
        }
    }

    // INV-7
    fn require_hold_valid(&mut self, after: &Record) {
        self.ensure("INV-7", after.hold >= 0, "a hold is never negative");
        self.ensure("INV-7", after.hold == 0 || !after.is_final(), "the hold of a final record is empty");
    }
}

fn find_transition<'a>(
    lifecycle: &'a Lifecycle,
    event: &str,
    number: u16,
) -> Option<&'a onceward_core::model::Transition> {
    lifecycle.events.iter().find(|own| *own.name == *event)?.transitions.get(usize::from(number))
}

/// Allowed changes of an execution's status. A report on `LEASED` implies the start, so `IN_PROGRESS` may be skipped.
const fn is_forward(from: ExecutionStatus, to: ExecutionStatus) -> bool {
    use ExecutionStatus::{Aborted, Committed, Done, InProgress, Leased};
    matches!(
        (from, to),
        (Leased, InProgress | Committed | Done | Aborted)
            | (InProgress, Committed | Done | Aborted)
            | (Committed, Done)
    )
}
