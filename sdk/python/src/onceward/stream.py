"""The log as it grows: server-sent events, read on across breaks."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any
from urllib.parse import urlencode

from .dialing import Call
from .errors import OncewardError, Unreachable, refused
from .patience import Backoff, asked_of, may_pass
from .records import Entry, Problem
from .transport import Transport

#: A server that says nothing for so long, not even that it is there, is taken for gone.
SILENCE = 60.0


class Stream:
    """Entries in their order, each once. `close` ends it, from any thread.

    After a break it goes on behind `seq`: the last entry that was handed out, or, before the first, the place that the server
    has named when the stream began. Keep that number to go on after a restart of your own. Where the log was pruned past it,
    `Refused` with the code `pruned` is raised.
    """

    def __init__(self, transport: Transport, *, after: int | None, query: Mapping[str, Any]) -> None:
        self._transport = transport
        self._query = query
        self._call = Call()
        self.seq = after

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self._call.abort()

    def __iter__(self) -> Iterator[Entry]:
        backoff = Backoff()
        while not self._call.aborted:
            try:
                for entry in self._once():
                    backoff = Backoff()
                    yield entry
            except OncewardError as error:
                if self._call.aborted:
                    return
                if not may_pass(error):
                    raise
                self._call.pause(backoff.wait(asked_of(error)))

    def _once(self) -> Iterator[Entry]:
        """One connection's worth of entries."""
        headers = {"Accept": "text/event-stream"}
        query = dict(self._query)
        if self.seq is not None:
            headers["Last-Event-ID"] = str(self.seq)
            query["after"] = self.seq
        path = f"/v1/stream?{urlencode(query)}" if query else "/v1/stream"
        response, connection = self._transport.open(path, headers, timeout=SILENCE, call=self._call)
        try:
            yield from self._entries(response)
        except (OSError, http.client.HTTPException, ValueError) as error:
            # A socket closed by another thread is a ValueError to whoever reads from it.
            raise Unreachable(f"the stream broke off: {error}") from error
        finally:
            self._call.end()
            connection.close()
        raise Unreachable("the stream has ended")

    def _entries(self, response: http.client.HTTPResponse) -> Iterator[Entry]:
        name, place, data = "", None, list[str]()
        while line := response.readline():
            text = line.decode("utf-8").rstrip("\r\n")
            if text.startswith("event:"):
                name = text[6:].strip()
            elif text.startswith("id:"):
                place = int(text[3:])
            elif text.startswith("data:"):
                data.append(text[5:].removeprefix(" "))
            elif not text:
                told, said = name, "\n".join(data)
                name, data = "", []
                if not said:
                    # A place alone says how far the log has been looked through.
                    self.seq = place if self.seq is None else max(self.seq, place or 0)
                    continue
                found = json.loads(said)
                if told in ("error", "problem"):
                    raise refused(Problem.of(found))
                entry = Entry.of(found)
                if self.seq is None or entry.seq > self.seq:
                    self.seq = entry.seq
                    yield entry
