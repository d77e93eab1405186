"""Answers that a server gives rarely: full, broken, late, lost. Another server stands between, which gives them when it should."""

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

from onceward import Client, Fail, Job, New, Problem, Record, Retry, Unreachable, Worker
from onceward.dialing import Call
from onceward.transport import Transport

from .between import Asked, Between, Play, Said, trouble
from .serving import DEADLINE, TASK, Server, until

server: Server

#: Longer than any test: a lease that is kept by nobody who counts it as fresh.
LONG = 3600.0


def setUpModule() -> None:
    global server
    server = Server()


def tearDownModule() -> None:
    server.close()


class Trouble(unittest.TestCase):
    def setUp(self) -> None:
        self.client = Client(server.url)
        self.addCleanup(self.client.close)

    @contextlib.contextmanager
    def working(self, play: Play, handler: Any, **options: Any) -> Iterator[Worker]:
        with Between(server.url, play) as between:
            worker = Worker(between.url, **{"wait": 5.0, "grace": 5.0} | options)
            worker.job(TASK)(handler)
            with worker:
                yield worker

    # A server that is full or broken for a moment

    def test_a_call_is_made_again(self) -> None:
        answers = [trouble(507, "store_full"), trouble(500, "internal"), trouble(429, "too_fast", retry_after_ms=1)]

        def play(asked: Asked) -> Said:
            return answers.pop() if answers else asked.pass_on()

        with Between(server.url, play) as between, Client(between.url) as client:
            self.assertEqual(client.create(TASK, fields={"name": "made at last"}).state, "waiting")
        self.assertEqual(answers, [])

    def test_an_event_of_a_record_that_is_gone(self) -> None:
        said = Said(200, json.dumps({"record": None, "spawned": ["x"]}).encode())
        with Between(None, lambda asked: said) as between, Client(between.url) as client:
            fired = client.fire("a", "b", once="fired before")
        self.assertEqual((fired.record, fired.spawned), (None, ("x",)))

    def test_a_worker_that_gets_no_jobs_for_a_moment_lives_on(self) -> None:
        answers = [trouble(501, "http_501"), trouble(507, "store_full"), trouble(500, "internal")]

        def play(asked: Asked) -> Said:
            return answers.pop() if asked.path == "/v1/leases" and answers else asked.pass_on()

        made = self.client.create(TASK)
        with self.assertLogs("onceward", "WARNING"), self.working(play, lambda job: "done all the same"):
            until(self.client, made.id, "done")
        self.assertEqual(answers, [])

    def test_a_payload_that_is_another_comes_to_no_handler(self) -> None:
        harmed = 2

        def play(asked: Asked) -> Said:
            nonlocal harmed
            said = asked.pass_on()
            if asked.path.endswith("/payload") and harmed > 0:
                harmed -= 1
                return Said(said.status, said.body.replace(b"x", b"y", 1), said.headers)
            return said

        text = "x" * 100_000
        with self.assertLogs("onceward", "WARNING"), self.working(play, lambda job: job.payload == text):
            made = self.client.create(TASK, payload=text)
            self.assertEqual(until(self.client, made.id, "done").attempt, 2)
        self.assertEqual(self.client.effect(made.id).result, True)

    def test_a_payload_that_cannot_be_had_for_now_costs_no_attempt(self) -> None:
        fetched = 0

        def play(asked: Asked) -> Said | None:
            nonlocal fetched
            if not asked.path.endswith("/payload"):
                return asked.pass_on()
            fetched += 1
            return asked.pass_on() if fetched > 1 else trouble(503, "overloaded")

        text = "x" * 100_000
        with Between(server.url, play) as between, Client(between.url, patience=0) as client:
            worker = Worker(client, wait=5.0, grace=5.0)
            worker.job("execution.job")(lambda job: job.payload == text)
            with worker:
                made = self.client.create("execution.job", payload=text, fields={"budget": 1})
                done = until(self.client, made.id, "SUCCEEDED")
        self.assertEqual((done.attempt, fetched), (2, 2), "given back once, with a budget of one")
        self.assertEqual(self.client.effect(made.id).result, True)

    def test_a_payload_that_is_not_there_fails_the_job(self) -> None:
        answers = [trouble(404, "not_found"), None]

        def play(asked: Asked) -> Said | None:
            return answers.pop() if asked.path.endswith("/payload") and answers else asked.pass_on()

        text = "x" * 100_000
        with Between(server.url, play) as between, Client(between.url, patience=0) as client:
            worker = Worker(client, wait=5.0, grace=5.0)
            worker.job(TASK)(lambda job: job.payload == text)
            with worker:
                done = until(self.client, self.client.create(TASK, payload=text).id, "done")
        self.assertEqual((done.attempt, done.fields["code"]), (3, "PAYLOAD_UNAVAILABLE"))

    def test_a_heartbeat_that_is_not_taken_for_a_moment_loses_no_lease(self) -> None:
        answers, beaten = [trouble(507, "store_full"), trouble(500, "internal")], threading.Event()

        def play(asked: Asked) -> Said:
            if not asked.is_heartbeat:
                return asked.pass_on()
            if answers:
                return answers.pop()
            said = asked.pass_on()
            beaten.set()
            return said

        def long(job: Job[Any]) -> Any:
            return [beaten.wait(DEADLINE), job.reason]

        with self.working(play, long, lease=3.0):
            made = self.client.create(TASK)
            self.assertEqual(until(self.client, made.id, "done").attempt, 1)
        self.assertEqual(self.client.effect(made.id).result, [True, None])

    def test_a_commit_that_is_not_taken_for_a_moment_lands(self) -> None:
        answers = [trouble(507, "store_full"), trouble(500, "internal"), None]

        def play(asked: Asked) -> Said | None:
            return answers.pop() if asked.path.endswith("/commit") and answers else asked.pass_on()

        with self.working(play, lambda job: "landed"):
            made = self.client.create(TASK)
            self.assertEqual(until(self.client, made.id, "done").attempt, 1)
        self.assertEqual((self.client.effect(made.id).result, answers), ("landed", []))

    def test_a_commit_that_the_server_breaks_at_is_given_up(self) -> None:
        def play(asked: Asked) -> Said:
            if asked.path.endswith(".1/commit"):
                return trouble(500, "internal")
            return asked.pass_on()

        with self.assertLogs("onceward", "ERROR"), self.working(play, lambda job: job.attempt, lease=LONG):
            made = self.client.create(TASK)
            done = until(self.client, made.id, "done")
        self.assertEqual((done.fields["failures"], done.fields["code"]), (1, "internal"))
        self.assertEqual(self.client.effect(made.id).result, 2)

    # Leases that are older than they look

    def test_jobs_of_a_lost_answer_begin_with_a_heartbeat(self) -> None:
        order: list[str] = []
        lost: list[Said] = []

        def play(asked: Asked) -> Said | None:
            said = asked.pass_on()
            if asked.path == "/v1/leases" and said.json["executions"] and not lost:
                lost.append(said)
                return None
            if asked.is_heartbeat:
                order.append("heartbeat")
            return said

        def handler(job: Job[Any]) -> int:
            order.append("handler")
            return job.attempt

        with self.assertLogs("onceward", "WARNING"), self.working(play, handler, lease=LONG):
            made = self.client.create(TASK)
            until(self.client, made.id, "done")
        self.assertEqual((order, self.client.effect(made.id).result), (["heartbeat", "handler"], 1))

    def test_jobs_of_a_lost_answer_that_moved_away_are_not_begun(self) -> None:
        lost, begun = threading.Event(), queue.SimpleQueue[str]()

        def play(asked: Asked) -> Said | None:
            said = asked.pass_on()
            if asked.path == "/v1/leases" and said.json["executions"] and not lost.is_set():
                self.client.fire(said.json["executions"][0]["record"]["id"], "drop")
                lost.set()
                # As a server without what became of it since would say.
                answers.append(said)
                return None
            return answers.pop() if asked.path == "/v1/leases" and answers else said

        answers: list[Said] = []
        with self.assertLogs("onceward", "WARNING"), self.working(play, lambda job: begun.put(job.id), lease=LONG):
            dropped = self.client.create(TASK)
            self.assertTrue(lost.wait(DEADLINE))
            other = self.client.create(TASK)
            until(self.client, other.id, "done")
        self.assertEqual((self.client.get(dropped.id).state, begun.get(), begun.empty()), ("dropped", other.id, True))

    def test_a_job_whose_lease_is_over_is_not_begun(self) -> None:
        begun: list[int] = []

        def handler(job: Job[Any]) -> None:
            begun.append(job.attempt)

        with self.assertLogs("onceward", "WARNING"), self.working(first_left(0), handler, lease=1.0):
            until(self.client, self.client.create(TASK).id, "done")
        self.assertEqual(begun, [2])

    def test_hearts_beat_by_what_is_left_of_a_lease(self) -> None:
        beaten = threading.Event()

        def play(asked: Asked) -> Said | None:
            said = first_left_of(asked)
            if asked.is_heartbeat:
                beaten.set()
            return said

        first_left_of = first_left(900)
        with self.working(play, lambda job: beaten.wait(DEADLINE), lease=LONG):
            made = self.client.create(TASK)
            until(self.client, made.id, "done")
        self.assertEqual(self.client.effect(made.id).result, True)

    # Waits

    def test_hearts_do_not_storm_a_server_in_trouble(self) -> None:
        for more, most in ({}, 9), ({"retry_after_ms": 60_000}, 4):
            beats: list[str] = []
            reasons: queue.SimpleQueue[Any] = queue.SimpleQueue()

            def play(asked: Asked, beats: list[str] = beats, more: dict[str, Any] = more) -> Said:
                if asked.is_heartbeat:
                    beats.append(asked.path)
                    return trouble(503, "overloaded", **more)
                return asked.pass_on()

            def long(job: Job[Any], reasons: queue.SimpleQueue[Any] = reasons) -> None:
                if job.attempt == 1:
                    reasons.put((job.cancel_event.wait(DEADLINE), job.reason))

            with self.subTest(more), self.assertLogs("onceward", "WARNING"), self.working(play, long, lease=1.5):
                made = self.client.create(TASK)
                self.assertEqual(reasons.get(timeout=DEADLINE), (True, "lease_lost"))
                counted = len(beats)
                until(self.client, made.id, "done")
                self.assertLessEqual(counted, most)
                self.assertGreaterEqual(counted, 2)

    def test_one_call_beats_the_hearts_of_all_jobs(self) -> None:
        beats: queue.SimpleQueue[int] = queue.SimpleQueue()
        go_on = threading.Event()

        def play(asked: Asked) -> Said:
            if asked.is_heartbeat:
                beats.put(len(asked.json["reports"]) if asked.path.endswith("/batch") else 1)
            return asked.pass_on()

        made = self.client.create_many(TASK, [New() for _ in range(20)])
        with self.working(play, lambda job: go_on.wait(DEADLINE), lease=6.0, concurrency=20):
            self.assertEqual(beats.get(timeout=DEADLINE), 20)
            go_on.set()
            for each in made:
                assert isinstance(each, Record)
                until(self.client, each.id, "done")

    def test_a_server_that_asks_to_wait_is_given_the_time(self) -> None:
        calls: list[float] = []

        def play(asked: Asked) -> Said:
            if asked.path == "/v1/leases":
                calls.append(time.monotonic())
                if len(calls) == 1:
                    return Said(503, b"busy", {"Retry-After": "1"})
            return asked.pass_on()

        with self.assertLogs("onceward", "WARNING"), self.working(play, lambda job: None):
            until(self.client, self.client.create(TASK).id, "done")
        self.assertGreaterEqual(calls[1] - calls[0], 1.0)

    # What the server does not take

    def test_a_result_that_is_too_deep_fails_the_job(self) -> None:
        deep: Any = []
        for _ in range(200):
            deep = [deep]

        def by_hand(job: Job[Any]) -> None:
            job.commit(deep)

        for handler in (lambda job: deep, by_hand):
            with self.working(Asked.pass_on, handler, lease=LONG):
                dead = until(self.client, self.client.create(TASK).id, "dead")
            self.assertEqual((dead.attempt, dead.fields["code"]), (1, "BAD_RESULT"))

    def test_a_failure_is_told_whatever_is_in_its_words(self) -> None:
        def half(job: Job[Any]) -> None:
            raise Fail("BROKEN", "half a smile: \ud83d")

        with self.working(Asked.pass_on, half, lease=LONG):
            dead = until(self.client, self.client.create(TASK).id, "dead")
        self.assertEqual((dead.fields["code"], dead.fields["message"]), ("BROKEN", "half a smile: ?"))

    def test_a_failure_that_is_not_taken_is_told_plainly(self) -> None:
        answers = [trouble(422, "bad_input")]

        def play(asked: Asked) -> Said:
            return answers.pop() if asked.path.endswith("/fail") and answers else asked.pass_on()

        def fails(job: Job[Any]) -> None:
            raise Fail("BROKEN", "in words that nobody likes")

        with self.assertLogs("onceward", "ERROR"), self.working(play, fails, lease=LONG):
            dead = until(self.client, self.client.create(TASK).id, "dead")
        self.assertEqual((dead.attempt, dead.fields["code"]), (1, "BROKEN"))
        self.assertNotIn("likes", dead.fields["message"])

    # Ends

    def test_many_places_are_filled_by_several_calls(self) -> None:
        asked_for: queue.SimpleQueue[int] = queue.SimpleQueue()

        def play(asked: Asked) -> Said:
            if asked.path == "/v1/leases":
                asked_for.put(asked.json["max"])
            return asked.pass_on()

        with self.working(play, lambda job: None, concurrency=1001):
            until(self.client, self.client.create(TASK).id, "done")
        self.assertLessEqual(asked_for.get(), 1000)

    def test_jobs_that_come_too_late_are_given_back_all_at_once(self) -> None:
        taken, together = threading.Event(), threading.Barrier(3)

        def play(asked: Asked) -> Said | None:
            if asked.path.endswith("/yield"):
                together.wait(DEADLINE)
            said = asked.pass_on()
            if asked.path == "/v1/leases" and said.json["executions"] and not taken.is_set():
                taken.set()
                stopped.wait(DEADLINE)
            return said

        stopped = threading.Event()
        made = self.client.create_many(TASK, [New(), New(), New()])
        with self.working(play, lambda job: None, concurrency=3) as worker:
            self.assertTrue(taken.wait(DEADLINE))
            worker.stop()
            stopped.set()
        for each in made:
            assert isinstance(each, Record)
            back = self.client.get(each.id)
            self.assertEqual((back.state, back.fields["yields"]), ("waiting", 1))
            self.client.fire(each.id, "drop")

    def test_a_dead_connection_is_not_followed_by_another(self) -> None:
        together, silent, end = threading.Barrier(2), threading.Event(), threading.Event()
        old: set[int] = set()
        hung: list[int] = []

        def play(asked: Asked) -> Said:
            _, port = asked.line.getpeername()
            if not silent.is_set():
                old.add(port)
                together.wait(DEADLINE)
            elif port in old:
                hung.append(port)
                end.wait(DEADLINE)
            return asked.pass_on()

        with Between(server.url, play) as between, Client(between.url, timeout=1.0) as client:
            with ThreadPoolExecutor(2) as threads:
                list(threads.map(lambda _: client.list(TASK), range(2)))
            silent.set()
            client.list(TASK)
            end.set()
        self.assertEqual((len(old), len(hung)), (2, 1))

    def test_connecting_can_be_given_up(self) -> None:
        with socket.socket() as deaf:
            deaf.bind(("127.0.0.1", 0))
            deaf.listen(0)
            address = deaf.getsockname()
            with contextlib.ExitStack() as waiting:
                # Whoever comes now gets no answer at all: there is no room in the line.
                for _ in range(4):
                    sock = waiting.enter_context(socket.socket())
                    sock.setblocking(False)
                    sock.connect_ex(address)
                begun, ended = threading.Event(), queue.SimpleQueue[str]()

                class Told(Call):
                    def begin(self, sock: socket.socket | None) -> None:
                        super().begin(sock)
                        begun.set()

                call = Told()
                transport = Transport(f"http://127.0.0.1:{address[1]}", None, connecting=LONG)

                def ask() -> None:
                    try:
                        transport.send("GET", "/", timeout=LONG, call=call)
                    except Unreachable:
                        ended.put("given up")

                threading.Thread(target=ask, daemon=True).start()
                self.assertTrue(begun.wait(DEADLINE))
                call.abort()
                self.assertEqual(ended.get(timeout=DEADLINE), "given up")


