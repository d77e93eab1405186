"""A worker: leases jobs, runs a handler for each, keeps the leases and reports the results."""

from __future__ import annotations

import hashlib
import logging
import os
import queue
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from types import FrameType, TracebackType
from typing import Any, TypeVar

from .client import Client, PayloadError, parse_payload
from .connection import AbortHandle
from .errors import (
    AlreadyCommittedError,
    Failure,
    JobStoppedError,
    LeaseLostError,
    OncewardError,
    RefusedError,
    RetryableFailure,
    TerminalFailure,
    UnreachableError,
)
from .failure_report import sanitize_failure
from .heartbeat import HeartbeatThread
from .job import Job
from .reporter import Reporter
from .requests import Report, new_idempotency_key
from .retry_policy import Backoff, is_final, is_retryable, retry_after_of
from .types import LeasedJob, Record

P = TypeVar("P")
Handler = Callable[[Job[P]], Any]

#: Time for the last reports after the grace period, and to recall the jobs of an aborted lease call, in seconds.
FINAL_REPORT_TIMEOUT = 2.0

#: The server's limit for a request with an idempotency key.
MAX_JOBS_PER_REQUEST = 100

#: A payload that does not match its hash may have been damaged in transfer, so it is downloaded once more.
MAX_PAYLOAD_DOWNLOADS = 2

#: SIGHUP is included: a closed terminal must not leave jobs leased.
SHUTDOWN_SIGNALS = ("SIGTERM", "SIGINT", "SIGHUP")

log = logging.getLogger("onceward")


