"""Producers and a worker with API keys of different roles."""

from __future__ import annotations

import unittest
from typing import Any

from onceward import Client, Job, RefusedError, Worker

from .server_process import TASK, ServerProcess, wait_for_state


class ApiKeyTest(unittest.TestCase):
    def test_each_api_key_allows_only_its_role(self) -> None:
        with ServerProcess() as server:
            server.kill()
            server.create_api_key("ops", "operator")
            shop_key, rival_key = server.create_api_key("shop", "producer"), server.create_api_key("rival", "producer")
            worker_key = server.create_api_key("hand", "worker")
            server.start()
            with Client(server.url) as anonymous, self.assertRaises(RefusedError) as refused:
                anonymous.create(TASK)
            self.assertEqual(refused.exception.status, 401)
            self.assertIn("no API key was given", str(refused.exception))
            text = "x" * 100_000
            with Client(server.url, api_key=shop_key) as producer, Client(server.url, api_key=rival_key) as rival:
                created = producer.create(TASK, payload=text)
                with self.assertRaises(RefusedError) as hidden:
                    rival.get(created.id)
                self.assertEqual(hidden.exception.status, 404)
                worker = Worker(Client(server.url, api_key=worker_key), max_wait=1.0)
                self.addCleanup(worker.client.close)

                @worker.job(TASK)
                def measure(job: Job[Any]) -> int:
                    return len(job.payload)

                with worker:
                    wait_for_state(producer, created.id, "done")
                self.assertEqual(producer.effect(created.id).result, len(text))
                with self.assertRaises(RefusedError) as after_lease:
                    worker.client.get(created.id)
                self.assertEqual(after_lease.exception.status, 404)
