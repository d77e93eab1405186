"""What producers and lookers do, and what workers do by hand."""

from __future__ import annotations

import queue
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from onceward import (
    AlreadyCommitted,
    Client,
    Event,
    Fail,
    LeaseLost,
    New,
    Problem,
    Record,
    Refused,
    Report,
    Reported,
    Retry,
    Unreachable,
)

from .serving import DEADLINE, TASK, Server

server: Server


def setUpModule() -> None:
    global server
    server = Server()


def tearDownModule() -> None:
    server.close()


def record_of(reported: Reported) -> Record:
    assert reported.record is not None
    return reported.record


def status_of(reported: Reported) -> str:
    assert reported.execution is not None
    return reported.execution.status


class Producers(unittest.TestCase):
    def setUp(self) -> None:
        self.client = Client(server.url)
        self.addCleanup(self.client.close)

    def test_a_record_is_made_found_and_told_of(self) -> None:
        made = self.client.create(TASK, fields={"name": "told of"}, payload={"grüße": [1, None, "x"]})
        self.assertEqual((made.lifecycle, made.state, made.version), (TASK, "waiting", 1))
        self.assertEqual(self.client.get(made.id), made)
        self.assertEqual(self.client.payload_value(made.id), {"grüße": [1, None, "x"]})
        self.client.fire(made.id, "drop")
        events = [(entry.event, entry.state) for entry in self.client.history(made.id)]
        self.assertEqual(events, [("create", "waiting"), ("drop", "dropped")])

    def test_bytes_are_a_payload(self) -> None:
        made = self.client.create(TASK, payload=b"\xff\0\x01")
        self.assertEqual(self.client.payload(made.id), b"\xff\0\x01")

    def test_the_same_key_makes_no_second_record(self) -> None:
        first = self.client.create(TASK, payload=1, once="order 7")
        self.assertEqual(self.client.create(TASK, payload=1, once="order 7").id, first.id)
        with self.assertRaises(Refused) as refused:
            self.client.create(TASK, payload=2, once="order 7")
        self.assertEqual((refused.exception.status, refused.exception.code), (422, "key_reused"))

    def test_a_key_may_have_any_letters(self) -> None:
        for once in ("count Müller", "12 € an hour", "数える"):
            first = self.client.create(TASK, payload=once, once=once)
            self.assertEqual(self.client.create(TASK, payload=once, once=once).id, first.id)
            # By its letters, not by how they were written on the way.
            [again] = self.client.create_many(TASK, [New(payload=once, once=once)])
            assert isinstance(again, Record)
            self.assertEqual(again.id, first.id)

    def test_an_id_is_one_part_of_a_path(self) -> None:
        made = self.client.create(TASK)
        for name in (f"{made.id}/history", f"{made.id}?", "../records"):
            with self.assertRaises(Refused) as refused:
                self.client.get(name)
            self.assertIn(refused.exception.status, (404, 422))

    def test_a_url_with_a_password_is_not_taken_and_not_shown(self) -> None:
        for url in ("http://me:secret@127.0.0.1:1", "me:secret@127.0.0.1", "ftp://me:secret@127.0.0.1"):
            with self.assertRaises(ValueError) as mistake:
                Client(url)
            self.assertNotIn("secret", str(mistake.exception))

    def test_a_unique_name_answers_with_its_holder(self) -> None:
        first = self.client.create(TASK, fields={"name": "only one"})
        self.assertEqual(self.client.create(TASK, fields={"name": "only one"}).id, first.id)

    def test_many_are_made_each_on_its_own(self) -> None:
        wanted = [New(fields={"name": f"many {number}"}) for number in range(600)]
        wanted[7] = New(fields={"no such field": 1})
        made = self.client.create_many(TASK, wanted)
        self.assertIsInstance(made[7], Problem)
        good = [each for each in made if isinstance(each, Record)]
        self.assertEqual([each.fields["name"] for each in good], [f"many {n}" for n in range(600) if n != 7])
        again = self.client.create_many(TASK, [wanted[3]])
        self.assertEqual([each.id for each in again if isinstance(each, Record)], [good[3].id])
        fired = self.client.fire_many([Event(each.id, "drop") for each in good] + [Event(good[0].id, "stop")])
        self.assertEqual(sum(not isinstance(each, Problem) for each in fired), len(good))
        self.assertIsInstance(fired[-1], Problem)

    def test_all_pages_of_a_list(self) -> None:
        names = {f"listed {number}" for number in range(250)}
        self.client.create_many(TASK, [New(fields={"name": name}) for name in names])
        found = {each.fields["name"] for each in self.client.records(TASK, state="waiting")}
        self.assertLessEqual(names, found)
        page = self.client.list(TASK, limit=2)
        self.assertEqual(len(page.records), 2)
        self.assertIsNotNone(page.next)

    def test_a_refusal_says_why(self) -> None:
        made = self.client.create(TASK)
        self.client.fire(made.id, "drop")
        with self.assertRaises(Refused) as refused:
            self.client.fire(made.id, "drop")
        problem = refused.exception.problem
        self.assertEqual((problem.status, problem.code), (409, "wrong_state"))
        self.assertEqual((problem.state, problem.event), ("dropped", "drop"))
        self.assertTrue(problem.reason)
        with self.assertRaises(Refused) as stale:
            self.client.fire(self.client.create(TASK).id, "drop", version=7)
        self.assertEqual(stale.exception.code, "version_mismatch")
        with self.assertRaises(Refused) as missing:
            self.client.get("01890000-0000-7000-8000-000000000000")
        self.assertEqual(missing.exception.status, 404)

    def test_nobody_there(self) -> None:
        with self.assertRaises(Unreachable):
            Client("http://127.0.0.1:1", patience=0.1).get("x")

    def test_threads_share_a_client(self) -> None:
        with ThreadPoolExecutor(16) as threads:
            made = list(threads.map(lambda number: self.client.create(TASK, payload=number), range(200)))
        self.assertEqual(len({each.id for each in made}), 200)


