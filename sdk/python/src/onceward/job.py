"""The job that a handler gets."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, Protocol, TypeVar

from .errors import JobStoppedError, TerminalFailure
from .types import LeasedJob, Record

P = TypeVar("P")

#: Why a job must stop: its lifecycle requests it, its lease is lost, or the worker shuts down.
StopReason = Literal["stop", "lease_lost", "shutdown"]


class JobRunner(Protocol):
    """The worker's methods that a job calls."""

    def commit_job(self, job: Job[Any], result: Any) -> None: ...

    def fetch_payload(self, record: Record) -> Any: ...


class Job(Generic[P]):
    """One attempt at a job. `id` is the same in every attempt: use it as idempotency key for effects outside the store."""

    def __init__(
        self,
        leased: LeasedJob,
        runner: JobRunner,
        decode: Callable[[Any], P] | None,
        lease_duration: float | None,
        *,
        is_lease_uncertain: bool = False,
    ) -> None:
        self.record: Record = leased.record
        #: Id of the execution.
        self.execution: str = leased.id
        #: Fencing token, part of every report.
        self.token: int = leased.token
        self.attempt: int = leased.attempt
        #: W3C trace context, if the creator of the job sent one. The worker sends it with the reports.
        self.traceparent: str | None = leased.traceparent
        #: Set when the job must stop.
        self.stop_event = threading.Event()
        #: Why the job must stop.
        self.stop_reason: StopReason | None = None
        #: Whether `commit` succeeded.
        self.is_committed = False
        self._leased = leased
        self._runner = runner
        self._decode = decode
        self._payload: P | None = None
        self._is_decoded = False
        self._lock = threading.Lock()
        self._is_report_claimed = False
        #: For the worker: length of the lease after each heartbeat, in seconds.
        self.lease_duration: float = (
            lease_duration if lease_duration is not None else max(leased.lease_duration, leased.expires_in or 0.0)
        )
        #: For the worker: when the lease has certainly expired, by the local clock. A server that does not send the remaining lease gets
        #: the whole length, although its response may be late or replayed.
        self.lease_expires_at = time.monotonic() + (self.lease_duration if leased.expires_in is None else leased.expires_in)
        #: For the worker: whether the lease may be older than it seems. If so, a heartbeat must succeed before the handler starts.
        self.is_lease_uncertain = is_lease_uncertain
        #: For the worker: when it stops retrying reports, because it shuts down.
        self.report_deadline = math.inf

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def lifecycle(self) -> str:
        return self.record.lifecycle

    @property
    def fields(self) -> Mapping[str, Any]:
        return self.record.fields

    @property
    def payload(self) -> P:
        """The JSON value or the bytes, or the result of the handler's `decode`. A large payload is downloaded on first use."""
        if not self._is_decoded:
            if self._leased.payload_error is not None:
                raise TerminalFailure("BAD_PAYLOAD", self._leased.payload_error)
            payload = self._leased.payload
            if self._leased.unfetched_payload_bytes is not None:
                payload = self._runner.fetch_payload(self.record)
            self._payload = payload if self._decode is None else self._decode(payload)
            self._is_decoded = True
        return self._payload  # type: ignore[return-value]

    @property
    def payload_error(self) -> str | None:
        """For the worker: why the payload cannot be parsed."""
        return self._leased.payload_error

    @property
    def should_stop(self) -> bool:
        """Whether the job must stop. Long work polls this or waits for `stop_event`."""
        return self.stop_event.is_set()

    def raise_if_stopping(self) -> None:
        """Raises `JobStoppedError` if the job must stop."""
        if self.should_stop:
            raise JobStoppedError(self.stop_reason or "stop")

    def commit(self, result: Any = None) -> None:
        """Commits the result and lets the handler clean up. The job is not run again after that.

        Without this call, the worker commits the handler's return value. Raises `LeaseLostError` or `AlreadyCommittedError` if the
        worker no longer holds the job: let it propagate.
        """
        self._runner.commit_job(self, result)

    def request_stop(self, reason: StopReason) -> None:
        """For the worker: asks the handler to stop. A lost lease replaces an earlier reason."""
        with self._lock:
            if self.stop_reason is None or reason == "lease_lost":
                self.stop_reason = reason
        self.stop_event.set()

    def claim_report(self) -> bool:
        """For the worker: returns True to the first caller only, which sends the final report."""
        with self._lock:
            is_first, self._is_report_claimed = not self._is_report_claimed, True
            return is_first

    @property
    def is_report_claimed(self) -> bool:
        """For the worker: whether the final report is being sent or was sent."""
        return self._is_report_claimed

    def extend_lease(self, sent_at: float) -> None:
        """For the worker: extends the lease after an accepted heartbeat, counted from when it was sent."""
        self.lease_expires_at = sent_at + self.lease_duration
