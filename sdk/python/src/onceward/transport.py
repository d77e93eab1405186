"""Sends single requests over pooled connections that threads share."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from .connection import AbortHandle, Connection, is_closed_by_peer
from .errors import UnreachableError, error_from_problem
from .json_parser import parse_json
from .types import Problem

#: Idle connections in the pool. More are closed after use.
MAX_IDLE_CONNECTIONS = 64


@dataclass(frozen=True)
class Response:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers.items() if key.lower() == name), None)

    def json(self) -> Any:
        return self.parse_json()[0]

    def parse_json(self) -> tuple[Any, bool]:
        """Returns the value, and whether an `OversizedNumber` is in it."""
        try:
            return parse_json(self.body)
        except ValueError as error:
            raise UnreachableError(f"the response is not JSON (status {self.status})") from error


class Transport:
    """Connections to one server. Threads may share it. `connect_timeout` bounds the time to establish a connection."""

    def __init__(self, url: str, api_key: str | None, *, connect_timeout: float = 10.0) -> None:
        if "@" in url:
            # The message does not contain the URL, because errors are logged.
            raise ValueError("the server URL contains a user name or password; pass the API key as `api_key` or in ONCEWARD_KEY")
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"invalid server URL: {url}; write it as http://HOST:PORT")
        self.url = url
        self._connect_timeout = connect_timeout
        self._host, self._port = parts.hostname, parts.port
        self._prefix = parts.path.rstrip("/")
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._headers = {"Accept": "application/json, application/problem+json", "User-Agent": "onceward-python/0.1"}
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._lock = threading.Lock()
        self._idle: list[Connection] = []

    def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout: float,
        abort_handle: AbortHandle | None = None,
    ) -> Response:
        """Sends a request once. Raises `UnreachableError` without a response and `RefusedError` for an error status."""
        connection = self._acquire(timeout)
        try:
            received = self._request(connection, method, path, body, headers, abort_handle or AbortHandle())
            response = Response(received.status, dict(received.headers.items()), received.read())
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            # Idle connections may be as dead as this one; a new one fails fast.
            self.close()
            not_sent = not connection.was_connected
            raise UnreachableError(f"{self.url}: {error or type(error).__name__}", not_sent=not_sent) from error
        except BaseException:
            connection.close()
            raise
        finally:
            if abort_handle is not None:
                abort_handle.detach()
        self._release(connection, received)
        if response.status >= 400:
            raise error_from_problem(self._parse_problem(response))
        return response

    def open(
        self, path: str, headers: Mapping[str, str], *, timeout: float, abort_handle: AbortHandle
    ) -> tuple[http.client.HTTPResponse, Connection]:
        """Opens a response that is read as it arrives, on its own connection."""
        connection = self._new_connection(timeout)
        try:
            response = self._request(connection, "GET", path, None, headers, abort_handle)
            if response.status >= 400:
                refusal = Response(response.status, dict(response.headers.items()), response.read())
                raise error_from_problem(self._parse_problem(refusal))
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise UnreachableError(f"{self.url}: {error or type(error).__name__}") from error
        except BaseException:
            connection.close()
            raise
        return response, connection

    def close(self) -> None:
        """Closes the idle connections."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _parse_problem(self, response: Response) -> Problem:
        problem = parse_problem(response)
        if problem.status != 401 or "Authorization" in self._headers:
            return problem
        detail = f"{problem.detail or problem.title}; no API key was given: pass it as `api_key` or set ONCEWARD_KEY"
        return replace(problem, detail=detail)

    def _request(
        self,
        connection: Connection,
        method: str,
        path: str,
        body: Any,
        headers: Mapping[str, str] | None,
        abort_handle: AbortHandle,
    ) -> http.client.HTTPResponse:
        all_headers = dict(self._headers)
        content = None
        if body is not None:
            content = (body if isinstance(body, str) else to_json(body)).encode()
            all_headers["Content-Type"] = "application/json"
        all_headers.update(headers or {})
        if connection.sock is None:
            connection.connect_abortable(abort_handle)
        # The socket itself: the connection drops it if the response is the last one.
        abort_handle.attach(connection.sock)
        # The server reads headers as UTF-8; http.client would write Latin-1 or fail.
        encoded_headers = {name: value.encode() for name, value in all_headers.items()}
        connection.request(method, self._prefix + path, content, encoded_headers)
        return connection.getresponse()

    def _new_connection(self, timeout: float) -> Connection:
        return Connection(self._host, self._port, timeout=timeout, connect_timeout=self._connect_timeout, tls=self._tls)

    def _acquire(self, timeout: float) -> Connection:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._new_connection(timeout)
            if connection.sock is not None and not is_closed_by_peer(connection.sock):
                connection.timeout = timeout
                connection.sock.settimeout(timeout)
                return connection
            connection.close()

    def _release(self, connection: Connection, response: http.client.HTTPResponse) -> None:
        if response.will_close or connection.sock is None:
            connection.close()
            return
        with self._lock:
            if len(self._idle) < MAX_IDLE_CONNECTIONS:
                self._idle.append(connection)
                return
        connection.close()


def to_json(body: Any) -> str:
    """Serializes a body. Characters outside ASCII stay unescaped, because the server stores payloads byte for byte."""
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def parse_problem(response: Response) -> Problem:
    try:
        body = json.loads(response.body)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        # Not Onceward's answer, for example that of a proxy.
        body = {"title": response.body[:200].decode("utf-8", "replace")}
    body.setdefault("code", f"http_{response.status}")
    retry_after = parse_retry_after(response.header("retry-after"))
    return Problem.from_json(body | {"status": response.status}, response.status, retry_after)


def parse_retry_after(header: str | None) -> float | None:
    """Returns the seconds of a `Retry-After` header. Ignores dates."""
    try:
        return None if header is None else float(header)
    except ValueError:
        return None
