"""A server that asks for keys: a producer of its own, and a worker that sees what it holds and no more."""

from __future__ import annotations

import unittest
from typing import Any

from onceward import Client, Job, Refused, Worker

from .serving import TASK, Server, until


class Keys(unittest.TestCase):
    def test_each_key_does_what_it_is_for(self) -> None:
        with Server() as server:
            server.kill()
            shop, rival = server.key("shop", "producer"), server.key("rival", "producer")
            hand = server.key("hand", "worker")
            server.start()
            with Client(server.url) as nobody, self.assertRaises(Refused) as refused:
                nobody.create(TASK)
            self.assertEqual(refused.exception.status, 401)
            text = "x" * 100_000
            with Client(server.url, key=shop) as producer, Client(server.url, key=rival) as other:
                made = producer.create(TASK, payload=text)
                with self.assertRaises(Refused) as hidden:
                    other.get(made.id)
                self.assertEqual(hidden.exception.status, 404)
                worker = Worker(Client(server.url, key=hand), wait=1.0)
                self.addCleanup(worker.client.close)

                @worker.job(TASK)
                def measure(job: Job[Any]) -> int:
                    return len(job.payload)

                with worker:
                    until(producer, made.id, "done")
                self.assertEqual(producer.effect(made.id).result, len(text))
                with self.assertRaises(Refused) as over:
                    worker.client.get(made.id)
                self.assertEqual(over.exception.status, 404)
