"""Types of the API's JSON, as frozen dataclasses. `raw` holds the complete JSON."""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Union

#: A JSON value as `json.loads` returns it.
JSON = Union[None, bool, int, float, str, "list[JSON]", "dict[str, JSON]"]

#: A JSON object of a response.
JsonObject = Mapping[str, Any]

_RFC3339 = re.compile(r"(?P<seconds>[^.Zz+]+)(?:\.(?P<fraction>\d+))?(?P<zone>[Zz]|[+-]\d\d:\d\d)$")


def parse_time(text: str) -> datetime:
    """Parses RFC 3339 with any number of fraction digits. Python 3.10 itself accepts only three or six."""
    match = _RFC3339.match(text)
    if match is None:
        raise ValueError(f"not an RFC 3339 time: {text}")
    fraction = (match["fraction"] or "0")[:6].ljust(6, "0")
    zone = "+00:00" if match["zone"] in "Zz" else match["zone"]
    return datetime.fromisoformat(f"{match['seconds']}.{fraction}{zone}")


def _parse_optional_time(text: str | None) -> datetime | None:
    return None if text is None else parse_time(text)


@dataclass(frozen=True)
class Problem:
    """A refusal by the server (`application/problem+json`). Codes are stable; texts are for people."""

    status: int
    code: str
    title: str = ""
    detail: str | None = None
    #: If an event was refused: the record's state, the event and the reason.
    state: str | None = None
    event: str | None = None
    reason: str | None = None
    #: With `already_committed`: the token of the execution that committed.
    committed_token: int | None = None
    #: The delay before a retry that the server asked for, in seconds.
    retry_after: float | None = None
    #: The complete JSON.
    raw: JsonObject = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def from_json(body: JsonObject, status: int = 0, retry_after: float | None = None) -> Problem:
        effect = body.get("effect")
        retry_after_ms = body.get("retry_after_ms")
        return Problem(
            status=int(body.get("status", status)),
            code=str(body.get("code", "unknown")),
            title=str(body.get("title", "")),
            detail=body.get("detail"),
            state=body.get("state"),
            event=body.get("event"),
            reason=body.get("reason"),
            committed_token=effect.get("token") if isinstance(effect, Mapping) else None,
            retry_after=retry_after if retry_after_ms is None else retry_after_ms / 1000,
            raw=body,
        )

    def __str__(self) -> str:
        message = self.reason or self.detail or self.title
        return f"{self.status} {self.code}: {message}" if message else f"{self.status} {self.code}"


@dataclass(frozen=True)
class Record:
    """A record."""

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
    raw: JsonObject = field(repr=False, compare=False)

    @staticmethod
    def from_json(body: JsonObject) -> Record:
        return Record(
            id=body["id"],
            lifecycle=body["lifecycle"],
            state=body["state"],
            version=body["version"],
            owner=body["owner"],
            fields=body.get("fields") or {},
            attempt=body.get("attempt", 0),
            created_at=parse_time(body["created_at"]),
            updated_at=parse_time(body["updated_at"]),
            started_at=_parse_optional_time(body.get("started_at")),
            finished_at=_parse_optional_time(body.get("finished_at")),
            raw=body,
        )


@dataclass(frozen=True)
class Execution:
    """One leased attempt at a job. Its token is the attempt number."""

    id: str
    token: int
    status: str
    worker: str | None
    expires_at: datetime | None
    raw: JsonObject = field(repr=False, compare=False)

    @staticmethod
    def from_json(body: JsonObject) -> Execution:
        return Execution(
            id=body["id"],
            token=body["token"],
            status=body["status"],
            worker=body.get("worker"),
            expires_at=_parse_optional_time(body.get("expires_at")),
            raw=body,
        )


