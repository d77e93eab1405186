//! Leases, fencing tokens and the commit boundary: `LEASED → IN_PROGRESS → COMMITTED → DONE`, or ABORTED.

use std::sync::Arc;

use serde_json::Value as Json;

use super::access::{can_read, is_holder, is_worker};
use super::apply::{OperationRun, engine_event_context};
use super::changes::Effect;
use super::draft::Draft;
use super::halt::{DecideResult, Halt, LEASE_LOST_REASON, lease_lost_refusal, record_refusal, recordless_refusal};
use super::input;
use super::operation::FailureReport;
use super::plan::{EventContext, NoMatch};
use super::readiness::{reads_retry_after, ready_from};
use super::snapshot::{CounterKey, ReadKey, canonical_key_parts, concurrency_key};
use super::visibility::reads_everything;
use crate::bounds;
use crate::expr::eval;
use crate::model::ErrorTable;
use crate::plural::count_noun;
use crate::record::{AbortReason, ClassifiedFailure, Execution, ExecutionStatus, FencingToken, Record};
use crate::time::{Duration, Time};
use crate::value::{RecordId, Value};

/// A longer lease would hide a dead worker for too long.
const MAX_LEASE_DURATION: Duration = Duration::from_secs(24 * 3600);

/// Result of a worker's call.
pub(super) enum WorkerCallResult {
    Changed,
    /// A repeated call (EXE-8).
    Repeated,
}

/// Status of the execution whose token a call carries.
enum TokenStatus {
    Live,
    Committed,
    Done,
    Aborted(Option<AbortReason>),
}

