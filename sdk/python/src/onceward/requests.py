"""What a caller puts into a batch, and how it looks as JSON."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from .errors import WorkError


def new_key() -> str:
    """A key that nobody has used before."""
    return uuid.uuid4().hex


def content(name: str, value: Any) -> dict[str, Any]:
    """A payload or a result: a JSON value as it is, bytes as base64, None as nothing."""
    if value is None:
        return {}
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {f"{name}_base64": base64.b64encode(value).decode("ascii")}
    return {name: value}


def given(**values: Any) -> dict[str, Any]:
    """Only what was given."""
    return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True)
class New:
    """A record to make. `once` is its idempotency key: made up here, so that a retry makes no second record."""

    fields: Mapping[str, Any] | None = None
    payload: Any = None
    id: str | None = None
    owner: str | None = None
    once: str = field(default_factory=new_key)

    def body(self) -> dict[str, Any]:
        return given(id=self.id, fields=self.fields, owner=self.owner) | content("payload", self.payload)


@dataclass(frozen=True)
class Event:
    """An event to fire. `version`: only if the record is still at that version."""

    record: str
    event: str
    input: Mapping[str, Any] | None = None
    version: int | None = None
    once: str = field(default_factory=new_key)

    def body(self) -> dict[str, Any]:
        rest = given(input=self.input, version=self.version)
        return {"record": self.record, "event": self.event, "key": self.once} | rest


@dataclass(frozen=True)
class Report:
    """A worker's report; make it with one of the functions below."""

    execution: str
    token: int
    do: str
    more: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def start(execution: str, token: int) -> Report:
        return Report(execution, token, "start")

    @staticmethod
    def heartbeat(execution: str, token: int, lease: float | None = None) -> Report:
        """Keeps the lease: for `lease` seconds from now, or as long as the lifecycle says."""
        return Report(execution, token, "heartbeat", given(lease_ms=milliseconds(lease)))

    @staticmethod
    def commit(execution: str, token: int, result: Any = None, *, finish: bool = False) -> Report:
        more = content("result", result) | ({"finish": True} if finish else {})
        return Report(execution, token, "commit", more)

    @staticmethod
    def finish(execution: str, token: int) -> Report:
        return Report(execution, token, "finish")

    @staticmethod
    def fail(execution: str, token: int, error: WorkError) -> Report:
        told = {"code": error.code, "message": error.message, "retryable": error.retryable}
        told |= given(retry_after_ms=milliseconds(error.after))
        return Report(execution, token, "fail", {"error": told})

    @staticmethod
    def yield_(execution: str, token: int) -> Report:
        """Gives the job back unharmed."""
        return Report(execution, token, "yield")

    def body(self) -> dict[str, Any]:
        return {"token": self.token, **self.more}


def milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else max(1, round(seconds * 1000))
