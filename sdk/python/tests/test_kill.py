"""Kills the server under load: no acknowledged job is lost, and no effect is committed twice."""

from __future__ import annotations

import logging
import os
import random
import threading
import unittest
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from onceward import Client, Job, RetryPolicy, Worker

from .server_process import TASK, TEST_TIMEOUT, ServerProcess

JOBS, KILLS, PRODUCERS = 300, 3, 4


class KillTest(unittest.TestCase):
    def test_killed_server_loses_no_acknowledged_job_and_commits_each_effect_once(self) -> None:
        seed = int(os.environ.get("ONCEWARD_SEED") or random.randrange(1 << 32))
        rng = random.Random(seed)
        print(f"seed {seed}")
        logging.getLogger("onceward").setLevel(logging.CRITICAL)
        self.addCleanup(logging.getLogger("onceward").setLevel, logging.NOTSET)
        # A step is an acknowledged create or a started handler. Kills at random steps hit all kinds of requests in flight.
        step_counter = StepCounter()
        kill_steps = sorted(rng.sample(range(1, 2 * JOBS), KILLS))
        producer_policy = RetryPolicy(response_timeout=5.0, retry_timeout=TEST_TIMEOUT)
        with ServerProcess() as server, Client(server.url, retry_policy=producer_policy) as client:
            worker_client = Client(server.url, retry_policy=RetryPolicy(response_timeout=5.0))
            worker = Worker(worker_client, concurrency=8, lease=2.0, max_wait=1.0)

            @worker.job(TASK)
            def echo(job: Job[Any]) -> Any:
                step_counter.increment()
                return job.payload

            def produce(number: int) -> str:
                record = client.create(TASK, payload=number)
                step_counter.increment()
                return record.id

            with worker, ThreadPoolExecutor(PRODUCERS) as producers:
                acknowledged = producers.map(produce, range(JOBS))
                for step in kill_steps:
                    step_counter.wait_for(step)
                    server.kill()
                    server.start()
                created = list(acknowledged)
                effects: Counter[str] = Counter()
                ends: Counter[str] = Counter()
                with client.stream(after=0, lifecycle=TASK) as stream:
                    timer = threading.Timer(2 * TEST_TIMEOUT, stream.close)
                    timer.start()
                    for entry in stream:
                        effects.update([entry.record] if entry.record and "effect" in entry.raw else [])
                        ends.update([entry.record] if entry.record and entry.state == "done" else [])
                        if len(ends) == JOBS:
                            break
                    timer.cancel()
            self.assertEqual(len(set(created)), JOBS)
            self.assertEqual({record.id for record in client.records(TASK)}, set(created), f"seed {seed}")
            self.assertEqual(effects, Counter(created), f"seed {seed}")
            self.assertEqual(ends, Counter(created), f"seed {seed}")
            for number, record_id in enumerate(created):
                self.assertEqual(client.effect(record_id).result, number, f"seed {seed}")
            server.verify()


class StepCounter:
    """Counts steps and lets a thread wait for a count."""

    def __init__(self) -> None:
        self._count = 0
        self._changed = threading.Condition()

    def increment(self) -> None:
        with self._changed:
            self._count += 1
            self._changed.notify_all()

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._count >= count, TEST_TIMEOUT), f"{self._count} of {count} steps"
