"""Calls of producers, queries, streams, and the calls of a worker."""

from __future__ import annotations

import queue
import threading
import time
import unittest
from concurrent.futures import ThreadPoolExecutor

from onceward import (
    AlreadyCommittedError,
    Client,
    EventRequest,
    LeaseLostError,
    NewRecord,
    Problem,
    Record,
    RefusedError,
    Report,
    BatchResult,
    ReportResult,
    RetryableFailure,
    RetryPolicy,
    TerminalFailure,
    UnreachableError,
)

from .server_process import TASK, TEST_TIMEOUT, ServerProcess

server: ServerProcess


def setUpModule() -> None:
    global server
    server = ServerProcess()


def tearDownModule() -> None:
    server.close()


def record_of(result: ReportResult) -> Record:
    assert result.record is not None
    return result.record


def status_of(result: ReportResult) -> str:
    assert result.execution is not None
    return result.execution.status


class ProducerTest(unittest.TestCase):
    def setUp(self) -> None:
        self.client = Client(server.url)
        self.addCleanup(self.client.close)

    def test_created_record_can_be_read_with_payload_and_history(self) -> None:
        created = self.client.create(TASK, fields={"name": "with history"}, payload={"grüße": [1, None, "x"]})
        self.assertEqual((created.lifecycle, created.state, created.version), (TASK, "waiting", 1))
        self.assertEqual(self.client.get(created.id), created)
        self.assertEqual(self.client.payload_value(created.id), {"grüße": [1, None, "x"]})
        self.client.fire(created.id, "drop")
        events = [(entry.event, entry.state) for entry in self.client.history(created.id)]
        self.assertEqual(events, [("create", "waiting"), ("drop", "dropped")])

    def test_bytes_payload_is_stored_unchanged(self) -> None:
        created = self.client.create(TASK, payload=b"\xff\0\x01")
        self.assertEqual(self.client.payload(created.id), b"\xff\0\x01")

    def test_same_idempotency_key_returns_first_record(self) -> None:
        first = self.client.create(TASK, payload=1, idempotency_key="order 7")
        self.assertEqual(self.client.create(TASK, payload=1, idempotency_key="order 7").id, first.id)
        with self.assertRaises(RefusedError) as refused:
            self.client.create(TASK, payload=2, idempotency_key="order 7")
        self.assertEqual((refused.exception.status, refused.exception.code), (422, "idempotency_key_reused"))

    def test_idempotency_key_accepts_any_unicode_text(self) -> None:
        for key in ("count Müller", "12 € an hour", "数える"):
            first = self.client.create(TASK, payload=key, idempotency_key=key)
            self.assertEqual(self.client.create(TASK, payload=key, idempotency_key=key).id, first.id)
            # The batch sends the key in the body instead of a header.
            [repeated] = self.client.create_batch(TASK, [NewRecord(payload=key, idempotency_key=key)])
            assert isinstance(repeated, Record)
            self.assertEqual(repeated.id, first.id)

    def test_id_is_encoded_as_one_path_segment(self) -> None:
        created = self.client.create(TASK)
        for name in (f"{created.id}/history", f"{created.id}?", "../records"):
            with self.assertRaises(RefusedError) as refused:
                self.client.get(name)
            self.assertIn(refused.exception.status, (404, 422))

    def test_url_with_password_is_rejected_and_not_in_the_message(self) -> None:
        for url in ("http://me:secret@127.0.0.1:1", "me:secret@127.0.0.1", "ftp://me:secret@127.0.0.1"):
            with self.assertRaises(ValueError) as rejected:
                Client(url)
            self.assertNotIn("secret", str(rejected.exception))

    def test_duplicate_unique_key_returns_existing_record(self) -> None:
        first = self.client.create(TASK, fields={"name": "only one"})
        self.assertEqual(self.client.create(TASK, fields={"name": "only one"}).id, first.id)

    def test_batch_items_succeed_or_fail_on_their_own(self) -> None:
        wanted = [NewRecord(fields={"name": f"many {number}"}) for number in range(600)]
        wanted[7] = NewRecord(fields={"no such field": 1})
        created = self.client.create_batch(TASK, wanted)
        self.assertIsInstance(created[7], Problem)
        good = [each for each in created if isinstance(each, Record)]
        self.assertEqual([each.fields["name"] for each in good], [f"many {n}" for n in range(600) if n != 7])
        repeated = self.client.create_batch(TASK, [wanted[3]])
        self.assertEqual([each.id for each in repeated if isinstance(each, Record)], [good[3].id])
        fired = self.client.fire_batch([EventRequest(each.id, "drop") for each in good] + [EventRequest(good[0].id, "stop")])
        self.assertEqual([each.id for each in fired if isinstance(each, BatchResult)], [each.id for each in good])
        self.assertIsInstance(fired[-1], Problem)

    def test_records_iterates_over_all_pages(self) -> None:
        names = {f"listed {number}" for number in range(250)}
        self.client.create_batch(TASK, [NewRecord(fields={"name": name}) for name in names])
        found = {each.fields["name"] for each in self.client.records(TASK, state="waiting")}
        self.assertLessEqual(names, found)
        page = self.client.list(TASK, limit=2)
        self.assertEqual(len(page.records), 2)
        self.assertIsNotNone(page.next)

    def test_refusal_has_code_state_event_and_reason(self) -> None:
        created = self.client.create(TASK)
        self.client.fire(created.id, "drop")
        with self.assertRaises(RefusedError) as refused:
            self.client.fire(created.id, "drop")
        problem = refused.exception.problem
        self.assertEqual((problem.status, problem.code), (409, "wrong_state"))
        self.assertEqual((problem.state, problem.event), ("dropped", "drop"))
        self.assertTrue(problem.reason)
        with self.assertRaises(RefusedError) as stale:
            self.client.fire(self.client.create(TASK).id, "drop", version=7)
        self.assertEqual(stale.exception.code, "version_mismatch")
        with self.assertRaises(RefusedError) as missing:
            self.client.get("01890000-0000-7000-8000-000000000000")
        self.assertEqual(missing.exception.status, 404)

    def test_unreachable_server_raises_after_retry_timeout(self) -> None:
        with self.assertRaises(UnreachableError):
            Client("http://127.0.0.1:1", retry_policy=RetryPolicy(retry_timeout=0.1)).get("x")

    def test_client_is_thread_safe(self) -> None:
        with ThreadPoolExecutor(16) as threads:
            created = list(threads.map(lambda number: self.client.create(TASK, payload=number), range(200)))
        self.assertEqual(len({each.id for each in created}), 200)


