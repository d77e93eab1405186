"""A proxy between a client and the real server. Tests make it give responses that the server gives rarely."""

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

from .server_process import TEST_TIMEOUT

#: How often the server thread checks whether it must end, in seconds.
SHUTDOWN_POLL_INTERVAL = 0.02


@dataclass(frozen=True)
class ProxyResponse:
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def with_json(self, body: Any) -> ProxyResponse:
        return ProxyResponse(self.status, json.dumps(body).encode(), self.headers)


@dataclass(frozen=True)
class ProxyRequest:
    """A request of the client. `forward` sends it to the real server."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    upstream: str | None
    client_socket: socket.socket

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def is_heartbeat(self) -> bool:
        if self.path == "/v1/executions/batch":
            return any(report["do"] == "heartbeat" for report in self.json["reports"])
        return self.path.endswith("/heartbeat")

    def forward(self) -> ProxyResponse:
        assert self.upstream is not None, "the proxy has no server"
        connection = http.client.HTTPConnection(self.upstream, timeout=TEST_TIMEOUT)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
            connection.request(self.method, self.path, self.body, headers)
            readable, _, _ = select.select([connection.sock, self.client_socket], [], [], TEST_TIMEOUT)
            if self.client_socket in readable:
                # The client closed the connection. The server must notice, or it would lease a job to a caller that is gone.
                raise ConnectionAbortedError
            response = connection.getresponse()
            kept_headers = {
                name: value for name, value in response.headers.items() if name.lower() in ("content-type", "retry-after")
            }
            return ProxyResponse(response.status, response.read(), kept_headers)
        finally:
            connection.close()


#: Returns the response. None closes the connection without a response.
Responder = Callable[[ProxyRequest], "ProxyResponse | None"]


def problem_response(status: int, code: str, **members: Any) -> ProxyResponse:
    """A refusal in the form of the server's."""
    body = {"type": "about:blank", "title": "made by the test", "status": status, "code": code, **members}
    return ProxyResponse(status, json.dumps(body).encode(), {"Content-Type": "application/problem+json"})


class FaultProxy:
    """A proxy that answers with the responses of a function."""

    def __init__(self, upstream: str | None, respond: Responder) -> None:
        upstream_address = None if upstream is None else urlsplit(upstream).netloc

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                try:
                    headers = dict(self.headers.items())
                    response = respond(
                        ProxyRequest(self.command, self.path, headers, body, upstream_address, self.connection)
                    )
                    if response is None:
                        self.close_connection = True
                        return
                    self.send_response(response.status)
                    for name, value in {**response.headers, "Content-Length": str(len(response.body))}.items():
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(response.body)
                except (OSError, http.client.HTTPException):
                    self.close_connection = True  # The client or the server closed its connection.

            do_GET = do_POST

            def log_message(self, format: str, *args: Any) -> None:
                pass

        class ThreadingServer(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

        self._server = ThreadingServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(SHUTDOWN_POLL_INTERVAL,), daemon=True).start()

    def __enter__(self) -> FaultProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.socket.close()
