"""Creates one job for each name. A second run with the same names creates no second job."""

from __future__ import annotations

import sys

from onceward import Client

with Client() as client:
    for name in sys.argv[1:] or ["first"]:
        job = client.create("execution.job", payload={"words": f"words of {name}"}, idempotency_key=f"count {name}")
        print(job.id)
