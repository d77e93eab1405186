//! Leases, fencing tokens and the commit boundary: `LEASED → IN_PROGRESS → COMMITTED → DONE`, or ABORTED.

use std::sync::Arc;

use serde_json::Value as Json;

use super::access::{is_holder, is_worker, may_read};
use super::carry::{Run, engine_event};
use super::changes::Effect;
use super::draft::Draft;
use super::halt::{Halt, LEASE_LOST, Step, lease_lost, refusal, refusal_of_call};
use super::input;
use super::operation::ErrorReport;
use super::plan::{NotTaken, Occasion};
use super::reading::sees_all;
use super::snapshot::{CountKey, Key, key_parts, queue_of};
use crate::bounds;
use crate::counted;
use crate::expr::eval;
use crate::model::{ErrorTable, Ready};
use crate::record::{Abort, Execution, ExecutionStatus, Record, Token, WorkError};
use crate::time::{Duration, Time};
use crate::value::{RecordId, Value};

/// A longer lease hides a dead worker for longer than anybody wants to wait.
const LONGEST_LEASE: Duration = Duration::from_secs(24 * 3600);

/// What a worker's call came to.
pub(super) enum Done {
    Changed,
    /// The same call came before (EXE-8).
    Repeated,
}

/// How an execution stands towards a call that carries its token.
enum Standing {
    Live,
    Committed,
    Done,
    Aborted(Option<Abort>),
}