class StreamTest(unittest.TestCase):
    def test_stream_returns_new_entries_and_resumes_after_seq(self) -> None:
        client = Client(server.url)
        self.addCleanup(client.close)
        created = client.create(TASK)
        with client.stream(after=0, record=created.id) as stream:
            entries = iter(stream)
            first = next(entries)
            self.assertEqual((first.record, first.event), (created.id, "create"))
            client.fire(created.id, "drop")
            self.assertEqual(next(entries).event, "drop")
        with client.stream(after=first.seq, record=created.id) as stream:
            self.assertEqual(next(iter(stream)).event, "drop")

    def test_close_from_another_thread_ends_stream(self) -> None:
        client = Client(server.url)
        self.addCleanup(client.close)
        stream = client.stream(after=0, record=client.create(TASK).id)
        seen, ended = threading.Event(), threading.Event()

        def read() -> None:
            for _ in stream:
                seen.set()
            ended.set()

        threading.Thread(target=read, daemon=True).start()
        self.assertTrue(seen.wait(TEST_TIMEOUT))
        stream.close()
        self.assertTrue(ended.wait(TEST_TIMEOUT))

    def test_reconnect_before_first_entry_misses_nothing(self) -> None:
        with ServerProcess() as own_server, Client(own_server.url) as client:
            client.create(TASK)
            received: queue.SimpleQueue[str | None] = queue.SimpleQueue()
            stream = client.stream()

            def read() -> None:
                for entry in stream:
                    received.put(entry.record)

            threading.Thread(target=read, daemon=True).start()
            deadline = time.monotonic() + TEST_TIMEOUT
            while stream.seq is None:
                # The server sends the start position of the stream; there are no entries yet.
                client.list(TASK)
                self.assertLess(time.monotonic(), deadline, "the server sent no start position")
            own_server.kill()
            own_server.start()
            created = [client.create(TASK).id for _ in range(2)]
            self.assertEqual([received.get(timeout=TEST_TIMEOUT) for _ in created], created)
            stream.close()

    def test_stream_continues_after_server_was_killed(self) -> None:
        with ServerProcess() as own_server, Client(own_server.url) as client:
            ids = [client.create(TASK).id for _ in range(3)]
            with client.stream(after=0) as stream:
                entries = iter(stream)
                seen = [next(entries).record for _ in range(3)]
                own_server.kill()
                own_server.start()
                ids.append(client.create(TASK).id)
                seen.append(next(entries).record)
            self.assertEqual(seen, ids)


