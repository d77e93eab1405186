"""Calls to a server, typed. Each may be made again without harm, and is, as long as patience lasts."""

from __future__ import annotations

import builtins
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlencode

from .dialing import Call
from .errors import OncewardError, WorkError, refused
from .patience import Patience, problem_may_pass
from .records import Effect, Entry, Execution, Fired, Lease, Page, Problem, Record, Reported
from .requests import Event, New, Report, given, milliseconds, new_key
from .stream import Stream
from .transport import Answer, Transport, text_of

DEFAULT_URL = "http://127.0.0.1:7171"

#: Records, events or reports in one call; longer lists are sent in several.
BATCH = 500

#: Characters in one call; the server takes 16 MB, and a character has up to four bytes.
BATCH_SIZE = 3 << 20


class Client:
    """A server, seen by one key. Any number of threads may share it.

    `timeout` bounds one try; `patience` is how long a call is tried again when the server cannot be reached, is overloaded or
    starts anew.
    """

    def __init__(
        self, url: str | None = None, *, key: str | None = None, timeout: float = 10.0, patience: float = 30.0
    ) -> None:
        self.url = url or os.environ.get("ONCEWARD_URL") or DEFAULT_URL
        self.timeout = timeout
        self.patience = patience
        self._transport = Transport(self.url, key or os.environ.get("ONCEWARD_KEY"), connecting=timeout)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections that wait for a next call."""
        self._transport.close()

    # Producers

    def create(
        self,
        lifecycle: str,
        *,
        fields: Mapping[str, Any] | None = None,
        payload: Any = None,
        id: str | None = None,
        owner: str | None = None,
        once: str | None = None,
    ) -> Record:
        """Makes a record. `payload` is a JSON value or bytes.

        `once` is the idempotency key: the same key answers with the same record, also tomorrow and from another process. Without
        one, a key is made up for this call, so that its own retries make no second record.
        """
        new = New(fields=fields, payload=payload, id=id, owner=owner, once=once or new_key())
        path = f"/v1/lifecycles/{_segment(lifecycle)}/records"
        return Record.of(self._post(path, new.body(), {"Idempotency-Key": new.once}))

    def create_many(self, lifecycle: str, records: Sequence[New]) -> list[Record | Problem]:
        """Makes many records, each on its own: what became of each stands at its place in the answer."""
        bodies = [new.body() | {"key": new.once} for new in records]
        path = f"/v1/lifecycles/{_segment(lifecycle)}/records/batch"
        return [
            found if isinstance(found, Problem) else Record.of(found["record"])
            for found in self._batch(path, "records", bodies)
        ]

    def fire(
        self,
        record: str,
        event: str,
        *,
        input: Mapping[str, Any] | None = None,
        token: int | None = None,
        version: int | None = None,
        once: str | None = None,
    ) -> Fired:
        """Fires an event at a record; `version`: only if it is still at that version."""
        headers = {"Idempotency-Key": once or new_key()}
        if version is not None:
            headers["If-Match"] = f'"{version}"'
        path = f"/v1/records/{_segment(record)}/events/{_segment(event)}"
        return Fired.of(self._post(path, given(input=input, token=token), headers))

    def fire_many(self, events: Sequence[Event]) -> list[Fired | Problem]:
        """Fires many events, each on its own."""
        bodies = [event.body() for event in events]
        return [
            found if isinstance(found, Problem) else Fired.of(found)
            for found in self._batch("/v1/events/batch", "events", bodies)
        ]

    # Lookers

    def get(self, record: str) -> Record:
        return Record.of(self._get(f"/v1/records/{_segment(record)}").json())

    def list(
        self,
        lifecycle: str,
        *,
        state: str | None = None,
        owner: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> Page:
        """One page of records; `records` goes through all."""
        query = given(lifecycle=lifecycle, state=state, owner=owner, limit=limit, cursor=cursor)
        found = self._get(f"/v1/records?{urlencode(query)}").json()
        return Page(tuple(Record.of(each) for each in found["records"]), found.get("next"))

    def records(self, lifecycle: str, *, state: str | None = None, owner: str | None = None) -> Iterator[Record]:
        cursor = None
        while True:
            page = self.list(lifecycle, state=state, owner=owner, cursor=cursor)
            yield from page.records
            cursor = page.next
            if cursor is None:
                return

    def history(self, record: str) -> tuple[Entry, ...]:
        """The whole log of a record, oldest entry first."""
        return tuple(Entry.of(each) for each in self._pages(f"/v1/records/{_segment(record)}/history", "entries"))

    def executions(self, record: str) -> tuple[Execution, ...]:
        """The attempts at a job, oldest first."""
        return tuple(Execution.of(each) for each in self._pages(f"/v1/records/{_segment(record)}/executions", "executions"))

    def effect(self, record: str) -> Effect:
        """What the job's commit left; 404 where there is none."""
        return Effect.of(self._get(f"/v1/records/{_segment(record)}/effect").json())

    def payload(self, record: str) -> bytes:
        """The bytes of its payload."""
        return self._get(f"/v1/records/{_segment(record)}/payload").body

    def payload_value(self, record: str) -> Any:
        """Its payload as a lease brings it: the value where it is JSON, else the bytes."""
        return value_of(self.payload(record))

    def stream(self, *, after: int | None = None, lifecycle: str | None = None, record: str | None = None) -> Stream:
        """The log as it grows, from the entry after `after` on (from now on, without it). It goes on by itself after a break."""
        return Stream(self._transport, after=after, query=given(lifecycle=lifecycle, record=record))

    # Workers

    def lease(
        self,
        lifecycles: Sequence[str],
        worker: str,
        *,
        max: int = 1,
        lease: float | None = None,
        wait: float = 0.0,
        start: bool = True,
        once: str | None = None,
    ) -> builtins.list[Lease]:
        """Takes up to `max` jobs, for `lease` seconds (or as the lifecycle says), and waits up to `wait` seconds for the first.

        `once`: the same key answers with the same jobs. Without one, a key is made up for this call and its retries.
        """
        key, patience = once or new_key(), Patience(self.patience)
        while True:
            try:
                return self.lease_once(lifecycles, worker, max=max, lease=lease, wait=wait, start=start, once=key)
            except OncewardError as error:
                patience.after(error)

    def lease_once(
        self,
        lifecycles: Sequence[str],
        worker: str,
        *,
        max: int,
        lease: float | None,
        wait: float,
        start: bool,
        once: str,
        again: bool = False,
        call: Call | None = None,
        timeout: float | None = None,
    ) -> builtins.list[Lease]:
        """A single try of `lease`; after a failure the same `once` finds what may have been taken, with `again` only that."""
        body = {"lifecycles": [*lifecycles], "worker": worker, "max": max, "start": start}
        body |= given(
            lease_ms=milliseconds(lease), wait_ms=milliseconds(wait) if wait > 0 else None, again=again or None
        )
        found = self._transport.send(
            "POST",
            "/v1/leases",
            body,
            {"Idempotency-Key": once},
            timeout=(timeout or self.timeout) + wait,
            call=call,
        ).json()
        return [Lease.of(each) for each in found["executions"]]

    def start(self, execution: str, token: int) -> Reported:
        return self.report(Report.start(execution, token))

    def heartbeat(self, execution: str, token: int, *, lease: float | None = None) -> Reported:
        """Keeps the lease; the answer's `stop` says that the job is to be given up."""
        return self.report(Report.heartbeat(execution, token, lease))

    def commit(self, execution: str, token: int, result: Any = None, *, finish: bool = False) -> Reported:
        """Lets the effect land, at most once in the life of a job. `result` is a JSON value or bytes."""
        return self.report(Report.commit(execution, token, result, finish=finish))

    def finish(self, execution: str, token: int) -> Reported:
        return self.report(Report.finish(execution, token))

    def fail(self, execution: str, token: int, error: WorkError) -> Reported:
        return self.report(Report.fail(execution, token, error))

    def yield_(self, execution: str, token: int) -> Reported:
        """Gives a job back unharmed."""
        return self.report(Report.yield_(execution, token))

    def report(self, report: Report) -> Reported:
        patience = Patience(self.patience)
        while True:
            try:
                return self.report_once(report)
            except OncewardError as error:
                patience.after(error)

    def report_once(self, report: Report, *, timeout: float | None = None, trace: str | None = None) -> Reported:
        """A single try of a report; `trace` is the W3C trace context (`traceparent`) that it belongs to."""
        path = f"/v1/executions/{_segment(report.execution)}/{report.do}"
        headers = {} if trace is None else {"traceparent": trace}
        answer = self._transport.send("POST", path, report.body(), headers, timeout=timeout or self.timeout)
        return Reported.of(answer.json())

    def report_many(self, reports: Sequence[Report]) -> builtins.list[Reported | Problem]:
        """Many reports, each on its own."""
        bodies = [{"execution": each.execution, "do": each.do, **each.body()} for each in reports]
        return [
            found if isinstance(found, Problem) else Reported.of(found)
            for found in self._batch("/v1/executions/batch", "reports", bodies)
        ]

    def report_many_once(self, reports: Sequence[Report], *, timeout: float) -> builtins.list[Reported | Problem]:
        """A single try of one batch."""
        bodies = [{"execution": each.execution, "do": each.do, **each.body()} for each in reports]
        answer = self._transport.send("POST", "/v1/executions/batch", {"reports": bodies}, timeout=timeout)
        results = [_result(each) for each in answer.json()["results"]]
        return [found if isinstance(found, Problem) else Reported.of(found) for found in results]

    # Inside

    def _get(self, path: str) -> Answer:
        patience = Patience(self.patience)
        while True:
            try:
                return self._transport.send("GET", path, timeout=self.timeout)
            except OncewardError as error:
                patience.after(error)

    def _post(self, path: str, body: Any, headers: Mapping[str, str]) -> Any:
        patience = Patience(self.patience)
        while True:
            try:
                return self._transport.send("POST", path, body, headers, timeout=self.timeout).json()
            except OncewardError as error:
                patience.after(error)

    def _pages(self, path: str, name: str) -> Iterator[Any]:
        cursor: str | None = None
        while True:
            found = self._get(path if cursor is None else f"{path}?{urlencode({'cursor': cursor})}").json()
            yield from found[name]
            cursor = found.get("next")
            if cursor is None:
                return

    def _batch(self, path: str, name: str, bodies: Sequence[dict[str, Any]]) -> Iterator[Any]:
        part: builtins.list[str] = []
        size = 0
        for body in bodies:
            text = text_of(body)
            if part and (len(part) == BATCH or size + len(text) > BATCH_SIZE):
                yield from self._part(path, name, part)
                part, size = [], 0
            part.append(text)
            size += len(text)
        if part:
            yield from self._part(path, name, part)

    def _part(self, path: str, name: str, bodies: Sequence[str]) -> builtins.list[Any]:
        """One batch; those of its calls that may be taken after a moment are made again."""
        results: builtins.list[Any] = [None] * len(bodies)
        waiting = list(range(len(bodies)))
        patience = Patience(self.patience)
        while True:
            text = f'{{"{name}":[{",".join(bodies[at] for at in waiting)}]}}'
            found = self._post(path, text, {})["results"]
            for at, each in zip(waiting, found, strict=True):
                results[at] = _result(each)
            waiting = [at for at in waiting if isinstance(results[at], Problem) and problem_may_pass(results[at])]
            if not waiting:
                return results
            try:
                patience.after(refused(results[waiting[0]]))
            except OncewardError:
                return results


def value_of(payload: bytes) -> Any:
    """The value where it is JSON, whatever kind the server says it is: large ones it does not look into. Else the bytes."""
    try:
        return json.loads(payload)
    except ValueError:
        return payload


def _segment(text: str) -> str:
    """As one part of a path, whatever is in it."""
    return quote(text, safe="")


def _result(found: Mapping[str, Any]) -> Any:
    return Problem.of(found["error"]) if "error" in found else found
