"""HTTP with connections that are kept and shared by threads."""

from __future__ import annotations

import http.client
import json
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from .dialing import Call, Connection, has_news
from .errors import Unreachable, refused
from .records import Problem

#: Connections that wait for the next call; more are closed after use.
KEPT = 64


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes

    def header(self, name: str) -> str | None:
        return next((value for found, value in self.headers.items() if found.lower() == name), None)

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise Unreachable(f"an answer that is no JSON (status {self.status})") from error


class Transport:
    """Calls to one server. Any thread may use it. `connecting` bounds how long a connection may take to be made."""

    def __init__(self, url: str, key: str | None, *, connecting: float = 10.0) -> None:
        if "@" in url:
            # Not shown, as it would be in every error from now on.
            raise ValueError("a URL with a name or password in it is not taken: give the key by `key` or ONCEWARD_KEY")
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"not the URL of a server: {url}")
        self.url = url
        self._connecting = connecting
        self._host, self._port = parts.hostname, parts.port
        self._prefix = parts.path.rstrip("/")
        self._tls = ssl.create_default_context() if parts.scheme == "https" else None
        self._headers = {"Accept": "application/json, application/problem+json", "User-Agent": "onceward-python/0.1"}
        if key:
            self._headers["Authorization"] = f"Bearer {key}"
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
        call: Call | None = None,
    ) -> Answer:
        """One try. `Unreachable` where no answer came, `Refused` where it was no."""
        connection = self._take(timeout)
        try:
            response = self._ask(connection, method, path, body, headers, call or Call())
            answer = Answer(response.status, dict(response.headers.items()), response.read())
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            # Those that wait for a next call may be as dead as this one; a new one says so at once.
            self.close()
            unheard = not connection.answered
            raise Unreachable(f"{self.url}: {error or type(error).__name__}", unheard=unheard) from error
        except BaseException:
            connection.close()
            raise
        finally:
            if call is not None:
                call.end()
        self._keep(connection, response)
        if answer.status >= 400:
            raise refused(problem_of(answer))
        return answer

    def open(
        self, path: str, headers: Mapping[str, str], *, timeout: float, call: Call
    ) -> tuple[http.client.HTTPResponse, Connection]:
        """An answer that is read as it comes, on a connection of its own."""
        connection = self._connect(timeout)
        try:
            response = self._ask(connection, "GET", path, None, headers, call)
            if response.status >= 400:
                raise refused(problem_of(Answer(response.status, dict(response.headers.items()), response.read())))
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unreachable(f"{self.url}: {error or type(error).__name__}") from error
        except BaseException:
            connection.close()
            raise
        return response, connection

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _ask(
        self,
        connection: Connection,
        method: str,
        path: str,
        body: Any,
        headers: Mapping[str, str] | None,
        call: Call,
    ) -> http.client.HTTPResponse:
        told = dict(self._headers)
        text = None
        if body is not None:
            text = (body if isinstance(body, str) else text_of(body)).encode()
            told["Content-Type"] = "application/json"
        told.update(headers or {})
        if connection.sock is None:
            connection.connect_for(call)
        # The socket itself: a connection forgets it when the answer says that it is the last one.
        call.begin(connection.sock)
        # As UTF-8, which is how the server reads them; http.client would write Latin-1, or fail.
        connection.request(method, self._prefix + path, text, {name: value.encode() for name, value in told.items()})
        return connection.getresponse()

    def _connect(self, timeout: float) -> Connection:
        return Connection(self._host, self._port, timeout=timeout, connecting=self._connecting, tls=self._tls)

    def _take(self, timeout: float) -> Connection:
        while True:
            with self._lock:
                connection = self._idle.pop() if self._idle else None
            if connection is None:
                return self._connect(timeout)
            if connection.sock is not None and not has_news(connection.sock):
                connection.timeout = timeout
                connection.sock.settimeout(timeout)
                return connection
            connection.close()

    def _keep(self, connection: Connection, response: http.client.HTTPResponse) -> None:
        if response.will_close or connection.sock is None:
            connection.close()
            return
        with self._lock:
            if len(self._idle) < KEPT:
                self._idle.append(connection)
                return
        connection.close()


def text_of(body: Any) -> str:
    """As JSON. Letters outside of ASCII stay as they are: what is kept byte for byte is what was meant."""
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def problem_of(answer: Answer) -> Problem:
    try:
        found = json.loads(answer.body)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        # Somebody else has answered: a proxy, say.
        found = {"title": answer.body[:200].decode("utf-8", "replace")}
    found.setdefault("code", f"http_{answer.status}")
    return Problem.of(found | {"status": answer.status}, answer.status, seconds_of(answer.header("retry-after")))


def seconds_of(retry_after: str | None) -> float | None:
    try:
        return None if retry_after is None else float(retry_after)
    except ValueError:
        return None
