"""What the server answers with. All of it is frozen: an answer is what was so when it was given."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Union

#: A JSON value as `json.loads` gives it.
JSON = Union[None, bool, int, float, str, "list[JSON]", "dict[str, JSON]"]

#: An object of the server's answer.
Object = Mapping[str, Any]

_TIME = re.compile(r"(?P<whole>[^.Zz+]+)(?:\.(?P<part>\d+))?(?P<zone>[Zz]|[+-]\d\d:\d\d)$")


def time_of(text: str) -> datetime:
    """RFC 3339, with as many digits of a second as there are; Python 3.10 itself reads three or six only."""
    found = _TIME.match(text)
    if found is None:
        raise ValueError(f"not a time: {text}")
    part = (found["part"] or "0")[:6].ljust(6, "0")
    zone = "+00:00" if found["zone"] in "Zz" else found["zone"]
    return datetime.fromisoformat(f"{found['whole']}.{part}{zone}")


def _maybe_time(text: str | None) -> datetime | None:
    return None if text is None else time_of(text)


@dataclass(frozen=True)
class Problem:
    """Why a call was not taken (`application/problem+json`). Codes are stable; texts are for people."""

    status: int
    code: str
    title: str = ""
    detail: str | None = None
    #: Where a move was refused: the record's state, the event, and the reason.
    state: str | None = None
    event: str | None = None
    reason: str | None = None
    #: With `already_committed`: the token of the execution that won.
    committed: int | None = None
    #: How many seconds to wait before trying again, where the server says so.
    retry_after: float | None = None
    #: Everything the server said.
    raw: Object = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def of(found: Object, status: int = 0, retry_after: float | None = None) -> Problem:
        effect = found.get("effect")
        after = found.get("retry_after_ms")
        return Problem(
            status=int(found.get("status", status)),
            code=str(found.get("code", "unknown")),
            title=str(found.get("title", "")),
            detail=found.get("detail"),
            state=found.get("state"),
            event=found.get("event"),
            reason=found.get("reason"),
            committed=effect.get("token") if isinstance(effect, Mapping) else None,
            retry_after=retry_after if after is None else after / 1000,
            raw=found,
        )

    def __str__(self) -> str:
        said = self.reason or self.detail or self.title
        return f"{self.status} {self.code}: {said}" if said else f"{self.status} {self.code}"


@dataclass(frozen=True)
class Record:
    """One living thing."""

    id: str
    lifecycle: str
    state: str
    version: int
    owner: str
    fields: Mapping[str, Any]
    attempt: int
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    raw: Object = field(repr=False, compare=False)

    @staticmethod
    def of(found: Object) -> Record:
        return Record(
            id=found["id"],
            lifecycle=found["lifecycle"],
            state=found["state"],
            version=found["version"],
            owner=found["owner"],
            fields=found.get("fields") or {},
            attempt=found.get("attempt", 0),
            created_at=time_of(found["created_at"]),
            updated_at=time_of(found["updated_at"]),
            started_at=_maybe_time(found.get("started_at")),
            finished_at=_maybe_time(found.get("finished_at")),
            raw=found,
        )


@dataclass(frozen=True)
class Execution:
    """One turn of one worker at a job. Its token is the number of the attempt."""

    id: str
    token: int
    status: str
    worker: str | None
    expires_at: datetime | None
    raw: Object = field(repr=False, compare=False)

    @staticmethod
    def of(found: Object) -> Execution:
        return Execution(
            id=found["id"],
            token=found["token"],
            status=found["status"],
            worker=found.get("worker"),
            expires_at=_maybe_time(found.get("expires_at")),
            raw=found,
        )


@dataclass(frozen=True)
class Lease:
    """A job in a worker's hands, until `expires_at` or the next heartbeat."""

    id: str
    token: int
    attempt: int
    expires_at: datetime
    record: Record
    #: The JSON value or the bytes; None where there is none, or where it is too large to come along (`payload_bytes`).
    payload: Any
    #: The size of a payload that stayed behind: `Client.payload` fetches it.
    payload_bytes: int | None
    #: W3C trace context of whoever made the job, where there is some.
    traceparent: str | None
    #: How many seconds of it were left when the server answered: less than `seconds` where a repeated call has found it again, and
    #: zero where it is over. None where the server does not say so.
    expires_in: float | None
    raw: Object = field(repr=False, compare=False)

    @staticmethod
    def of(found: Object) -> Lease:
        payload, stayed, left = found.get("payload"), None, found.get("expires_in_ms")
        if found.get("payload_base64") is not None:
            payload = base64.b64decode(found["payload_base64"])
        elif payload is None:
            # A JSON `null` has come along; anything larger has stayed behind.
            size = (found["record"].get("payload") or {}).get("bytes", 0)
            stayed = size if size > len("null") else None
        return Lease(
            id=found["id"],
            token=found["token"],
            attempt=found["attempt"],
            expires_at=time_of(found["expires_at"]),
            record=Record.of(found["record"]),
            payload=payload,
            payload_bytes=stayed,
            traceparent=found.get("traceparent"),
            expires_in=None if left is None else left / 1000,
            raw=found,
        )

    @property
    def seconds(self) -> float:
        """How long the lease lasts: taking it was the newest change of the record."""
        return (self.expires_at - self.record.updated_at).total_seconds()


@dataclass(frozen=True)
class Reported:
    """The answer to a worker's report."""

    #: Both are None where this key may not look at the record any more: a worker sees what it holds.
    execution: Execution | None
    record: Record | None
    #: The job is to be given up (with a heartbeat).
    stop: bool

    @staticmethod
    def of(found: Object) -> Reported:
        execution, record = found.get("execution"), found.get("record")
        return Reported(
            execution=None if execution is None else Execution.of(execution),
            record=None if record is None else Record.of(record),
            stop=bool(found.get("stop", False)),
        )


@dataclass(frozen=True)
class Fired:
    """The answer to an event: the record after it, and the ids of those that it made."""

    #: None where the event was fired before under the same key, and the record is no longer there, or no longer for this key.
    record: Record | None
    spawned: tuple[str, ...]

    @staticmethod
    def of(found: Object) -> Fired:
        record = found.get("record")
        return Fired(None if record is None else Record.of(record), tuple(found.get("spawned") or ()))


@dataclass(frozen=True)
class Effect:
    """What the committed execution of a job left behind."""

    token: int
    result: Any
    raw: Object = field(repr=False, compare=False)

    @staticmethod
    def of(found: Object) -> Effect:
        result = found.get("result")
        if found.get("result_base64") is not None:
            result = base64.b64decode(found["result_base64"])
        return Effect(token=found["token"], result=result, raw=found)


@dataclass(frozen=True)
class Entry:
    """One entry of the log."""

    seq: int
    record: str | None
    version: int
    at: datetime
    event: str
    #: Who called; in the first entry of an operation.
    actor: str | None
    #: The state that the record entered, where it did.
    state: str | None
    raw: Object = field(repr=False, compare=False)

    @staticmethod
    def of(found: Object) -> Entry:
        return Entry(
            seq=found["seq"],
            record=found.get("record"),
            version=found.get("version", 0),
            at=time_of(found["at"]),
            event=found["event"],
            actor=found.get("actor"),
            state=found.get("state"),
            raw=found,
        )


@dataclass(frozen=True)
class Page:
    """Some records, and where to go on."""

    records: tuple[Record, ...]
    next: str | None
