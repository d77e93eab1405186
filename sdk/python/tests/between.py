"""Stands between a client and the real server, and answers in its place: for answers that the real one gives rarely."""

from __future__ import annotations

import http.client
import http.server
import json
import select
import socket
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from .serving import DEADLINE


@dataclass(frozen=True)
class Said:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def with_json(self, body: Any) -> Said:
        return Said(self.status, json.dumps(body).encode(), self.headers)


@dataclass(frozen=True)
class Asked:
    """What the client wants to know. `pass_on` asks the real server."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    upstream: str | None
    line: socket.socket

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def is_heartbeat(self) -> bool:
        if self.path == "/v1/executions/batch":
            return any(report["do"] == "heartbeat" for report in self.json["reports"])
        return self.path.endswith("/heartbeat")

    def pass_on(self) -> Said:
        assert self.upstream is not None, "there is no server behind this one"
        connection = http.client.HTTPConnection(self.upstream, timeout=DEADLINE)
        try:
            kept = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
            connection.request(self.method, self.path, self.body, kept)
            heard, _, _ = select.select([connection.sock, self.line], [], [], DEADLINE)
            if self.line in heard:
                # It has hung up, and the server behind is to know it: it would give a job to nobody.
                raise ConnectionAbortedError
            answer = connection.getresponse()
            told = {name: value for name, value in answer.headers.items() if name.lower() in ("content-type", "retry-after")}
            return Said(answer.status, answer.read(), told)
        finally:
            connection.close()


#: What to answer; None hangs up without a word.
Play = Callable[[Asked], "Said | None"]


def trouble(status: int, code: str, **more: Any) -> Said:
    """A refusal, as the server words it."""
    told = {"type": "about:blank", "title": "made up", "status": status, "code": code, **more}
    return Said(status, json.dumps(told).encode(), {"Content-Type": "application/problem+json"})


class Between:
    """A server that plays what the test says."""

    def __init__(self, upstream: str | None, play: Play) -> None:
        behind = None if upstream is None else urlsplit(upstream).netloc

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                try:
                    said = play(Asked(self.command, self.path, dict(self.headers.items()), body, behind, self.connection))
                    if said is None:
                        self.close_connection = True
                        return
                    self.send_response(said.status)
                    for name, value in {**said.headers, "Content-Length": str(len(said.body))}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(said.body)
                except (OSError, http.client.HTTPException):
                    self.close_connection = True  # The client has given up, or the server behind has.

            do_GET = do_POST

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class Many(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

        self._server = Many(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        # It looks that often whether it is to end.
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def __enter__(self) -> Between:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._server.shutdown()
        self._server.socket.close()
