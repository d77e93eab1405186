"""A worker in Python for `killing.py`: commits by hand, and writes down each commit that the server has acknowledged."""

from __future__ import annotations

import logging
import sys
from typing import Any

from onceward import Client, Job, Worker

url, lifecycle, book = sys.argv[1:]
worker = Worker(Client(url, timeout=5.0), name="python", concurrency=4, lease=3.0, wait=1.0)


@worker.job(lifecycle)
def toil(job: Job[Any]) -> None:
    job.commit({"by": "python", "of": job.payload})
    with open(book, "a", encoding="utf-8") as lines:
        lines.write(f"{job.id} {job.token}\n")


logging.getLogger("onceward").setLevel(logging.CRITICAL)
worker.run()
