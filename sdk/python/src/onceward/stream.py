"""Follows the log over server-sent events and reconnects where it broke off."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any
from urllib.parse import urlencode

from .connection import AbortHandle
from .errors import OncewardError, UnreachableError, error_from_problem
from .retry_policy import Backoff, is_retryable, retry_after_of
from .transport import Transport
from .types import LogEntry, Problem

#: In seconds. The server sends a keep-alive every 15 seconds, so after four missed ones the connection is dead.
STREAM_IDLE_TIMEOUT = 60.0


class LogStream:
    """Entries of the log, in order, each once. `close` ends the stream, from any thread.

    If the connection breaks, the stream reconnects after `seq`: the last entry that it returned, or, before the first one, the position
    that the server sent at the start. Store `seq` to continue after a restart of your program. Raises `RefusedError` with the code
    `pruned` if the log was pruned past it.
    """

    def __init__(self, transport: Transport, *, after: int | None, query: Mapping[str, Any]) -> None:
        self._transport = transport
        self._query = query
        self._abort_handle = AbortHandle()
        self.seq = after

    def __enter__(self) -> LogStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._abort_handle.abort()

    def __iter__(self) -> Iterator[LogEntry]:
        backoff = Backoff()
        while not self._abort_handle.is_aborted:
            try:
                for entry in self._read_connection():
                    backoff = Backoff()
                    yield entry
            except OncewardError as error:
                if self._abort_handle.is_aborted:
                    return
                if not is_retryable(error):
                    raise
                self._abort_handle.sleep(backoff.next_delay(retry_after_of(error)))

    def _read_connection(self) -> Iterator[LogEntry]:
        """Returns the entries of one connection. Raises when it ends."""
        headers = {"Accept": "text/event-stream"}
        query = dict(self._query)
        if self.seq is not None:
            headers["Last-Event-ID"] = str(self.seq)
            query["after"] = self.seq
        path = f"/v1/stream?{urlencode(query)}" if query else "/v1/stream"
        response, connection = self._transport.open(
            path, headers, timeout=STREAM_IDLE_TIMEOUT, abort_handle=self._abort_handle
        )
        try:
            yield from self._parse_entries(response)
        except (OSError, http.client.HTTPException, ValueError) as error:
            # Reading from a socket that another thread closed raises a ValueError.
            raise UnreachableError(f"the stream broke off: {error}") from error
        finally:
            self._abort_handle.detach()
            connection.close()
        raise UnreachableError("the server ended the stream")

    def _parse_entries(self, response: http.client.HTTPResponse) -> Iterator[LogEntry]:
        name, seq, data = "", None, list[str]()
        while line := response.readline():
            text = line.decode("utf-8").rstrip("\r\n")
            if text.startswith("event:"):
                name = text[6:].strip()
            elif text.startswith("id:"):
                seq = int(text[3:])
            elif text.startswith("data:"):
                data.append(text[5:].removeprefix(" "))
            elif not text:
                message_name, message_data = name, "\n".join(data)
                name, data = "", []
                if not message_data:
                    # An id without data says up to which `seq` the server has read the log.
                    self.seq = seq if self.seq is None else max(self.seq, seq or 0)
                    continue
                body = json.loads(message_data)
                if message_name in ("error", "problem"):
                    raise error_from_problem(Problem.from_json(body))
                entry = LogEntry.from_json(body)
                if self.seq is None or entry.seq > self.seq:
                    self.seq = entry.seq
                    yield entry
