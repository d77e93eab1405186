"""Sends the reports of a worker's jobs."""

from __future__ import annotations

import logging
import time
from typing import Any

from .client import Client
from .counters import JobCounters
from .errors import JobStoppedError, OncewardError, RefusedError, UnreachableError
from .failure_report import SERIALIZATION_ERRORS, failure_from_report_error, fallback_report
from .heartbeat import HEARTBEATS_PER_LEASE
from .job import Job
from .requests import Report
from .retry_policy import Backoff, is_retryable, retry_after_of
from .types import ReportResult

#: A report, its fallback, and the fallback of that one.
MAX_REPORT_ATTEMPTS = 3

log = logging.getLogger("onceward")


class Reporter:
    """Sends reports and counts the accepted ones. The threads of a worker share it."""

    def __init__(self, client: Client, error_code: str) -> None:
        self.counters = JobCounters()
        self._client = client
        self._error_code = error_code

    def send(self, job: Job[Any], report: Report) -> ReportResult:
        """Sends a report until the server accepts or refuses it, or the lease has expired. The fencing token makes repeats safe."""
        backoff = Backoff(max(job.lease_duration / 10, 0.01))
        while True:
            response_timeout = min(
                self._client.retry_policy.response_timeout, max(job.report_deadline - time.monotonic(), 0.05)
            )
            try:
                result = self._client.report_once(
                    report, response_timeout=response_timeout, traceparent=job.traceparent
                )
                self.counters.count(report)
                return result
            except OncewardError as error:
                delay = min(backoff.next_delay(retry_after_of(error)), job.lease_duration / HEARTBEATS_PER_LEASE)
                now = time.monotonic()
                is_too_late = now >= job.lease_expires_at or now + delay > job.report_deadline
                if not is_retryable(error) or is_too_late:
                    raise
            time.sleep(delay)

    def send_final(self, job: Job[Any], report: Report) -> None:
        """Sends the report that ends the job, or its fallback if the server rejects it. Does nothing if the worker no longer holds the
        job or already reports its end."""
        if job.stop_reason == "lease_lost" or not job.claim_report():
            return
        if job.is_committed:
            # The effect is committed, so the job ends however the handler ended.
            report = Report.finish(job.execution, job.token)
        for _ in range(MAX_REPORT_ATTEMPTS):
            try:
                self.send(job, report)
                return
            except UnreachableError as error:
                log.error("job %s: the lease expired before the server answered %s: %s", job.id, report.kind, error)
                return
            except (RefusedError, *SERIALIZATION_ERRORS) as error:
                fallback = fallback_report(report, error, self._error_code)
                if fallback is None:
                    log.warning("job %s: the server refused %s: %s", job.id, report.kind, error)
                    return
                log.error("job %s: %s was rejected, the job fails: %s", job.id, report.kind, error)
                report = fallback

    def commit(self, job: Job[Any], result: Any) -> None:
        """Commits the result while the handler still runs. Raises a `Failure` if the server rejects the result."""
        if job.is_committed:
            raise RuntimeError("the job is already committed")
        if job.stop_reason == "lease_lost":
            raise JobStoppedError("lease_lost")
        try:
            self.send(job, Report.commit(job.execution, job.token, result))
        except (RefusedError, *SERIALIZATION_ERRORS) as error:
            failure = failure_from_report_error(error)
            if failure is None:
                raise
            raise failure from error
        job.is_committed = True

    def yield_job(self, job: Job[Any]) -> None:
        """Yields a job whose handler does not end. The handler's result is discarded."""
        if not job.claim_report():
            return
        job.request_stop("shutdown")
        try:
            self.send(job, (Report.finish if job.is_committed else Report.yield_)(job.execution, job.token))
        except OncewardError as error:
            log.warning("job %s could not be yielded: %s", job.id, error)