impl Run<'_> {
    /// EXE-5: from here to the end of its lease the job is this worker's alone.
    pub(super) fn lease(&mut self, id: RecordId, worker: &Arc<str>, lease: Option<Duration>, start: bool) -> Step<()> {
        let record = self.subject(id, "lease")?;
        let no = |status, code, reason: &str| Err(Halt::Refuse(refusal(&record, "lease", status, code, reason)));
        let Some(work) = &record.lifecycle.work else {
            return no(409, "not_work", "nobody works on records of this lifecycle");
        };
        if record.stuck.is_some() {
            return no(409, "stuck", "one of the engine's own events faulted on this record");
        }
        // EXE-15: a duplicate meets the committed record and does nothing.
        if record.committed.is_some() {
            return Err(Halt::Refuse(lease_lost(&record, "lease", Token(record.attempt + 1))));
        }
        if record.live_execution().is_some() {
            return no(409, "already_leased", "another execution holds the lease");
        }
        let ready = match record.lifecycle.states[usize::from(record.state)].ready {
            Ready::No => false,
            Ready::Yes => true,
            Ready::From(slot) => match record.fields[usize::from(slot)] {
                Value::Time(from) => from <= self.draft.now,
                _ => true,
            },
        };
        if !ready {
            return no(409, "not_ready", "the record is not waiting for a worker now");
        }
        let lease = lease.unwrap_or(work.lease);
        if lease <= Duration::ZERO || lease > LONGEST_LEASE {
            return no(422, "bad_input", "a lease lasts more than nothing and at most a day");
        }
        let Some(expires_at) = self.draft.now.checked_add(lease) else {
            return no(422, "bad_input", "the lease would end beyond all time");
        };
        if !input::is_bounded(worker) {
            return no(422, "bad_input", "a worker's name has at most 1000 characters, and no NUL");
        }
        let key = self.claim_work_key(&record)?;
        let mut leased = (*record).clone();
        leased.attempt += 1;
        leased.started_at.get_or_insert(self.draft.now);
        leased.execution = Some(Execution {
            token: Token(leased.attempt),
            worker: Arc::clone(worker),
            holder: Arc::clone(&self.draft.operation.actor.id),
            status: if start { ExecutionStatus::InProgress } else { ExecutionStatus::Leased },
            leased_at: self.draft.now,
            expires_at,
            started_at: start.then_some(self.draft.now),
            finished_at: None,
            aborted: None,
            finish_moves: false,
            key,
        });
        self.draft.put(leased)?;
        self.must_take(id, "lease", &[], None)?;
        self.follow_up(0)
    }

    /// EXE-6: the worker begins.
    pub(super) fn start(&mut self, id: RecordId, token: Token) -> Step<Done> {
        let record = self.subject(id, "start")?;
        match self.standing(&record, "start", token)? {
            Standing::Live => {}
            Standing::Committed | Standing::Done => return Ok(Done::Repeated),
            Standing::Aborted(_) => return Err(Halt::Refuse(lease_lost(&record, "start", token))),
        }
        let mut started = (*record).clone();
        if !begin(&self.draft, &mut started) {
            return Ok(Done::Repeated);
        }
        self.draft.put(started)?;
        Ok(Done::Changed)
    }

    /// Extend the lease (EXE-5): the new execution, and whether the worker is asked to stop.
    pub(super) fn heartbeat(&mut self, id: RecordId, token: Token, lease: Option<Duration>) -> Step<(Execution, bool)> {
        let record = self.subject(id, "heartbeat")?;
        match self.standing(&record, "heartbeat", token)? {
            Standing::Live | Standing::Committed => {}
            Standing::Done | Standing::Aborted(_) => {
                return Err(Halt::Refuse(lease_lost(&record, "heartbeat", token)));
            }
        }
        let (Some(execution), Some(work)) = (&record.execution, &record.lifecycle.work) else {
            return Err(Halt::Refuse(lease_lost(&record, "heartbeat", token)));
        };
        let lease = lease.unwrap_or(work.lease);
        let later = (Duration::ZERO < lease && lease <= LONGEST_LEASE).then(|| self.draft.now.checked_add(lease));
        let Some(Some(expires_at)) = later else {
            let reason = "a lease lasts more than nothing and at most a day";
            return Err(Halt::Refuse(refusal(&record, "heartbeat", 422, "bad_input", reason)));
        };
        let stop = match &work.stop {
            Some(stop) if execution.status != ExecutionStatus::Committed => {
                let env = self.draft.env(&record);
                eval(&stop.expr, &env)? == Value::Bool(true)
            }
            _ => false,
        };
        Ok((Execution { expires_at: expires_at.max(execution.expires_at), ..execution.clone() }, stop))
    }

    /// EXE-12, EXE-13, FM-1: the effect lands, once, with everything its row names.
    pub(super) fn commit(&mut self, id: RecordId, token: Token, result: &Json, finish: bool) -> Step<Done> {
        let record = self.subject(id, "commit")?;
        match self.standing(&record, "commit", token)? {
            Standing::Live => {}
            Standing::Committed if finish => {
                self.close(id)?;
                return Ok(Done::Changed);
            }
            Standing::Committed | Standing::Done => return Ok(Done::Repeated),
            Standing::Aborted(_) => return Err(Halt::Refuse(lease_lost(&record, "commit", token))),
        }
        let typed = match record.lifecycle.work.as_ref().and_then(|work| work.result.as_ref()) {
            Some(fields) => input::read_parts(fields, result).map_err(|reason| {
                Halt::Refuse(refusal(&record, "commit", 422, "bad_input", format!("the result: {reason}")))
            })?,
            None => Vec::new(),
        };
        let mut committed = (*record).clone();
        begin(&self.draft, &mut committed);
        committed.committed = Some(token);
        if let Some(execution) = &mut committed.execution {
            execution.status = ExecutionStatus::Committed;
            self.draft.effects.push(Effect { record: id, token, result: result.clone() });
        }
        self.draft.put(committed)?;
        self.must_take(id, "commit", &typed, None)?;
        self.follow_up(0)?;
        if finish {
            self.close(id)?;
        }
        Ok(Done::Changed)
    }

    pub(super) fn finish(&mut self, id: RecordId, token: Token) -> Step<Done> {
        let record = self.subject(id, "finish")?;
        match self.standing(&record, "finish", token)? {
            Standing::Committed => self.close(id).map(|()| Done::Changed),
            Standing::Done => Ok(Done::Repeated),
            Standing::Live => {
                Err(Halt::Refuse(refusal(&record, "finish", 409, "not_committed", "commit comes before finish")))
            }
            Standing::Aborted(_) => Err(Halt::Refuse(lease_lost(&record, "finish", token))),
        }
    }

    /// EXE-14: COMMITTED to DONE, by the worker or, when its lease has ended, by the engine.
    pub(super) fn close(&mut self, id: RecordId) -> Step<()> {
        let now = self.draft.now;
        let (mut moves, mut freed) = (false, None);
        self.draft.amend(id, |record| {
            moves = record.awaits_finish();
            freed = ended(record, now, ExecutionStatus::Done, None);
        })?;
        if let Some(count) = freed {
            self.draft.add_count(count, -1);
        }
        if moves {
            self.must_take(id, "finish", &[], None)?;
        }
        self.follow_up(0)
    }

    /// EXE-7: a failure, a yield or a lost lease before the commit.
    pub(super) fn fail(&mut self, id: RecordId, token: Token, report: &ErrorReport, event: &str) -> Step<Done> {
        let record = self.subject(id, event)?;
        match self.standing(&record, event, token)? {
            Standing::Live => {}
            Standing::Committed | Standing::Done => {
                let reason = "this execution's own effect has landed";
                let mut refusal = refusal(&record, event, 409, "already_committed", reason);
                refusal.committed = Some(token);
                return Err(Halt::Refuse(refusal));
            }
            Standing::Aborted(Some(abort)) if abort.code == cut(&report.code) => return Ok(Done::Repeated),
            Standing::Aborted(_) => return Err(Halt::Refuse(lease_lost(&record, event, token))),
        }
        let error = classed(&record.lifecycle.errors, report);
        let abort = Abort { code: Arc::clone(&error.code), retryable: error.retryable };
        let mut failed = (*record).clone();
        if event != "lost" {
            begin(&self.draft, &mut failed);
        }
        end_execution(&mut self.draft, &mut failed, ExecutionStatus::Aborted, Some(abort));
        self.draft.put(failed)?;
        self.must_take(id, "fail", &[], Some(&error))?;
        self.follow_up(0)?;
        Ok(Done::Changed)
    }

    /// How the execution with this token stands towards whoever reports. INV-9: a worker that never held it, and may not see the
    /// record, hears what it would hear of a record that is not there.
    fn standing(&self, record: &Record, event: &str, token: Token) -> Step<Standing> {
        if let Some(own) = self.own_standing(record, token)? {
            return Ok(own);
        }
        let actor = &self.draft.operation.actor;
        let live = record.live_execution().map(|execution| execution.token);
        if sees_all(actor) || may_read(&self.draft, record, actor, live)? {
            return Ok(Standing::Aborted(None));
        }
        Err(Halt::Refuse(no_lease(event)))
    }

    /// Where the caller's own execution with this token stands; an older one is loaded, so that its worker gets its own answer. `None`
    /// for a token that was never given out, and for a stolen one, which is worth no more. FM-5, FM-8: a lease is known by its
    /// token, not by who comes with it, and one that was lost stays lost.
    fn own_standing(&self, record: &Record, token: Token) -> Step<Option<Standing>> {
        let actor = &self.draft.operation.actor;
        let of = |execution: &Execution| match execution.status {
            _ if !is_holder(execution, actor) => None,
            ExecutionStatus::Leased | ExecutionStatus::InProgress => Some(Standing::Live),
            ExecutionStatus::Committed => Some(Standing::Committed),
            ExecutionStatus::Done => Some(Standing::Done),
            ExecutionStatus::Aborted => Some(Standing::Aborted(execution.aborted.clone())),
        };
        match &record.execution {
            // EXE-9. A lease that ran out is dealt with before anybody gets here, unless the record is set aside.
            Some(newest)
                if newest.token == token
                    && record.stuck.is_some()
                    && newest.expires_at <= self.draft.now
                    && matches!(newest.status, ExecutionStatus::Leased | ExecutionStatus::InProgress) =>
            {
                Ok(is_holder(newest, actor).then_some(Standing::Aborted(None)))
            }
            Some(newest) if newest.token == token => Ok(of(newest)),
            Some(newest) if token < newest.token => {
                let key = (record.id, token);
                self.draft.note_read(Key::Execution(record.id, token));
                match self.draft.snapshot.executions.get(&key) {
                    Some(Some(execution)) => Ok(of(execution)),
                    Some(None) => Ok(None),
                    None if self.draft.snapshot.complete => Ok(None),
                    None => Err(Halt::Missing(vec![Key::Execution(record.id, token)])),
                }
            }
            _ => Ok(None),
        }
    }

    /// The record that a worker's call is about. To whoever may neither work nor read, it is not there.
    fn subject(&self, id: RecordId, event: &str) -> Step<Arc<Record>> {
        let actor = &self.draft.operation.actor;
        match self.draft.find(id)? {
            Some(record) if is_worker(actor) => Ok(Arc::clone(record)),
            Some(record) if may_read(&self.draft, record, actor, None)? => {
                Err(Halt::Refuse(refusal(record, event, 403, "not_allowed", "only a worker may do this")))
            }
            // A worker's lease on a record that was pruned is as lost as one that never was.
            None if is_worker(actor) && !sees_all(actor) && event != "lease" => Err(Halt::Refuse(no_lease(event))),
            _ => Err(Halt::Refuse(not_found(event))),
        }
    }

    /// One of the engine's own events, which a sound lifecycle always takes.
    fn must_take(&mut self, id: RecordId, event: &str, result: &[Value], error: Option<&WorkError>) -> Step<()> {
        match self.fire(id, Occasion { result, error, ..engine_event(event) })? {
            Ok(()) => Ok(()),
            Err(reason) => {
                let record = self.draft.expect(id)?;
                let reason = match reason {
                    NotTaken::State => format!("`{event}` is not taken in {}", record.state_name()),
                    _ => format!("no row of `{event}` holds"),
                };
                Err(Halt::Refuse(refusal(&record, event, 409, "not_taken", reason)))
            }
        }
    }

    /// The work key's place among those that run, or a refusal where they are full or an older job comes first.
    fn claim_work_key(&mut self, record: &Record) -> Step<Option<Vec<Arc<str>>>> {
        let Some(key) = record.lifecycle.work.as_ref().and_then(|work| work.key.as_ref()) else { return Ok(None) };
        let Some(parts) = key_parts(record, &key.on) else { return Ok(None) };
        if let (true, Some(queue)) = (key.ordered, queue_of(record)) {
            self.draft.note_read(Key::Queue(queue.clone()));
            let first = match self.draft.snapshot.queues.get(&queue) {
                Some(waiting) => waiting.first().map(|(_, id)| *id),
                None if self.draft.snapshot.complete => None,
                None => return Err(Halt::Missing(vec![Key::Queue(queue)])),
            };
            if let Some(first) = first.filter(|first| *first != record.id) {
                // Brought up to date first: a timer of its own may have ended it.
                self.draft.find(first)?;
                let reason = "an older job of the same key is not finished";
                return Err(Halt::Refuse(refusal(record, "lease", 409, "not_first", reason)));
            }
        }
        let Some(limit) = key.limit else { return Ok(None) };
        let count = work_count(record, parts.clone());
        if self.draft.count(&count)? >= u64::from(limit) {
            let reason = counted(limit, "job of the same key is running", "jobs of the same key are running");
            return Err(Halt::Refuse(refusal(record, "lease", 409, "key_busy", reason)));
        }
        self.draft.add_count(count, 1);
        Ok(Some(parts))
    }
}