impl OperationRun<'_> {
    /// EXE-5: leases the record to one worker until the lease expires.
    pub(super) fn lease_record(
        &mut self,
        id: RecordId,
        worker: &Arc<str>,
        lease: Option<Duration>,
        starts_now: bool,
    ) -> DecideResult<()> {
        let record = self.worker_subject(id, "lease")?;
        let refuse =
            |status, code, reason: &str| Err(Halt::Refuse(record_refusal(&record, "lease", status, code, reason)));
        let Some(work) = &record.lifecycle.work else {
            return refuse(409, "not_a_job", "the lifecycle has no [work], so its records cannot be leased");
        };
        if record.stuck_reason.is_some() {
            return refuse(409, "stuck", "the record is stuck: an event of the engine failed");
        }
        // EXE-15: a duplicate lease of a committed record changes nothing.
        if record.committed_token.is_some() {
            return Err(Halt::Refuse(lease_lost_refusal(&record, "lease", FencingToken(record.attempt + 1))));
        }
        if record.live_execution().is_some() {
            return refuse(409, "already_leased", "another execution holds the lease");
        }
        if ready_from(&record).is_none_or(|from| from > self.draft.now) {
            return refuse(409, "not_ready", "the record is not ready for a worker");
        }
        let length = lease.unwrap_or(work.lease_duration);
        if length <= Duration::ZERO || length > MAX_LEASE_DURATION {
            return refuse(422, "invalid_input", "a lease must last more than zero and at most one day");
        }
        let Some(expires_at) = self.draft.now.checked_add(length) else {
            return refuse(422, "invalid_input", "the lease would end after the year 9999");
        };
        if !input::is_valid_name(worker) {
            return refuse(422, "invalid_input", "the name of a worker must have at most 1000 characters and no NUL");
        }
        let key = self.claim_concurrency_key(&record)?;
        let mut leased = (*record).clone();
        leased.attempt += 1;
        leased.started_at.get_or_insert(self.draft.now);
        leased.execution = Some(Execution {
            token: FencingToken(leased.attempt),
            worker: Arc::clone(worker),
            holder: Arc::clone(&self.draft.operation.actor.id),
            status: if starts_now { ExecutionStatus::InProgress } else { ExecutionStatus::Leased },
            leased_at: self.draft.now,
            expires_at,
            lease_duration: lease,
            started_at: starts_now.then_some(self.draft.now),
            finished_at: None,
            aborted: None,
            finish_pending: false,
            concurrency_key: key,
        });
        self.draft.put_record(leased)?;
        self.fire_required(id, "lease", &[], None)?;
        self.run_tasks(0)
    }

    /// EXE-6: marks the execution as started.
    pub(super) fn start_execution(&mut self, id: RecordId, token: FencingToken) -> DecideResult<WorkerCallResult> {
        let record = self.worker_subject(id, "start")?;
        match self.token_status(&record, "start", token)? {
            TokenStatus::Live => {}
            TokenStatus::Committed | TokenStatus::Done => return Ok(WorkerCallResult::Repeated),
            TokenStatus::Aborted(_) => return Err(Halt::Refuse(lease_lost_refusal(&record, "start", token))),
        }
        let mut started = (*record).clone();
        if !mark_started(&self.draft, &mut started) {
            return Ok(WorkerCallResult::Repeated);
        }
        self.draft.put_record(started)?;
        Ok(WorkerCallResult::Changed)
    }

    /// Extends the lease (EXE-5), by its own length unless the call gives another. Returns the new execution, and whether
    /// the worker should stop.
    pub(super) fn extend_lease(
        &mut self,
        id: RecordId,
        token: FencingToken,
        lease: Option<Duration>,
    ) -> DecideResult<(Execution, bool)> {
        let record = self.worker_subject(id, "heartbeat")?;
        match self.token_status(&record, "heartbeat", token)? {
            TokenStatus::Live | TokenStatus::Committed => {}
            TokenStatus::Done | TokenStatus::Aborted(_) => {
                return Err(Halt::Refuse(lease_lost_refusal(&record, "heartbeat", token)));
            }
        }
        let (Some(execution), Some(work)) = (&record.execution, &record.lifecycle.work) else {
            return Err(Halt::Refuse(lease_lost_refusal(&record, "heartbeat", token)));
        };
        let lease = lease.or(execution.lease_duration).unwrap_or(work.lease_duration);
        let new_expiry =
            (Duration::ZERO < lease && lease <= MAX_LEASE_DURATION).then(|| self.draft.now.checked_add(lease));
        let Some(Some(expires_at)) = new_expiry else {
            let reason = "a lease must last more than zero and at most one day";
            return Err(Halt::Refuse(record_refusal(&record, "heartbeat", 422, "invalid_input", reason)));
        };
        let stop = match &work.stop_condition {
            Some(stop) if execution.status != ExecutionStatus::Committed => {
                let env = self.draft.env(&record);
                eval(&stop.expr, &env)? == Value::Bool(true)
            }
            _ => false,
        };
        Ok((Execution { expires_at: expires_at.max(execution.expires_at), ..execution.clone() }, stop))
    }

    /// EXE-12, EXE-13, FM-1: commits the effect, once, with all actions of the `commit` transition.
    pub(super) fn commit_execution(
        &mut self,
        id: RecordId,
        token: FencingToken,
        result: &Json,
        finish: bool,
    ) -> DecideResult<WorkerCallResult> {
        let record = self.worker_subject(id, "commit")?;
        match self.token_status(&record, "commit", token)? {
            TokenStatus::Live => {}
            TokenStatus::Committed if finish => {
                self.close_execution(id)?;
                return Ok(WorkerCallResult::Changed);
            }
            TokenStatus::Committed | TokenStatus::Done => return Ok(WorkerCallResult::Repeated),
            TokenStatus::Aborted(_) => return Err(Halt::Refuse(lease_lost_refusal(&record, "commit", token))),
        }
        let typed = match record.lifecycle.work.as_ref().and_then(|work| work.result.as_ref()) {
            Some(fields) => input::parse_fields(fields, result).map_err(|reason| {
                Halt::Refuse(record_refusal(
                    &record,
                    "commit",
                    422,
                    "invalid_input",
                    format!("the result does not match its declaration: {reason}"),
                ))
            })?,
            None => Vec::new(),
        };
        let mut committed = (*record).clone();
        mark_started(&self.draft, &mut committed);
        committed.committed_token = Some(token);
        if let Some(execution) = &mut committed.execution {
            execution.status = ExecutionStatus::Committed;
            self.draft.effects.push(Effect { record: id, token, result: result.clone() });
        }
        self.draft.put_record(committed)?;
        self.fire_required(id, "commit", &typed, None)?;
        self.run_tasks(0)?;
        if finish {
            self.close_execution(id)?;
        }
        Ok(WorkerCallResult::Changed)
    }

    pub(super) fn finish_execution(&mut self, id: RecordId, token: FencingToken) -> DecideResult<WorkerCallResult> {
        let record = self.worker_subject(id, "finish")?;
        match self.token_status(&record, "finish", token)? {
            TokenStatus::Committed => self.close_execution(id).map(|()| WorkerCallResult::Changed),
            TokenStatus::Done => Ok(WorkerCallResult::Repeated),
            TokenStatus::Live => Err(Halt::Refuse(record_refusal(
                &record,
                "finish",
                409,
                "not_committed",
                "the execution must commit before it finishes",
            ))),
            TokenStatus::Aborted(_) => Err(Halt::Refuse(lease_lost_refusal(&record, "finish", token))),
        }
    }

    /// EXE-14: COMMITTED to DONE, by the worker, or by the engine after the lease has expired.
    pub(super) fn close_execution(&mut self, id: RecordId) -> DecideResult<()> {
        let now = self.draft.now;
        let (mut needs_finish, mut freed_counter) = (false, None);
        self.draft.update_in_place(id, |record| {
            needs_finish = record.awaits_finish();
            freed_counter = end_lease(record, now, ExecutionStatus::Done, None);
        })?;
        if let Some(count) = freed_counter {
            self.draft.add_to_counter(count, -1);
        }
        if needs_finish {
            self.fire_required(id, "finish", &[], None)?;
        }
        self.run_tasks(0)
    }

    /// EXE-7: ends an execution before its commit: a failure, a yield or a lost lease.
    pub(super) fn fail_execution(
        &mut self,
        id: RecordId,
        token: FencingToken,
        report: &FailureReport,
        event: &str,
    ) -> DecideResult<WorkerCallResult> {
        let record = self.worker_subject(id, event)?;
        match self.token_status(&record, event, token)? {
            TokenStatus::Live => {}
            TokenStatus::Committed | TokenStatus::Done => {
                let reason = "the execution has already committed its effect";
                let mut refusal = record_refusal(&record, event, 409, "already_committed", reason);
                refusal.committed_token = Some(token);
                return Err(Halt::Refuse(refusal));
            }
            TokenStatus::Aborted(Some(abort)) if abort.code == truncate_text(&report.code) => {
                return Ok(WorkerCallResult::Repeated);
            }
            TokenStatus::Aborted(_) => return Err(Halt::Refuse(lease_lost_refusal(&record, event, token))),
        }
        let error = classify_failure(&record.lifecycle.errors, report);
        let abort = AbortReason {
            code: Arc::clone(&error.code),
            message: Arc::clone(&error.message),
            retryable: error.retryable,
            retry_at: error
                .retry_after
                .filter(|_| error.retryable && !reads_retry_after(&record.lifecycle))
                .and_then(|delay| self.draft.now.checked_add(delay)),
        };
        let mut failed = (*record).clone();
        if event != "lost" {
            mark_started(&self.draft, &mut failed);
        }
        end_execution(&mut self.draft, &mut failed, ExecutionStatus::Aborted, Some(abort));
        self.draft.put_record(failed)?;
        self.fire_required(id, "fail", &[], Some(&error))?;
        self.run_tasks(0)?;
        Ok(WorkerCallResult::Changed)
    }

    /// Returns the status of the execution with this token. INV-9: if the caller never held it and may not read the
    /// record, the refusal is the same as for a missing record.
    fn token_status(&self, record: &Record, event: &str, token: FencingToken) -> DecideResult<TokenStatus> {
        if let Some(own_status) = self.own_token_status(record, token)? {
            return Ok(own_status);
        }
        let actor = &self.draft.operation.actor;
        let live_token = record.live_execution().map(|execution| execution.token);
        if reads_everything(actor) || can_read(&self.draft, record, actor, live_token)? {
            return Ok(TokenStatus::Aborted(None));
        }
        Err(Halt::Refuse(unknown_lease_refusal(event)))
    }

    /// Returns the status of the caller's own execution with this token. Loads older executions, so that their workers
    /// get the right reply. Returns `None` for a token that was never issued, or that another holder has. FM-5, FM-8:
    /// the token identifies the lease, not the worker's name, and a lost lease stays lost.
    fn own_token_status(&self, record: &Record, token: FencingToken) -> DecideResult<Option<TokenStatus>> {
        let actor = &self.draft.operation.actor;
        let status_of = |execution: &Execution| match execution.status {
            _ if !is_holder(execution, actor) => None,
            ExecutionStatus::Leased | ExecutionStatus::InProgress => Some(TokenStatus::Live),
            ExecutionStatus::Committed => Some(TokenStatus::Committed),
            ExecutionStatus::Done => Some(TokenStatus::Done),
            ExecutionStatus::Aborted => Some(TokenStatus::Aborted(execution.aborted.clone())),
        };
        match &record.execution {
            // EXE-9. Expired leases fire before this point, unless the record is stuck.
            Some(newest)
                if newest.token == token
                    && record.stuck_reason.is_some()
                    && newest.expires_at <= self.draft.now
                    && matches!(newest.status, ExecutionStatus::Leased | ExecutionStatus::InProgress) =>
            {
                Ok(is_holder(newest, actor).then_some(TokenStatus::Aborted(None)))
            }
            Some(newest) if newest.token == token => Ok(status_of(newest)),
            Some(newest) if token < newest.token => {
                let key = (record.id, token);
                self.draft.record_read(ReadKey::Execution(record.id, token));
                match self.draft.snapshot.executions.get(&key) {
                    Some(Some(execution)) => Ok(status_of(execution)),
                    Some(None) => Ok(None),
                    None if self.draft.snapshot.is_complete => Ok(None),
                    None => Err(Halt::Missing(vec![ReadKey::Execution(record.id, token)])),
                }
            }
            _ => Ok(None),
        }
    }

    /// Returns the record that a worker's call is about. If the caller is not a worker and may not read it, the refusal
    /// is the same as for a missing record.
    fn worker_subject(&self, id: RecordId, event: &str) -> DecideResult<Arc<Record>> {
        let actor = &self.draft.operation.actor;
        match self.draft.find(id)? {
            Some(record) if is_worker(actor) => Ok(Arc::clone(record)),
            Some(record) if can_read(&self.draft, record, actor, None)? => Err(Halt::Refuse(record_refusal(
                record,
                event,
                403,
                "not_allowed",
                "the caller lacks the role `worker`",
            ))),
            // The record was pruned, so the worker's lease is lost.
            None if is_worker(actor) && !reads_everything(actor) && event != "lease" => {
                Err(Halt::Refuse(unknown_lease_refusal(event)))
            }
            _ => Err(Halt::Refuse(not_found_refusal(event))),
        }
    }

    /// Fires one of the engine's own events. The static analysis proves that a transition takes it.
    fn fire_required(
        &mut self,
        id: RecordId,
        event: &str,
        result: &[Value],
        error: Option<&ClassifiedFailure>,
    ) -> DecideResult<()> {
        match self.fire_event(id, EventContext { result, error, ..engine_event_context(event) })? {
            Ok(()) => Ok(()),
            Err(reason) => {
                let record = self.draft.expect_record(id)?;
                let reason = match reason {
                    NoMatch::State => format!("no transition of `{event}` starts from {}", record.state_name()),
                    _ => format!("no transition of `{event}` matches"),
                };
                Err(Halt::Refuse(record_refusal(&record, event, 409, "not_taken", reason)))
            }
        }
    }

    /// Claims a slot of the job's concurrency key. Refuses if the key is at its limit, or if an older job comes first.
    fn claim_concurrency_key(&mut self, record: &Record) -> DecideResult<Option<Vec<Arc<str>>>> {
        let Some(key) = record.lifecycle.work.as_ref().and_then(|work| work.concurrency.as_ref()) else {
            return Ok(None);
        };
        let Some(parts) = canonical_key_parts(record, &key.on) else { return Ok(None) };
        if let (true, Some(queue)) = (key.ordered, concurrency_key(record)) {
            self.draft.record_read(ReadKey::ConcurrencyQueue(queue.clone()));
            let first = match self.draft.snapshot.concurrency_queues.get(&queue) {
                Some(waiting) => waiting.first().map(|(_, id)| *id),
                None if self.draft.snapshot.is_complete => None,
                None => return Err(Halt::Missing(vec![ReadKey::ConcurrencyQueue(queue)])),
            };
            if let Some(first) = first.filter(|first| *first != record.id) {
                // Fires the older job's due timers first, since they may end it.
                self.draft.find(first)?;
                let reason = "an older job with the same concurrency key has not ended";
                return Err(Halt::Refuse(record_refusal(record, "lease", 409, "older_job_unfinished", reason)));
            }
        }
        let Some(limit) = key.limit else { return Ok(None) };
        let count = concurrency_counter(record, parts.clone());
        if self.draft.counter_value(&count)? >= u64::from(limit) {
            let reason = count_noun(
                limit,
                "job with the same concurrency key is running",
                "jobs with the same concurrency key are running",
            );
            return Err(Halt::Refuse(record_refusal(record, "lease", 409, "concurrency_limit_reached", reason)));
        }
        self.draft.add_to_counter(count, 1);
        Ok(Some(parts))
    }
}

