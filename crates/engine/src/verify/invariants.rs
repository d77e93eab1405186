//! What must hold of every entry, whatever the lifecycle: by the log alone, before anything is compared.

use onceward_core::decide::{Call, Operation, fits};
use onceward_core::model::Lifecycle;
use onceward_core::record::{ExecutionStatus, Record};
use onceward_store::log::Body;
use onceward_store::scan::Difference;
use onceward_store::{Applied, Entry};

use super::log::HISTORY;

/// What is wrong with an entry that changes a record.
pub(super) fn of_change(applied: &Applied, body: &Body, entry: &Entry) -> Vec<Difference> {
    let mut found = Found { entry, differences: Vec::new() };
    let after = &*applied.after.record;
    let before = applied.before.as_ref().map(|known| &*known.record);
    found.one_effect(applied, body);
    found.nothing_half_done(after);
    found.onward(before, after);
    found.explained(before, after, body);
    found.failures_are_seen(after);
    found.bounded(after, body);
    found.holds(after);
    found.differences
}

/// What is wrong with an entry that tells of a refusal.
pub(super) fn of_refusal(body: &Body, entry: &Entry) -> Vec<Difference> {
    let mut found = Found { entry, differences: Vec::new() };
    // INV-9
    match (&body.refusal, &body.operation) {
        (Some(refusal), Some(operation)) => {
            let says = !refusal.code.is_empty() && !operation.actor.id.is_empty();
            found.ensure("INV-9", says, "a refusal says who was refused, and why");
            let denied = !refusal.denial || matches!(refusal.status, 403 | 404);
            found.ensure("INV-9", denied, "a denial answers 403 or 404");
        }
        _ => found.ensure("INV-9", false, "an entry of no record tells of a refusal"),
    }
    found.differences
}

struct Found<'a> {
    entry: &'a Entry,
    differences: Vec<Difference>,
}