class WorkerCallTest(unittest.TestCase):
    """The calls of a worker, without `Worker`."""

    def setUp(self) -> None:
        self.client = Client(server.url)
        self.addCleanup(self.client.close)
        self.client.fire_batch([EventRequest(record.id, "drop") for record in self.client.records(TASK, state="waiting")])

    def test_job_runs_from_lease_to_finish(self) -> None:
        created = self.client.create(TASK, payload="work")
        [lease] = self.client.lease([TASK], "by hand", start=False)
        self.assertEqual((lease.record.id, lease.attempt, lease.payload), (created.id, 1, "work"))
        self.assertAlmostEqual(lease.lease_duration, 30, places=3)
        self.assertEqual(status_of(self.client.start(lease.id, lease.token)), "IN_PROGRESS")
        self.assertFalse(self.client.heartbeat(lease.id, lease.token).stop)
        self.assertEqual(status_of(self.client.commit(lease.id, lease.token, {"answer": 42})), "COMMITTED")
        self.assertEqual(record_of(self.client.finish(lease.id, lease.token)).state, "done")
        self.assertEqual(self.client.effect(created.id).result, {"answer": 42})
        self.assertEqual([each.status for each in self.client.executions(created.id)], ["DONE"])

    def test_same_idempotency_key_leases_same_jobs(self) -> None:
        self.client.create_batch(TASK, [NewRecord(), NewRecord(), NewRecord()])
        first = self.client.lease([TASK], "by hand", max_jobs=2, idempotency_key="my lease")
        repeated = self.client.lease([TASK], "by hand", max_jobs=2, idempotency_key="my lease")
        self.assertEqual([each.id for each in first], [each.id for each in repeated])
        self.assertEqual(len(first), 2)
        # The leases are the same, so their remaining time does not grow.
        for lease, replayed in zip(first, repeated, strict=True):
            assert lease.expires_in is not None and replayed.expires_in is not None
            self.assertTrue(0 < replayed.expires_in <= lease.expires_in <= lease.lease_duration)

    def test_repeated_commit_is_applied_once(self) -> None:
        created = self.client.create(TASK)
        [lease] = self.client.lease([TASK], "by hand")
        first = self.client.commit(lease.id, lease.token, 1, finish=True)
        self.assertEqual(self.client.commit(lease.id, lease.token, 1, finish=True).record, first.record)
        self.assertEqual(self.client.effect(created.id).result, 1)

    def test_commit_with_lost_lease_is_refused(self) -> None:
        created = self.client.create(TASK)
        [lost] = self.client.lease([TASK], "too slow", lease=0.02)
        # Waits until the first lease has expired and the job is ready again.
        [second] = self.client.lease([TASK], "quicker", max_wait=TEST_TIMEOUT)
        self.assertEqual((second.record.id, second.attempt), (created.id, 2))
        with self.assertRaises(LeaseLostError):
            self.client.commit(lost.id, lost.token, "late", finish=True)
        self.client.commit(second.id, second.token, "in time", finish=True)
        with self.assertRaises(AlreadyCommittedError) as late:
            self.client.commit(lost.id, lost.token, "later still", finish=True)
        self.assertEqual(late.exception.committed_token, second.token)
        self.assertEqual(self.client.effect(created.id).result, "in time")

    def test_retryable_failure_and_yield_return_job_and_terminal_failure_ends_it(self) -> None:
        self.client.create(TASK)
        [lease] = self.client.lease([TASK], "by hand")
        self.assertEqual(record_of(self.client.fail(lease.id, lease.token, RetryableFailure("BUSY", "not now"))).state, "waiting")
        [lease] = self.client.lease([TASK], "by hand", max_wait=TEST_TIMEOUT)
        self.assertEqual(record_of(self.client.yield_(lease.id, lease.token)).state, "waiting")
        [lease] = self.client.lease([TASK], "by hand", max_wait=TEST_TIMEOUT)
        dead = record_of(self.client.fail(lease.id, lease.token, TerminalFailure("BROKEN", "never")))
        self.assertEqual((dead.state, dead.fields["code"], dead.fields["message"]), ("dead", "BROKEN", "never"))

    def test_batch_reports_succeed_or_fail_on_their_own(self) -> None:
        self.client.create_batch(TASK, [NewRecord(), NewRecord(), NewRecord()])
        leases = self.client.lease([TASK], "by hand", max_jobs=3)
        reports = [Report.commit(lease.id, lease.token, finish=True) for lease in leases]
        reports[1] = Report.commit(leases[1].id, leases[1].token + 1, finish=True)
        for return_records in (False, True):
            first, second, third = self.client.report_batch(reports, return_records=return_records)
            assert isinstance(first, BatchResult) and isinstance(third, BatchResult)
            self.assertEqual([each.state for each in (first, third)], ["done", "done"])
            self.assertEqual([each.id for each in (first, third)], [leases[0].record.id, leases[2].record.id])
            self.assertEqual(first.record is not None and first.execution is not None, return_records)
            assert isinstance(second, Problem)
            self.assertEqual(second.code, "invalid_input")