/// Returns the refusal for a missing record, which is also that for a record that the caller may not read.
pub(super) fn not_found_refusal(event: &str) -> Box<super::changes::Refusal> {
    let mut refusal =
        recordless_refusal(event, 404, "not_found", "the record does not exist, or the caller may not read it");
    refusal.is_denial = true;
    refusal
}

/// Refusal of a worker's report if the caller may not know of the record.
fn unknown_lease_refusal(event: &str) -> Box<super::changes::Refusal> {
    recordless_refusal(event, 409, "lease_lost", LEASE_LOST_REASON)
}

/// A report on a LEASED execution implies its start. Returns `false` if it had started already.
fn mark_started(draft: &Draft, record: &mut Record) -> bool {
    match &mut record.execution {
        Some(execution) if execution.status == ExecutionStatus::Leased => {
            execution.status = ExecutionStatus::InProgress;
            execution.started_at = Some(draft.now);
            true
        }
        _ => false,
    }
}

/// Ends the execution as DONE or ABORTED and frees its concurrency key.
pub(super) fn end_execution(
    draft: &mut Draft,
    record: &mut Record,
    status: ExecutionStatus,
    aborted: Option<AbortReason>,
) {
    if let Some(count) = end_lease(record, draft.now, status, aborted) {
        draft.add_to_counter(count, -1);
    }
}