class Streams(unittest.TestCase):
    def test_nothing_is_missed_before_the_first_entry_and_nothing_told_twice(self) -> None:
        asked_for: list[str | None] = []

        def play(asked: Asked) -> Said:
            asked_for.append(asked.headers.get("Last-Event-ID"))
            said = [b"id: 7\n\n", entries(8), b": still here\n\n", entries(8, 9), entries(10)[:-9], entries(10)]
            return Said(200, said[len(asked_for) - 1], {"Content-Type": "text/event-stream"})

        with Between(None, play) as between, Client(between.url) as client, client.stream() as stream:
            told = iter(stream)
            self.assertEqual([next(told).seq for _ in range(3)], [8, 9, 10])
        self.assertEqual(asked_for, [None, "7", "8", "8", "9", "9"])

    def test_a_full_server_does_not_end_it(self) -> None:
        answers = [Said(200, entries(1), {"Content-Type": "text/event-stream"}), trouble(507, "store_full"), trouble(500, "internal")]
        with Between(None, lambda asked: answers.pop()) as between, Client(between.url) as client, client.stream() as stream:
            self.assertEqual(next(iter(stream)).seq, 1)


def entries(*places: int) -> bytes:
    entry = {"record": None, "version": 1, "at": "2026-11-16T12:00:00Z", "event": "create"}
    return "".join(f"id: {seq}\nevent: entry\ndata: {json.dumps({**entry, 'seq': seq})}\n\n" for seq in places).encode()


def first_left(milliseconds: int) -> Play:
    """Says of the first job that so much is left of its lease."""
    told: list[int] = []

    def play(asked: Asked) -> Said:
        said = asked.pass_on()
        if asked.path == "/v1/leases" and not told and (found := said.json)["executions"]:
            told.append(milliseconds)
            found["executions"][0]["expires_in_ms"] = milliseconds
            return said.with_json(found)
        return said

    return play