impl Found<'_> {
    fn ensure(&mut self, rule: &'static str, holds: bool, what: &str) {
        if !holds {
            self.differences.push(Difference::broken(HISTORY, self.entry.seq, format!("not so: {what}")).against(rule));
        }
    }

    // INV-1
    fn one_effect(&mut self, applied: &Applied, body: &Body) {
        let had = applied.before.as_ref().and_then(|known| known.effect.as_ref());
        self.ensure("INV-1", had.is_none() || body.effect.is_none(), "a job leaves one effect");
        let after = &applied.after;
        let token = after.effect.as_ref().map(|effect| effect.token);
        self.ensure("INV-1", token == after.record.committed, "the effect is the committed execution's");
        let before = applied.before.as_ref().and_then(|known| known.record.committed);
        self.ensure("INV-1", before.is_none() || before == after.record.committed, "the execution that won stays");
    }

    // INV-2
    fn nothing_half_done(&mut self, after: &Record) {
        let Some(execution) = &after.execution else {
            self.ensure("INV-2", after.committed.is_none(), "nothing is committed that nobody leased");
            return;
        };
        let landed = matches!(execution.status, ExecutionStatus::Committed | ExecutionStatus::Done);
        self.ensure(
            "INV-2",
            landed == (after.committed == Some(execution.token)),
            "an execution is COMMITTED or DONE just when its effect has landed",
        );
    }

    // INV-3
    fn onward(&mut self, before: Option<&Record>, after: &Record) {
        let newest = after.execution.as_ref().map_or(0, |execution| execution.token.0);
        self.ensure("INV-3", newest == after.attempt, "the newest execution's token is the attempt's number");
        let Some(before) = before else {
            self.ensure("INV-3", after.attempt == 0, "a new record was never leased");
            return;
        };
        let attempts = before.attempt..=before.attempt.saturating_add(1);
        self.ensure("INV-3", attempts.contains(&after.attempt), "tokens grow by one");
        self.ensure("INV-3", after.updated_at >= before.updated_at, "a record's time does not go back");
        let again = before.started_at.is_some() && after.started_at != before.started_at;
        self.ensure("INV-3", !again, "a record starts once");
        let is_moved = before.lifecycle.hash != after.lifecycle.hash;
        if before.is_final() {
            let stays = if is_moved { after.is_final() } else { after.state == before.state };
            self.ensure("INV-3", stays && after.finished_at == before.finished_at, "a final state is final");
        }
        if let (Some(old), Some(new)) = (&before.execution, &after.execution) {
            let goes = old.token != new.token || old.status == new.status || forward(old.status, new.status);
            self.ensure("INV-3", goes, "an execution goes forward");
            let ended = old.token == new.token || !old.status.is_live();
            self.ensure("INV-3", ended, "one execution ends before the next begins");
        }
        for (field, (old, new)) in after.lifecycle.fields.iter().zip(before.fields.iter().zip(&after.fields)) {
            self.ensure("INV-3", is_moved || !field.constant || old == new, "what is constant stays");
        }
    }

    /// A change of state is explained by the rows that were taken.
    fn explained(&mut self, before: Option<&Record>, after: &Record, body: &Body) {
        for (event, number) in body.rows.iter() {
            let is_row = row(&after.lifecycle, event, *number).is_some();
            self.ensure("INV-3", is_row, "the rows that were taken are rows of the lifecycle");
        }
        let moved = before.is_none_or(|before| before.state != after.state);
        let mut led = body.rows.iter().filter_map(|(event, number)| row(&after.lifecycle, event, *number)?.to);
        // Who moves a record to another version says into which state.
        let is_move = |operation: &Operation| matches!(operation.call, Call::Move(_));
        let is_moved = before.is_some_and(|before| before.lifecycle.hash != after.lifecycle.hash);
        self.ensure(
            "INV-3",
            !is_moved || body.operation.as_deref().is_some_and(is_move),
            "nothing but a move brings a record to another version",
        );
        let explained = is_moved || led.next_back().is_some_and(|to| to == after.state);
        self.ensure("INV-3", !moved || explained, "the rows that were taken lead to the state");
    }

    /// A failure has a name.
    fn failures_are_seen(&mut self, after: &Record) {
        if let Some(execution) = &after.execution {
            let aborted = execution.status == ExecutionStatus::Aborted;
            let named = execution.aborted.as_ref().is_some_and(|abort| !abort.code.is_empty());
            self.ensure("INV-5", aborted == named, "an execution has a code just when it was aborted");
        }
        let reason = after.stuck.as_ref().is_none_or(|why| !why.is_empty());
        self.ensure("INV-5", reason, "what is set aside says why");
        let ended = after.is_final() == after.finished_at.is_some();
        self.ensure("INV-5", ended, "a record has an end just when it is final");
    }

    /// What callers give keeps to the bounds of its field.
    fn bounded(&mut self, after: &Record, body: &Body) {
        for (name, value) in body.change.iter().flat_map(onceward_store::log::Diff::fields) {
            let field = after.lifecycle.field(name).and_then(|slot| after.lifecycle.fields.get(usize::from(slot)));
            if let Some(Err(why)) = field.map(|field| fits(field, value)) {
                self.ensure("INV-6", false, &why);
            }
        }
    }

    // INV-7
    fn holds(&mut self, after: &Record) {
        self.ensure("INV-7", after.hold >= 0, "nobody holds less than nothing");
        self.ensure("INV-7", after.hold == 0 || !after.is_final(), "nothing is left in the hold of a final record");
    }
}

fn row<'a>(lifecycle: &'a Lifecycle, event: &str, number: u16) -> Option<&'a onceward_core::model::Row> {
    lifecycle.events.iter().find(|own| *own.name == *event)?.rows.get(usize::from(number))
}

/// The execution machine. A report on LEASED implies the start, so it may pass through.
const fn forward(from: ExecutionStatus, to: ExecutionStatus) -> bool {
    use ExecutionStatus::{Aborted, Committed, Done, InProgress, Leased};
    matches!(
        (from, to),
        (Leased, InProgress | Committed | Done | Aborted)
            | (InProgress, Committed | Done | Aborted)
            | (Committed, Done)
    )
}