/// Returns the counter that the ended execution no longer counts in.
fn end_lease(
    record: &mut Record,
    now: Time,
    status: ExecutionStatus,
    aborted: Option<AbortReason>,
) -> Option<CounterKey> {
    let execution = record.execution.as_mut()?;
    execution.status = status;
    execution.finished_at = Some(now);
    execution.aborted = aborted;
    execution.finish_pending = false;
    let parts = execution.concurrency_key.take()?;
    Some(concurrency_counter(record, parts))
}

/// Counter of running jobs of a concurrency key. The point in `work.key` keeps it apart from the names of limits.
fn concurrency_counter(record: &Record, parts: Vec<Arc<str>>) -> CounterKey {
    CounterKey { lifecycle: Arc::clone(&record.lifecycle.name), limit: "work.key".into(), parts, window_start: None }
}

/// Classifies a failure by the lifecycle's error table, then by the worker's report. `lost` and `yielded` are retryable
/// by default.
fn classify_failure(table: &ErrorTable, report: &FailureReport) -> ClassifiedFailure {
    let is_listed = |codes: &[Arc<str>]| codes.contains(&report.code);
    let retryable = if is_listed(&table.retryable) {
        true
    } else if is_listed(&table.terminal) {
        false
    } else {
        report.retryable.unwrap_or(matches!(&*report.code, "lost" | "yielded"))
    };
    ClassifiedFailure {
        code: truncate_text(&report.code),
        message: truncate_text(&report.message),
        retryable,
        retry_after: report.retry_after.map(|delay| delay.clamp(Duration::ZERO, bounds::MAX_RETRY_AFTER)),
    }
}

/// Cuts a worker's text to the bound for strings.
fn truncate_text(text: &Arc<str>) -> Arc<str> {
    let clean = if text.contains('\0') { text.replace('\0', "\u{fffd}").into() } else { Arc::clone(text) };
    // A text has at least as many bytes as characters, so a short text needs no counting.
    if clean.len() <= bounds::MAX_TEXT_CHARS {
        return clean;
    }
    match clean.char_indices().nth(bounds::MAX_TEXT_CHARS) {
        Some((end, _)) => clean[..end].into(),
        None => clean,
    }
}
