"""Responses that a server gives rarely: full, failing, late, lost. A proxy gives them at the right moment."""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
import time
import unittest
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from onceward import Client, Job, NewRecord, Record, RetryPolicy, TerminalFailure, UnreachableError, Worker
from onceward.connection import AbortHandle
from onceward.retry_policy import is_problem_retryable
from onceward.transport import Transport
from onceward.types import Problem

from .proxy import FaultProxy, ProxyRequest, ProxyResponse, Responder, problem_response
from .server_process import TASK, TEST_TIMEOUT, ServerProcess, wait_for_state

server: ServerProcess

#: Longer than any test, in seconds: a lease of this length does not expire and needs no heartbeat.
ONE_HOUR = 3600.0


def setUpModule() -> None:
    global server
    server = ServerProcess()


def tearDownModule() -> None:
    server.close()


class FaultTest(unittest.TestCase):
    def setUp(self) -> None:
        self.client = Client(server.url)
        self.addCleanup(self.client.close)

    @contextlib.contextmanager
    def run_worker(self, respond: Responder, handler: Any, **options: Any) -> Iterator[Worker]:
        with FaultProxy(server.url, respond) as proxy:
            worker = Worker(proxy.url, **{"max_wait": 5.0, "shutdown_grace": 5.0} | options)
            worker.job(TASK)(handler)
            with worker:
                yield worker

    # Temporary errors

    def test_call_is_retried_after_temporary_errors(self) -> None:
        responses = [
            problem_response(507, "store_full"),
            problem_response(503, "overloaded"),
            problem_response(429, "too_fast", retry_after_ms=1),
        ]

        def respond(request: ProxyRequest) -> ProxyResponse:
            return responses.pop() if responses else request.forward()

        with FaultProxy(server.url, respond) as proxy, Client(proxy.url) as client:
            self.assertEqual(client.create(TASK, fields={"name": "created at last"}).state, "waiting")
        self.assertEqual(responses, [])

    def test_retryable_statuses_are_those_of_rust_worker(self) -> None:
        retryable = [status for status in range(400, 600) if is_problem_retryable(Problem(status, "any"))]
        self.assertEqual(retryable, [429, 502, 503, 504, 507])
        self.assertTrue(is_problem_retryable(Problem(409, "idempotency_key_in_use")))

    def test_replayed_event_of_deleted_record_has_no_record(self) -> None:
        response = ProxyResponse(200, json.dumps({"record": None, "spawned": ["x"]}).encode())
        with FaultProxy(None, lambda request: response) as proxy, Client(proxy.url) as client:
            fired = client.fire("a", "b", idempotency_key="used before")
        self.assertEqual((fired.record, fired.spawned), (None, ("x",)))

    def test_worker_continues_after_failed_lease_calls(self) -> None:
        responses = [problem_response(501, "http_501"), problem_response(507, "store_full"), problem_response(500, "internal")]

        def respond(request: ProxyRequest) -> ProxyResponse:
            return responses.pop() if request.path == "/v1/leases" and responses else request.forward()

        created = self.client.create(TASK)
        with self.assertLogs("onceward", "INFO") as logged, self.run_worker(respond, lambda job: "done"):
            wait_for_state(self.client, created.id, "done")
        self.assertEqual(responses, [])
        lines = [record.getMessage() for record in logged.records]
        self.assertEqual(sum(line.startswith("lease call failed") for line in lines), 1, lines)
        self.assertEqual(lines.count("the server is available again"), 1, lines)

    def test_payload_with_wrong_hash_does_not_reach_handler(self) -> None:
        remaining_corruptions = 2

        def respond(request: ProxyRequest) -> ProxyResponse:
            nonlocal remaining_corruptions
            response = request.forward()
            if request.path.endswith("/payload") and remaining_corruptions > 0:
                remaining_corruptions -= 1
                return ProxyResponse(response.status, response.body.replace(b"x", b"y", 1), response.headers)
            return response

        text = "x" * 100_000
        with self.assertLogs("onceward", "WARNING"), self.run_worker(respond, lambda job: job.payload == text):
            created = self.client.create(TASK, payload=text)
            self.assertEqual(wait_for_state(self.client, created.id, "done").attempt, 2)
        self.assertEqual(self.client.effect(created.id).result, True)

    def test_temporarily_unavailable_payload_yields_job(self) -> None:
        downloads = 0

        def respond(request: ProxyRequest) -> ProxyResponse | None:
            nonlocal downloads
            if not request.path.endswith("/payload"):
                return request.forward()
            downloads += 1
            return request.forward() if downloads > 1 else problem_response(503, "overloaded")

        text = "x" * 100_000
        with FaultProxy(server.url, respond) as proxy, Client(proxy.url, retry_policy=RetryPolicy(retry_timeout=0)) as client:
            worker = Worker(client, max_wait=5.0, shutdown_grace=5.0)
            worker.job("execution.job")(lambda job: job.payload == text)
            with worker:
                created = self.client.create("execution.job", payload=text, fields={"budget": 1})
                done = wait_for_state(self.client, created.id, "SUCCEEDED")
        self.assertEqual((done.attempt, downloads), (2, 2), "yielded once, with a budget of one")
        self.assertEqual(self.client.effect(created.id).result, True)

    def test_missing_payload_fails_job(self) -> None:
        responses = [problem_response(404, "not_found"), None]

        def respond(request: ProxyRequest) -> ProxyResponse | None:
            return responses.pop() if request.path.endswith("/payload") and responses else request.forward()

        text = "x" * 100_000
        with FaultProxy(server.url, respond) as proxy, Client(proxy.url, retry_policy=RetryPolicy(retry_timeout=0)) as client:
            worker = Worker(client, max_wait=5.0, shutdown_grace=5.0)
            worker.job(TASK)(lambda job: job.payload == text)
            with worker:
                done = wait_for_state(self.client, self.client.create(TASK, payload=text).id, "done")
        self.assertEqual((done.attempt, done.fields["code"]), (3, "PAYLOAD_UNAVAILABLE"))

    def test_temporarily_failing_heartbeat_keeps_lease(self) -> None:
        responses = [problem_response(507, "store_full"), problem_response(500, "internal")]
        heartbeat_sent = threading.Event()

        def respond(request: ProxyRequest) -> ProxyResponse:
            if not request.is_heartbeat:
                return request.forward()
            if responses:
                return responses.pop()
            response = request.forward()
            heartbeat_sent.set()
            return response

        def wait_for_heartbeat(job: Job[Any]) -> Any:
            return [heartbeat_sent.wait(TEST_TIMEOUT), job.stop_reason]

        with self.run_worker(respond, wait_for_heartbeat, lease=3.0):
            created = self.client.create(TASK)
            self.assertEqual(wait_for_state(self.client, created.id, "done").attempt, 1)
        self.assertEqual(self.client.effect(created.id).result, [True, None])

    def test_temporarily_failing_commit_is_retried(self) -> None:
        responses = [problem_response(507, "store_full"), problem_response(503, "overloaded"), None]

        def respond(request: ProxyRequest) -> ProxyResponse | None:
            return responses.pop() if request.path.endswith("/commit") and responses else request.forward()

        with self.run_worker(respond, lambda job: "committed"):
            created = self.client.create(TASK)
            self.assertEqual(wait_for_state(self.client, created.id, "done").attempt, 1)
        self.assertEqual((self.client.effect(created.id).result, responses), ("committed", []))

    def test_commit_with_internal_error_fails_job(self) -> None:
        def respond(request: ProxyRequest) -> ProxyResponse:
            if request.path.endswith(".1/commit"):
                return problem_response(500, "internal")
            return request.forward()

        with self.assertLogs("onceward", "ERROR"), self.run_worker(respond, lambda job: job.attempt, lease=ONE_HOUR):
            created = self.client.create(TASK)
            done = wait_for_state(self.client, created.id, "done")
        self.assertEqual((done.fields["failures"], done.fields["code"]), (1, "internal"))
        self.assertEqual(self.client.effect(created.id).result, 2)

    # Leases that are older than their response

    def test_jobs_of_lost_response_start_after_heartbeat(self) -> None:
        order: list[str] = []
        lost: list[ProxyResponse] = []

        def respond(request: ProxyRequest) -> ProxyResponse | None:
            response = request.forward()
            if request.path == "/v1/leases" and response.json["executions"] and not lost:
                lost.append(response)
                return None
            if request.is_heartbeat:
                order.append("heartbeat")
            return response

        def handler(job: Job[Any]) -> int:
            order.append("handler")
            return job.attempt

        with self.assertLogs("onceward", "WARNING"), self.run_worker(respond, handler, lease=ONE_HOUR):
            created = self.client.create(TASK)
            wait_for_state(self.client, created.id, "done")
        self.assertEqual((order, self.client.effect(created.id).result), (["heartbeat", "handler"], 1))

    def test_dropped_jobs_of_lost_response_are_not_started(self) -> None:
        lost, started = threading.Event(), queue.SimpleQueue[str]()

        def respond(request: ProxyRequest) -> ProxyResponse | None:
            response = request.forward()
            if request.path == "/v1/leases" and response.json["executions"] and not lost.is_set():
                self.client.fire(response.json["executions"][0]["record"]["id"], "drop")
                lost.set()
                # Repeat this response although the record was dropped since.
                responses.append(response)
                return None
            return responses.pop() if request.path == "/v1/leases" and responses else response

        responses: list[ProxyResponse] = []
        with self.assertLogs("onceward", "WARNING"), self.run_worker(respond, lambda job: started.put(job.id), lease=ONE_HOUR):
            dropped = self.client.create(TASK)
            self.assertTrue(lost.wait(TEST_TIMEOUT))
            other = self.client.create(TASK)
            wait_for_state(self.client, other.id, "done")
        self.assertEqual((self.client.get(dropped.id).state, started.get(), started.empty()), ("dropped", other.id, True))

    def test_job_with_expired_lease_is_not_started(self) -> None:
        started: list[int] = []

        def handler(job: Job[Any]) -> None:
            started.append(job.attempt)

        with self.assertLogs("onceward", "WARNING"), self.run_worker(with_remaining_lease(0), handler, lease=1.0):
            wait_for_state(self.client, self.client.create(TASK).id, "done")
        self.assertEqual(started, [2])

    def test_first_heartbeat_depends_on_remaining_lease(self) -> None:
        heartbeat_sent = threading.Event()

        def respond(request: ProxyRequest) -> ProxyResponse | None:
            response = forward_with_lease(request)
            if request.is_heartbeat:
                heartbeat_sent.set()
            return response

        forward_with_lease = with_remaining_lease(900)
        with self.run_worker(respond, lambda job: heartbeat_sent.wait(TEST_TIMEOUT), lease=ONE_HOUR):
            created = self.client.create(TASK)
            wait_for_state(self.client, created.id, "done")
        self.assertEqual(self.client.effect(created.id).result, True)

    # Delays

    def test_failing_heartbeats_are_retried_with_backoff(self) -> None:
        for members, max_heartbeats in ({}, 9), ({"retry_after_ms": 60_000}, 4):
            heartbeats: list[str] = []
            reasons: queue.SimpleQueue[Any] = queue.SimpleQueue()

            def respond(request: ProxyRequest, heartbeats: list[str] = heartbeats, members: dict[str, Any] = members) -> ProxyResponse:
                if request.is_heartbeat:
                    heartbeats.append(request.path)
                    return problem_response(503, "overloaded", **members)
                return request.forward()

            def wait_for_stop(job: Job[Any], reasons: queue.SimpleQueue[Any] = reasons) -> None:
                if job.attempt == 1:
                    reasons.put((job.stop_event.wait(TEST_TIMEOUT), job.stop_reason))

            with self.subTest(members), self.assertLogs("onceward", "WARNING"), self.run_worker(respond, wait_for_stop, lease=1.5):
                created = self.client.create(TASK)
                self.assertEqual(reasons.get(timeout=TEST_TIMEOUT), (True, "lease_lost"))
                counted = len(heartbeats)
                wait_for_state(self.client, created.id, "done")
                self.assertLessEqual(counted, max_heartbeats)
                self.assertGreaterEqual(counted, 2)

    def test_heartbeats_of_all_jobs_share_one_request(self) -> None:
        heartbeats: queue.SimpleQueue[int] = queue.SimpleQueue()
        release = threading.Event()

        def respond(request: ProxyRequest) -> ProxyResponse:
            if request.is_heartbeat:
                heartbeats.put(len(request.json["reports"]) if request.path.endswith("/batch") else 1)
            return request.forward()

        created = self.client.create_batch(TASK, [NewRecord() for _ in range(20)])
        with self.run_worker(respond, lambda job: release.wait(TEST_TIMEOUT), lease=6.0, concurrency=20):
            self.assertEqual(heartbeats.get(timeout=TEST_TIMEOUT), 20)
            release.set()
            for record in created:
                assert isinstance(record, Record)
                wait_for_state(self.client, record.id, "done")

    def test_retry_after_header_delays_next_lease_call(self) -> None:
        calls: list[float] = []

        def respond(request: ProxyRequest) -> ProxyResponse:
            if request.path == "/v1/leases":
                calls.append(time.monotonic())
                if len(calls) == 1:
                    return ProxyResponse(503, b"busy", {"Retry-After": "1"})
            return request.forward()

        with self.assertLogs("onceward", "WARNING"), self.run_worker(respond, lambda job: None):
            wait_for_state(self.client, self.client.create(TASK).id, "done")
        self.assertGreaterEqual(calls[1] - calls[0], 1.0)

    # Reports that the server rejects

    def test_too_deeply_nested_result_fails_job(self) -> None:
        deep: Any = []
        for _ in range(200):
            deep = [deep]

        def commit_deep(job: Job[Any]) -> None:
            job.commit(deep)

        for handler in (lambda job: deep, commit_deep):
            with self.run_worker(ProxyRequest.forward, handler, lease=ONE_HOUR):
                dead = wait_for_state(self.client, self.client.create(TASK).id, "dead")
            self.assertEqual((dead.attempt, dead.fields["code"]), (1, "BAD_RESULT"))

    def test_failure_message_with_unpaired_surrogate_is_sanitized(self) -> None:
        def fail(job: Job[Any]) -> None:
            raise TerminalFailure("BROKEN", "half an emoji: \ud83d")

        with self.run_worker(ProxyRequest.forward, fail, lease=ONE_HOUR):
            dead = wait_for_state(self.client, self.client.create(TASK).id, "dead")
        self.assertEqual((dead.fields["code"], dead.fields["message"]), ("BROKEN", "half an emoji: ?"))

    def test_rejected_failure_message_is_replaced(self) -> None:
        responses = [problem_response(422, "invalid_input")]

        def respond(request: ProxyRequest) -> ProxyResponse:
            return responses.pop() if request.path.endswith("/fail") and responses else request.forward()

        def fail(job: Job[Any]) -> None:
            raise TerminalFailure("BROKEN", "rejected text")

        with self.assertLogs("onceward", "ERROR"), self.run_worker(respond, fail, lease=ONE_HOUR):
            dead = wait_for_state(self.client, self.client.create(TASK).id, "dead")
        self.assertEqual((dead.attempt, dead.fields["code"]), (1, "BROKEN"))
        self.assertNotIn("rejected text", dead.fields["message"])

    # Concurrency, shutdown and connections

    def test_high_concurrency_leases_in_several_calls(self) -> None:
        requested_max: queue.SimpleQueue[int] = queue.SimpleQueue()

        def respond(request: ProxyRequest) -> ProxyResponse:
            if request.path == "/v1/leases":
                requested_max.put(request.json["max"])
            return request.forward()

        with self.run_worker(respond, lambda job: None, concurrency=1001):
            wait_for_state(self.client, self.client.create(TASK).id, "done")
        self.assertLessEqual(requested_max.get(), 1000)

    def test_jobs_leased_during_stop_are_yielded_in_parallel(self) -> None:
        leased, all_yielding = threading.Event(), threading.Barrier(3)

        def respond(request: ProxyRequest) -> ProxyResponse | None:
            if request.path.endswith("/yield"):
                all_yielding.wait(TEST_TIMEOUT)
            response = request.forward()
            if request.path == "/v1/leases" and response.json["executions"] and not leased.is_set():
                leased.set()
                stopped.wait(TEST_TIMEOUT)
            return response

        stopped = threading.Event()
        created = self.client.create_batch(TASK, [NewRecord(), NewRecord(), NewRecord()])
        with self.run_worker(respond, lambda job: None, concurrency=3) as worker:
            self.assertTrue(leased.wait(TEST_TIMEOUT))
            worker.stop()
            stopped.set()
        for record in created:
            assert isinstance(record, Record)
            yielded = self.client.get(record.id)
            self.assertEqual((yielded.state, yielded.fields["yields"]), ("waiting", 1))
            self.client.fire(record.id, "drop")

    def test_one_dead_connection_closes_the_idle_pool(self) -> None:
        both_connected, is_silent, end = threading.Barrier(2), threading.Event(), threading.Event()
        first_ports: set[int] = set()
        blocked_ports: list[int] = []

        def respond(request: ProxyRequest) -> ProxyResponse:
            _, port = request.client_socket.getpeername()
            if not is_silent.is_set():
                first_ports.add(port)
                both_connected.wait(TEST_TIMEOUT)
            elif port in first_ports:
                blocked_ports.append(port)
                end.wait(TEST_TIMEOUT)
            return request.forward()

        with FaultProxy(server.url, respond) as proxy, Client(proxy.url, retry_policy=RetryPolicy(response_timeout=1.0)) as client:
            with ThreadPoolExecutor(2) as threads:
                list(threads.map(lambda _: client.list(TASK), range(2)))
            is_silent.set()
            client.list(TASK)
            end.set()
        self.assertEqual((len(first_ports), len(blocked_ports)), (2, 1))

    def test_connecting_can_be_aborted(self) -> None:
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            listener.listen(0)
            address = listener.getsockname()
            with contextlib.ExitStack() as sockets:
                # Fill the accept queue, so that further connection attempts get no answer.
                for _ in range(4):
                    sock = sockets.enter_context(socket.socket())
                    sock.setblocking(False)
                    sock.connect_ex(address)
                started, ended = threading.Event(), queue.SimpleQueue[str]()

                class NotifyingHandle(AbortHandle):
                    def attach(self, sock: socket.socket | None) -> None:
                        super().attach(sock)
                        started.set()

                abort_handle = NotifyingHandle()
                transport = Transport(f"http://127.0.0.1:{address[1]}", None, connect_timeout=ONE_HOUR)

                def send() -> None:
                    try:
                        transport.send("GET", "/", timeout=ONE_HOUR, abort_handle=abort_handle)
                    except UnreachableError:
                        ended.put("aborted")

                threading.Thread(target=send, daemon=True).start()
                self.assertTrue(started.wait(TEST_TIMEOUT))
                abort_handle.abort()
                self.assertEqual(ended.get(timeout=TEST_TIMEOUT), "aborted")


