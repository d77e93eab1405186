"""Requests of callers and workers, and their JSON."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import Failure


def new_idempotency_key() -> str:
    """Returns a random idempotency key."""
    return uuid.uuid4().hex


def content_members(name: str, value: Any) -> dict[str, Any]:
    """Returns the JSON member of a payload or result: a JSON value unchanged, bytes as base64, none for None."""
    if value is None:
        return {}
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {f"{name}_base64": base64.b64encode(value).decode("ascii")}
    return {name: value}


def omit_none(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class NewRecord:
    """A record to create. The default idempotency key is random, so that a retry creates no second record."""

    fields: Mapping[str, Any] | None = None
    payload: Any = None
    id: str | None = None
    owner: str | None = None
    idempotency_key: str = field(default_factory=new_idempotency_key)

    def to_body(self) -> dict[str, Any]:
        return omit_none(id=self.id, fields=self.fields, owner=self.owner) | content_members("payload", self.payload)


@dataclass(frozen=True)
class EventRequest:
    """An event to fire on a record. If `version` is given, the server refuses it unless the record has that version."""

    record: str
    event: str
    input: Mapping[str, Any] | None = None
    version: int | None = None
    idempotency_key: str = field(default_factory=new_idempotency_key)

    def to_body(self) -> dict[str, Any]:
        optional = omit_none(input=self.input, version=self.version)
        return {"record": self.record, "event": self.event, "key": self.idempotency_key} | optional


@dataclass(frozen=True)
class Report:
    """A worker's report on an execution. Use the functions below to create one."""

    execution: str
    token: int
    kind: str
    extra: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def start(execution: str, token: int) -> Report:
        return Report(execution, token, "start")

    @staticmethod
    def heartbeat(execution: str, token: int, lease: float | None = None) -> Report:
        """Extends the lease by `lease` seconds (default: the length with which the job was leased)."""
        return Report(execution, token, "heartbeat", omit_none(lease_ms=to_millis(lease)))

    @staticmethod
    def commit(execution: str, token: int, result: Any = None, *, finish: bool = False) -> Report:
        extra = content_members("result", result) | ({"finish": True} if finish else {})
        return Report(execution, token, "commit", extra)

    @staticmethod
    def finish(execution: str, token: int) -> Report:
        return Report(execution, token, "finish")

    @staticmethod
    def fail(execution: str, token: int, failure: Failure) -> Report:
        error = {"code": failure.code, "message": failure.message, "retryable": failure.retryable}
        error |= omit_none(retry_after_ms=to_millis(failure.retry_after))
        return Report(execution, token, "fail", {"error": error})

    @staticmethod
    def yield_(execution: str, token: int) -> Report:
        """Returns the job without counting a failure."""
        return Report(execution, token, "yield")

    def to_body(self) -> dict[str, Any]:
        return {"token": self.token, **self.extra}

    def to_batch_item(self) -> dict[str, Any]:
        return {"execution": self.execution, "do": self.kind, **self.to_body()}


def to_millis(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds * 1000))
