"""Handlers run by a worker. Nothing here sleeps: tests wait for events, with a deadline that only a fault reaches."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from onceward import Client, Fail, Job, New, Record, Retry, Worker

from .serving import DEADLINE, TASK, Server, until

server: Server

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

#: A lease that is not to be lost, in seconds: its hearts beat each second, and a machine that is busy for two of them loses nothing.
KEPT = 3.0


def setUpModule() -> None:
    global server
    server = Server()


def tearDownModule() -> None:
    server.close()


class Working(unittest.TestCase):
    def setUp(self) -> None:
        self.client = Client(server.url)
        self.addCleanup(self.client.close)

    @contextlib.contextmanager
    def working(self, handler: Any, **options: Any) -> Iterator[Worker]:
        worker = Worker(server.url, **{"wait": 5.0, "grace": 5.0} | options)
        worker.job(TASK)(handler)
        with worker:
            yield worker

    def test_what_a_handler_returns_is_committed(self) -> None:
        with self.working(lambda job: {"twice": job.payload * 2}):
            made = self.client.create(TASK, payload=21)
            until(self.client, made.id, "done")
        self.assertEqual(self.client.effect(made.id).result, {"twice": 42})

    def test_a_large_payload_is_fetched(self) -> None:
        text = "ä" * 100_000
        with self.working(lambda job: len(job.payload)):
            made = self.client.create(TASK, payload=text)
            until(self.client, made.id, "done")
        self.assertEqual(self.client.effect(made.id).result, len(text))

    def test_a_payload_is_decoded_or_the_job_fails_for_good(self) -> None:
        worker = Worker(server.url, wait=5.0)

        @worker.job(TASK, decode=int)
        def double(job: Job[int]) -> int:
            return job.payload * 2

        with worker:
            good, bad = self.client.create(TASK, payload="21"), self.client.create(TASK, payload="x")
            until(self.client, good.id, "done")
            self.assertEqual(until(self.client, bad.id, "dead").fields["code"], "BAD_PAYLOAD")
        self.assertEqual(self.client.effect(good.id).result, 42)

    def test_several_at_a_time(self) -> None:
        together = threading.Barrier(4)

        def meet(job: Job[Any]) -> int:
            return together.wait(DEADLINE)

        with self.working(meet, concurrency=4):
            made = self.client.create_many(TASK, [New() for _ in range(8)])
            for each in made:
                assert isinstance(each, Record)
                until(self.client, each.id, "done")

    def test_a_retryable_error_is_tried_again(self) -> None:
        def second_time(job: Job[Any]) -> str:
            if job.attempt == 1:
                raise Retry("BUSY", "not now", after=0.01)
            return f"attempt {job.attempt}"

        with self.working(second_time):
            made = self.client.create(TASK)
            done = until(self.client, made.id, "done")
        self.assertEqual((done.fields["failures"], done.fields["code"]), (1, "BUSY"))
        self.assertEqual(self.client.effect(made.id).result, "attempt 2")

    def test_a_terminal_error_is_not(self) -> None:
        def never(job: Job[Any]) -> None:
            raise Fail("CORRUPT_DATA", "page 7")

        with self.working(never):
            dead = until(self.client, self.client.create(TASK).id, "dead")
        self.assertEqual((dead.attempt, dead.fields["code"], dead.fields["message"]), (1, "CORRUPT_DATA", "page 7"))

    def test_any_other_exception_is_tried_again(self) -> None:
        def stumbles(job: Job[Any]) -> None:
            if job.attempt < 3:
                raise KeyError("where is it?")

        with self.assertLogs("onceward", "ERROR"), self.working(stumbles):
            done = until(self.client, self.client.create(TASK).id, "done")
        self.assertEqual((done.attempt, done.fields["code"]), (3, "EXCEPTION"))
        self.assertIn("KeyError", done.fields["message"])

    def test_a_result_that_is_no_json_fails_the_job(self) -> None:
        with self.assertLogs("onceward", "ERROR"), self.working(lambda job: object()):
            dead = until(self.client, self.client.create(TASK).id, "dead")
        self.assertEqual(dead.fields["code"], "BAD_RESULT")

    def test_a_result_that_is_too_large_fails_the_job(self) -> None:
        with self.assertLogs("onceward", "ERROR"), self.working(lambda job: "x" * (2 << 20)):
            dead = until(self.client, self.client.create(TASK).id, "dead")
        self.assertEqual(dead.fields["code"], "SIZE_EXCEEDED")

    def test_commit_first_and_tidy_up_after(self) -> None:
        states: queue.SimpleQueue[str] = queue.SimpleQueue()

        def in_two_phases(job: Job[Any]) -> str:
            job.commit("the effect")
            states.put(self.client.effect(job.id).result)
            raise RuntimeError("tidying up failed, which is no reason to do it all again")

        with self.assertLogs("onceward", "ERROR"), self.working(in_two_phases):
            made = self.client.create(TASK)
            self.assertEqual(states.get(timeout=DEADLINE), "the effect")
            done = until(self.client, made.id, "done")
        self.assertEqual(done.attempt, 1)

    def test_a_job_that_is_to_stop_stops(self) -> None:
        running, reasons = threading.Event(), queue.SimpleQueue[Any]()

        def long(job: Job[Any]) -> None:
            running.set()
            reasons.put((job.cancel_event.wait(DEADLINE), job.reason))
            job.check()

        with self.working(long, lease=KEPT):
            made = self.client.create(TASK)
            self.assertTrue(running.wait(DEADLINE))
            self.client.fire(made.id, "stop")
            self.assertEqual(reasons.get(timeout=DEADLINE), (True, "stop"))
            self.assertEqual(until(self.client, made.id, "dead").fields["code"], "yielded")

    def test_a_handler_that_does_not_hear_is_given_back(self) -> None:
        running, go_on = threading.Event(), threading.Event()

        def deaf(job: Job[Any]) -> str:
            running.set()
            go_on.wait(DEADLINE)
            return "too late"

        with self.working(deaf, lease=KEPT):
            made = self.client.create(TASK)
            self.assertTrue(running.wait(DEADLINE))
            self.client.fire(made.id, "stop")
            self.assertEqual(until(self.client, made.id, "dead").fields["code"], "yielded")
            go_on.set()
        self.assertEqual(self.client.get(made.id).state, "dead")

    def test_a_job_that_moved_away_is_dropped(self) -> None:
        running, reasons = threading.Event(), queue.SimpleQueue[Any]()

        def long(job: Job[Any]) -> str:
            running.set()
            reasons.put((job.cancel_event.wait(DEADLINE), job.reason))
            return "nobody wants this"

        with self.assertLogs("onceward", "WARNING"), self.working(long, lease=0.3):
            made = self.client.create(TASK)
            self.assertTrue(running.wait(DEADLINE))
            self.client.fire(made.id, "drop")
            self.assertEqual(reasons.get(timeout=DEADLINE), (True, "lease_lost"))
        self.assertEqual(self.client.get(made.id).state, "dropped")

    def test_a_worker_cut_off_knows_that_its_lease_is_gone(self) -> None:
        with Server() as own, Client(own.url) as client:
            running, reasons = threading.Event(), queue.SimpleQueue[Any]()

            def first_time_cut_off(job: Job[Any]) -> str:
                if job.attempt == 1:
                    running.set()
                    reasons.put((job.cancel_event.wait(DEADLINE), job.reason))
                return f"attempt {job.attempt}"

            impatient = Client(own.url, timeout=0.5)
            self.addCleanup(impatient.close)
            worker = Worker(impatient, lease=0.5, wait=1.0, grace=5.0)
            worker.job(TASK)(first_time_cut_off)
            with self.assertLogs("onceward", "WARNING"), worker:
                made = client.create(TASK)
                self.assertTrue(running.wait(DEADLINE))
                own.tell(signal.SIGSTOP)
                self.assertEqual(reasons.get(timeout=DEADLINE), (True, "lease_lost"))
                own.tell(signal.SIGCONT)
                until(client, made.id, "done")
            self.assertEqual(client.effect(made.id).result, f"attempt {client.get(made.id).attempt}")
            self.assertGreater(client.get(made.id).attempt, 1)

    def test_heartbeats_keep_a_job_that_takes_long(self) -> None:
        """Until another job, leased again and again for a third of that time, shows that its lease would have run out twice."""
        running, go_on = threading.Event(), threading.Event()

        def long(job: Job[Any]) -> int:
            running.set()
            go_on.wait(DEADLINE)
            return job.attempt

        with self.working(long, lease=KEPT):
            made = self.client.create(TASK)
            self.assertTrue(running.wait(DEADLINE))
            other = self.client.create(TASK)
            for attempt in range(1, 8):
                [lease] = self.client.lease([TASK], "loses it", lease=KEPT / 3, wait=DEADLINE)
                self.assertEqual((lease.record.id, lease.attempt), (other.id, attempt))
            self.client.fire(other.id, "drop")
            go_on.set()
            until(self.client, made.id, "done")
        self.assertEqual(self.client.effect(made.id).result, 1)

    def test_a_stopped_worker_lets_its_job_finish(self) -> None:
        running, go_on = threading.Event(), threading.Event()

        def long(job: Job[Any]) -> str | None:
            running.set()
            go_on.wait(DEADLINE)
            return job.reason

        with self.working(long) as worker:
            made = self.client.create(TASK)
            self.assertTrue(running.wait(DEADLINE))
            worker.stop()
            go_on.set()
        self.assertEqual(self.client.effect(made.id).result, "shutdown")

    def test_a_stopped_worker_gives_back_what_it_cannot_finish(self) -> None:
        running, go_on = threading.Event(), threading.Event()

        def deaf(job: Job[Any]) -> None:
            running.set()
            go_on.wait(DEADLINE)

        with self.working(deaf, grace=0.05):
            made = self.client.create(TASK)
            self.assertTrue(running.wait(DEADLINE))
        back = self.client.get(made.id)
        go_on.set()
        self.assertEqual((back.state, back.fields["yields"], back.fields["failures"]), ("waiting", 1, 0))
        self.client.fire(made.id, "drop")

    def test_it_says_how_it_begins_and_how_it_ends(self) -> None:
        running, go_on = threading.Event(), threading.Event()

        def handler(job: Job[Any]) -> str:
            if job.payload == "secret: fail":
                raise Fail("NO")
            if job.payload == "secret: hang":
                running.set()
                go_on.wait(DEADLINE)
            return "secret: done"

        with self.assertLogs("onceward", "INFO") as logs, self.working(handler, name="w", concurrency=2, grace=0.05):
            for ends in ("done", "dead"):
                payload = "secret: fail" if ends == "dead" else "secret: go"
                until(self.client, self.client.create(TASK, payload=payload).id, ends)
            hanging = self.client.create(TASK, payload="secret: hang")
            self.assertTrue(running.wait(DEADLINE))
        go_on.set()
        self.client.fire(hanging.id, "drop")
        said = [record.getMessage() for record in logs.records]
        self.assertEqual(
            said,
            [
                f"w works on {TASK} at {server.url}, 2 jobs at a time",
                "ending, as asked: what runs may finish within 0.05 s",
                "ended: 1 job committed, 1 failed, 1 given back",
            ],
        )

    def test_no_handler_and_two_handlers_are_mistakes(self) -> None:
        worker = Worker(server.url)
        self.addCleanup(worker.join)
        self.assertRaises(ValueError, worker.run)
        worker.job(TASK)(lambda job: None)
        self.assertRaises(ValueError, worker.job(TASK), lambda job: None)

    def test_a_lifecycle_that_is_not_there_ends_the_worker(self) -> None:
        worker = Worker(server.url)
        worker.job("no.such")(lambda job: None)
        with self.assertLogs("onceward", "ERROR"), self.assertRaisesRegex(Exception, "no_such_lifecycle"):
            worker.run(signals=False)


class Processes(unittest.TestCase):
    """The examples, as users run them."""

    def setUp(self) -> None:
        self.client = Client(server.url)
        self.addCleanup(self.client.close)

    def test_a_signal_ends_a_worker_cleanly(self) -> None:
        environment = os.environ | {"ONCEWARD_URL": server.url}
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            made = self.client.create("execution.job", payload={"words": "one two three"})
            run = [sys.executable, str(EXAMPLES / "worker.py")]
            # Under `nohup`, as some gates run, it would be ignored.
            process = subprocess.Popen(
                run,
                env=environment,
                preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
                stderr=subprocess.PIPE,
                text=True,
            )
            try:
                until(self.client, made.id, "SUCCEEDED")
                process.send_signal(number)
                _, said = process.communicate(timeout=DEADLINE)
                self.assertEqual(process.returncode, 0, number)
            finally:
                process.kill()
                process.wait()
            self.assertIn(f"works on execution.job at {server.url}, 4 jobs at a time", said)
            self.assertIn(f"ending, on {number.name}: what runs may finish within 10 s; a second signal", said)
            self.assertIn("ended: 1 job committed, 0 failed, 0 given back", said)
            self.assertEqual(self.client.effect(made.id).result, {"count": 3})

    def test_the_producer_makes_jobs_once(self) -> None:
        environment = os.environ | {"ONCEWARD_URL": server.url}
        run = [sys.executable, str(EXAMPLES / "producer.py"), "invoice-7"]
        first, again = (subprocess.run(run, env=environment, capture_output=True, text=True, check=True) for _ in range(2))
        self.assertEqual(first.stdout, again.stdout)
        self.assertEqual(self.client.get(first.stdout.strip()).lifecycle, "execution.job")
