"""The server dies under load, again and again: nothing that it has acknowledged is lost, and no effect lands twice."""

from __future__ import annotations

import logging
import os
import random
import threading
import unittest
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from onceward import Client, Job, Worker

from .serving import DEADLINE, TASK, Server

JOBS, KILLS, PRODUCERS = 300, 3, 4


class Killed(unittest.TestCase):
    def test_nothing_acknowledged_is_lost_and_no_effect_lands_twice(self) -> None:
        seed = int(os.environ.get("ONCEWARD_SEED") or random.randrange(1 << 32))
        chance = random.Random(seed)
        print(f"seed {seed}")
        logging.getLogger("onceward").setLevel(logging.CRITICAL)
        self.addCleanup(logging.getLogger("onceward").setLevel, logging.NOTSET)
        # Killed when so many jobs have been acknowledged or worked on: whatever is under way then is hit.
        steps = Steps(sorted(chance.sample(range(1, 2 * JOBS), KILLS)))
        with Server() as server, Client(server.url, timeout=5.0, patience=DEADLINE) as client:
            worker = Worker(Client(server.url, timeout=5.0), concurrency=8, lease=2.0, wait=1.0)

            @worker.job(TASK)
            def work(job: Job[Any]) -> Any:
                steps.one()
                return job.payload

            def produce(number: int) -> str:
                made = client.create(TASK, payload=number)
                steps.one()
                return made.id

            with worker, ThreadPoolExecutor(PRODUCERS) as producers:
                acknowledged = producers.map(produce, range(JOBS))
                for at in steps.kills:
                    steps.reach(at)
                    server.kill()
                    server.start()
                made = list(acknowledged)
                effects: Counter[str] = Counter()
                ends: Counter[str] = Counter()
                with client.stream(after=0, lifecycle=TASK) as stream:
                    timer = threading.Timer(2 * DEADLINE, stream.close)
                    timer.start()
                    for entry in stream:
                        effects.update([entry.record] if entry.record and "effect" in entry.raw else [])
                        ends.update([entry.record] if entry.record and entry.state == "done" else [])
                        if len(ends) == JOBS:
                            break
                    timer.cancel()
            self.assertEqual(len(set(made)), JOBS)
            self.assertEqual({each.id for each in client.records(TASK)}, set(made), f"seed {seed}")
            self.assertEqual(effects, Counter(made), f"seed {seed}")
            self.assertEqual(ends, Counter(made), f"seed {seed}")
            for number, record in enumerate(made):
                self.assertEqual(client.effect(record).result, number, f"seed {seed}")
            server.verify()


class Steps:
    """Counts what happens, and lets one wait for a count."""

    def __init__(self, kills: list[int]) -> None:
        self.kills = kills
        self._count = 0
        self._change = threading.Condition()

    def one(self) -> None:
        with self._change:
            self._count += 1
            self._change.notify_all()

    def reach(self, count: int) -> None:
        with self._change:
            assert self._change.wait_for(lambda: self._count >= count, DEADLINE), f"{self._count} of {count} steps"