class StreamFaultTest(unittest.TestCase):
    def test_reconnects_miss_nothing_and_repeat_nothing(self) -> None:
        last_event_ids: list[str | None] = []

        def respond(request: ProxyRequest) -> ProxyResponse:
            last_event_ids.append(request.headers.get("Last-Event-ID"))
            bodies = [
                b"id: 7\n\n",
                sse_entries(8),
                b": keep-alive\n\n",
                sse_entries(8, 9),
                sse_entries(10)[:-9],
                sse_entries(10),
            ]
            return ProxyResponse(200, bodies[len(last_event_ids) - 1], {"Content-Type": "text/event-stream"})

        with FaultProxy(None, respond) as proxy, Client(proxy.url) as client, client.stream() as stream:
            entries = iter(stream)
            self.assertEqual([next(entries).seq for _ in range(3)], [8, 9, 10])
        self.assertEqual(last_event_ids, [None, "7", "8", "8", "9", "9"])

    def test_temporary_errors_do_not_end_stream(self) -> None:
        responses = [
            ProxyResponse(200, sse_entries(1), {"Content-Type": "text/event-stream"}),
            problem_response(507, "store_full"),
            problem_response(503, "overloaded"),
        ]
        with FaultProxy(None, lambda request: responses.pop()) as proxy, Client(proxy.url) as client, client.stream() as stream:
            self.assertEqual(next(iter(stream)).seq, 1)


def sse_entries(*seqs: int) -> bytes:
    entry = {"record": None, "version": 1, "at": "2026-11-16T12:00:00Z", "event": "create"}
    return "".join(f"id: {seq}\nevent: entry\ndata: {json.dumps({**entry, 'seq': seq})}\n\n" for seq in seqs).encode()


def with_remaining_lease(milliseconds: int) -> Responder:
    """Forwards requests and sets the remaining lease of the first job."""
    is_changed = False

    def respond(request: ProxyRequest) -> ProxyResponse:
        nonlocal is_changed
        response = request.forward()
        if request.path == "/v1/leases" and not is_changed and (body := response.json)["executions"]:
            is_changed = True
            body["executions"][0]["expires_in_ms"] = milliseconds
            return response.with_json(body)
        return response

    return respond