class Streams(unittest.TestCase):
    def test_the_log_is_told_and_read_on(self) -> None:
        client = Client(server.url)
        self.addCleanup(client.close)
        made = client.create(TASK)
        with client.stream(after=0, record=made.id) as stream:
            entries = iter(stream)
            first = next(entries)
            self.assertEqual((first.record, first.event), (made.id, "create"))
            client.fire(made.id, "drop")
            self.assertEqual(next(entries).event, "drop")
        with client.stream(after=first.seq, record=made.id) as stream:
            self.assertEqual(next(iter(stream)).event, "drop")

    def test_another_thread_ends_it(self) -> None:
        client = Client(server.url)
        self.addCleanup(client.close)
        stream = client.stream(after=0, record=client.create(TASK).id)
        seen, ended = threading.Event(), threading.Event()

        def read() -> None:
            for _ in stream:
                seen.set()
            ended.set()

        threading.Thread(target=read, daemon=True).start()
        self.assertTrue(seen.wait(DEADLINE))
        stream.close()
        self.assertTrue(ended.wait(DEADLINE))

    def test_nothing_is_missed_before_the_first_entry(self) -> None:
        with Server() as own, Client(own.url) as client:
            client.create(TASK)
            told: queue.SimpleQueue[str | None] = queue.SimpleQueue()
            stream = client.stream()

            def read() -> None:
                for entry in stream:
                    told.put(entry.record)

            threading.Thread(target=read, daemon=True).start()
            until = time.monotonic() + DEADLINE
            while stream.seq is None:
                # The server says where a stream begins; it has nothing else to tell yet.
                client.list(TASK)
                self.assertLess(time.monotonic(), until, "the server has named no place")
            own.kill()
            own.start()
            made = [client.create(TASK).id for _ in range(2)]
            self.assertEqual([told.get(timeout=DEADLINE) for _ in made], made)
            stream.close()

    def test_it_goes_on_after_the_server_was_killed(self) -> None:
        with Server() as own, Client(own.url) as client:
            ids = [client.create(TASK).id for _ in range(3)]
            with client.stream(after=0) as stream:
                entries = iter(stream)
                seen = [next(entries).record for _ in range(3)]
                own.kill()
                own.start()
                ids.append(client.create(TASK).id)
                seen.append(next(entries).record)
            self.assertEqual(seen, ids)


