"""A server in trouble for a moment, played by a proxy before a real one: workers go on, and lose nothing."""

from __future__ import annotations

import contextlib
import http.client
import json
import threading
import unittest
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from onceward import Client, Job, Worker

from .serving import DEADLINE, TASK, Server, until

server: Server


def setUpModule() -> None:
    global server
    server = Server()


def tearDownModule() -> None:
    server.close()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Proxy

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        trouble = self.server.trouble(self.path)
        if trouble is not None:
            problem = {"type": "about:blank", "title": "trouble", "status": trouble, "code": "internal", "detail": "for a moment"}
            self.answer(trouble, "application/problem+json", json.dumps(problem).encode())
            return
        with self.server.passing:
            connection = http.client.HTTPConnection(self.server.to, timeout=DEADLINE)
            headers = {name: value for name, value in self.headers.items() if name.lower() != "host"}
            connection.request("POST", self.path, body, headers)
            response = connection.getresponse()
            said = response.read()
            connection.close()
        self.server.passed(self.path)
        # Whoever asked may have gone away.
        with contextlib.suppress(OSError):
            self.answer(response.status, response.headers["Content-Type"], said)

    def answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


class Passing:
    """How many calls are passed on just now."""

    def __init__(self) -> None:
        self._count, self._change = 0, threading.Condition()

    def __enter__(self) -> None:
        with self._change:
            self._count += 1

    def __exit__(self, *_: object) -> None:
        with self._change:
            self._count -= 1
            self._change.notify_all()

    def wait(self) -> None:
        with self._change:
            self._change.wait_for(lambda: self._count == 0, DEADLINE)


class Proxy(ThreadingHTTPServer):
    """Answers calls whose path has the word with these statuses, one after the other; then it passes them on."""

    daemon_threads = True

    def __init__(self, to: str, word: str, *statuses: int) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.to = to.removeprefix("http://")
        self.word, self.statuses, self._lock = word, [*statuses], threading.Lock()
        #: Set when a call was passed on after the trouble.
        self.over = threading.Event()
        self.passing = Passing()
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def trouble(self, path: str) -> int | None:
        with self._lock:
            return self.statuses.pop(0) if self.word in path and self.statuses else None

    def passed(self, path: str) -> None:
        if self.word in path and not self.statuses:
            self.over.set()


class Trouble(unittest.TestCase):
    def setUp(self) -> None:
        self.client = Client(server.url)
        self.addCleanup(self.client.close)

    def work(self, proxy: Proxy, handler: Any, attempt: int = 1) -> None:
        self.addCleanup(proxy.server_close)
        self.addCleanup(proxy.shutdown)
        worker = Worker(f"http://127.0.0.1:{proxy.server_port}", wait=1.0, grace=5.0, lease=1.5)
        worker.job(TASK)(handler)
        made = self.client.create(TASK, payload=1)
        with worker:
            done = until(self.client, made.id, "done")
        # A question that its worker has given up may still be given jobs: those of the next test.
        proxy.passing.wait()
        self.assertEqual(done.attempt, attempt)
        self.assertEqual(proxy.statuses, [], "there was trouble")

    def test_a_worker_outlives_errors_of_the_server(self) -> None:
        self.work(Proxy(server.url, "/v1/leases", 500, 507, 503), lambda job: "done")

    def test_an_error_to_a_heartbeat_is_no_lost_lease(self) -> None:
        proxy = Proxy(server.url, "/heartbeat", 500, 507)

        def handler(job: Job[Any]) -> str:
            self.assertTrue(proxy.over.wait(DEADLINE))
            self.assertFalse(job.cancelled)
            return "done"

        self.work(proxy, handler)

    def test_a_result_is_sent_again(self) -> None:
        self.work(Proxy(server.url, "/commit", 507, 503), lambda job: "done")

    def test_a_result_that_breaks_the_server_fails_the_attempt(self) -> None:
        self.work(Proxy(server.url, "/commit", 500), lambda job: "done", attempt=2)


class Words(unittest.TestCase):
    """What goes into headers and paths."""

    def test_a_key_may_have_any_letters(self) -> None:
        with Client(server.url) as client:
            first = client.create(TASK, payload=1, once="Müller: größer als 5 €")
            again = client.create(TASK, payload=1, once="Müller: größer als 5 €")
            self.assertEqual(first.id, again.id)

    def test_a_stream_knows_its_place_before_the_first_entry(self) -> None:
        with Client(server.url) as client:
            stream, began = client.stream(), threading.Event()

            def follow() -> None:
                for _ in stream:
                    pass

            reading = threading.Thread(target=follow, daemon=True)
            reading.start()
            while stream.seq is None and not began.wait(0.01):
                self.assertTrue(reading.is_alive())
            place = stream.seq
            stream.close()
            reading.join(DEADLINE)
            made = client.create(TASK, payload=1)
            with client.stream(after=place) as again:
                self.assertEqual(next(iter(again)).record, made.id)
