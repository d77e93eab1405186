"""HTTP client. Every call is safe to repeat, and the client retries it within its retry policy."""

from __future__ import annotations

import builtins
import os
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any
from urllib.parse import quote, urlencode

from .connection import AbortHandle
from .errors import Failure, OncewardError, error_from_problem
from .json_parser import OVERSIZED_NUMBER_MESSAGE, has_oversized_number, parse_json
from .requests import EventRequest, NewRecord, Report, new_idempotency_key, omit_none, to_millis
from .retry_policy import RetryPolicy, RetryTimer, is_problem_retryable
from .stream import LogStream
from .transport import Response, Transport, to_json
from .types import BatchResult, Effect, Execution, FireResult, LeasedJob, LogEntry, Problem, Record, RecordPage, ReportResult

DEFAULT_URL = "http://127.0.0.1:7171"

#: Records, events or reports in one request. The client splits longer lists.
MAX_BATCH_ITEMS = 500

#: Characters in one request. The server accepts 16 MB, and a character has up to four bytes.
MAX_BATCH_CHARS = 3 << 20


class Client:
    """A client for one server and API key. Threads may share it."""

    def __init__(
        self, url: str | None = None, *, api_key: str | None = None, retry_policy: RetryPolicy = RetryPolicy()
    ) -> None:
        self.url = url or os.environ.get("ONCEWARD_URL") or DEFAULT_URL
        self.retry_policy = retry_policy
        self._transport = Transport(
            self.url, api_key or os.environ.get("ONCEWARD_KEY"), connect_timeout=retry_policy.response_timeout
        )

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the idle connections."""
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
        idempotency_key: str | None = None,
    ) -> Record:
        """Creates a record. `payload` is a JSON value or bytes.

        Calls with the same idempotency key return the same record, at any time and from any process. Without one, the client
        generates one for this call, so that its retries create no second record.
        """
        new = NewRecord(
            fields=fields,
            payload=payload,
            id=id,
            owner=owner,
            idempotency_key=idempotency_key or new_idempotency_key(),
        )
        path = f"/v1/lifecycles/{_path_segment(lifecycle)}/records"
        return Record.from_json(self._post(path, new.to_body(), {"Idempotency-Key": new.idempotency_key}))

    def create_batch(self, lifecycle: str, records: Sequence[NewRecord]) -> list[Record | Problem]:
        """Creates many records. Each succeeds or fails on its own; the results have the order of `records`. Reads the records that the
        response has no space for."""
        bodies = [new.to_body() | {"key": new.idempotency_key} for new in records]
        path = f"/v1/lifecycles/{_path_segment(lifecycle)}/records/batch"
        results: builtins.list[Record | Problem] = []
        for result in self._post_batches(path, "records", bodies):
            if isinstance(result, Problem):
                results.append(result)
            else:
                results.append(Record.from_json(result["record"]) if "record" in result else self.get(result["id"]))
        return results

    def fire(
        self,
        record: str,
        event: str,
        *,
        input: Mapping[str, Any] | None = None,
        token: int | None = None,
        version: int | None = None,
        idempotency_key: str | None = None,
    ) -> FireResult:
        """Fires an event on a record. If `version` is given, the server refuses the event unless the record has that version."""
        headers = {"Idempotency-Key": idempotency_key or new_idempotency_key()}
        if version is not None:
            headers["If-Match"] = f'"{version}"'
        path = f"/v1/records/{_path_segment(record)}/events/{_path_segment(event)}"
        return FireResult.from_json(self._post(path, omit_none(input=input, token=token), headers))

    def fire_batch(self, events: Sequence[EventRequest], *, return_records: bool = False) -> list[BatchResult | Problem]:
        """Fires many events. Each succeeds or fails on its own. With `return_records`, the results have the whole records, as long as
        the response has space for them."""
        bodies = [event.to_body() for event in events]
        return [
            result if isinstance(result, Problem) else BatchResult.from_json(result)
            for result in self._post_batches("/v1/events/batch", "events", bodies, return_records)
        ]

    # Queries

    def get(self, record: str) -> Record:
        return Record.from_json(self._get(f"/v1/records/{_path_segment(record)}").json())

    def list(
        self,
        lifecycle: str,
        *,
        state: str | None = None,
        owner: str | None = None,
        limit: int | None = None,
        cursor: str | None = None,
    ) -> RecordPage:
        """Returns one page of records. `records` iterates over all pages."""
        query = omit_none(lifecycle=lifecycle, state=state, owner=owner, limit=limit, cursor=cursor)
        body = self._get(f"/v1/records?{urlencode(query)}").json()
        return RecordPage(tuple(Record.from_json(item) for item in body["records"]), body.get("next"))

    def records(self, lifecycle: str, *, state: str | None = None, owner: str | None = None) -> Iterator[Record]:
        """Iterates over all records that match."""
        cursor = None
        while True:
            page = self.list(lifecycle, state=state, owner=owner, cursor=cursor)
            yield from page.records
            cursor = page.next
            if cursor is None:
                return

    def history(self, record: str) -> tuple[LogEntry, ...]:
        """Returns the complete log of a record, oldest entry first."""
        path = f"/v1/records/{_path_segment(record)}/history"
        return tuple(LogEntry.from_json(item) for item in self._get_pages(path, "entries"))

    def executions(self, record: str) -> tuple[Execution, ...]:
        """Returns all executions of a job, oldest first."""
        path = f"/v1/records/{_path_segment(record)}/executions"
        return tuple(Execution.from_json(item) for item in self._get_pages(path, "executions"))

    def effect(self, record: str) -> Effect:
        """Returns the committed effect of a job. The server refuses with 404 if there is none."""
        return Effect.from_json(self._get(f"/v1/records/{_path_segment(record)}/effect").json())

    def payload(self, record: str) -> bytes:
        """Downloads the payload's bytes."""
        return self._get(f"/v1/records/{_path_segment(record)}/payload").body

    def payload_value(self, record: str) -> Any:
        """Downloads the payload in the form that a lease has: the value if it is JSON, otherwise the bytes."""
        return parse_payload(self.payload(record))

    def stream(self, *, after: int | None = None, lifecycle: str | None = None, record: str | None = None) -> LogStream:
        """Follows the log from the entry after `after`, by default from its end. The stream reconnects by itself."""
        return LogStream(self._transport, after=after, query=omit_none(lifecycle=lifecycle, record=record))

    # Workers

    def lease(
        self,
        lifecycles: Sequence[str],
        worker: str,
        *,
        max_jobs: int = 1,
        lease: float | None = None,
        max_wait: float = 0.0,
        start: bool = True,
        idempotency_key: str | None = None,
    ) -> builtins.list[LeasedJob]:
        """Leases up to `max_jobs` jobs for `lease` seconds (default: the lifecycle's length). Waits up to `max_wait` seconds for the
        first.

        Calls with the same idempotency key return the same jobs. Without one, the client generates one for this call.
        """
        key, retry_timer = idempotency_key or new_idempotency_key(), RetryTimer(self.retry_policy)
        while True:
            try:
                return self.lease_once(
                    lifecycles,
                    worker,
                    max_jobs=max_jobs,
                    lease=lease,
                    max_wait=max_wait,
                    start=start,
                    idempotency_key=key,
                )
            except OncewardError as error:
                retry_timer.wait_or_raise(error)

    def lease_once(
        self,
        lifecycles: Sequence[str],
        worker: str,
        *,
        max_jobs: int,
        lease: float | None,
        max_wait: float,
        start: bool,
        idempotency_key: str,
        replay_only: bool = False,
        abort_handle: AbortHandle | None = None,
        response_timeout: float | None = None,
    ) -> builtins.list[LeasedJob]:
        """Like `lease`, without retries. After a failure, the same idempotency key returns the jobs that the failed call leased. With
        `replay_only`, the server leases no new ones."""
        body = {"lifecycles": [*lifecycles], "worker": worker, "max": max_jobs, "start": start}
        body |= omit_none(
            lease_ms=to_millis(lease),
            wait_ms=to_millis(max_wait) if max_wait > 0 else None,
            again=replay_only or None,
        )
        response = self._transport.send(
            "POST",
            "/v1/leases",
            body,
            {"Idempotency-Key": idempotency_key},
            timeout=(response_timeout or self.retry_policy.response_timeout) + max_wait,
            abort_handle=abort_handle,
        )
        # Each job on its own: an unreadable payload must not cost the others their leases.
        value, has_oversized = response.parse_json()
        return [
            LeasedJob.from_json(
                item, OVERSIZED_NUMBER_MESSAGE if has_oversized and has_oversized_number(item) else None
            )
            for item in value["executions"]
        ]

    def start(self, execution: str, token: int) -> ReportResult:
        return self.report(Report.start(execution, token))

    def heartbeat(self, execution: str, token: int, *, lease: float | None = None) -> ReportResult:
        """Extends the lease. If the result's `stop` is set, the worker must stop the job."""
        return self.report(Report.heartbeat(execution, token, lease))

    def commit(self, execution: str, token: int, result: Any = None, *, finish: bool = False) -> ReportResult:
        """Commits the effect, at most once per job. `result` is a JSON value or bytes."""
        return self.report(Report.commit(execution, token, result, finish=finish))

    def finish(self, execution: str, token: int) -> ReportResult:
        return self.report(Report.finish(execution, token))

    def fail(self, execution: str, token: int, failure: Failure) -> ReportResult:
        return self.report(Report.fail(execution, token, failure))

    def yield_(self, execution: str, token: int) -> ReportResult:
        """Returns the job without counting a failure."""
        return self.report(Report.yield_(execution, token))

    def report(self, report: Report) -> ReportResult:
        retry_timer = RetryTimer(self.retry_policy)
        while True:
            try:
                return self.report_once(report)
            except OncewardError as error:
                retry_timer.wait_or_raise(error)

    def report_once(
        self, report: Report, *, response_timeout: float | None = None, traceparent: str | None = None
    ) -> ReportResult:
        """Like `report`, without retries. `traceparent` is the W3C trace context of the job."""
        path = f"/v1/executions/{_path_segment(report.execution)}/{report.kind}"
        headers = {} if traceparent is None else {"traceparent": traceparent}
        timeout = response_timeout or self.retry_policy.response_timeout
        response = self._transport.send("POST", path, report.to_body(), headers, timeout=timeout)
        return ReportResult.from_json(response.json())

    def report_batch(
        self, reports: Sequence[Report], *, return_records: bool = False
    ) -> builtins.list[BatchResult | Problem]:
        """Sends many reports. Each succeeds or fails on its own. With `return_records`, the results have the executions and the whole
        records, as long as the response has space for them."""
        bodies = [report.to_batch_item() for report in reports]
        return [
            result if isinstance(result, Problem) else BatchResult.from_json(result)
            for result in self._post_batches("/v1/executions/batch", "reports", bodies, return_records)
        ]

    def report_batch_once(
        self, reports: Sequence[Report], *, response_timeout: float
    ) -> builtins.list[BatchResult | Problem]:
        """Like `report_batch`, in one request and without retries."""
        bodies = [report.to_batch_item() for report in reports]
        response = self._transport.send("POST", "/v1/executions/batch", {"reports": bodies}, timeout=response_timeout)
        results = [_parse_batch_item(item) for item in response.json()["results"]]
        return [result if isinstance(result, Problem) else BatchResult.from_json(result) for result in results]

    # Requests with retries

    def _get(self, path: str) -> Response:
        retry_timer = RetryTimer(self.retry_policy)
        while True:
            try:
                return self._transport.send("GET", path, timeout=self.retry_policy.response_timeout)
            except OncewardError as error:
                retry_timer.wait_or_raise(error)

    def _post(self, path: str, body: Any, headers: Mapping[str, str]) -> Any:
        retry_timer = RetryTimer(self.retry_policy)
        while True:
            try:
                return self._transport.send(
                    "POST", path, body, headers, timeout=self.retry_policy.response_timeout
                ).json()
            except OncewardError as error:
                retry_timer.wait_or_raise(error)

    def _get_pages(self, path: str, member: str) -> Iterator[Any]:
        cursor: str | None = None
        while True:
            page = self._get(path if cursor is None else f"{path}?{urlencode({'cursor': cursor})}").json()
            yield from page[member]
            cursor = page.get("next")
            if cursor is None:
                return

    def _post_batches(
        self, path: str, member: str, bodies: Sequence[dict[str, Any]], return_records: bool = False
    ) -> Iterator[Any]:
        batch: builtins.list[str] = []
        batch_chars = 0
        for body in bodies:
            text = to_json(body)
            if batch and (len(batch) == MAX_BATCH_ITEMS or batch_chars + len(text) > MAX_BATCH_CHARS):
                yield from self._post_batch(path, member, batch, return_records)
                batch, batch_chars = [], 0
            batch.append(text)
            batch_chars += len(text)
        if batch:
            yield from self._post_batch(path, member, batch, return_records)

    def _post_batch(
        self, path: str, member: str, bodies: Sequence[str], return_records: bool
    ) -> builtins.list[Any]:
        """Sends one batch and retries those of its items that failed temporarily."""
        results: builtins.list[Any] = [None] * len(bodies)
        pending = list(range(len(bodies)))
        retry_timer = RetryTimer(self.retry_policy)
        while True:
            options = ',"return":"record"' if return_records else ""
            text = f'{{"{member}":[{",".join(bodies[index] for index in pending)}]{options}}}'
            items = self._post(path, text, {})["results"]
            for index, item in zip(pending, items, strict=True):
                results[index] = _parse_batch_item(item)
            pending = [
                index for index in pending if isinstance(results[index], Problem) and is_problem_retryable(results[index])
            ]
            if not pending:
                return results
            try:
                retry_timer.wait_or_raise(error_from_problem(results[pending[0]]))
            except OncewardError:
                return results


def parse_payload(payload: bytes) -> Any:
    """Returns the value if the payload is JSON, otherwise the bytes. Ignores the content type, because the server does not inspect
    large payloads. Raises `PayloadError` if Python cannot represent a number in it."""
    try:
        value, has_oversized = parse_json(payload)
    except ValueError:
        return payload
    if has_oversized:
        raise PayloadError(OVERSIZED_NUMBER_MESSAGE)
    return value


class PayloadError(ValueError):
    """A payload is JSON, but Python cannot represent it."""


def _path_segment(text: str) -> str:
    """Encodes any text as one segment of a path."""
    return quote(text, safe="")


def _parse_batch_item(item: Mapping[str, Any]) -> Any:
    return Problem.from_json(item["error"]) if "error" in item else item
