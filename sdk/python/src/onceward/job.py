"""A job, as a handler gets it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, Generic, Literal, Protocol, TypeVar

from .errors import Cancelled
from .records import Lease, Record

P = TypeVar("P")

#: Why a job is to stop: its lifecycle says so, its lease is lost, or the worker shuts down.
Reason = Literal["stop", "lease_lost", "shutdown"]


class Holder(Protocol):
    """What a job needs of the worker that runs it."""

    def commit_now(self, job: Job[Any], result: Any) -> None: ...

    def fetch(self, record: Record) -> Any: ...


class Job(Generic[P]):
    """One attempt at a job. `id` is the same in every attempt, so it is the key for effects outside."""

    def __init__(
        self, lease: Lease, holder: Holder, decode: Callable[[Any], P] | None, seconds: float | None, *, in_doubt: bool = False
    ) -> None:
        self.record: Record = lease.record
        self.execution: str = lease.id
        self.token: int = lease.token
        self.attempt: int = lease.attempt
        #: W3C trace context of whoever made the job, where there is some; sent with its reports.
        self.traceparent: str | None = lease.traceparent
        #: Set when the job is to stop; `cancelled` asks it.
        self.cancel_event = threading.Event()
        #: Why it is to stop.
        self.reason: Reason | None = None
        self.committed = False
        self._lease = lease
        self._holder = holder
        self._decode = decode
        self._payload: P | None = None
        self._decoded = False
        self._lock = threading.Lock()
        self._reported = False
        #: How long the lease lasts after each heartbeat.
        self.seconds: float = seconds if seconds is not None else max(lease.seconds, lease.expires_in or 0.0)
        #: When the lease is surely gone. The server says how much was left of it; one that does not say it has an answer that may
        #: have been long on its way, or found again by its key.
        self.gone_at = time.monotonic() + (self.seconds if lease.expires_in is None else lease.expires_in)
        #: Whether the lease may be older than it looks: the server is asked before the handler begins.
        self.in_doubt = in_doubt
        #: When reports are no longer tried: the worker ends.
        self.give_up_at = math.inf

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
        """The JSON value or the bytes, or what the handler's `decode` makes of them. Large ones are fetched on first use."""
        if not self._decoded:
            found = self._lease.payload
            if self._lease.payload_bytes is not None:
                found = self._holder.fetch(self.record)
            self._payload = found if self._decode is None else self._decode(found)
            self._decoded = True
        return self._payload  # type: ignore[return-value]

    @property
    def cancelled(self) -> bool:
        """Whether the job is to stop. Long work asks this now and then, or waits on `cancel_event`."""
        return self.cancel_event.is_set()

    def check(self) -> None:
        """Raises `Cancelled` where the job is to stop."""
        if self.cancelled:
            raise Cancelled(self.reason or "stop")

    def commit(self, result: Any = None) -> None:
        """Lets the effect land now; what the handler does after it is tidying up, and is not repeated.

        Without this call, what the handler returns is committed. Raises `LeaseLost` or `AlreadyCommitted` where the job is no
        longer this worker's: let it pass through.
        """
        self._holder.commit_now(self, result)

    def cancel(self, reason: Reason) -> None:
        """For the worker: tells the handler to stop."""
        with self._lock:
            if self.reason is None or reason == "lease_lost":
                self.reason = reason
        self.cancel_event.set()

    def claim_report(self) -> bool:
        """For the worker: whoever comes first reports how the job ended, and nobody else does."""
        with self._lock:
            first, self._reported = not self._reported, True
            return first

    @property
    def reported(self) -> bool:
        """For the worker: whether somebody reports how it ended, or has."""
        return self._reported

    def kept(self, sent: float) -> None:
        """For the worker: the heartbeat that was sent then was answered. The lease was prolonged at that time or later."""
        self.gone_at = sent + self.seconds
