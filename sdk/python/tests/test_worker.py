"""Handlers run by a worker. The tests do not sleep: they wait for events, with a timeout that only a failing test reaches."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import unittest
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onceward import Client, Job, NewRecord, Record, RetryableFailure, RetryPolicy, TerminalFailure, Worker

from .server_process import TASK, TEST_TIMEOUT, ServerProcess, wait_for_state

server: ServerProcess

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

#: For leases that must not expire, in seconds. With a heartbeat each second, they survive two missed ones on a busy machine.
SAFE_LEASE = 3.0


def setUpModule() -> None:
    global server
    server = ServerProcess()


def tearDownModule() -> None:
    server.close()


def create_with_raw_payload(payload: bytes) -> str:
    """Creates a task with a payload that Python itself cannot serialize. Returns its id."""
    body = b'{"payload":' + payload + b"}"
    request = urllib.request.Request(f"{server.url}/v1/lifecycles/{TASK}/records", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as response:
        return str(json.load(response)["id"])


class WorkerTest(unittest.TestCase):
    def setUp(self) -> None:
        self.client = Client(server.url)
        self.addCleanup(self.client.close)

    @contextlib.contextmanager
    def run_worker(self, handler: Any, **options: Any) -> Iterator[Worker]:
        worker = Worker(server.url, **{"max_wait": 5.0, "shutdown_grace": 5.0} | options)
        worker.job(TASK)(handler)
        with worker:
            yield worker

    def test_return_value_of_handler_is_committed(self) -> None:
        with self.run_worker(lambda job: {"twice": job.payload * 2}):
            created = self.client.create(TASK, payload=21)
            wait_for_state(self.client, created.id, "done")
        self.assertEqual(self.client.effect(created.id).result, {"twice": 42})

    def test_large_payload_is_downloaded(self) -> None:
        text = "ä" * 100_000
        with self.run_worker(lambda job: len(job.payload)):
            created = self.client.create(TASK, payload=text)
            wait_for_state(self.client, created.id, "done")
        self.assertEqual(self.client.effect(created.id).result, len(text))

    def test_payload_is_decoded_and_decode_error_is_terminal(self) -> None:
        worker = Worker(server.url, max_wait=5.0)

        @worker.job(TASK, decode=int)
        def double(job: Job[int]) -> int:
            return job.payload * 2

        with worker:
            good, bad = self.client.create(TASK, payload="21"), self.client.create(TASK, payload="x")
            wait_for_state(self.client, good.id, "done")
            self.assertEqual(wait_for_state(self.client, bad.id, "dead").fields["code"], "BAD_PAYLOAD")
        self.assertEqual(self.client.effect(good.id).result, 42)

    def test_payload_that_python_cannot_parse_fails_its_job_alone(self) -> None:
        """In one lease answer, and as a large payload that is downloaded."""
        digits = b"1" * 5_000
        small, large = b'{"n":' + digits + b"}", b'["' + b"x" * 100_000 + b'",' + digits + b"]"
        bad = [create_with_raw_payload(payload) for payload in (small, large)]
        good = self.client.create(TASK, payload={"n": 21})
        started: list[Any] = []

        def double(job: Job[Any]) -> int:
            payload = job.payload
            started.append(job.id)
            return int(payload["n"]) * 2

        with self.run_worker(double, concurrency=3):
            wait_for_state(self.client, good.id, "done")
            for job in bad:
                self.assertEqual(wait_for_state(self.client, job, "dead").fields["code"], "BAD_PAYLOAD")
        self.assertEqual(started, [good.id])
        self.assertEqual(self.client.effect(good.id).result, 42)

    def test_jobs_run_concurrently(self) -> None:
        barrier = threading.Barrier(4)

        def wait_for_others(job: Job[Any]) -> int:
            return barrier.wait(TEST_TIMEOUT)

        with self.run_worker(wait_for_others, concurrency=4):
            created = self.client.create_batch(TASK, [NewRecord() for _ in range(8)])
            for record in created:
                assert isinstance(record, Record)
                wait_for_state(self.client, record.id, "done")

    def test_retryable_failure_is_retried(self) -> None:
        def fail_first_attempt(job: Job[Any]) -> str:
            if job.attempt == 1:
                raise RetryableFailure("BUSY", "not now", retry_after=0.01)
            return f"attempt {job.attempt}"

        with self.run_worker(fail_first_attempt):
            created = self.client.create(TASK)
            done = wait_for_state(self.client, created.id, "done")
        self.assertEqual((done.fields["failures"], done.fields["code"]), (1, "BUSY"))
        self.assertEqual(self.client.effect(created.id).result, "attempt 2")

    def test_terminal_failure_is_not_retried(self) -> None:
        def fail(job: Job[Any]) -> None:
            raise TerminalFailure("CORRUPT_DATA", "page 7")

        with self.run_worker(fail):
            dead = wait_for_state(self.client, self.client.create(TASK).id, "dead")
        self.assertEqual((dead.attempt, dead.fields["code"], dead.fields["message"]), (1, "CORRUPT_DATA", "page 7"))

    def test_other_exception_is_retried(self) -> None:
        def raise_twice(job: Job[Any]) -> None:
            if job.attempt < 3:
                raise KeyError("where is it?")

        with self.assertLogs("onceward", "ERROR"), self.run_worker(raise_twice):
            done = wait_for_state(self.client, self.client.create(TASK).id, "done")
        self.assertEqual((done.attempt, done.fields["code"]), (3, "EXCEPTION"))
        self.assertIn("KeyError", done.fields["message"])

    def test_result_that_is_not_json_fails_job(self) -> None:
        with self.assertLogs("onceward", "ERROR"), self.run_worker(lambda job: object()):
            dead = wait_for_state(self.client, self.client.create(TASK).id, "dead")
        self.assertEqual(dead.fields["code"], "BAD_RESULT")

    def test_too_large_result_fails_job(self) -> None:
        with self.assertLogs("onceward", "ERROR"), self.run_worker(lambda job: "x" * (2 << 20)):
            dead = wait_for_state(self.client, self.client.create(TASK).id, "dead")
        self.assertEqual(dead.fields["code"], "SIZE_EXCEEDED")

    def test_exception_after_commit_does_not_repeat_job(self) -> None:
        states: queue.SimpleQueue[str] = queue.SimpleQueue()

        def commit_then_raise(job: Job[Any]) -> str:
            job.commit("the effect")
            states.put(self.client.effect(job.id).result)
            raise RuntimeError("the cleanup failed")

        with self.assertLogs("onceward", "ERROR"), self.run_worker(commit_then_raise):
            created = self.client.create(TASK)
            self.assertEqual(states.get(timeout=TEST_TIMEOUT), "the effect")
            done = wait_for_state(self.client, created.id, "done")
        self.assertEqual(done.attempt, 1)

    def test_stop_request_reaches_handler(self) -> None:
        running, reasons = threading.Event(), queue.SimpleQueue[Any]()

        def wait_for_stop(job: Job[Any]) -> None:
            running.set()
            reasons.put((job.stop_event.wait(TEST_TIMEOUT), job.stop_reason))
            job.raise_if_stopping()

        with self.run_worker(wait_for_stop, lease=SAFE_LEASE):
            created = self.client.create(TASK)
            self.assertTrue(running.wait(TEST_TIMEOUT))
            self.client.fire(created.id, "stop")
            self.assertEqual(reasons.get(timeout=TEST_TIMEOUT), (True, "stop"))
            self.assertEqual(wait_for_state(self.client, created.id, "dead").fields["code"], "yielded")

    def test_job_of_handler_that_ignores_stop_is_yielded(self) -> None:
        running, release = threading.Event(), threading.Event()

        def ignore_stop(job: Job[Any]) -> str:
            running.set()
            release.wait(TEST_TIMEOUT)
            return "too late"

        with self.run_worker(ignore_stop, lease=SAFE_LEASE):
            created = self.client.create(TASK)
            self.assertTrue(running.wait(TEST_TIMEOUT))
            self.client.fire(created.id, "stop")
            self.assertEqual(wait_for_state(self.client, created.id, "dead").fields["code"], "yielded")
            release.set()
        self.assertEqual(self.client.get(created.id).state, "dead")

    def test_dropped_record_stops_its_job(self) -> None:
        running, reasons = threading.Event(), queue.SimpleQueue[Any]()

        def wait_for_stop(job: Job[Any]) -> str:
            running.set()
            reasons.put((job.stop_event.wait(TEST_TIMEOUT), job.stop_reason))
            return "discarded"

        with self.assertLogs("onceward", "WARNING"), self.run_worker(wait_for_stop, lease=0.3):
            created = self.client.create(TASK)
            self.assertTrue(running.wait(TEST_TIMEOUT))
            self.client.fire(created.id, "drop")
            self.assertEqual(reasons.get(timeout=TEST_TIMEOUT), (True, "lease_lost"))
        self.assertEqual(self.client.get(created.id).state, "dropped")

    def test_job_is_stopped_when_lease_expires_without_answer(self) -> None:
        with ServerProcess() as own_server, Client(own_server.url) as client:
            running, reasons = threading.Event(), queue.SimpleQueue[Any]()

            def wait_in_first_attempt(job: Job[Any]) -> str:
                if job.attempt == 1:
                    running.set()
                    reasons.put((job.stop_event.wait(TEST_TIMEOUT), job.stop_reason))
                return f"attempt {job.attempt}"

            worker_client = Client(own_server.url, retry_policy=RetryPolicy(response_timeout=0.5))
            self.addCleanup(worker_client.close)
            worker = Worker(worker_client, lease=0.5, max_wait=1.0, shutdown_grace=5.0)
            worker.job(TASK)(wait_in_first_attempt)
            with self.assertLogs("onceward", "WARNING"), worker:
                created = client.create(TASK)
                self.assertTrue(running.wait(TEST_TIMEOUT))
                own_server.send_signal(signal.SIGSTOP)
                self.assertEqual(reasons.get(timeout=TEST_TIMEOUT), (True, "lease_lost"))
                own_server.send_signal(signal.SIGCONT)
                wait_for_state(client, created.id, "done")
            self.assertEqual(client.effect(created.id).result, f"attempt {client.get(created.id).attempt}")
            self.assertGreater(client.get(created.id).attempt, 1)

    def test_heartbeats_keep_lease_of_long_job(self) -> None:
        """Another job, leased seven times for a third of the lease each, shows that the lease would have expired twice."""
        running, release = threading.Event(), threading.Event()

        def wait_for_release(job: Job[Any]) -> int:
            running.set()
            release.wait(TEST_TIMEOUT)
            return job.attempt

        with self.run_worker(wait_for_release, lease=SAFE_LEASE):
            created = self.client.create(TASK)
            self.assertTrue(running.wait(TEST_TIMEOUT))
            other = self.client.create(TASK)
            for attempt in range(1, 8):
                [lease] = self.client.lease([TASK], "lets leases expire", lease=SAFE_LEASE / 3, max_wait=TEST_TIMEOUT)
                self.assertEqual((lease.record.id, lease.attempt), (other.id, attempt))
            self.client.fire(other.id, "drop")
            release.set()
            wait_for_state(self.client, created.id, "done")
        self.assertEqual(self.client.effect(created.id).result, 1)

    def test_stopped_worker_lets_running_job_finish(self) -> None:
        running, release = threading.Event(), threading.Event()

        def wait_for_release(job: Job[Any]) -> str | None:
            running.set()
            release.wait(TEST_TIMEOUT)
            return job.stop_reason

        with self.run_worker(wait_for_release) as worker:
            created = self.client.create(TASK)
            self.assertTrue(running.wait(TEST_TIMEOUT))
            worker.stop()
            release.set()
        self.assertEqual(self.client.effect(created.id).result, "shutdown")

    def test_stopped_worker_yields_job_after_grace(self) -> None:
        running, release = threading.Event(), threading.Event()

        def ignore_stop(job: Job[Any]) -> None:
            running.set()
            release.wait(TEST_TIMEOUT)

        with self.run_worker(ignore_stop, shutdown_grace=0.05):
            created = self.client.create(TASK)
            self.assertTrue(running.wait(TEST_TIMEOUT))
        yielded = self.client.get(created.id)
        release.set()
        self.assertEqual((yielded.state, yielded.fields["yields"], yielded.fields["failures"]), ("waiting", 1, 0))
        self.client.fire(created.id, "drop")

    def test_worker_logs_start_and_end_without_payloads(self) -> None:
        running, release = threading.Event(), threading.Event()

        def handler(job: Job[Any]) -> str:
            if job.payload == "secret: fail":
                raise TerminalFailure("NO")
            if job.payload == "secret: hang":
                running.set()
                release.wait(TEST_TIMEOUT)
            return "secret: done"

        with self.assertLogs("onceward", "INFO") as logs, self.run_worker(handler, name="w", concurrency=2, shutdown_grace=0.05):
            for final_state in ("done", "dead"):
                payload = "secret: fail" if final_state == "dead" else "secret: go"
                wait_for_state(self.client, self.client.create(TASK, payload=payload).id, final_state)
            hanging = self.client.create(TASK, payload="secret: hang")
            self.assertTrue(running.wait(TEST_TIMEOUT))
        release.set()
        self.client.fire(hanging.id, "drop")
        messages = [record.getMessage() for record in logs.records]
        self.assertEqual(
            messages,
            [
                f"worker w started: lifecycles {TASK}, server {server.url}, concurrency 2",
                "worker is stopping (stop was called): running jobs have 0.05 s to finish",
                "worker stopped: 1 job committed, 1 failed, 1 yielded",
            ],
        )

    def test_missing_and_duplicate_handlers_are_rejected(self) -> None:
        worker = Worker(server.url)
        self.addCleanup(worker.join)
        self.assertRaises(ValueError, worker.run)
        worker.job(TASK)(lambda job: None)
        self.assertRaises(ValueError, worker.job(TASK), lambda job: None)

    def test_unknown_lifecycle_ends_worker(self) -> None:
        worker = Worker(server.url)
        worker.job("no.such")(lambda job: None)
        with self.assertLogs("onceward", "ERROR"), self.assertRaisesRegex(Exception, "unknown_lifecycle"):
            worker.run(signals=False)


class ExampleTest(unittest.TestCase):
    """Runs the examples as users do."""

    def setUp(self) -> None:
        self.client = Client(server.url)
        self.addCleanup(self.client.close)

    def test_shutdown_signal_ends_worker_with_status_zero(self) -> None:
        environment = os.environ | {"ONCEWARD_URL": server.url}
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            created = self.client.create("execution.job", payload={"words": "one two three"})
            run = [sys.executable, str(EXAMPLES / "worker.py")]
            # Reset SIGHUP, which is ignored if the tests run under `nohup`.
            process = subprocess.Popen(
                run,
                env=environment,
                preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
                stderr=subprocess.PIPE,
                text=True,
            )
            try:
                wait_for_state(self.client, created.id, "SUCCEEDED")
                process.send_signal(number)
                _, output = process.communicate(timeout=TEST_TIMEOUT)
                self.assertEqual(process.returncode, 0, number)
            finally:
                process.kill()
                process.wait()
            self.assertIn(f"started: lifecycles execution.job, server {server.url}, concurrency 4", output)
            self.assertIn(f"stopping ({number.name}): running jobs have 10 s to finish; a second signal", output)
            self.assertIn("worker stopped: 1 job committed, 0 failed, 0 yielded", output)
            self.assertEqual(self.client.effect(created.id).result, {"count": 3})

    def test_repeated_producer_creates_no_second_job(self) -> None:
        # Its own server, because the job stays and the other test counts jobs.
        with ServerProcess() as own_server, Client(own_server.url) as client:
            environment = os.environ | {"ONCEWARD_URL": own_server.url}
            run = [sys.executable, str(EXAMPLES / "producer.py"), "invoice-7"]
            first, repeated = (
                subprocess.run(run, env=environment, capture_output=True, text=True, check=True) for _ in range(2)
            )
            self.assertEqual(first.stdout, repeated.stdout)
            self.assertEqual(client.get(first.stdout.strip()).lifecycle, "execution.job")
