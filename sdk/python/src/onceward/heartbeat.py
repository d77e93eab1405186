"""Sends heartbeats that extend the leases of all running jobs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from .client import MAX_BATCH_ITEMS, Client
from .errors import OncewardError, RefusedError
from .job import Job
from .requests import Report
from .retry_policy import Backoff, is_problem_final
from .types import BatchResult, Problem, ReportResult

#: One heartbeat per third of a lease leaves time for two retries.
HEARTBEATS_PER_LEASE = 3

#: Bounds the request rate of very short leases, in seconds.
MIN_HEARTBEAT_INTERVAL = 0.005

#: A heartbeat that is due within this part of its interval is sent early, together with those that are due now.
EARLY_SEND_FRACTION = 0.1

#: Every server gets at least this time to answer, in seconds.
MIN_RESPONSE_TIMEOUT = 0.25

log = logging.getLogger("onceward")


class _HeartbeatSchedule:
    """When the next heartbeat of a job is due."""

    def __init__(self, job: Job[Any]) -> None:
        self.job = job
        self.interval = max(job.lease_duration / HEARTBEATS_PER_LEASE, MIN_HEARTBEAT_INTERVAL)
        # Counted from the start of the lease, which is earlier than now if the response was delayed.
        self.due_at = job.lease_expires_at - job.lease_duration + self.interval
        self.is_stop_requested = False
        #: Whether the last heartbeat failed. Its retry waits for the full backoff and is not sent early.
        self.has_failed = False


class HeartbeatThread:
    """Sends the heartbeats of all jobs of a worker from one thread.

    It calls `on_stop_ignored` if a job still runs one heartbeat after it was asked to stop.
    """

    def __init__(self, client: Client, lease: float | None, on_stop_ignored: Callable[[Job[Any]], object]) -> None:
        self._client = client
        self._lease = lease
        self._on_stop_ignored = on_stop_ignored
        self._schedules: dict[str, _HeartbeatSchedule] = {}
        # Shared by all jobs, so that heartbeats that failed together are retried together, in one request.
        self._backoff = Backoff()
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="onceward-heartbeat", daemon=True)
        self._thread.start()

    def add(self, job: Job[Any]) -> None:
        with self._changed:
            self._schedules[job.execution] = _HeartbeatSchedule(job)
            self._changed.notify()

    def remove(self, job: Job[Any]) -> None:
        with self._changed:
            self._schedules.pop(job.execution, None)

    def close(self) -> None:
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                due = self._wait_for_due()
                if self._is_closed:
                    return
                # A request that hangs must not delay the other heartbeats until their leases expire.
                timeout = min(
                    self._client.retry_policy.response_timeout,
                    *(schedule.interval for schedule in self._schedules.values()),
                    *(_remaining_lease(schedule) for schedule in due),
                )
            try:
                self._send(due, max(timeout, MIN_RESPONSE_TIMEOUT))
            except Exception:  # If this thread ended, every lease would expire.
                log.exception("heartbeat failed")
                self._schedule_retries(due, None)

    def _wait_for_due(self) -> list[_HeartbeatSchedule]:
        while not self._is_closed:
            now = time.monotonic()
            schedules = self._schedules.values()
            due = [schedule for schedule in schedules if schedule.due_at <= now]
            if due:
                early = [
                    schedule
                    for schedule in schedules
                    if now < schedule.due_at <= now + schedule.interval * EARLY_SEND_FRACTION and not schedule.has_failed
                ]
                return (due + early)[:MAX_BATCH_ITEMS]
            first_due_at = min((schedule.due_at for schedule in schedules), default=None)
            self._changed.wait(None if first_due_at is None else first_due_at - now)
        return []

    def _send(self, due: Sequence[_HeartbeatSchedule], timeout: float) -> None:
        sent_at = time.monotonic()
        results, retry_after = self._request(due, timeout)
        failed = [
            schedule for schedule, result in zip(due, results, strict=True) if not self._handle_result(schedule, result, sent_at)
        ]
        if failed:
            delays = (result.retry_after for result in results if isinstance(result, Problem))
            self._schedule_retries(
                failed, max((delay for delay in (retry_after, *delays) if delay is not None), default=None)
            )
        else:
            self._backoff = Backoff()

    def _request(
        self, due: Sequence[_HeartbeatSchedule], timeout: float
    ) -> tuple[Sequence[ReportResult | BatchResult | Problem | None], float | None]:
        """Returns the result of each heartbeat, None without an answer, and the delay that the server asked for if it refused the whole
        request."""
        reports = [Report.heartbeat(schedule.job.execution, schedule.job.token, self._lease) for schedule in due]
        try:
            if len(reports) == 1:
                return [self._client.report_once(reports[0], response_timeout=timeout)], None
            return self._client.report_batch_once(reports, response_timeout=timeout), None
        except RefusedError as error:
            return [error.problem if len(reports) == 1 else None] * len(reports), error.problem.retry_after
        except OncewardError:
            return [None] * len(reports), None

    def _handle_result(
        self, schedule: _HeartbeatSchedule, result: ReportResult | BatchResult | Problem | None, sent_at: float
    ) -> bool:
        """Returns False if the heartbeat must be retried."""
        job = schedule.job
        if isinstance(result, (ReportResult, BatchResult)):
            job.extend_lease(sent_at)
            schedule.has_failed = False
            schedule.due_at = sent_at + schedule.interval
            if result.stop and schedule.is_stop_requested:
                self._on_stop_ignored(job)
            elif result.stop:
                schedule.is_stop_requested = True
                job.request_stop("stop")
            return True
        # A temporary error says nothing about the lease.
        is_lost = isinstance(result, Problem) and is_problem_final(result)
        if is_lost and job.is_report_claimed:
            # The final report ended the lease before this heartbeat.
            self.remove(job)
            return True
        if is_lost or time.monotonic() >= job.lease_expires_at:
            log.warning("job %s lost its lease: %s", job.id, result or "the server did not answer")
            job.request_stop("lease_lost")
            self.remove(job)
            return True
        return False

    def _schedule_retries(self, failed: Sequence[_HeartbeatSchedule], retry_after: float | None) -> None:
        delay, now = self._backoff.next_delay(retry_after), time.monotonic()
        for schedule in failed:
            schedule.has_failed = True
            # Retry within one interval, even if the server asks for more: after two missed intervals the lease expires.
            schedule.due_at = min(now + min(delay, schedule.interval), max(schedule.job.lease_expires_at, now))


def _remaining_lease(schedule: _HeartbeatSchedule) -> float:
    return schedule.job.lease_expires_at - time.monotonic()