@dataclass(frozen=True)
class LeasedJob:
    """A leased job. The lease lasts until `expires_at`; a heartbeat extends it."""

    #: Id of the execution.
    id: str
    #: Fencing token, part of every report.
    token: int
    attempt: int
    expires_at: datetime
    record: Record
    #: The JSON value or the bytes. None if there is no payload, or if it is too large for the response.
    payload: Any
    #: Why the payload cannot be parsed; it is None then. The worker fails such a job for good.
    payload_error: str | None
    #: The size of a payload that is too large for the response. `Client.payload` downloads it.
    unfetched_payload_bytes: int | None
    #: W3C trace context, if the creator of the job sent one.
    traceparent: str | None
    #: The remaining lease when the server answered, in seconds. Less than `lease_duration` if a repeated call returned the lease, and
    #: zero if it has expired. None from servers that do not send it.
    expires_in: float | None
    raw: JsonObject = field(repr=False, compare=False)

    @staticmethod
    def from_json(body: JsonObject, payload_error: str | None = None) -> LeasedJob:
        payload, unfetched_bytes, expires_in_ms = body.get("payload"), None, body.get("expires_in_ms")
        if body.get("payload_base64") is not None:
            payload = base64.b64decode(body["payload_base64"])
        elif payload is None:
            # `null` is either a payload of that text, or one that is too large for the response.
            size = (body["record"].get("payload") or {}).get("bytes", 0)
            unfetched_bytes = size if size > len("null") else None
        return LeasedJob(
            id=body["id"],
            token=body["token"],
            attempt=body["attempt"],
            expires_at=parse_time(body["expires_at"]),
            record=Record.from_json(body["record"]),
            payload=payload if payload_error is None else None,
            payload_error=payload_error,
            unfetched_payload_bytes=unfetched_bytes,
            traceparent=body.get("traceparent"),
            expires_in=None if expires_in_ms is None else expires_in_ms / 1000,
            raw=body,
        )

    @property
    def lease_duration(self) -> float:
        """The length of the lease, in seconds. Leasing was the record's latest change, so `updated_at` is its start."""
        return (self.expires_at - self.record.updated_at).total_seconds()


@dataclass(frozen=True)
class ReportResult:
    """The result of a report."""

    #: Both are None if the caller can no longer see the record, because it holds no lease on it.
    execution: Execution | None
    record: Record | None
    #: With a heartbeat: whether the worker must stop the job.
    stop: bool

    @staticmethod
    def from_json(body: JsonObject) -> ReportResult:
        execution, record = body.get("execution"), body.get("record")
        return ReportResult(
            execution=None if execution is None else Execution.from_json(execution),
            record=None if record is None else Record.from_json(record),
            stop=bool(body.get("stop", False)),
        )


@dataclass(frozen=True)
class FireResult:
    """The result of an event: the record after it, and the ids of the records that it created."""

    #: None if the call repeated an idempotency key and the caller can no longer see the record.
    record: Record | None
    spawned: tuple[str, ...]

    @staticmethod
    def from_json(body: JsonObject) -> FireResult:
        record = body.get("record")
        return FireResult(None if record is None else Record.from_json(record), tuple(body.get("spawned") or ()))


@dataclass(frozen=True)
class BatchResult:
    """The result of one event or report of a batch."""

    #: The record's id.
    id: str
    #: The record's state and version. None if the caller can no longer see the record.
    state: str | None
    version: int | None
    #: With a heartbeat: whether the worker must stop the job.
    stop: bool
    #: Only if records were requested and the response had space for this one.
    record: Record | None
    #: Beside `record`: the execution that was reported on.
    execution: Execution | None
    #: Beside `record`: the ids of the records that the event created.
    spawned: tuple[str, ...]

    @staticmethod
    def from_json(body: JsonObject) -> BatchResult:
        record, execution = body.get("record"), body.get("execution")
        summary = body if record is None else record
        return BatchResult(
            id=summary.get("id") or (execution or {})["record"],
            state=summary.get("state"),
            version=summary.get("version"),
            stop=bool(body.get("stop", False)),
            record=None if record is None else Record.from_json(record),
            execution=None if execution is None else Execution.from_json(execution),
            spawned=tuple(body.get("spawned") or ()),
        )


@dataclass(frozen=True)
class Effect:
    """The committed effect of a job."""

    token: int
    result: Any
    raw: JsonObject = field(repr=False, compare=False)

    @staticmethod
    def from_json(body: JsonObject) -> Effect:
        result = body.get("result")
        if body.get("result_base64") is not None:
            result = base64.b64decode(body["result_base64"])
        return Effect(token=body["token"], result=result, raw=body)


@dataclass(frozen=True)
class LogEntry:
    """An entry of the log."""

    seq: int
    record: str | None
    version: int
    at: datetime
    event: str
    #: The caller. Only in an operation's first entry.
    actor: str | None
    #: The state that the record entered.
    state: str | None
    raw: JsonObject = field(repr=False, compare=False)

    @staticmethod
    def from_json(body: JsonObject) -> LogEntry:
        return LogEntry(
            seq=body["seq"],
            record=body.get("record"),
            version=body.get("version", 0),
            at=parse_time(body["at"]),
            event=body["event"],
            actor=body.get("actor"),
            state=body.get("state"),
            raw=body,
        )


@dataclass(frozen=True)
class RecordPage:
    """A page of records."""

    records: tuple[Record, ...]
    #: Cursor of the next page; None on the last page.
    next: str | None