/// The same answer for a record that is missing and one that is another's.
pub(super) fn not_found(event: &str) -> Box<super::changes::Refusal> {
    let mut refusal = refusal_of_call(event, 404, "not_found", "there is no such record");
    refusal.denial = true;
    refusal
}

/// The answer to a worker's report on what it may not even know of.
fn no_lease(event: &str) -> Box<super::changes::Refusal> {
    refusal_of_call(event, 409, "lease_lost", LEASE_LOST)
}

/// A report on LEASED implies the start. `false` where it had started already.
fn begin(draft: &Draft, record: &mut Record) -> bool {
    match &mut record.execution {
        Some(execution) if execution.status == ExecutionStatus::Leased => {
            execution.status = ExecutionStatus::InProgress;
            execution.started_at = Some(draft.now);
            true
        }
        _ => false,
    }
}

/// DONE or ABORTED: the lease no longer counts, and its work key is free for the next.
pub(super) fn end_execution(draft: &mut Draft, record: &mut Record, status: ExecutionStatus, aborted: Option<Abort>) {
    if let Some(count) = ended(record, draft.now, status, aborted) {
        draft.add_count(count, -1);
    }
}

/// The count that the ended execution no longer stands in.
fn ended(record: &mut Record, now: Time, status: ExecutionStatus, aborted: Option<Abort>) -> Option<CountKey> {
    let execution = record.execution.as_mut()?;
    execution.status = status;
    execution.finished_at = Some(now);
    execution.aborted = aborted;
    execution.finish_moves = false;
    let parts = execution.key.take()?;
    Some(work_count(record, parts))
}