class ByHand(unittest.TestCase):
    """A worker without `Worker`."""

    def setUp(self) -> None:
        self.client = Client(server.url)
        self.addCleanup(self.client.close)
        self.client.fire_many([Event(record.id, "drop") for record in self.client.records(TASK, state="waiting")])

    def test_a_whole_life_step_by_step(self) -> None:
        made = self.client.create(TASK, payload="work")
        [lease] = self.client.lease([TASK], "by hand", start=False)
        self.assertEqual((lease.record.id, lease.attempt, lease.payload), (made.id, 1, "work"))
        self.assertAlmostEqual(lease.seconds, 30, places=3)
        self.assertEqual(status_of(self.client.start(lease.id, lease.token)), "IN_PROGRESS")
        self.assertFalse(self.client.heartbeat(lease.id, lease.token).stop)
        self.assertEqual(status_of(self.client.commit(lease.id, lease.token, {"answer": 42})), "COMMITTED")
        self.assertEqual(record_of(self.client.finish(lease.id, lease.token)).state, "done")
        self.assertEqual(self.client.effect(made.id).result, {"answer": 42})
        self.assertEqual([each.status for each in self.client.executions(made.id)], ["DONE"])

    def test_the_same_key_leases_the_same_jobs(self) -> None:
        self.client.create_many(TASK, [New(), New(), New()])
        first = self.client.lease([TASK], "by hand", max=2, once="my lease")
        again = self.client.lease([TASK], "by hand", max=2, once="my lease")
        self.assertEqual([each.id for each in first], [each.id for each in again])
        self.assertEqual(len(first), 2)
        # The same leases, so no more is left of them.
        for each, later in zip(first, again, strict=True):
            assert each.expires_in is not None and later.expires_in is not None
            self.assertTrue(0 < later.expires_in <= each.expires_in <= each.seconds)

    def test_a_commit_told_twice_lands_once(self) -> None:
        made = self.client.create(TASK)
        [lease] = self.client.lease([TASK], "by hand")
        first = self.client.commit(lease.id, lease.token, 1, finish=True)
        self.assertEqual(self.client.commit(lease.id, lease.token, 1, finish=True).record, first.record)
        self.assertEqual(self.client.effect(made.id).result, 1)

    def test_a_lost_lease_commits_nothing(self) -> None:
        made = self.client.create(TASK)
        [lost] = self.client.lease([TASK], "too slow", lease=0.02)
        # Waits until the first lease has run out and the job is to be had again.
        [taken] = self.client.lease([TASK], "quicker", wait=DEADLINE)
        self.assertEqual((taken.record.id, taken.attempt), (made.id, 2))
        with self.assertRaises(LeaseLost):
            self.client.commit(lost.id, lost.token, "late", finish=True)
        self.client.commit(taken.id, taken.token, "in time", finish=True)
        with self.assertRaises(AlreadyCommitted) as late:
            self.client.commit(lost.id, lost.token, "later still", finish=True)
        self.assertEqual(late.exception.committed, taken.token)
        self.assertEqual(self.client.effect(made.id).result, "in time")

    def test_failures_retryable_and_not(self) -> None:
        self.client.create(TASK)
        [lease] = self.client.lease([TASK], "by hand")
        self.assertEqual(record_of(self.client.fail(lease.id, lease.token, Retry("BUSY", "not now"))).state, "waiting")
        [lease] = self.client.lease([TASK], "by hand", wait=DEADLINE)
        self.assertEqual(record_of(self.client.yield_(lease.id, lease.token)).state, "waiting")
        [lease] = self.client.lease([TASK], "by hand", wait=DEADLINE)
        dead = record_of(self.client.fail(lease.id, lease.token, Fail("BROKEN", "never")))
        self.assertEqual((dead.state, dead.fields["code"], dead.fields["message"]), ("dead", "BROKEN", "never"))

    def test_many_reports_each_on_its_own(self) -> None:
        self.client.create_many(TASK, [New(), New(), New()])
        leases = self.client.lease([TASK], "by hand", max=3)
        reports = [Report.commit(each.id, each.token, finish=True) for each in leases]
        reports[1] = Report.commit(leases[1].id, leases[1].token + 1, finish=True)
        first, second, third = self.client.report_many(reports)
        assert isinstance(first, Reported) and isinstance(third, Reported)
        self.assertEqual([record_of(each).state for each in (first, third)], ["done", "done"])
        assert isinstance(second, Problem)
        self.assertEqual(second.code, "bad_input")
