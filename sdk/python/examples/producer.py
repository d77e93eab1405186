"""Orders a count, once for each name given: running it again makes no second job."""

from __future__ import annotations

import sys

from onceward import Client

with Client() as client:
    for name in sys.argv[1:] or ["first"]:
        job = client.create("execution.job", payload={"words": f"words of {name}"}, once=f"count {name}")
        print(job.id)
