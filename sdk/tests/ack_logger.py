"""A Python worker for `kill_test.py`. Commits explicitly and logs each commit that the server acknowledged."""

from __future__ import annotations

import logging
import sys
from typing import Any

from onceward import Client, Job, RetryPolicy, Worker

url, lifecycle, ack_file = sys.argv[1:]
client = Client(url, retry_policy=RetryPolicy(response_timeout=5.0))
worker = Worker(client, name="python", concurrency=4, lease=3.0, max_wait=1.0)


@worker.job(lifecycle)
def commit_and_log(job: Job[Any]) -> None:
    job.commit({"by": "python", "of": job.payload})
    with open(ack_file, "a", encoding="utf-8") as lines:
        lines.write(f"{job.id} {job.token}\n")


logging.getLogger("onceward").setLevel(logging.CRITICAL)
worker.run()