class Worker:
    """Runs handlers for jobs, `concurrency` at a time, each in a thread.

    `lease` is the length of the leases in seconds, instead of that of the lifecycle. `max_wait` is how long one lease call waits for a
    job. On SIGTERM, SIGINT or SIGHUP the worker leases no more jobs and asks the running ones to stop (`Job.should_stop`). It yields
    jobs that still run after `shutdown_grace` seconds. `error_code` is the code of exceptions that are no `Failure`; they are retryable.
    """

    def __init__(
        self,
        client: Client | str | None = None,
        *,
        name: str | None = None,
        concurrency: int = 1,
        lease: float | None = None,
        max_wait: float = 20.0,
        shutdown_grace: float = 10.0,
        error_code: str = "EXCEPTION",
    ) -> None:
        if concurrency < 1:
            raise ValueError("concurrency must be at least 1")
        self.client = client if isinstance(client, Client) else Client(client)
        self._owns_client = not isinstance(client, Client)
        self.name = name or f"{socket.gethostname()}-{os.getpid()}"
        self.concurrency = concurrency
        self.shutdown_grace = shutdown_grace
        self._lease = lease
        self._max_wait = max_wait
        self._error_code = error_code
        self._handlers: dict[str, tuple[Handler[Any], Callable[[Any], Any] | None]] = {}
        self._job_queue: queue.SimpleQueue[Job[Any] | None] = queue.SimpleQueue()
        self._running: dict[str, Job[Any]] = {}
        self._changed = threading.Condition()
        self._closing = threading.Event()
        self._lease_abort_handle: AbortHandle | None = None
        self._heartbeats: HeartbeatThread | None = None
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._signal: str | None = None
        self._is_server_unavailable = False
        self._reporter = Reporter(self.client, error_code)
        # A signal handler can do little safely, so it sends a byte to `run`, which waits for it.
        self._wake_receiver, self._wake_sender = socket.socketpair()

    def job(self, lifecycle: str, decode: Callable[[Any], P] | None = None) -> Callable[[Handler[P]], Handler[P]]:
        """Decorator that registers the handler of a lifecycle. The worker commits its return value.

        `decode` converts the payload. If it raises, the job fails without retries (`BAD_PAYLOAD`).
        """

        def register(handler: Handler[P]) -> Handler[P]:
            if lifecycle in self._handlers:
                raise ValueError(f"lifecycle {lifecycle} already has a handler")
            self._handlers[lifecycle] = (handler, decode)
            return handler

        return register

    def run(self, *, signals: bool = True) -> None:
        """Runs until SIGTERM, SIGINT, SIGHUP or `stop`. A second signal yields all running jobs at once."""
        previous_handlers: dict[int, Any] = {}
        for name in SHUTDOWN_SIGNALS if signals else ():
            number = getattr(signal, name, None)
            # Windows has no SIGHUP, and `nohup` sets it to be ignored.
            if number is None or (name == "SIGHUP" and signal.getsignal(number) is signal.SIG_IGN):
                continue
            previous_handlers[number] = signal.signal(number, self._on_signal)
        try:
            self.start()
            while self._wake_receiver.recv(1) == b"s":
                if self._closing.is_set():
                    self.shutdown_grace = 0.0
                    with self._changed:
                        self._changed.notify_all()
                self.stop()
        finally:
            for number, handler in previous_handlers.items():
                signal.signal(number, handler)
        self.join()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        self._signal = signal.Signals(number).name
        self._wake_sender.send(b"s")

    def __enter__(self) -> Worker:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()
        self.join()

    def start(self) -> None:
        """Starts the worker in the background. `stop` and `join` end it."""
        if not self._handlers:
            raise ValueError("the worker has no handler; register one with `job`")
        if self._thread is not None:
            raise RuntimeError("the worker was already started")
        log.info(
            "worker %s started: lifecycles %s, server %s, concurrency %d",
            self.name,
            ", ".join(self._handlers),
            self.client.url,
            self.concurrency,
        )
        self._heartbeats = HeartbeatThread(self.client, self._lease, lambda job: self._spawn_yields([job]))
        for number in range(self.concurrency):
            threading.Thread(target=self._run_jobs, name=f"onceward-{number}", daemon=True).start()
        self._thread = threading.Thread(target=self._run_worker, name="onceward-leases", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Leases no more jobs and asks the running ones to stop. Returns at once."""
        with self._changed:
            is_first_stop = self._thread is not None and not self._closing.is_set()
            self._closing.set()
            abort_handle, running = self._lease_abort_handle, list(self._running.values())
            self._changed.notify_all()
        for job in running:
            job.request_stop("shutdown")
        if abort_handle is not None:
            abort_handle.abort()
        if is_first_stop:
            log.info("worker is stopping (%s): running jobs have %g s to finish%s", *self._stop_details())

    def _stop_details(self) -> tuple[str, float, str]:
        """Returns the cause, the grace period, and a hint for the log line."""
        if self._signal is not None:
            return self._signal, self.shutdown_grace, "; a second signal yields them at once"
        return "stop was called" if self._error is None else "error", self.shutdown_grace, ""

    def join(self) -> None:
        """Waits until the worker has ended. Raises the error that ended it, if any."""
        if self._thread is not None:
            self._thread.join()
        self._wake_receiver.close()
        self._wake_sender.close()
        if self._owns_client:
            self.client.close()
        if self._error is not None:
            raise self._error

    # Leasing

    def _run_worker(self) -> None:
        try:
            self._lease_until_closed()
        except BaseException as error:
            self._error = error
            log.error("worker failed: %s", error)
        finally:
            self.stop()
            self._drain()
            for _ in range(self.concurrency):
                self._job_queue.put(None)
            if self._heartbeats is not None:
                self._heartbeats.close()
            log.info("worker stopped: %s", self._reporter.counters)
            self._wake_sender.send(b"e")

    def _lease_until_closed(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closing.is_set() or len(self._running) < self.concurrency)
                if self._closing.is_set():
                    return
                max_jobs = min(self.concurrency - len(self._running), MAX_JOBS_PER_REQUEST)
            self._lease_with_retries(max_jobs)

    def _lease_with_retries(self, max_jobs: int) -> None:
        """Leases until the server answers. All attempts have the same idempotency key, so that a repeated call returns the jobs of a lost
        response."""
        key, backoff, is_repeated = new_idempotency_key(), Backoff(), False
        while True:
            abort_handle = AbortHandle()
            with self._changed:
                if self._closing.is_set():
                    # An earlier attempt may have leased jobs.
                    break
                self._lease_abort_handle = abort_handle
            try:
                leased_jobs = self._lease_once(max_jobs, key, self._max_wait, abort_handle)
                self._log_available()
                self._start_jobs(leased_jobs, is_repeated)
                return
            except OncewardError as error:
                is_repeated = True
                if self._closing.is_set():
                    break
                if is_final(error):
                    raise
                self._log_unavailable(error)
                self._closing.wait(backoff.next_delay(retry_after_of(error)))
            finally:
                with self._changed:
                    self._lease_abort_handle = None
        if is_repeated:
            self._start_jobs(self._recall_leases(max_jobs, key), is_repeated)

    def _log_unavailable(self, error: OncewardError) -> None:
        """Logs the first failed lease call of an outage only."""
        if not self._is_server_unavailable:
            log.warning("lease call failed; the worker retries until the server is available: %s", error)
        self._is_server_unavailable = True

    def _log_available(self) -> None:
        if self._is_server_unavailable:
            log.info("the server is available again")
        self._is_server_unavailable = False

    def _recall_leases(self, max_jobs: int, key: str) -> list[LeasedJob]:
        """Returns the jobs that an aborted call leased, so that the worker can yield them."""
        backoff, deadline = Backoff(), time.monotonic() + FINAL_REPORT_TIMEOUT
        while True:
            try:
                return self._lease_once(max_jobs, key, 0.0, None, replay_only=True)
            except OncewardError as error:
                # `idempotency_key_in_use` if the server has not yet noticed that the call was aborted.
                if not is_retryable(error) or time.monotonic() > deadline:
                    return []  # Their leases expire.
            time.sleep(backoff.next_delay())

    def _lease_once(
        self, max_jobs: int, key: str, max_wait: float, abort_handle: AbortHandle | None, *, replay_only: bool = False
    ) -> list[LeasedJob]:
        return self.client.lease_once(
            [*self._handlers],
            self.name,
            max_jobs=max_jobs,
            lease=self._lease,
            max_wait=max_wait,
            start=True,
            idempotency_key=key,
            replay_only=replay_only,
            abort_handle=abort_handle,
            response_timeout=FINAL_REPORT_TIMEOUT if self._closing.is_set() else None,
        )

    def _start_jobs(self, leased_jobs: Sequence[LeasedJob], is_repeated: bool) -> None:
        """`is_repeated`: an earlier call may have leased the jobs, so the age of their leases is unknown."""
        jobs: list[Job[Any]] = []
        for leased in leased_jobs:
            _, decode = self._handlers[leased.record.lifecycle]
            jobs.append(Job(leased, self, decode, self._lease, is_lease_uncertain=is_repeated))
        with self._changed:
            self._running.update((job.execution, job) for job in jobs)
            is_closing = self._closing.is_set()
        if is_closing:
            # Their handlers have not started, so no work is lost.
            self._yield_now(jobs)
            return
        for job in jobs:
            if self._heartbeats is not None:
                self._heartbeats.add(job)
            self._job_queue.put(job)

    def _yield_now(self, jobs: Sequence[Job[Any]]) -> None:
        """Yields jobs in parallel, because all share one deadline."""
        for job in jobs:
            job.report_deadline = time.monotonic() + FINAL_REPORT_TIMEOUT
        for thread in self._spawn_yields(jobs):
            thread.join()
        for job in jobs:
            self._remove_job(job)

    def _drain(self) -> None:
        began_at = time.monotonic()
        with self._changed:
            while self._running:
                # Computed anew, because a second signal sets the grace period to zero.
                remaining = began_at + self.shutdown_grace - time.monotonic()
                if remaining <= 0:
                    break
                self._changed.wait(remaining)
            late_jobs = list(self._running.values())
        reporting = [job for job in late_jobs if job.is_report_claimed]
        for job in late_jobs:
            job.report_deadline = time.monotonic() + FINAL_REPORT_TIMEOUT
        for thread in self._spawn_yields(late_jobs):
            thread.join()
        with self._changed:
            self._changed.wait_for(
                lambda: not any(job.execution in self._running for job in reporting), FINAL_REPORT_TIMEOUT
            )

    def _spawn_yields(self, jobs: Sequence[Job[Any]]) -> list[threading.Thread]:
        """Yields each job in a new thread, so that the caller is not blocked."""
        threads = [threading.Thread(target=self._yield_job, args=(job,), daemon=True) for job in jobs]
        for thread in threads:
            thread.start()
        return threads

    # Running jobs

    def _run_jobs(self) -> None:
        while (job := self._job_queue.get()) is not None:
            try:
                if self._confirm_lease(job) and (report := self._run_handler(job)) is not None:
                    self._reporter.send_final(job, report)
            except Exception:
                log.exception("job %s: report failed", job.id)
            finally:
                self._remove_job(job)

    def _remove_job(self, job: Job[Any]) -> None:
        if self._heartbeats is not None:
            self._heartbeats.remove(job)
        with self._changed:
            self._running.pop(job.execution, None)
            self._changed.notify_all()

    def _confirm_lease(self, job: Job[Any]) -> bool:
        """Returns whether the handler may start: the lease has not expired, and if its age is unknown, the server accepted a
        heartbeat."""
        try:
            if job.is_lease_uncertain and time.monotonic() < job.lease_expires_at:
                sent_at = time.monotonic()
                if self._reporter.send(job, Report.heartbeat(job.execution, job.token, self._lease)).stop:
                    self._reporter.send_final(job, Report.yield_(job.execution, job.token))
                    return False
                job.extend_lease(sent_at)
        except OncewardError as error:
            log.warning("job %s was not started: %s", job.id, error)
            return False
        if time.monotonic() < job.lease_expires_at:
            return True
        log.warning("job %s was not started: its lease had already expired", job.id)
        return False

    def _run_handler(self, job: Job[Any]) -> Report | None:
        """Runs the handler. Returns the final report, or None if the worker no longer holds the job."""
        handler, decode = self._handlers[job.lifecycle]
        execution, token = job.execution, job.token
        try:
            if decode is not None or job.payload_error is not None:
                self._decode_payload(job)
            result = handler(job)
        except (LeaseLostError, AlreadyCommittedError) as error:
            log.warning("job %s was dropped: %s", job.id, error)
            return None
        except JobStoppedError:
            return Report.yield_(execution, token)
        except Failure as failure:
            return Report.fail(execution, token, sanitize_failure(failure))
        except BaseException as error:
            log.exception("job %s: handler raised an exception", job.id)
            unexpected = RetryableFailure(self._error_code, f"{type(error).__name__}: {error}")
            return Report.fail(execution, token, sanitize_failure(unexpected))
        if job.is_committed:
            return Report.finish(execution, token)
        return Report.commit(execution, token, result, finish=True)

    def _decode_payload(self, job: Job[Any]) -> None:
        try:
            job.payload
        except (OncewardError, Failure):
            raise
        except Exception as error:
            raise TerminalFailure("BAD_PAYLOAD", f"{type(error).__name__}: {error}") from error

    def _yield_job(self, job: Job[Any]) -> None:
        self._reporter.yield_job(job)
        if self._heartbeats is not None:
            self._heartbeats.remove(job)

    def commit_job(self, job: Job[Any], result: Any) -> None:
        """Implements `Job.commit`."""
        self._reporter.commit(job, result)

    def fetch_payload(self, record: Record) -> Any:
        """Implements `Job.payload`: downloads a large payload and verifies its hash."""
        expected_hash = (record.raw.get("payload") or {}).get("sha256")
        for _ in range(MAX_PAYLOAD_DOWNLOADS):
            try:
                payload = self.client.payload(record.id)
            except (RefusedError, UnreachableError) as error:
                # If the server is unavailable or busy, the job is yielded. If the payload is missing or its download breaks off, other
                # workers would fail, too, so the job fails and the lifecycle limits the retries.
                is_unavailable = error.not_sent if isinstance(error, UnreachableError) else is_retryable(error)
                if is_unavailable:
                    raise JobStoppedError("no_payload") from error
                raise RetryableFailure("PAYLOAD_UNAVAILABLE", str(error)) from error
            if expected_hash is None or hashlib.sha256(payload).hexdigest() == expected_hash:
                try:
                    return parse_payload(payload)
                except PayloadError as error:
                    raise TerminalFailure("BAD_PAYLOAD", str(error)) from error
            log.warning("job %s: the downloaded payload does not match its hash", record.id)
        raise RetryableFailure("PAYLOAD_UNAVAILABLE", "the downloaded payload does not match its hash")