/// The counter of running jobs of one work key; its name is none that a `[limit]` can have.
fn work_count(record: &Record, parts: Vec<Arc<str>>) -> CountKey {
    CountKey { lifecycle: Arc::clone(&record.lifecycle.name), limit: "work.key".into(), parts, window: None }
}

/// Class an error: the lifecycle's table first, then the worker's word; lost and yielded are retryable unless the
/// table says otherwise.
fn classed(table: &ErrorTable, report: &ErrorReport) -> WorkError {
    let listed = |codes: &[Arc<str>]| codes.contains(&report.code);
    let retryable = if listed(&table.retryable) {
        true
    } else if listed(&table.terminal) {
        false
    } else {
        report.retryable.unwrap_or(matches!(&*report.code, "lost" | "yielded"))
    };
    WorkError {
        code: cut(&report.code),
        message: cut(&report.message),
        retryable,
        retry_after: report.retry_after.map(|delay| delay.clamp(Duration::ZERO, bounds::RETRY_AFTER)),
    }
}

/// A worker's text, cut to the bound that every string has.
fn cut(text: &Arc<str>) -> Arc<str> {
    let clean = if text.contains('\0') { text.replace('\0', "\u{fffd}").into() } else { Arc::clone(text) };
    // Bytes are never fewer than characters, so a short text needs no counting.
    if clean.len() <= bounds::TEXT_CHARS {
        return clean;
    }
    match clean.char_indices().nth(bounds::TEXT_CHARS) {
        Some((end, _)) => clean[..end].into(),
        None => clean,
    }
}
